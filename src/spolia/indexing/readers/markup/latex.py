r"""LaTeX: the document is the source itself, so that nothing is lost and a quotation can be found in the file.

Headings, formulas, tables and code are noted. Nothing is run: a macro of the author's own is as it is written.
"""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field

from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.reader import Blob, Reading, title_of
from spolia.indexing.readers.text import source_text
from spolia.types import Heading, Region, Value

_LEVELS = {
    "part": 1, "chapter": 1, "section": 2, "subsection": 3, "subsubsection": 4, "paragraph": 5, "subparagraph": 6,
    "frametitle": 3,
}  # fmt: skip
_KINDS = {
    name: kind
    for kind, names in {
        "formula": "equation align gather multline eqnarray displaymath math alignat flalign",
        "code": "verbatim lstlisting minted Verbatim alltt",
        "table": "tabular tabularx longtable tabulary array",
        "": "comment",
    }.items()
    for name in names.split()
}
"""What an environment is; nothing in it is a heading."""
_DROPPED = {"includegraphics": "pictures", "input": "included files", "include": "included files"}
_OPTION = r"(?:\s*\[[^\[\]]{0,2000}\])?"
_INNER = r"(?:[^{}\\]|\\.|\{(?:[^{}\\]|\\.|\{[^{}]{0,500}+\}){0,500}+\}){0,2000}+"
"""What stands within a pair of braces."""
_TOKEN = re.compile(
    r"\\verb\*?([^a-zA-Z\s*])[^\n]*?\1|%[^\n]*"
    r"|\\begin\{(?P<block>[a-zA-Z]{1,30}\*?)\}|(?P<formula>\$\$|\\\[)"
    rf"|\\(?P<command>{'|'.join(_LEVELS)}|title|author|date)\*?{_OPTION}\s*\{{(?P<said>{_INNER})\}}"
    rf"|\\(?P<dropped>{'|'.join(_DROPPED)})\b|\\.",
    re.DOTALL,
)
_COLUMNS = re.compile(rf"{_OPTION}\s*(?:\{{{_INNER}\}}){{1,2}}")
_NO_WORDS = re.compile(
    rf"\\(?:label|\w*ref|cite\w*|cline|cmidrule|[hv]space)\*?{_OPTION}\{{[^{{}}]*\}}|\\multi(?:column|row)(?:\{{[^{{}}]*\}}){{2}}"
)
_ACCENTS = {
    "`": "\u0300", "'": "\u0301", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304", ".": "\u0307",
    "c": "\u0327", "v": "\u030c", "u": "\u0306", "H": "\u030b", "k": "\u0328", "r": "\u030a", "d": "\u0323",
}  # fmt: skip
_ACCENTED = re.compile(r"\\([`'^\"~=.]|[cvuHkrd](?![a-zA-Z]))\s*(?:\{\s*\\?([A-Za-z])\s*\}|\\?([A-Za-z]))")
_WORDS = {"ss": "ß", "ae": "æ", "oe": "œ", "o": "ø", "aa": "å", "l": "ł", "i": "ı", "LaTeX": "LaTeX", "TeX": "TeX"}
_COMMAND = re.compile(r"\\([a-zA-Z@]+)\*?[ \t]*|\\([^a-zA-Z@])|[{}]|~")


@dataclass(frozen=True)
class LatexReader(Value):
    r"""Reads LaTeX as it is written. Pictures and files that it includes are counted as dropped.

    >>> text = rb"\title{Stones}\begin{document}\section{Old \emph{ones}}Caf\'e, $x^2$, \verb|50%|."
    >>> document = LatexReader().read(Blob("a.tex", text)).document
    >>> document.title, [heading.text for heading in document.headings], document.text.split(", ")[-1]
    ('Stones', ['Old ones'], '\\verb|50%|.')
    """

    name = "latex"
    version = 2
    media_type = "text/x-latex"
    suffixes = (".tex", ".latex", ".ltx")

    def read(self, blob: Blob, /) -> Reading:
        found = source_text(blob)
        noted = _Noted()
        noted.read(found.text)
        return found.reading(
            self,
            blob,
            title=noted.said.get("title") or title_of(noted.headings),
            headings=noted.headings,
            regions=noted.regions,
            meta=fields(author=noted.said.get("author", "").split(";"), date=noted.said.get("date")),
            dropped=noted.dropped,
        )


@dataclass
class _Noted:
    """What stands where in a source."""

    headings: list[Heading] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)

    def read(self, text: str) -> None:
        begin, end = text.find("\\begin{document}"), text.find("\\end{document}")
        text = text[:end] if end >= 0 else text
        at, unclosed = 0, set[str]()
        while token := _TOKEN.search(text, at):
            at = token.end()
            if token["command"] in _LEVELS and at > begin:
                if words := plain(token["said"]):
                    self.headings.append(Heading(token.start(), _LEVELS[token["command"]], words))
            elif token["command"]:
                self.said.setdefault(token["command"], plain(token["said"].replace("\\and", ";")))
            elif token["dropped"]:
                self.dropped[_DROPPED[token["dropped"]]] += 1
            elif token["formula"] or (token["block"] or "").rstrip("*") in _KINDS:
                closing = {"$$": "$$", "\\[": "\\]"}.get(token[0], f"\\end{{{token['block']}}}")
                close = text.find(closing, at) if closing not in unclosed else -1
                if close >= 0:
                    self._region(token, text[at:close], close + len(closing))
                    at = close + len(closing)
                else:
                    unclosed.add(closing)  # it is not looked for again

    def _region(self, token: re.Match[str], body: str, end: int) -> None:
        kind = _KINDS[token["block"].rstrip("*")] if token["block"] else "formula"
        rows = _rows(body) if kind == "table" else ()
        if kind:
            self.regions.append(Region(kind, token.start(), end, rows))


def _rows(body: str) -> tuple[tuple[str, ...], ...]:
    columns = _COLUMNS.match(body)
    lines = re.split(r"\\\\|\\tabularnewline\b", body[columns.end() if columns else 0 :])
    rows = [tuple(plain(cell) for cell in re.split(r"(?<!\\)&", line)) for line in lines]
    return tuple(row for row in rows if any(row))


def plain(text: str) -> str:
    r"""The words of a heading or a cell, on one line; formulas as they are written.

    >>> plain(r"Old \textbf{stones} \& caf\'e~\cite{a}, 5\%, $a_1$")
    'Old stones & café , 5%, $a_1$'
    """
    text = _ACCENTED.sub(
        lambda found: unicodedata.normalize("NFC", (found[2] or found[3]) + _ACCENTS[found[1]]), _NO_WORDS.sub("", text)
    )
    return " ".join(_COMMAND.sub(_word, text).split())


def _word(command: re.Match[str]) -> str:
    """What a command says: nothing, if it is not known; an escaped sign as it is."""
    return " " if command[0] == "~" or command[2] == "\\" else _WORDS.get(command[1] or "", command[2] or "")

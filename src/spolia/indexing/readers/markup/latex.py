r"""LaTeX as its author wrote it, without running it: headings, formulas, tables, code; commands for looks are left out.

The source is read in one pass. A command that is not known is dropped and what its braces hold is kept, which is right
for most that mark words (`\emph{old}`, a macro of the author's own).
"""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import source_text
from spolia.types import Value

_TOKEN = re.compile(
    r"(?P<comment>(?<!\\)%[^\n]*(?:\n[ \t]*)?)|(?P<display>\$\$|\\\[)|(?P<inline>\$|\\\()"
    r"|\\(?P<name>[a-zA-Z@]+)\*?[ \t]*|\\(?P<sign>[^a-zA-Z])|(?P<brace>[{}])|(?P<blank>\n[ \t]*\n\s*)|(?P<tie>~)"
    r"|(?P<text>[^\\%${}~\n]+|\n)"
)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_OPTION = re.compile(r"\s*\[[^\[\]]{0,2000}\]")
_LEVELS = {
    "part": 1, "chapter": 1, "section": 2, "subsection": 3, "subsubsection": 4, "paragraph": 5, "subparagraph": 6,
    "title": 1, "frametitle": 3,
}  # fmt: skip
_FORMULAS = frozenset("equation align gather multline eqnarray displaymath math alignat flalign".split())  # noqa: SIM905
_CODE = frozenset("verbatim lstlisting minted Verbatim alltt".split())  # noqa: SIM905
_TABLES = frozenset("tabular tabularx longtable tabulary array".split())  # noqa: SIM905
_WITHOUT = {
    name: count
    for count, names in enumerate((
        "url",
        "label ref eqref pageref autoref cref Cref cite citep citet nocite input include includegraphics bibliography "
        "bibliographystyle vspace hspace usepackage documentclass def pagestyle thispagestyle hypersetup color cline "
        "cmidrule href textcolor graphicspath lstset bibitem author date",
        "newcommand renewcommand providecommand setlength setcounter newtheorem multicolumn fontsize",
        "addcontentsline definecolor",
    ))
    for name in names.split()
}  # fmt: skip
"""Commands whose first arguments are no text, and how many of them."""
_SIGNS = {"\\": "\n", ",": " ", ";": " ", ":": " ", " ": " ", "-": "", "/": "", "!": "", "@": "", "\n": " "}
_WORDS = {
    "ldots": "…", "dots": "…", "textellipsis": "…", "LaTeX": "LaTeX", "TeX": "TeX", "ss": "ß", "ae": "æ", "AE": "Æ",
    "oe": "œ", "OE": "Œ", "o": "ø", "O": "Ø", "aa": "å", "AA": "Å", "l": "ł", "L": "Ł", "i": "ı", "quad": " ",
    "qquad": " ", "textbackslash": "\\", "textasciitilde": "~", "newline": "\n", "linebreak": "\n", "par": "\n\n",
    "copyright": "©", "S": "§", "P": "¶", "pounds": "£", "euro": "€", "textendash": "–", "textemdash": "—",
}  # fmt: skip
_ACCENTS = {
    "`": "\u0300", "'": "\u0301", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304", ".": "\u0307",
    "c": "\u0327", "v": "\u030c", "u": "\u0306", "H": "\u030b", "k": "\u0328", "r": "\u030a", "d": "\u0323",
}  # fmt: skip
_ACCENTED = re.compile(r"\s*(?:\{\s*(\\?[A-Za-z])\s*\}|\\?([A-Za-z]))")
_DASHES = ((r"---", "—"), (r"--", "–"), ("``", "“"), ("''", "”"))


@dataclass(frozen=True)
class LatexReader(Value):
    r"""Reads LaTeX. Formulas stay as they are written. Pictures and files that it includes are counted as dropped.

    >>> text = rb"\title{Stones}\begin{document}\section{Old \emph{ones}}Caf\'e, $x^2$."
    >>> document = LatexReader().read(Blob("a.tex", text)).document
    >>> document.title, [heading.text for heading in document.headings], document.text.split("\n\n")[-1]
    ('Stones', ['Old ones'], 'Café, $x^2$.')
    """

    name = "latex"
    version = 1
    media_type = "text/x-latex"
    suffixes = (".tex", ".latex", ".ltx")

    def read(self, blob: Blob, /) -> Reading:
        found = source_text(blob)
        text = found.text.replace("\r\n", "\n")
        begin = text.find("\\begin{document}")
        preamble = text[: max(begin, 0)]
        writing = _Writing()
        writing.write(text, begin + len("\\begin{document}") if begin >= 0 else 0)
        layout = writing.layout
        first = layout.headings[0].text if layout.headings and layout.headings[0].level == 1 else ""
        meta = fields(author=_said(preamble, "author").split(";"), date=_said(preamble, "date"))
        document = layout.document(blob, self, title=_said(preamble, "title") or first, meta=meta)
        dropped = tuple(sorted(writing.dropped.items()))
        return Reading(document, found.encoding, dropped=dropped, warnings=found.warnings)


def _said(preamble: str, command: str) -> str:
    """The argument of a command in the preamble."""
    found = re.search(rf"\\{command}\s*(?:\[[^\]]{{0,500}}\]\s*)?(?=\{{)", preamble)
    return plain(preamble[slice(*_group(preamble, found.end()))].replace("\\and", "; ")) if found else ""


def plain(text: str) -> str:
    r"""The words of a piece of source, on one line.

    >>> plain(r"Old \textbf{stones} \& sand~\cite{a}")
    'Old stones & sand'
    """
    writing = _Writing(flat=True)
    writing.write(text, 0)
    return " ".join(writing.layout.text().split())


def _group(text: str, at: int) -> tuple[int, int]:
    """Where the braces at a place begin and end inside; nothing where there are none."""
    while at < len(text) and text[at] in " \t\n":
        at += 1
    if at >= len(text) or text[at] != "{":
        return at, at
    depth = 0
    for brace in _BRACE.finditer(text, at):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return at + 1, brace.start()
    return at + 1, len(text)


class _Writing:
    """Source on its way into a layout. `flat`: it is a piece of a line, without blocks."""

    def __init__(self, *, flat: bool = False) -> None:
        self.layout, self.flat = Layout(), flat
        self.dropped: Counter[str] = Counter()
        self._unclosed: set[str] = set()

    def write(self, text: str, at: int) -> None:
        while at < len(text) and (token := _TOKEN.search(text, at)):
            at = token.end()
            if token["name"]:
                at = self._command(text, at, token["name"])
                if at < 0:
                    return
            elif token["display"] or token["inline"]:
                at = self._formula(text, token.start(), token[0])
            elif token["sign"]:
                at = self._sign(text, at, token["sign"])
            elif token["blank"]:
                self.layout.gap(BLANK_LINE)
            elif token["tie"]:
                self.layout.write(" ")
            elif token["text"]:
                self._words(token["text"])

    def _words(self, text: str) -> None:
        for written, sign in _DASHES:
            text = text.replace(written, sign)
        self.layout.write(text)

    def _sign(self, text: str, at: int, sign: str) -> int:
        if sign in _ACCENTS and (letter := _ACCENTED.match(text, at)):
            base = (letter[1] or letter[2]).lstrip("\\")
            self.layout.write(unicodedata.normalize("NFC", base + _ACCENTS[sign]))
            return letter.end()
        said = _SIGNS.get(sign, sign)
        if said == "\n":
            self.layout.gap(LINE)
        else:
            self.layout.write(said)
        return at

    def _formula(self, text: str, start: int, opened: str) -> int:
        closing = {"$$": "$$", "$": "$", "\\[": "\\]", "\\(": "\\)"}[opened]
        end = text.find(closing, start + len(opened)) if closing not in self._unclosed else -1
        if end < 0:
            self._unclosed.add(closing)  # it is not looked for again
        if end < 0 or (opened == "$" and "\n\n" in text[start:end]):  # a lone dollar
            self.layout.write(opened)
            return start + len(opened)
        self._block("formula", text[start : end + len(closing)], is_block=opened in ("$$", "\\["))
        return end + len(closing)

    def _block(self, kind: str, source: str, *, is_block: bool = True) -> None:
        if self.flat or not is_block:
            self.layout.write(source)
            return
        self.layout.gap(BLANK_LINE)
        mark = self.layout.mark()
        self.layout.write(source.strip("\n"), exactly=True)
        self.layout.region(kind, mark)
        self.layout.gap(BLANK_LINE)

    def _command(self, text: str, at: int, name: str) -> int:
        """What a command does; where the text goes on, -1 at its end."""
        if name == "begin":
            return self._environment(text, at)
        if name == "end":
            start, end = _group(text, at)
            self.layout.gap(BLANK_LINE)
            return -1 if text[start:end] == "document" else end + 1
        if name in _LEVELS and not self.flat:
            option = _OPTION.match(text, at)
            start, end = _group(text, option.end() if option else at)
            self.layout.heading(plain(text[start:end]), _LEVELS[name])
            return end + 1
        if name in _WORDS:
            self.layout.write(_WORDS[name])
        elif name in _ACCENTS and len(name) == 1 and (letter := _ACCENTED.match(text, at)):
            return self._sign(text, at, name) if letter else at
        elif name == "item":
            self.layout.gap(LINE)
            self.layout.write("- ", exactly=True)
        elif name == "footnote":
            start, end = _group(text, at)
            self.layout.write(f" ({plain(text[start:end])})" if not self.flat else "")
            return end + 1
        return self._skipped(text, at, name)

    def _skipped(self, text: str, at: int, name: str) -> int:
        """Past the arguments that are no text."""
        kind = {"includegraphics": "pictures", "input": "included files", "include": "included files"}.get(name)
        self.dropped.update({kind: 1} if kind else {})
        if name not in _WITHOUT:
            return at
        for _ in range(_WITHOUT[name]):
            while option := _OPTION.match(text, at):
                at = option.end()
            if name == "def":
                at = max(at, text.find("{", at))
            start, end = _group(text, at)
            if start == end and (end >= len(text) or text[end] != "}"):  # no braces
                return at
            at = end + 1
        return at

    def _environment(self, text: str, at: int) -> int:
        start, end = _group(text, at)
        name, at = text[start:end].strip().rstrip("*"), end + 1
        if name not in _FORMULAS | _CODE | _TABLES:
            option = _OPTION.match(text, at)
            self.layout.gap(BLANK_LINE)
            return option.end() if option else at
        close = text.find(f"\\end{{{text[start:end]}}}", at)
        stop = close if close >= 0 else len(text)
        after = stop + len(f"\\end{{{text[start:end]}}}") if close >= 0 else stop
        if name in _TABLES:
            self._table(text[at:stop])
        else:
            self._block("formula" if name in _FORMULAS else "code", _body(text, at, stop, name))
        return after

    def _table(self, source: str) -> None:
        start, end = _group(source, (option.end() if (option := _OPTION.match(source)) else 0))
        if source[end + 1 : end + 2] == "{":  # the width of a tabularx came first
            end = _group(source, end + 1)[1]
        body = source[end + 1 :] if start < end else source
        body = re.sub(r"\\(?:hline|toprule|midrule|bottomrule|endhead|endfirsthead|endfoot)\b", "", body)
        lines = re.split(r"\\\\|\\tabularnewline\b", body)
        rows = [[plain(cell) for cell in re.split(r"(?<!\\)&", line)] for line in lines]
        rows = [row for row in rows if any(row)]
        if self.flat:
            self.layout.write(" ".join(" ".join(row) for row in rows))
        elif rows:
            self.layout.table(rows)


def _body(text: str, start: int, stop: int, name: str) -> str:
    """What an environment holds, without the arguments of `minted` and `lstlisting`."""
    if name in ("minted", "lstlisting") and (option := _OPTION.match(text, start, stop)):
        start = option.end()
    if name == "minted":
        start = _group(text, start)[1] + 1
    return text[start:stop].strip("\n")

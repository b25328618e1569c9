r"""LaTeX: the document is the source itself, so that nothing is lost and a quotation can be found in the file.

Headings, formulas, tables and code are noted. Headings and cells expand the author's own commands; a command that is
not known stays as it is written. Nothing is run.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.reader import Blob, Reading, title_of
from spolia.indexing.readers.source_structure import Structure, structured
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
_OPTION = r"(?:\s*\[(?:[^\[\]{}]|\{[^{}]{0,500}+\}|\[[^\[\]]{0,500}+\]){0,2000}+\])?"
_VERBATIM = (
    rf"\\(?:(?P<hidden>href)|verb\*?|path|url|nolinkurl|lstinline{_OPTION}|mintinline{_OPTION}\s*\{{\w{{0,50}}\}})"
    r"(?:\{(?P<braced>(?:[^{}\n]|\{[^{}\n]{0,500}+\}){0,2000}+)\}"
    r"|(?P<mark>[^a-zA-Z\s*\\{}])(?P<marked>[^\n]{0,1000}?)(?P=mark))"
)
_NAME = r"\s*(?:\{\s*\\[a-zA-Z@]{1,50}\s*\}|\\[a-zA-Z@]{1,50})"
_TOKEN = re.compile(
    rf"{_VERBATIM}|%[^\n]*"
    r"|\\begin\{(?P<block>[a-zA-Z]{1,30}\*?)\}|(?P<formula>\$\$|\\\[)"
    rf"|\\(?P<command>{'|'.join(_LEVELS)}|title|author|date)\*?{_OPTION}\s*(?=\{{)"
    rf"|\\(?P<dropped>{'|'.join(_DROPPED)})\b"
    r"|\\(?P<never>iffalse)(?![a-zA-Z@])"
    rf"|\\(?:(?:re)?newcommand|providecommand|DeclareRobustCommand|DeclareMathOperator)\*?(?P<new>{_NAME})"
    r"\s*(?:\[(?P<count>\d)\])?\s*(?P<default>\[[^\[\]{}]{0,500}\])?\s*(?=\{)"
    r"|\\[gex]?def(?P<defined>\s*\\[a-zA-Z@]{1,50})(?P<places>(?:#\d){0,9})\s*(?=\{)"
    r"|\\(?P<environment>(?:re)?newenvironment)\*?\s*\{[a-zA-Z*]{1,50}\}(?:\[[^\[\]{}]{0,500}\]){0,2}\s*(?=\{)"
    r"|\\(?P<own>[a-zA-Z@]{1,50})|\\.",
    re.DOTALL,
)
_CONDITION = re.compile(r"\\(?:(?P<opens>if[a-zA-Z@]*)|(?P<closes>fi)|else)(?![a-zA-Z@])")
_SECTION = re.compile(rf"\\(?P<command>{'|'.join(_LEVELS)})\*?{_OPTION}\s*(?=\{{)")
_GROUP = re.compile(rf"{_VERBATIM}|\\.|%[^\n]*|[{{}}]", re.DOTALL)
_LONGEST_ARGUMENT, _MOST_UNCLOSED = 5_000, 100
_OPTIONAL = re.compile(_OPTION)
_CELL_END = re.compile(rf"{_VERBATIM}|%[^\n]*|(?P<row>\\\\|\\tabularnewline\b)|\\.|(?P<cell>&)", re.DOTALL)


@dataclass(frozen=True)
class LatexReader(Value):
    r"""Reads LaTeX as it is written. Pictures and files that it includes are counted as dropped.

    >>> text = rb"\newcommand{\co}{CO$_2$}\title{Stones}\begin{document}\section{Old \emph{\co}}Caf\'e, \verb|50%|."
    >>> document = LatexReader().read(Blob("a.tex", text)).document
    >>> document.title, [heading.text for heading in document.headings], document.text.split(", ")[-1]
    ('Stones', ['Old CO$_2$'], '\\verb|50%|.')
    """

    name = "latex"
    version = 3
    media_type = "text/x-latex"
    suffixes = (".tex", ".latex", ".ltx")

    def read(self, blob: Blob, /) -> Reading:
        return structured(source_text(blob), self, blob, _structure)


def _structure(text: str) -> Structure:
    noted = _Noted()
    noted.read(text)
    title = noted.said.get("title") or title_of(noted.headings)
    meta = fields(author=noted.said.get("author", "").split(";"), date=noted.said.get("date"))
    return Structure(title, noted.headings, noted.regions, meta, noted.dropped)


@dataclass(frozen=True)
class Macro:
    """A command of the author's own: its text with the places `#1` to `#9`, and what the first one holds by default."""

    body: str
    count: int = 0
    default: str | None = None

    def filled(self, arguments: list[str]) -> str:
        return re.sub(
            r"#([1-9])",
            lambda place: arguments[int(place[1]) - 1] if int(place[1]) <= len(arguments) else "",
            self.body,
        )


@dataclass
class _Noted:
    """What stands where in a source."""

    headings: list[Heading] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    macros: dict[str, Macro] = field(default_factory=dict)
    unclosed: Counter[str] = field(default_factory=Counter)

    def read(self, text: str) -> None:
        begin, end = text.find("\\begin{document}"), text.find("\\end{document}")
        text = text[:end] if end >= 0 else text
        at = 0
        while token := _TOKEN.search(text, at):
            at = self._after(text, token, is_body=token.end() > begin)

    def _after(self, text: str, token: re.Match[str], *, is_body: bool) -> int:
        """Note what a token begins; where it ends."""
        at = token.end()
        if token["command"] in _LEVELS:
            if is_body and (said := self._argument(text, at)):
                self._heading(token.start(), _LEVELS[token["command"]], said[0])
                return said[1]
        elif token["command"]:
            if said := self._argument(text, at):
                words = plain(said[0].replace("\\and", ";"), self.macros)
                self.said.setdefault(token["command"], words)
                return said[1]
        elif token["new"] or token["defined"]:
            return self._define(text, token)
        elif token["environment"]:
            for _ in range(2):
                said = self._argument(text, at)
                at = said[1] if said else at
        elif token["own"]:
            return self._own(text, token, is_body=is_body)
        elif token["dropped"]:
            self.dropped[_DROPPED[token["dropped"]]] += 1
        elif token["never"]:
            return self._end_of_condition(text, at)
        elif token["formula"] or (token["block"] or "").rstrip("*") in _KINDS:
            return self._environment(text, token)
        return at

    def _heading(self, start: int, level: int, said: str) -> None:
        if words := plain(said, self.macros):
            self.headings.append(Heading(start, level, words))

    def _argument(self, text: str, at: int) -> tuple[str, int] | None:
        """What stands within braces, and where it ends; braces that never close are given up after a while."""
        if self.unclosed["{"] > _MOST_UNCLOSED:
            return None
        found = argument(text, at)
        self.unclosed["{"] += found is None
        return found

    def _define(self, text: str, token: re.Match[str]) -> int:
        said = self._argument(text, token.end())
        if said is None:
            return token.end()
        name = (token["new"] or token["defined"]).strip().strip("{}").strip().lstrip("\\")
        count = int(token["count"] or 0) if token["new"] else len(token["places"]) // 2
        self.macros[name] = Macro(said[0], count, token["default"] and token["default"][1:-1])
        return said[1]

    def _own(self, text: str, token: re.Match[str], *, is_body: bool) -> int:
        """A command of the author's own that makes a heading."""
        macro = self.macros.get(token["own"])
        if macro is None or not is_body or not _SECTION.search(macro.body):
            return token.end()
        arguments, at = arguments_of(macro, text, token.end())
        written = macro.filled(arguments)
        if (section := _SECTION.search(written)) and (said := self._argument(written, section.end())):
            self._heading(token.start(), _LEVELS[section["command"]], said[0])
        return at

    def _end_of_condition(self, text: str, at: int) -> int:
        """After the `\\fi` or `\\else` of an `\\iffalse`."""
        depth = 0
        for found in _CONDITION.finditer(text, at) if not self.unclosed["if"] else ():
            if found["opens"]:
                depth += 1
            elif depth == 0:
                return found.end()
            elif found["closes"]:
                depth -= 1
        self.unclosed["if"] = 1  # it is not looked for again
        return at

    def _environment(self, text: str, token: re.Match[str]) -> int:
        at = token.end()
        closing = {"$$": "$$", "\\[": "\\]"}.get(token[0], f"\\end{{{token['block']}}}")
        close = text.find(closing, at) if not self.unclosed[closing] else -1
        if close < 0:
            self.unclosed[closing] = 1
            return at
        end = close + len(closing)
        kind = _KINDS[token["block"].rstrip("*")] if token["block"] else "formula"
        rows: tuple[tuple[str, ...], ...] = ()
        if kind == "table":
            option = _OPTIONAL.match(text, at)
            wide = token["block"] in ("tabularx", "tabulary", "tabular*")  # their width stands before their columns
            _, first = arguments_of(Macro("", 2 if wide else 1), text, option.end() if option else at)
            rows = rows_of(text[first:close], self.macros)
        if kind:
            self.regions.append(Region(kind, token.start(), end, rows))
        return end


def argument(text: str, at: int) -> tuple[str, int] | None:
    r"""What stands within the braces that open at a place, and where it ends; None if they do not close soon.

    >>> argument(r"{a \verb|}| {b}} c", 0)
    ('a \\verb|}| {b}', 16)
    """
    depth = 0
    if not text.startswith("{", at):
        return None
    for found in _GROUP.finditer(text, at, at + _LONGEST_ARGUMENT):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return text[at + 1 : found.start()], found.end()
    return None


def arguments_of(macro: Macro, text: str, at: int) -> tuple[list[str], int]:
    """What a command is given at a place, and where that ends."""
    found: list[str] = []
    if macro.default is not None:
        option = _OPTIONAL.match(text, at)
        found.append(option[0].strip()[1:-1] if option and option[0] else macro.default)
        at = option.end() if option else at
    while len(found) < macro.count:
        while text.startswith((" ", "\n", "\t"), at):
            at += 1
        given = argument(text, at)
        if given is None:
            break
        found.append(given[0])
        at = given[1]
    return found, at


def rows_of(body: str, macros: Mapping[str, Macro]) -> tuple[tuple[str, ...], ...]:
    """The cells of a table, row by row."""
    start = 0
    rows: list[list[str]] = [[]]
    for mark in _CELL_END.finditer(body):
        if mark["cell"] or mark["row"]:
            rows[-1].append(plain(body[start : mark.start()], macros))
            start = mark.end()
        if mark["row"]:
            rows.append([])
    rows[-1].append(plain(body[start:], macros))
    return tuple(tuple(row) for row in rows if any(row))


_ACCENTS = {
    "`": "\u0300", "'": "\u0301", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304", ".": "\u0307",
    "c": "\u0327", "v": "\u030c", "u": "\u0306", "H": "\u030b", "k": "\u0328", "r": "\u030a", "d": "\u0323",
}  # fmt: skip
_SIGNS = {
    "ss": "ß", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "o": "ø", "O": "Ø", "aa": "å", "AA": "Å", "l": "ł",
    "L": "Ł", "i": "ı", "j": "ȷ", "LaTeX": "LaTeX", "TeX": "TeX", "dots": "…", "ldots": "…", "textellipsis": "…",
    "textendash": "–", "textemdash": "—", "textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^",
    "textbar": "|", "textless": "<", "textgreater": ">", "textunderscore": "_", "textregistered": "®",
    "texttrademark": "™", "textcopyright": "©", "copyright": "©", "pounds": "£", "euro": "€", "texteuro": "€",
    "S": "§", "P": "¶", "textdegree": "°", "textquotedblleft": "“", "textquotedblright": "”", "textquoteleft": "‘",
    "textquoteright": "’", "quad": " ", "qquad": " ", "space": " ", "newline": " ", "linebreak": " ", "footnote": " ",
    "thanks": " ", "item": " ", "par": " ", "and": " ",
}  # fmt: skip
_UNSEEN = {
    name: count
    for count, names in {
        0: "textbf textit texttt emph textsc textsf textsl textrm textup textmd textnormal text underline uline "
        "mbox hbox fbox makebox bfseries itshape ttfamily sffamily rmfamily scshape upshape slshape mdseries "
        "normalfont bf it tt sf sc rm em boldmath tiny scriptsize footnotesize small normalsize large Large "
        "LARGE huge Huge centering raggedright raggedleft noindent protect relax xspace ensuremath "
        "MakeUppercase MakeLowercase uppercase lowercase textsuperscript textsubscript ignorespaces "
        "leavevmode nobreak allowbreak hfill hline toprule midrule bottomrule endhead endfirsthead endfoot "
        "endlastfoot strut maketitle title url path",
        1: "label index hspace vspace cline cmidrule color rowcolor cellcolor selectlanguage phantom vphantom hphantom "
        "textcolor colorbox hypertarget hyperlink hyperref fontfamily pagestyle thispagestyle addvspace rule",
        2: "multicolumn multirow fontsize addtocounter setcounter setlength addtolength",
    }.items()
    for name in names.split()
}
"""Commands that say how something looks, or that show nothing; the number of their first arguments that are skipped."""
_REFERENCE = re.compile(r"(?:[a-zA-Z]*ref|[cC]ite[a-zA-Z]*|[a-zA-Z]*cite)\Z")
_PIECE = re.compile(
    rf"{_VERBATIM}|%[^\n]*\n?[ \t]*"
    r"|(?P<formula>\$\$?[^$]{0,2000}+\$\$?|\\\([^$]{0,2000}?\\\))"
    r"|\\(?P<accent>[`'^\"~=.]|[cvuHkrd](?![a-zA-Z]))\s*(?:\{\s*\\?(?P<inner>[A-Za-z])\s*\}|\\?(?P<letter>[A-Za-z]))"
    r"|\\(?P<command>[a-zA-Z@]+)\*?[ \t]*|\\(?P<sign>[^a-zA-Z@])|(?P<brace>[{}])|(?P<blank>~)",
    re.DOTALL,
)
_MOST_EXPANDED, _DEEPEST = 10_000, 20
"""Characters that the author's own commands may become within one heading or cell, and how deep they may nest."""


def plain(text: str, macros: Mapping[str, Macro] | None = None) -> str:
    r"""The words of a heading or a cell, on one line: formulas, and commands that are not known, as they are written.

    >>> plain(r"Old \textbf{stones} \& caf\'e~\cite{a}, 5\%, $\frac{1}{2}$, \verb|50%|, \other{x}")
    'Old stones & café , 5%, $\\frac{1}{2}$, 50%, \\other{x}'
    """
    return " ".join("".join(_Words(macros or {}).of(text)).split())


@dataclass
class _Words:
    macros: Mapping[str, Macro]
    expanded: int = 0

    def of(self, text: str, depth: int = 0) -> Iterator[str]:
        if depth > _DEEPEST:
            yield text
            return
        at = 0
        while token := _PIECE.search(text, at):
            yield text[at : token.start()]
            at = token.end()
            if token["command"]:
                said, at = self._command(text, token, depth)
                yield said
            elif token["formula"]:
                yield token["formula"]
            elif token["accent"]:
                yield unicodedata.normalize("NFC", (token["inner"] or token["letter"]) + _ACCENTS[token["accent"]])
            elif token["sign"]:
                yield " " if token["sign"] in "\\ ,;:\n\t" else "" if token["sign"] in "-/!" else token["sign"]
            elif not token["hidden"]:
                yield " " if token["blank"] else token["braced"] or token["marked"] or ""
        yield text[at:]

    def _command(self, text: str, token: re.Match[str], depth: int) -> tuple[str, int]:
        """What a command shows, and where it ends."""
        name, at = token["command"], token.end()
        if (macro := self.macros.get(name)) is not None and self.expanded < _MOST_EXPANDED:
            arguments, end = arguments_of(macro, text, at)
            written = macro.filled(arguments)
            self.expanded += 10 + len(written)
            if self.expanded <= _MOST_EXPANDED:
                return "".join(self.of(written, depth + 1)), end
        if name in _SIGNS:
            return _SIGNS[name], at
        if name == "texorpdfstring":
            both, end = arguments_of(Macro("", 2), text, at)
            return "".join(self.of(both[0], depth + 1)) if both else "", end
        hidden = _UNSEEN.get(name, 1 if _REFERENCE.match(name) else None)
        if hidden == 0:
            return "", at
        if hidden:
            option = _OPTIONAL.match(text, at)
            return "", arguments_of(Macro("", hidden), text, option.end() if option else at)[1]
        given = argument(text, at)
        if given is None:
            return token[0], at
        return f"{token[0].rstrip()}{{{''.join(self.of(given[0], depth + 1))}}}", given[1]

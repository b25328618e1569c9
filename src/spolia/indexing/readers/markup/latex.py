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
from spolia.indexing.readers.source_structure import Structure, read_structured
from spolia.indexing.readers.text import read_source_text
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
# Unlimited, braces that never close would cost time with the square of the file's length.
_LONGEST_ARGUMENT, _MOST_UNCLOSED = 5_000, 100
_OPTIONAL = re.compile(_OPTION)
_CELL_END = re.compile(rf"{_VERBATIM}|%[^\n]*|(?P<row>\\\\|\\tabularnewline\b)|\\.|(?P<cell>&)", re.DOTALL)


@dataclass(frozen=True)
class LatexReader(Value):
    r"""Reader of LaTeX as it is written. Pictures and files that it includes count as dropped.

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
        return read_structured(read_source_text(blob), self, blob, _structure)


def _structure(text: str) -> Structure:
    scanner = _StructureScanner()
    scanner.scan(text)
    title = scanner.preamble.get("title") or title_of(scanner.headings)
    meta = fields(author=scanner.preamble.get("author", "").split(";"), date=scanner.preamble.get("date"))
    return Structure(title, scanner.headings, scanner.regions, meta, scanner.dropped)


@dataclass(frozen=True)
class Macro:
    """Command that the author defines: its text with the places `#1` to `#9`, and the default of the first one."""

    body: str
    count: int = 0
    default: str | None = None

    def expand(self, arguments: list[str]) -> str:
        return re.sub(
            r"#([1-9])",
            lambda place: arguments[int(place[1]) - 1] if int(place[1]) <= len(arguments) else "",
            self.body,
        )


@dataclass
class _StructureScanner:
    """Scanner of a source, which notes headings, regions, metadata and macros."""

    headings: list[Heading] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    preamble: dict[str, str] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    macros: dict[str, Macro] = field(default_factory=dict)
    unclosed: Counter[str] = field(default_factory=Counter)

    def scan(self, text: str) -> None:
        begin, end = text.find("\\begin{document}"), text.find("\\end{document}")
        text = text[:end] if end >= 0 else text  # LaTeX reads nothing after it either
        position = 0
        while token := _TOKEN.search(text, position):
            position = self._note_token(text, token, is_body=token.end() > begin)

    def _note_token(self, text: str, token: re.Match[str], *, is_body: bool) -> int:
        """Note what a token begins, and return where that ends."""
        position = token.end()
        if token["command"] in _LEVELS:
            if is_body and (group := self._read_argument(text, position)):
                self._note_heading(token.start(), _LEVELS[token["command"]], group[0])
                return group[1]
        elif token["command"]:
            if group := self._read_argument(text, position):
                words = plain_text(group[0].replace("\\and", ";"), self.macros)
                self.preamble.setdefault(token["command"], words)
                return group[1]
        elif token["new"] or token["defined"]:
            return self._define_macro(text, token)
        elif token["environment"]:
            for _ in range(2):
                group = self._read_argument(text, position)
                position = group[1] if group else position
        elif token["own"]:
            return self._note_macro_heading(text, token, is_body=is_body)
        elif token["dropped"]:
            self.dropped[_DROPPED[token["dropped"]]] += 1
        elif token["never"]:
            return self._end_of_condition(text, position)
        elif token["formula"] or (token["block"] or "").rstrip("*") in _KINDS:
            return self._note_environment(text, token)
        return position

    def _note_heading(self, start: int, level: int, source: str) -> None:
        if words := plain_text(source, self.macros):
            self.headings.append(Heading(start, level, words))

    def _read_argument(self, text: str, position: int) -> tuple[str, int] | None:
        """Return the text within braces, and where it ends. After many braces that never close it gives up."""
        if self.unclosed["{"] > _MOST_UNCLOSED:
            return None
        group = braced_argument(text, position)
        self.unclosed["{"] += group is None
        return group

    def _define_macro(self, text: str, token: re.Match[str]) -> int:
        group = self._read_argument(text, token.end())
        if group is None:
            return token.end()
        name = (token["new"] or token["defined"]).strip().strip("{}").strip().lstrip("\\")
        count = int(token["count"] or 0) if token["new"] else len(token["places"]) // 2
        self.macros[name] = Macro(group[0], count, token["default"] and token["default"][1:-1])
        return group[1]

    def _note_macro_heading(self, text: str, token: re.Match[str], *, is_body: bool) -> int:
        """Note the heading that a command of the author makes."""
        macro = self.macros.get(token["own"])
        if macro is None or not is_body or not _SECTION.search(macro.body):
            return token.end()
        arguments, position = arguments_of(macro, text, token.end())
        expansion = macro.expand(arguments)
        if (section := _SECTION.search(expansion)) and (group := self._read_argument(expansion, section.end())):
            self._note_heading(token.start(), _LEVELS[section["command"]], group[0])
        return position

    def _end_of_condition(self, text: str, position: int) -> int:
        """Return the place after the end, or the else branch, of an `iffalse`."""
        depth = 0
        for condition in _CONDITION.finditer(text, position) if not self.unclosed["if"] else ():
            if condition["opens"]:
                depth += 1
            elif depth == 0:
                return condition.end()
            elif condition["closes"]:
                depth -= 1
        self.unclosed["if"] = 1  # it is not looked for again
        return position

    def _note_environment(self, text: str, token: re.Match[str]) -> int:
        position = token.end()
        closing = {"$$": "$$", "\\[": "\\]"}.get(token[0], f"\\end{{{token['block']}}}")
        # An ending missing once is missing for all later beginnings; searching again takes quadratic time.
        close = text.find(closing, position) if not self.unclosed[closing] else -1
        if close < 0:
            self.unclosed[closing] = 1
            return position
        end = close + len(closing)
        kind = _KINDS[token["block"].rstrip("*")] if token["block"] else "formula"
        rows: tuple[tuple[str, ...], ...] = ()
        if kind == "table":
            option = _OPTIONAL.match(text, position)
            has_width = token["block"] in (
                "tabularx",
                "tabulary",
                "tabular*",
            )  # their width stands before their columns
            _, first = arguments_of(Macro("", 2 if has_width else 1), text, option.end() if option else position)
            rows = table_rows(text[first:close], self.macros)
        if kind:
            self.regions.append(Region(kind, token.start(), end, rows))
        return end


def braced_argument(text: str, start: int) -> tuple[str, int] | None:
    r"""Return the text within the braces that open at a place, and where it ends; None if they do not close soon.

    >>> braced_argument(r"{a \verb|}| {b}} c", 0)
    ('a \\verb|}| {b}', 16)
    """
    depth = 0
    if not text.startswith("{", start):
        return None
    for token in _GROUP.finditer(text, start, start + _LONGEST_ARGUMENT):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 0:
            return text[start + 1 : token.start()], token.end()
    return None


def arguments_of(macro: Macro, text: str, position: int) -> tuple[list[str], int]:
    """Read the arguments of a command at a place, and return where they end."""
    arguments: list[str] = []
    if macro.default is not None:
        option = _OPTIONAL.match(text, position)
        arguments.append(option[0].strip()[1:-1] if option and option[0] else macro.default)
        position = option.end() if option else position
    while len(arguments) < macro.count:
        while text.startswith((" ", "\n", "\t"), position):
            position += 1
        group = braced_argument(text, position)
        if group is None:
            break
        arguments.append(group[0])
        position = group[1]
    return arguments, position


def table_rows(body: str, macros: Mapping[str, Macro]) -> tuple[tuple[str, ...], ...]:
    """Read the cells of a table, row by row."""
    start = 0
    rows: list[list[str]] = [[]]
    for mark in _CELL_END.finditer(body):
        if mark["cell"] or mark["row"]:
            rows[-1].append(plain_text(body[start : mark.start()], macros))
            start = mark.end()
        if mark["row"]:
            rows.append([])
    rows[-1].append(plain_text(body[start:], macros))
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


def plain_text(text: str, macros: Mapping[str, Macro] | None = None) -> str:
    r"""Return the words of a heading or a cell, on one line. Formulas and unknown commands stay as they are written.

    >>> plain_text(r"Old \textbf{stones} \& caf\'e~\cite{a}, 5\%, $\frac{1}{2}$, \verb|50%|, \other{x}")
    'Old stones & café , 5%, $\\frac{1}{2}$, 50%, \\other{x}'
    """
    return " ".join("".join(_Expander(macros or {}).expand(text)).split())


@dataclass
class _Expander:
    macros: Mapping[str, Macro]
    expanded: int = 0

    def expand(self, text: str, depth: int = 0) -> Iterator[str]:
        if depth > _DEEPEST:
            yield text
            return
        position = 0
        while token := _PIECE.search(text, position):
            yield text[position : token.start()]
            position = token.end()
            if token["command"]:
                words, position = self._expand_command(text, token, depth)
                yield words
            elif token["formula"]:
                yield token["formula"]
            elif token["accent"]:
                yield unicodedata.normalize("NFC", (token["inner"] or token["letter"]) + _ACCENTS[token["accent"]])
            elif token["sign"]:
                yield " " if token["sign"] in "\\ ,;:\n\t" else "" if token["sign"] in "-/!" else token["sign"]
            elif not token["hidden"]:
                yield " " if token["blank"] else token["braced"] or token["marked"] or ""
        yield text[position:]

    def _expand_command(self, text: str, token: re.Match[str], depth: int) -> tuple[str, int]:
        """Return what a command shows, and where it ends."""
        name, position = token["command"], token.end()
        if (macro := self.macros.get(name)) is not None and self.expanded < _MOST_EXPANDED:
            arguments, end = arguments_of(macro, text, position)
            expansion = macro.expand(arguments)
            # Empty expansions count too, else commands that call each other would take exponential time.
            self.expanded += 10 + len(expansion)
            if self.expanded <= _MOST_EXPANDED:
                return "".join(self.expand(expansion, depth + 1)), end
        if name in _SIGNS:
            return _SIGNS[name], position
        if name == "texorpdfstring":
            forms, end = arguments_of(Macro("", 2), text, position)
            return "".join(self.expand(forms[0], depth + 1)) if forms else "", end
        hidden_count = _UNSEEN.get(name, 1 if _REFERENCE.match(name) else None)
        if hidden_count == 0:
            return "", position
        if hidden_count:
            option = _OPTIONAL.match(text, position)
            return "", arguments_of(Macro("", hidden_count), text, option.end() if option else position)[1]
        group = braced_argument(text, position)
        if group is None:
            return token[0], position
        return f"{token[0].rstrip()}{{{''.join(self.expand(group[0], depth + 1))}}}", group[1]

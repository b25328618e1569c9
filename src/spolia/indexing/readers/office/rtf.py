"""RTF: paragraphs, headings and tables; the file is read token by token, so that groups may nest as deep as they like.

Rich Text Format Specification 1.9.1, Microsoft 2008.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial

from spolia.indexing.readers.file_metadata import fields, split
from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout
from spolia.indexing.readers.office.package import damaged
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import encoding_called
from spolia.types import Meta, Value

_TOKEN = re.compile(
    r"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})? ?|\\'(?P<hex>[0-9a-fA-F]{2})|\\(?P<sign>[^a-zA-Z'])"
    r"|(?P<brace>[{}])|(?P<text>[^\\{}\r\n]+)"
)
_DROPPED = {"pict": "pictures", "object": "embedded objects", "annotation": "comments"} | dict.fromkeys(
    ("header", "headerl", "headerr", "headerf", "footer", "footerl", "footerr", "footerf"), "headers and footers"
)
_NOT_READ = _DROPPED.keys() | frozenset([
    "fonttbl", "colortbl", "info", "stylesheet", "listtable", "listoverridetable", "rsidtbl", "generator", "themedata",
    "colorschememapping", "latentstyles", "datastore", "xmlnstbl", "fldinst", "bkmkstart", "bkmkend", "nonshppict",
    "listtext", "pntext", "objdata", "filetbl", "revtbl", "atnid", "atnauthor", "mmathPr", "wgrffmtfilter",
    "xe", "tc", "sp", "template", "userprops", "ftnsep", "ftnsepc", "aftnsep", "aftnsepc", "private", "shpinst",
])  # fmt: skip
_KEPT_THOUGH_STARRED = frozenset(["shppict", "shptxt", "shpinst", "fldrslt"])
_INFO = frozenset(["title", "author", "subject", "keywords", "doccomm"])
_SIGNS = {"tab": " ", "emdash": "—", "endash": "–", "bullet": "•", "lquote": "‘", "rquote": "’", "ldblquote": "“",
          "rdblquote": "”", "emspace": " ", "enspace": " ", "zwj": "\u200d", "zwnj": "\u200c"}  # fmt: skip
_CHARSETS = {128: "cp932", 129: "cp949", 134: "cp936", 136: "cp950", 161: "cp1253", 162: "cp1254", 163: "cp1258",
             177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250"}  # fmt: skip


@dataclass(frozen=True)
class RtfReader(Value):
    r"""Reads RTF. Pictures, headers, footers, comments and embedded objects are counted as dropped.

    Hidden text, also by its style, and deletions that are tracked are left out.

    >>> text = rb"{\rtf1\ansi{\outlinelevel0 Old \b stones\par}\pard Caf\'e9 \u8364?5.\par}"
    >>> document = RtfReader().read(Blob("a.rtf", text)).document
    >>> document.headings[0].text, document.text.split("\n\n")[-1]
    ('Old stones', 'Café €5.')
    """

    name = "rtf"
    version = 2
    media_type = "application/rtf"
    suffixes = (".rtf",)
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        if not blob.data.lstrip().startswith(b"{\\rtf"):
            raise damaged(blob, "RTF", "it does not begin with {\\rtf")
        writing = _Writing(blob.data.decode("latin-1"))
        writing.run()
        layout = writing.layout
        title = " ".join(writing.said("title").split()) or layout.title
        meta = layout.failures.attempt("metadata part", writing.meta, ())
        warnings = writing.warnings()
        return layout.reading(self, blob, title=title, meta=meta, dropped=writing.dropped, warnings=warnings)


@dataclass(frozen=True)
class _State:
    """What holds until the group ends. `target`: where its text goes: the body, a field of the info, or nowhere."""

    target: str = "body"
    encoding: str = "cp1252"
    after: int = 1  # characters that stand for a Unicode one, for readers that do not know it
    is_first: bool = False  # the group has just begun
    is_hidden: bool | None = None  # by itself; if it does not say, its styles do
    is_deleted: bool = False
    styles: tuple[int, int] = (0, 0)  # of the paragraph and of the characters

    def shows(self, hiding: set[tuple[str, int]]) -> bool:
        """Whether its text is shown, if these styles hide what they are applied to."""
        by_style = any((kind, number) in hiding for kind, number in zip(("s", "cs"), self.styles, strict=True))
        return not self.is_deleted and not (by_style if self.is_hidden is None else self.is_hidden)


class _Writing:
    def __init__(self, text: str) -> None:
        self.source = text
        self.layout = Layout()
        self.dropped: Counter[str] = Counter()
        self._at = 0
        self._states: list[_State] = []
        self._state = _State()
        self._default = "cp1252"
        self._fonts: dict[int, str] = {}
        self._styles: dict[int, int] = {}
        self._hiding: set[tuple[str, int]] = set()  # styles, by their kind and number
        self._font = 0
        self._style = ("s", 0)
        self._raw: list[str] = []  # bytes as Latin-1 that are to be decoded together
        self._words: list[str] = []
        self._info: dict[str, list[str]] = {}
        self._level = 0
        self._in_table = self._is_listed = False
        self._skip = 0
        self._cells: list[str] = []
        self._rows: list[list[str]] = []

    def run(self) -> None:
        """Read all; a token that fails is left out, and those after it are read."""
        before = -1
        while before < self._at < len(self.source):
            before = self._at
            self.layout.failures.attempt("control word", self._tokens, None)
        self._flush()
        self._paragraph()
        self._table()

    def _tokens(self) -> None:
        while token := _TOKEN.search(self.source, self._at):
            self._at = token.end()
            if token["text"] is not None:
                self._text(token["text"])
            elif token["hex"] is not None:
                self._text(chr(int(token["hex"], 16)))
            elif token["brace"] is not None:
                self._brace(token["brace"])
            elif token["word"] is not None:
                number = int(token["number"]) if token["number"] else None
                if token["word"] == "bin":
                    self._at += max(0, number or 0)
                self._word(token["word"], number)
            else:
                self._sign(token["sign"])
        self._at = len(self.source)

    def said(self, name: str) -> str:
        return "".join(self._info.get(name, []))

    def meta(self) -> Meta:
        return fields(author=self.said("author"), subject=self.said("subject"), keywords=split(self.said("keywords")))

    def warnings(self) -> tuple[str, ...]:
        return ("Its end is missing: groups are open.",) if self._states else ()

    def _brace(self, brace: str) -> None:
        self._flush()
        if brace == "{":
            self._states.append(self._state)
            self._state = replace(self._state, is_first=True)
        elif self._states:
            self._state = self._states.pop()
        self._skip = 0

    def _text(self, text: str) -> None:
        if self._skip:
            skipped = min(self._skip, len(text))
            self._skip, text = self._skip - skipped, text[skipped:]
        if text and self._state.target:
            self._raw.append(text)
            self._state = replace(self._state, is_first=False) if self._state.is_first else self._state

    def _flush(self) -> None:
        """Decode the bytes that wait."""
        if self._raw:
            raw, self._raw = "".join(self._raw), []
            self._add(raw if raw.isascii() else raw.encode("latin-1").decode(self._state.encoding, "replace"))

    def _add(self, text: str) -> None:
        if self._state.target == "body" and self._state.shows(self._hiding):
            self._words.append(text)
        elif self._state.target in _INFO:
            self._info.setdefault(self._state.target, []).append(text)

    def _sign(self, sign: str) -> None:
        if sign == "*":
            self._state = replace(self._state, target="*" if self._state.target == "body" else self._state.target)
        elif sign in "\r\n":
            self._word("par", None)
        else:
            self._flush()
            self._text({"~": "\xa0", "_": "-", "-": ""}.get(sign, sign))

    def _word(self, word: str, number: int | None) -> None:
        self._flush()
        state = self._state
        if state.target == "*":  # the destination after a star is skipped unless it is known
            self._enter(word, is_starred=True)
        elif state.is_first and (word in _NOT_READ or (word in _INFO and state.target == "info")):
            self._enter(word)
        elif state.target == "body":
            self._control(word, number)
        elif state.target in ("fonttbl", "stylesheet"):
            self._define(word, number)
        elif state.target in _INFO and word == "u":
            self._unicode(number or 0)
        self._state = replace(self._state, is_first=False) if self._state.is_first else self._state

    def _enter(self, word: str, *, is_starred: bool = False) -> None:
        if word in _DROPPED and self._state.target in ("body", "*"):
            self.dropped[_DROPPED[word]] += 1
        if word in ("listtext", "pntext"):
            self._is_listed = True
        known = word in ("fonttbl", "stylesheet", "info") or word in _INFO
        kept = is_starred and word in _KEPT_THOUGH_STARRED
        self._state = replace(self._state, target="body" if kept else word if known else "")

    def _define(self, word: str, number: int | None) -> None:
        if word == "f":
            self._font = number or 0
        elif word == "fcharset":
            self._fonts[self._font] = _CHARSETS.get(number or 0, "")
        elif word in ("s", "cs", "ds", "ts"):
            self._style = (word, number or 0)
        elif word == "outlinelevel":
            self._styles[self._style[1]] = number or 0
        elif word == "v":
            (self._hiding.discard if number == 0 else self._hiding.add)(self._style)

    def _control(self, word: str, number: int | None) -> None:
        if word in _SIGNS:
            self._add(_SIGNS[word])
        elif word == "u":
            self._unicode(number or 0)
        elif word == "uc":
            self._state = replace(self._state, after=max(0, min(number or 0, 100)))
        elif word == "v":
            self._state = replace(self._state, is_hidden=number != 0)
        elif word == "deleted":
            self._state = replace(self._state, is_deleted=number != 0)
        elif word == "plain":
            self._state = replace(self._state, is_hidden=None, is_deleted=False, styles=(self._state.styles[0], 0))
        elif word == "cs":
            self._state = replace(self._state, styles=(self._state.styles[0], number or 0))
        elif word == "ansicpg":
            self._default = encoding_called(f"cp{number}") or self._default
            self._state = replace(self._state, encoding=self._default)
        elif word in ("mac", "pca", "pc"):
            self._default = {"mac": "mac_roman", "pca": "cp850", "pc": "cp437"}[word]
            self._state = replace(self._state, encoding=self._default)
        elif word == "f":
            self._state = replace(self._state, encoding=self._fonts.get(number or 0) or self._default)
        else:
            self._block(word, number)

    def _block(self, word: str, number: int | None) -> None:
        if word in ("par", "sect", "page"):
            if self._in_table:
                self._words.append(" ")
            else:
                self._paragraph()
        elif word == "line":
            self._words.append("\n")
        elif word in ("cell", "nestcell"):
            self._cells.append(" ".join("".join(self._words).split()))
            self._words.clear()
        elif word in ("row", "nestrow"):
            if self._cells:
                self._rows.append(self._cells)
            self._cells = []
        elif word == "pard":
            self._level, self._in_table, self._is_listed = 0, False, False
            self._state = replace(self._state, styles=(0, self._state.styles[1]))
        elif word in ("intbl", "itap"):
            self._in_table = word == "intbl" or bool(number)
        elif word == "s":
            self._level = self._styles.get(number or 0, -1) + 1
            self._state = replace(self._state, styles=(number or 0, self._state.styles[1]))
        elif word == "outlinelevel":
            self._level = (number or 0) + 1

    def _unicode(self, number: int) -> None:
        code = number + 65536 if number < 0 else number
        self._add(chr(code) if 0 < code < 0x110000 else "\ufffd")
        self._skip = self._state.after

    def _paragraph(self) -> None:
        text = "".join(self._words).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        self._words.clear()
        if text.strip():
            self._table()
            self.layout.attempt("paragraph", partial(self._write, text), lambda: text)

    def _write(self, text: str) -> None:
        if 0 < self._level <= 9:
            self.layout.heading(text, self._level)
            return
        self.layout.gap(LINE if self._is_listed else BLANK_LINE)
        self.layout.write(f"- {text.lstrip()}" if self._is_listed else text)
        self.layout.gap(LINE if self._is_listed else BLANK_LINE)

    def _table(self) -> None:
        rows, self._rows = [*self._rows, *([self._cells] if self._cells else [])], []
        self._cells = []
        if rows:
            plain = "\n".join(" ".join(row) for row in rows)
            self.layout.attempt("table", partial(self.layout.table, rows), lambda: plain)


def rtf_text(data: bytes) -> str:
    """The text of an RTF document."""
    writing = _Writing(data.decode("latin-1"))
    writing.run()
    return writing.layout.text()

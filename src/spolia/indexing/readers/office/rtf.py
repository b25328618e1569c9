"""RTF: paragraphs, headings and tables; the file is read token by token, so that groups may nest as deep as they like.

Rich Text Format Specification 1.9.1, Microsoft 2008.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial

from spolia.indexing.readers.file_metadata import fields, split_keywords
from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout
from spolia.indexing.readers.office.package import damage_error
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import python_encoding
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
_SHOWN_DESTINATIONS = frozenset(["shppict", "shptxt", "shpinst", "fldrslt"])
_INFO = frozenset(["title", "author", "subject", "keywords", "doccomm"])
_SIGNS = {"tab": " ", "emdash": "—", "endash": "–", "bullet": "•", "lquote": "‘", "rquote": "’", "ldblquote": "“",
          "rdblquote": "”", "emspace": " ", "enspace": " ", "zwj": "\u200d", "zwnj": "\u200c"}  # fmt: skip
_CHARSETS = {128: "cp932", 129: "cp949", 134: "cp936", 136: "cp950", 161: "cp1253", 162: "cp1254", 163: "cp1258",
             177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250"}  # fmt: skip


@dataclass(frozen=True)
class RtfReader(Value):
    r"""Reader of RTF. Pictures, headers, footers, comments and embedded objects count as dropped.

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
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        if not blob.data.lstrip().startswith(b"{\\rtf"):
            raise damage_error(blob, "RTF", "it does not begin with {\\rtf")
        # A character for each byte: the encoding changes within a file.
        writer = _RtfWriter(blob.data.decode("latin-1"))
        writer.read()
        layout = writer.layout
        title = " ".join(writer.info_text("title").split()) or layout.title
        meta = layout.failures.attempt("metadata part", writer.meta, ())
        warnings = writer.warnings()
        return layout.build_reading(self, blob, title=title, meta=meta, dropped=writer.dropped, warnings=warnings)


@dataclass(frozen=True)
class _State:
    """State that holds until the group ends. `target` takes its text: the body, a field of the info, or nothing."""

    target: str = "body"
    encoding: str = "cp1252"
    fallback_length: int = 1  # characters that stand for a Unicode one, for readers that do not know it
    is_first: bool = False  # the group has just begun
    is_hidden: bool | None = None  # by itself; if it does not say, its styles do
    is_deleted: bool = False
    styles: tuple[int, int] = (0, 0)  # of the paragraph and of the characters

    def shows(self, hiding: set[tuple[str, int]]) -> bool:
        """Return whether its text is shown, given the styles that hide text."""
        by_style = any((kind, number) in hiding for kind, number in zip(("s", "cs"), self.styles, strict=True))
        return not self.is_deleted and not (by_style if self.is_hidden is None else self.is_hidden)


class _RtfWriter:
    def __init__(self, text: str) -> None:
        self.source = text
        self.layout = Layout()
        self.dropped: Counter[str] = Counter()
        self._position = 0
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

    def read(self) -> None:
        """Read all tokens. One that fails is left out, and those after it are read."""
        previous_position = -1
        while previous_position < self._position < len(self.source):
            previous_position = self._position
            self.layout.failures.attempt("control word", self._read_tokens, None)
        self._flush()
        self._end_paragraph()
        self._end_table()

    def _read_tokens(self) -> None:
        while token := _TOKEN.search(self.source, self._position):
            self._position = token.end()
            if token["text"] is not None:
                self._read_text(token["text"])
            elif token["hex"] is not None:
                self._read_text(chr(int(token["hex"], 16)))
            elif token["brace"] is not None:
                self._read_brace(token["brace"])
            elif token["word"] is not None:
                number = int(token["number"]) if token["number"] else None
                # Binary data of this length follows, which is not RTF.
                if token["word"] == "bin":
                    self._position += max(0, number or 0)
                self._read_word(token["word"], number)
            else:
                self._read_sign(token["sign"])
        self._position = len(self.source)

    def info_text(self, name: str) -> str:
        return "".join(self._info.get(name, []))

    def meta(self) -> Meta:
        return fields(
            author=self.info_text("author"),
            subject=self.info_text("subject"),
            keywords=split_keywords(self.info_text("keywords")),
        )

    def warnings(self) -> tuple[str, ...]:
        return ("Its end is missing: groups are open.",) if self._states else ()

    def _read_brace(self, brace: str) -> None:
        self._flush()
        if brace == "{":
            self._states.append(self._state)
            self._state = replace(self._state, is_first=True)
        elif self._states:
            self._state = self._states.pop()
        self._skip = 0

    def _read_text(self, text: str) -> None:
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
            # A character of several bytes may be spread over several tokens.
            self._add(raw if raw.isascii() else raw.encode("latin-1").decode(self._state.encoding, "replace"))

    def _add(self, text: str) -> None:
        if self._state.target == "body" and self._state.shows(self._hiding):
            self._words.append(text)
        elif self._state.target in _INFO:
            self._info.setdefault(self._state.target, []).append(text)

    def _read_sign(self, sign: str) -> None:
        if sign == "*":
            self._state = replace(self._state, target="*" if self._state.target == "body" else self._state.target)
        elif sign in "\r\n":
            self._read_word("par", None)
        else:
            self._flush()
            self._read_text({"~": "\xa0", "_": "-", "-": ""}.get(sign, sign))

    def _read_word(self, word: str, number: int | None) -> None:
        self._flush()
        state = self._state
        if state.target == "*":  # the destination after a star is skipped unless it is known
            self._enter_destination(word, is_starred=True)
        elif state.is_first and (word in _NOT_READ or (word in _INFO and state.target == "info")):
            self._enter_destination(word)
        elif state.target == "body":
            self._read_control(word, number)
        elif state.target in ("fonttbl", "stylesheet"):
            self._read_definition(word, number)
        elif state.target in _INFO and word == "u":
            self._add_unicode(number or 0)
        self._state = replace(self._state, is_first=False) if self._state.is_first else self._state

    def _enter_destination(self, word: str, *, is_starred: bool = False) -> None:
        if word in _DROPPED and self._state.target in ("body", "*"):
            self.dropped[_DROPPED[word]] += 1
        if word in ("listtext", "pntext"):
            self._is_listed = True
        is_known = word in ("fonttbl", "stylesheet", "info") or word in _INFO
        is_shown = is_starred and word in _SHOWN_DESTINATIONS
        self._state = replace(self._state, target="body" if is_shown else word if is_known else "")

    def _read_definition(self, word: str, number: int | None) -> None:
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

    def _read_control(self, word: str, number: int | None) -> None:
        if word in _SIGNS:
            self._add(_SIGNS[word])
        elif word == "u":
            self._add_unicode(number or 0)
        elif word == "uc":
            # A file may state any number, and would hide all that follows.
            self._state = replace(self._state, fallback_length=max(0, min(number or 0, 100)))
        elif word == "v":
            self._state = replace(self._state, is_hidden=number != 0)
        elif word == "deleted":
            self._state = replace(self._state, is_deleted=number != 0)
        elif word == "plain":
            self._state = replace(self._state, is_hidden=None, is_deleted=False, styles=(self._state.styles[0], 0))
        elif word == "cs":
            self._state = replace(self._state, styles=(self._state.styles[0], number or 0))
        elif word == "ansicpg":
            self._default = python_encoding(f"cp{number}") or self._default
            self._state = replace(self._state, encoding=self._default)
        elif word in ("mac", "pca", "pc"):
            self._default = {"mac": "mac_roman", "pca": "cp850", "pc": "cp437"}[word]
            self._state = replace(self._state, encoding=self._default)
        elif word == "f":
            self._state = replace(self._state, encoding=self._fonts.get(number or 0) or self._default)
        else:
            self._read_block_word(word, number)

    def _read_block_word(self, word: str, number: int | None) -> None:
        if word in ("par", "sect", "page"):
            if self._in_table:
                self._words.append(" ")
            else:
                self._end_paragraph()
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

    def _add_unicode(self, number: int) -> None:
        code = number + 65536 if number < 0 else number  # RTF's numbers are signed, of 16 bits
        self._add(chr(code) if 0 < code < 0x110000 else "\ufffd")
        self._skip = self._state.fallback_length

    def _end_paragraph(self) -> None:
        # A character beyond 16 bits is written as two: its surrogates are joined here.
        text = "".join(self._words).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        self._words.clear()
        if text.strip():
            self._end_table()
            self.layout.attempt("paragraph", partial(self._write, text), lambda: text)

    def _write(self, text: str) -> None:
        if 0 < self._level <= 9:
            self.layout.write_heading(text, self._level)
            return
        self.layout.gap(LINE if self._is_listed else BLANK_LINE)
        self.layout.write(f"- {text.lstrip()}" if self._is_listed else text)
        self.layout.gap(LINE if self._is_listed else BLANK_LINE)

    def _end_table(self) -> None:
        rows, self._rows = [*self._rows, *([self._cells] if self._cells else [])], []
        self._cells = []
        if rows:
            plain = "\n".join(" ".join(row) for row in rows)
            self.layout.attempt("table", partial(self.layout.write_table, rows), lambda: plain)


def rtf_text(data: bytes) -> str:
    """Return the text of an RTF document."""
    writer = _RtfWriter(data.decode("latin-1"))
    writer.read()
    return writer.layout.text()

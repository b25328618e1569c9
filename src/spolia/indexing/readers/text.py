"""Plain text: decodes bytes. An encoding other than UTF-8 is guessed, and the reading reports the guess."""

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from itertools import islice
from typing import BinaryIO

from spolia.deferred import chardet
from spolia.errors import DocumentError
from spolia.indexing.readers.reader import Blob, FileReader, Reading, is_page, nonzero_counts, signature_of
from spolia.types import Heading, Meta, Region, Value
from spolia.types.value import unchecked_constructor

_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROL_BYTES = bytes([*range(9), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F])
_ASCII_LETTERS = bytes([*range(0x41, 0x5B), *range(0x61, 0x7B)])
_HIGH_BYTES = bytes(range(0x80, 0x100))
# Every byte has a character: the five that cp1252 leaves out are read as in Latin-1.
_CP1252 = "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256))
_STRAY = {0xDC00 + byte: _CP1252[byte] for byte in range(0x80, 0x100)}
_SAMPLE = 4096


@dataclass(frozen=True)
class DecodedText(Value):
    """Text, the name of its encoding, and warnings about what is uncertain."""

    text: str
    encoding: str = "utf-8"
    warnings: tuple[str, ...] = ()

    def with_warning(self, warning: str) -> "DecodedText":
        """Return a copy with one more warning."""
        return self.but(warnings=(*self.warnings, warning))

    def build_reading(
        self,
        reader: FileReader,
        blob: Blob,
        *,
        title: str = "",
        headings: Iterable[Heading] = (),
        regions: Iterable[Region] = (),
        meta: Meta = (),
        dropped: Mapping[str, int] | None = None,
    ) -> Reading:
        """Build the reading of a blob whose source is the document."""
        document = blob.document(reader, self.text, title=title, headings=headings, regions=regions, meta=meta)
        return _unchecked_reading(
            document, self.encoding, dropped=nonzero_counts(dropped or {}), warnings=self.warnings
        )


_unchecked_reading, _decoded_text = unchecked_constructor(Reading), unchecked_constructor(DecodedText)


def decode(data: bytes, uri: str, declared: str = "") -> DecodedText:
    """Decode a text file, without its byte order mark; line ends stay. The encoding that the content declares counts
    unless a mark or the bytes say otherwise.

    >>> decode(b"caf\\xe9", "a.txt").text, decode("café".encode("utf-16"), "b.txt").text
    ('café', 'café')
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return _decode_strictly(data[len(bom) :], encoding, uri)
    # Before guessing: an archive or picture named .txt could pass as a text in some encoding.
    if signature := signature_of(data):
        raise _not_text_error(uri, f"it is {signature.description}", data)
    controls = len(data) - len(data.translate(None, _CONTROL_BYTES))
    if controls and (wide_encoding := _wide_encoding(data)):
        guess = f"It has no byte order mark; it was read as {wide_encoding.upper()}, because of the bytes that are 0."
        return _decode_strictly(data, wide_encoding, uri, guess)
    if declared in ("iso8859-1", "cp1252"):  # as browsers do
        return DecodedText(codecs.charmap_decode(data, "strict", _CP1252)[0], "cp1252")
    if declared and declared not in ("utf-8", "ascii"):
        return _decode_strictly(data, "utf-8" if declared.startswith(("utf-16", "utf-32")) else declared, uri)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return _decode_by_guess(data, uri, controls, error)
    if controls * 10 > len(data):
        raise _not_text_error(uri, f"{controls} of its {len(data)} bytes are control characters", data)
    return _decoded_text(text, warnings=_control_warnings(controls))


def python_encoding(name: str) -> str:
    """Return Python's name of an encoding; empty if Python does not know it."""
    try:
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        return ""


def read_source_text(blob: Blob, unit: str = "") -> DecodedText:
    """Decode a text file that is not HTML. Of a large file that is read in parts (`unit`: `rows` or `lines`), decode
    the beginning."""
    is_beginning = bool(unit) and is_large(blob)
    source = decode((read_beginning(blob) if is_beginning else blob).data, blob.uri)
    if is_page(source.text):
        raise DocumentError(
            f"{blob.uri} is an HTML page, although its name says otherwise: it begins with {source.text[:20]!r}. "
            "Give it the suffix .html, or take it out of the folder."
        )
    if is_beginning:
        return source.with_warning(f"It has {blob.size} bytes: this is its beginning, its {unit} are read in parts.")
    return source


def _control_warnings(count: int) -> tuple[str, ...]:
    return (f"It holds {count} control characters.",) if count else ()


def _decode_strictly(data: bytes, encoding: str, uri: str, warning: str = "") -> DecodedText:
    warnings = [warning] if warning else []
    try:
        return DecodedText(data.decode(encoding), encoding, tuple(warnings))
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
    if lost := text.count("\ufffd"):
        if lost * 10 > len(text):
            raise _not_text_error(uri, f"{lost} of its {len(text)} characters are not {encoding.upper()}", data)
        warnings.append(f"{lost} characters were not {encoding.upper()} and are shown as \ufffd.")
    return DecodedText(text, encoding, tuple(warnings))


def _wide_encoding(data: bytes) -> str:
    """Return the encoding: UTF-32 has two bytes of 0 in four, UTF-16 of mostly Western text one in two."""
    sample = data[:_SAMPLE]
    zeros = [set(sample[offset::4]) == {0} for offset in range(4)]
    if len(data) % 4 == 0 and ((zeros[0] and zeros[1]) or (zeros[2] and zeros[3])):
        return "utf-32-be" if zeros[0] else "utf-32-le"
    pairs = len(sample) // 2
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if len(data) % 2 or max(odd, even) * 10 <= pairs * 7 or min(odd, even) * 20 >= pairs:
        return ""
    return "utf-16-le" if odd > even else "utf-16-be"


def _decode_by_guess(data: bytes, uri: str, controls: int, error: UnicodeDecodeError) -> DecodedText:
    # A single-byte encoding would accept any binary file.
    if controls * 100 > len(data) or b"\0" in data:
        raise _not_text_error(uri, f"{controls} of its {len(data)} bytes are control characters", data)
    place = f"byte {error.start + 1} is {data[error.start]:#04x}"
    high = len(data) - len(data.translate(None, _HIGH_BYTES))
    letters = len(data) - len(data.translate(None, _ASCII_LETTERS))
    text = data.decode("utf-8", "surrogateescape")
    stray = len(text) - len(text.encode("utf-8", "ignore").decode())
    valid = len(text) - (len(data) - high) - stray
    # Pairs of bytes of a Korean or Chinese text may be UTF-8 by chance. In a text of two encodings what is not UTF-8 is
    # rare, or stands alone between letters of ASCII.
    if valid > 4 * stray or (valid * 2 > stray and len(_LONE_STRAY.findall(text)) * 2 >= stray):
        warning = f"Bytes that are not UTF-8: {stray} ({place}); they were read as cp1252, which is a guess."
        return DecodedText(text.translate(_STRAY), "utf-8 and cp1252", (warning,))
    encoding, confidence = detect_encoding(data)
    if not encoding and high > letters:
        raise DocumentError(
            f"{uri}: its encoding is unknown: it is not UTF-8 ({place}), and no other encoding is likely. "
            "Convert it, for example: iconv -f CP932 -t UTF-8 OLD > NEW"
        )
    encoding = encoding or "cp1252"
    warning = (
        f"It is not UTF-8 ({place}); it was read as {encoding.upper()}, which is a guess "
        f"(confidence {confidence:.0%}). If it is wrong, convert the file to UTF-8."
    )
    if encoding == "cp1252":
        text = codecs.charmap_decode(data, "strict", _CP1252)[0]
        return DecodedText(text, encoding, (warning, *_control_warnings(controls)))
    return _decode_strictly(data, encoding, uri, warning)


def _not_text_error(uri: str, reason: str, data: bytes) -> DocumentError:
    return DocumentError(
        f"{uri} is not a text, although its name says so: {reason}; it begins with "
        f"{data[:8].hex(' ') or 'nothing'}. Give it the suffix of its format, or take it out of the folder."
    )


# Encodings that documents really have. chardet knows 90, and a rare one often fits a short text best: with all of
# them `Müller;Straße` becomes Turkish of a Macintosh.
_ENCODINGS = (
    "big5hkscs", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp866",
    "cp874", "cp932", "cp949", "euc_jis_2004", "gb18030", "iso8859-15", "iso8859-2", "iso8859-5", "iso8859-6",
    "iso8859-7", "iso8859-9", "koi8-r", "koi8-u",
)  # fmt: skip
# High bytes that stand alone among ASCII letters are accents or punctuation of a Latin script. One or two of them are
# too little evidence to choose among all encodings, and in doubt cp1252 is the commonest.
_LATIN = ("cp1250", "cp1252", "cp1254", "iso8859-2")
_FEW_BYTES, _LATIN_CONFIDENCE = 2, 0.06
_MIN_CONFIDENCE = 0.035  # random bytes reach 0.033, short texts in other scripts 0.037 and more
_LONE_STRAY = re.compile(r"(?<![^\0-\x7f])[\udc80-\udcff](?![^\0-\x7f])")
_HIGH_RUN = re.compile(rb"[\x80-\xff]+")


def detect_encoding(data: bytes) -> tuple[str, float]:
    """Guess the encoding of a text that is not UTF-8, with a confidence between 0 and 1; empty if none is likely.

    >>> detect_encoding("Привет, это русский текст".encode("koi8-r"))[0]
    'koi8-r'
    >>> detect_encoding("佐藤太郎は東京に住む".encode("cp932"))[0], detect_encoding("Müller;Straße".encode("cp1252"))[0]
    ('cp932', 'cp1252')
    """
    high_runs = _HIGH_RUN.findall(data)
    is_latin = all(len(run) == 1 for run in high_runs)
    candidates = _LATIN if is_latin and len(high_runs) <= _FEW_BYTES else _ENCODINGS
    guess = chardet.detect(data, include_encodings=candidates, compat_names=False)
    encoding, confidence = guess["encoding"] or "", guess["confidence"]
    if confidence < (_LATIN_CONFIDENCE if is_latin else _MIN_CONFIDENCE):
        encoding = "cp1252" if is_latin else ""
    return encoding, confidence


LARGEST = 20_000_000
"""Bytes that are read as one document; a larger file is read in parts."""
PART_BYTES, PART_ROWS = 5_000_000, 50_000
"""Of a part at most; a single row that is longer is a part of its own."""
LONGEST_ROW = 100_000_000
"""Bytes of a row; beyond them it is cut."""
_HEAD = 1 << 16


def is_large(blob: Blob) -> bool:
    """Return whether a file is read in parts."""
    return blob.size > LARGEST


def read_beginning(blob: Blob) -> Blob:
    """Return the first rows of a large file, as a blob under its name."""
    with blob.open() as file:
        head = file.read(_HEAD)
    # Whole rows only: the last one may be cut within a character.
    return Blob(blob.uri, head[: head.rfind(b"\n") + 1] or head)


def split_parts(blob: Blob, unit: str, *, quoted: bool = False, head: int = 0) -> Iterator[Blob]:
    """Yield the parts of a large file, in UTF-8: `big.csv/rows-1-50000.csv`; none of others. If `quoted`, a line break
    within double quotes belongs to its row. Every part begins with the `head` first lines, which are not counted."""
    if not is_large(blob):
        return
    encoding = _part_encoding(blob)
    suffix = blob.uri[blob.uri.rfind(".") :]
    header, number, rows, size = b"", 0, list[bytes](), 0
    for row in _read_rows(blob, encoding, quoted):
        if head:
            header, head = header + row, head - 1
            continue
        if rows and (size + len(row) > PART_BYTES or len(rows) == PART_ROWS):
            yield _make_part(blob, unit, suffix, header, number, rows)
            number, rows, size = number + len(rows), [], 0
        rows.append(row)
        size += len(row)
    if rows:
        yield _make_part(blob, unit, suffix, header, number, rows)


def _make_part(blob: Blob, unit: str, suffix: str, header: bytes, offset: int, rows: list[bytes]) -> Blob:
    return Blob(f"{blob.uri}/{unit}-{offset + 1}-{offset + len(rows)}{suffix}", header + b"".join(rows))


def _part_encoding(blob: Blob) -> str:
    """Detect the encoding by the beginning. Later bytes that do not fit it become U+FFFD."""
    encoding = decode(read_beginning(blob).data, blob.uri).encoding
    if encoding.startswith("utf-32") or encoding == "utf-8 and cp1252":
        raise DocumentError(
            f"{blob.uri} is too large to be read as {encoding}. Convert it: iconv -f UTF-32 -t UTF-8 OLD > NEW"
        )
    return encoding


def _read_rows(blob: Blob, encoding: str, quoted: bool) -> Iterator[bytes]:
    """Yield rows in UTF-8, with their line ends."""
    open_row, quotes, size = list[bytes](), 0, 0
    with blob.open() as file:
        for line in _read_lines(file, encoding):
            quotes += line.count(b'"') if quoted else 0
            open_row.append(line)
            size += len(line)
            if quotes % 2 == 0 or size > PART_BYTES:  # a quote that is never closed must not hold all that follows
                yield b"".join(open_row)
                open_row, quotes, size = [], 0, 0
    if open_row:
        yield b"".join(open_row)


def _read_lines(file: BinaryIO, encoding: str) -> Iterator[bytes]:
    """Yield lines in UTF-8, none longer than `LONGEST_ROW`."""
    lines = iter(partial(file.readline, LONGEST_ROW), b"")
    if encoding not in ("utf-8", "ascii"):
        text = TextIOWrapper(file, encoding, "replace", newline="\n")
        lines = (line.encode("utf-8", "replace") for line in iter(partial(text.readline, LONGEST_ROW), ""))
    # A text decoded from UTF-16 has its mark on the first line only.
    yield from filter(None, (line.removeprefix(codecs.BOM_UTF8) for line in islice(lines, 1)))
    yield from lines


_TERMINAL = re.compile("\x1b(?:\\[[0-?]{0,50}[ -/]{0,9}[@-~]|\\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\\\)|[@-Z\\\\^_])")
"""Escape sequences of terminals (ECMA-48, 5.4)."""


@dataclass(frozen=True)
class TextReader(Value):
    """Reader of text files. It keeps line ends and removes the escapes by which terminals colour words.

    A file of more than 20 MB is read in parts of 50,000 lines at most; its own document is its beginning.

    >>> TextReader().read(Blob("a.txt", b"One.\\r\\nTwo.")).document.text
    'One.\\r\\nTwo.'
    """

    name = "text"
    version = 2
    media_type = "text/plain"
    suffixes = (".txt", ".text", ".log")

    def read(self, blob: Blob, /) -> Reading:
        source = read_source_text(blob, "lines")
        if "\x1b" in source.text:
            source = source.but(text=_TERMINAL.sub("", source.text))
        return source.build_reading(self, blob)

    @property
    def undivided(self) -> int:
        """Return the largest size of a file that is one document, without parts."""
        return LARGEST

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """Yield the parts of a file that is too large for one document; none of others."""
        return split_parts(blob, "lines")

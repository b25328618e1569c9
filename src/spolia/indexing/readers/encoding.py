"""From bytes to characters. What is not UTF-8 is guessed, and the guess is said."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from math import log
from typing import NamedTuple

from spolia.errors import DocumentError
from spolia.indexing.readers.reader import Blob
from spolia.indexing.readers.signatures import is_page, signature_of
from spolia.types import Value

_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = bytes([*range(9), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F])
_LETTERS = bytes([*range(0x41, 0x5B), *range(0x61, 0x7B)])
_HIGH = bytes(range(0x80, 0x100))
# Every byte has a character: the five that cp1252 leaves out are read as in Latin-1.
_CP1252 = "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256))
_STRAY = {0xDC00 + byte: _CP1252[byte] for byte in range(0x80, 0x100)}
_SAMPLE = 4096
_HEX_SHOWN = 8


@dataclass(frozen=True)
class Decoded(Value):
    """A text, the name of its encoding, and what was not certain about it."""

    text: str
    encoding: str = "utf-8"
    warnings: tuple[str, ...] = ()


def decoded(data: bytes, uri: str, declared: str = "") -> Decoded:
    """The characters of a text file, without a byte order mark; line ends stay as they are.

    Args:
        data: all bytes.
        uri: the file's name, for messages.
        declared: the encoding that the content itself names; it counts unless a mark or the bytes say otherwise.

    Raises:
        DocumentError: it is no text, or in an encoding that cannot be told.

    >>> decoded(b"caf\\xe9", "a.txt").text, decoded("café".encode("utf-16"), "b.txt").text
    ('café', 'café')
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return _strictly(data[len(bom) :], encoding, uri)
    if other := signature_of(data):
        raise _not_text(uri, f"it is {other.what}", data)
    controls = len(data) - len(data.translate(None, _CONTROLS))
    if controls and (wide := _without_mark(data)):
        guess = f"It has no byte order mark; it was read as {wide.upper()}, because every second byte is 0."
        return _strictly(data, wide, uri, guess)
    if declared and declared not in ("utf-8", "ascii"):
        return _declared(data, declared, uri)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return _guessed(data, uri, controls, error)
    if controls * 10 > len(data):
        raise _not_text(uri, f"{controls} of its {len(data)} bytes are control characters", data)
    return Decoded(text, warnings=_controls(controls))


def source_text(blob: Blob) -> Decoded:
    """The characters of a text file whose format is not HTML.

    Raises:
        DocumentError: as for `decoded`, and for a whole HTML page under the name of another format.
    """
    found = decoded(blob.data, blob.uri)
    if is_page(found.text):
        raise DocumentError(
            f"{blob.uri} is an HTML page, although its name says otherwise: it begins with {found.text[:20]!r}. "
            "Give it the suffix .html, or take it out of the folder."
        )
    return found


def _declared(data: bytes, encoding: str, uri: str) -> Decoded:
    if encoding in ("iso8859-1", "cp1252"):  # as browsers do
        return Decoded(codecs.charmap_decode(data, "strict", _CP1252)[0], "cp1252")
    return _strictly(data, "utf-8" if encoding.startswith(("utf-16", "utf-32")) else encoding, uri)


def _controls(count: int) -> tuple[str, ...]:
    return (f"It holds {count} control characters.",) if count else ()


def _strictly(data: bytes, encoding: str, uri: str, warning: str = "") -> Decoded:
    warnings = [warning] if warning else []
    try:
        return Decoded(data.decode(encoding), encoding, tuple(warnings))
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
    if lost := text.count("\ufffd"):
        if lost * 10 > len(text):
            raise _not_text(uri, f"{lost} of its {len(text)} characters are not {encoding.upper()}", data)
        warnings.append(f"{lost} characters were not {encoding.upper()} and are shown as \ufffd.")
    return Decoded(text, encoding, tuple(warnings))


def _without_mark(data: bytes) -> str:
    """UTF-16 of mostly Western text has a 0 in every second byte."""
    sample = data[:_SAMPLE]
    pairs = len(sample) // 2
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if len(data) % 2 == 0 and odd * 10 > pairs * 7 and even * 20 < pairs:
        return "utf-16-le"
    if len(data) % 2 == 0 and even * 10 > pairs * 7 and odd * 20 < pairs:
        return "utf-16-be"
    return ""


def _guessed(data: bytes, uri: str, controls: int, error: UnicodeDecodeError) -> Decoded:
    if controls * 100 > len(data) or b"\0" in data:
        raise _not_text(uri, f"{controls} of its {len(data)} bytes are control characters", data)
    place = f"byte {error.start + 1} is {data[error.start]:#04x}"
    high = len(data) - len(data.translate(None, _HIGH))
    letters = len(data) - len(data.translate(None, _LETTERS))
    text = data.decode("utf-8", "surrogateescape")
    stray = len(text) - len(text.encode("utf-8", "ignore").decode())
    if (len(text) - (len(data) - high) - stray) * 2 > stray:  # more than half as many characters that are UTF-8
        warning = f"Bytes that are not UTF-8: {stray} ({place}); they were read as cp1252, which is a guess."
        return Decoded(text.translate(_STRAY), "utf-8 and cp1252", (warning,))
    if asian := east_asian(data):
        return _strictly(
            data, asian, uri, f"It is not UTF-8 ({place}); it was read as {asian.upper()}, which is a guess."
        )
    if high > letters:
        raise DocumentError(
            f"{uri}: its encoding cannot be told: it is not UTF-8 ({place}), and too many bytes are above 0x7f for a "
            "Western European one. Convert it, for example: iconv -f SHIFT_JIS -t UTF-8 OLD > NEW"
        )
    warning = f"It is not UTF-8 ({place}); it was read as cp1252 (Western European, Latin-1), which is a guess."
    return Decoded(codecs.charmap_decode(data, "strict", _CP1252)[0], "cp1252", (warning, *_controls(controls)))


def _not_text(uri: str, why: str, data: bytes) -> DocumentError:
    return DocumentError(
        f"{uri} is not a text, although its name says so: {why}; it begins with "
        f"{data[:_HEX_SHOWN].hex(' ') or 'nothing'}. Give it the suffix of its format, or take it out of the folder."
    )


class _Range(NamedTuple):
    """First bytes, from and to, and which share of a text begins with one of them."""

    low: int
    high: int
    share: float


_ENCODINGS = {
    "cp932": (_Range(0x81, 0x81, 0.08), _Range(0x82, 0x83, 0.5), _Range(0x88, 0x97, 0.4)),
    "euc_jp": (_Range(0xA1, 0xA1, 0.08), _Range(0xA4, 0xA5, 0.5), _Range(0xB0, 0xCF, 0.4)),
    "gb18030": (_Range(0xA1, 0xA1, 0.05), _Range(0xA3, 0xA3, 0.07), _Range(0xB0, 0xD7, 0.86)),
    "big5": (_Range(0xA1, 0xA1, 0.1), _Range(0xA4, 0xC6, 0.88)),
    "cp949": (_Range(0xA1, 0xA1, 0.02), _Range(0xB0, 0xC8, 0.96)),
}
_EAST_ASIAN_SAMPLE = 20_000
_COMMON, _AHEAD = 0.7, 0.25
_RARE = 0.02 / 126
_NOT = -1e9


def east_asian(data: bytes) -> str:
    """Name of the encoding; empty where none is likely, or more than one.

    >>> east_asian("佐藤太郎は東京に住む".encode("cp932")), east_asian("그는 서울에 산다".encode("cp949"))
    ('cp932', 'cp949')
    """
    rated = sorted(((_likelihood(data[:_EAST_ASIAN_SAMPLE], name), name) for name in _ENCODINGS), reverse=True)
    (best, name), (second, _) = rated[:2]
    return name if best > _NOT and best - second >= _AHEAD else ""


def _likelihood(data: bytes, name: str) -> float:
    """Mean logarithm of the probability of a character that is not ASCII; very small where it is not this encoding."""
    try:
        text = data.decode(name, "strict" if len(data) < _EAST_ASIAN_SAMPLE else "ignore")
    except UnicodeDecodeError:
        return _NOT
    found = [character.encode(name, "replace") for character in text if not character.isascii()]
    shares = [_share(raw, _ENCODINGS[name]) for raw in found]
    if not found or sum(share > _RARE for share in shares) < _COMMON * len(found):
        return _NOT
    return sum(map(log, shares)) / len(shares)


def _share(raw: bytes, ranges: tuple[_Range, ...]) -> float:
    if len(raw) != 2:  # half-width kana: any high byte would do
        return _RARE
    return next((one.share / (one.high - one.low + 1) for one in ranges if one.low <= raw[0] <= one.high), _RARE)

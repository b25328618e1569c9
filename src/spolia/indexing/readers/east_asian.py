"""Which East Asian encoding a text has that is not UTF-8: the one in which its characters are likely ones.

Bytes of one of these encodings often are valid in another, as characters that nobody writes. The common ones stand
together in each: kana and kanji of level 1 in JIS X 0208, hanzi of level 1 in GB 2312 and Big5, syllables in KS X 1001.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple


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
_SAMPLE = 20_000
_COMMON, _AHEAD = 0.7, 0.25
_RARE = 0.02 / 126
_NOT = -1e9


def east_asian(data: bytes) -> str:
    """Name of the encoding; empty where none is likely, or more than one.

    >>> east_asian("佐藤太郎は東京に住む".encode("cp932")), east_asian("그는 서울에 산다".encode("cp949"))
    ('cp932', 'cp949')
    """
    rated = sorted(((_likelihood(data[:_SAMPLE], name), name) for name in _ENCODINGS), reverse=True)
    (best, name), (second, _) = rated[:2]
    return name if best > _NOT and best - second >= _AHEAD else ""


def _likelihood(data: bytes, name: str) -> float:
    """Mean logarithm of the probability of a character that is not ASCII; very small where it is not this encoding."""
    try:
        text = data.decode(name, "strict" if len(data) < _SAMPLE else "ignore")
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

"""Looking for damage to SQLite's write-ahead log, which SQLite takes for a transaction that was not finished.

Layout: a header of 32 bytes (magic, version, page size, count, two salts, two checksums), then frames of 24 bytes
(page, size of the database after a commit, the salts, two checksums) and a page each. Checksums go on from frame to
frame.
Source: https://www.sqlite.org/fileformat2.html#walformat
"""

from pathlib import Path
from struct import unpack

from spolia.stores.files import DATABASE

_HEADER, _FRAME = 32, 24
_MAGIC = 0x377F0682
_WORD = 0xFFFFFFFF
Sums = tuple[int, int]


def lost_ahead(store: Path) -> str:
    """What is wrong with a store's write-ahead log, in words: what was committed behind a damaged frame is lost."""
    path = store / f"{DATABASE}-wal"
    log = path.read_bytes() if path.exists() else b""
    if len(log) < _HEADER + _FRAME:
        return ""
    magic, _, page = unpack(">3I", log[:12])
    order = ">" if magic & 1 else "<"
    sums = _summed((0, 0), log[:24], order)
    if magic & ~1 != _MAGIC or sums != unpack(">2I", log[24:_HEADER]):
        return f"{path.name}: its header is damaged, so that what was committed last is lost"
    damaged = 0
    for number, at in enumerate(range(_HEADER, len(log) - _FRAME - page + 1, _FRAME + page), 1):
        frame = log[at : at + _FRAME]
        if not damaged:
            sums = _summed(_summed(sums, frame[:8], order), log[at + _FRAME : at + _FRAME + page], order)
            damaged = number if sums != unpack(">2I", frame[16:]) or frame[8:16] != log[16:24] else 0
        is_of_this = frame[8:12] == log[16:20] or frame[12:16] == log[20:24]
        if damaged and is_of_this and frame[4:8] != bytes(4):
            return f"{path.name}: frame {damaged} is damaged, so that what was committed from there on is lost"
    return ""


def _summed(sums: Sums, data: bytes, order: str) -> Sums:
    one, two = sums
    words = unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = one + first + two & _WORD
        two = two + second + one & _WORD
    return one, two

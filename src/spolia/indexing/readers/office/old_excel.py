"""XLS files that would have the library fill the memory, found before it opens them ([MS-CFB], [MS-XLS])."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

_FAT_IN_HEADER, _HEADER, _ENTRY, _NAME, _START = 76, 512, 128, 64, 116
_NO_SECTOR = 0xFFFFFFFA
"""Numbers from here on are no sectors."""
_SMALL, _WORD = 64, 1 << 32
_LOCKED, _SHEET, _SIZE, _END, _MANY = 0x002F, 0x0085, 0x0200, 0x000A, 0x00BD
_CELLS = frozenset([0x0006, _MANY, 0x00D6, 0x00FD, 0x0203, 0x0204, 0x0205, 0x027E])


def cells_of(data: bytes) -> int:
    """For how many cells the library makes room: those of the rectangles that all sheets fill, or that one states.

    Raises:
        ValueError: its parts go in circles, or there is no workbook in it.
        struct.error: it ends too early.
    """
    book = _Compound(data).stream("workbook", "book")
    sheets = [_rectangles(book, start) for start in _sheets(book)]
    return max([sum(filled for filled, _ in sheets), *(stated for _, stated in sheets)])


class _Compound:
    """An OLE compound file: streams are chains of sectors, those of small ones within another stream."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        (shift,) = struct.unpack_from("<H", data, 30)
        directory, self._cutoff, small, further = (struct.unpack_from("<I", data, at)[0] for at in (48, 56, 60, 68))
        if shift not in (9, 12):
            raise ValueError(f"its sectors have 2^{shift} bytes")
        self._size = 1 << shift
        self._next = _straight(_numbers(b"".join(map(self._sector, self._tables(further)))))
        entries = self._chain(directory)
        self._entries = [entries[at : at + _ENTRY] for at in range(0, len(entries) - _ENTRY + 1, _ENTRY)]
        self._small_next = _straight(_numbers(self._chain(small)))

    def stream(self, *names: str) -> bytes:
        """The content of the first stream with one of these names."""
        for entry in self._entries:
            (length,) = struct.unpack_from("<H", entry, _NAME)
            if entry[: max(0, min(length, _NAME) - 2)].decode("utf-16-le", "replace").lower() in names:
                start, size = struct.unpack_from("<II", entry, _START)
                return (self._small_chain(start) if size < self._cutoff else self._chain(start))[:size]
        raise ValueError("there is no workbook in it")

    def _tables(self, further: int) -> Iterator[int]:
        """The sectors that say what follows what: the header names the first of them."""
        yield from (number for number in _numbers(self._data[_FAT_IN_HEADER:_HEADER]) if number < _NO_SECTOR)
        seen = set[int]()
        while further < _NO_SECTOR and (sector := self._sector(further)):
            if further in seen:
                raise ValueError("its sectors go in circles")
            seen.add(further)
            *numbers, further = _numbers(sector.ljust(self._size, b"\xff"))
            yield from (number for number in numbers if number < _NO_SECTOR)

    def _sector(self, number: int) -> bytes:
        return self._data[(number + 1) * self._size : (number + 2) * self._size]

    def _chain(self, start: int) -> bytes:
        return b"".join(map(self._sector, _chained(start, self._next)))

    def _small_chain(self, start: int) -> bytes:
        (root,) = struct.unpack_from("<I", self._entries[0], _START)
        content = self._chain(root)
        return b"".join(content[at * _SMALL : (at + 1) * _SMALL] for at in _chained(start, self._small_next))


def _numbers(content: bytes) -> tuple[int, ...]:
    return struct.unpack_from(f"<{len(content) // 4}I", content)


def _straight(following: Sequence[int]) -> Sequence[int]:
    """What follows each sector; a circle anywhere is refused, since the library goes wherever it is led."""
    first = [0] * len(following)
    for start in range(len(following)):
        at = start
        while at < len(following) and not first[at]:
            first[at] = start + 1
            at = following[at]
        if at < len(following) and first[at] == start + 1:
            raise ValueError("its sectors go in circles")
    return following


def _chained(start: int, following: Sequence[int]) -> Iterator[int]:
    while start < len(following):
        yield start
        start = following[start]


def _records(book: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at + 4 <= len(book):
        kind, length = struct.unpack_from("<HH", book, at)
        if kind == _END:
            return
        yield kind, book[at + 4 : at + 4 + length]
        at += 4 + length


def _sheets(book: bytes) -> Iterator[int]:
    """Where they begin; none of a book that is locked, whose records say nothing."""
    for kind, content in _records(book, 0):
        if kind == _LOCKED:
            return
        if kind == _SHEET:
            yield struct.unpack_from("<I", content)[0]


def _rectangles(book: bytes, start: int) -> tuple[int, int]:
    """Cells of the rectangle that a sheet fills, and of that which it states, as the library counts: in 32 bits."""
    rows, columns, stated = list[int](), list[int](), 0
    for kind, content in _records(book, start):
        if kind in _CELLS and len(content) >= 4:
            row, column = struct.unpack_from("<HH", content)
            rows.append(row)
            columns.append(column)
            if kind == _MANY:
                columns.append(struct.unpack_from("<H", content, len(content) - 2)[0])
        elif kind == _SIZE and len(content) >= 8:
            first, last, left, right = struct.unpack_from("<4H" if len(content) < 12 else "<IIHH", content)
            stated = max(stated, last * right, (last - first) % _WORD * ((right - left) % _WORD))
    return (max(rows) - min(rows) + 1) * (max(columns) - min(columns) + 1) if rows else 0, stated

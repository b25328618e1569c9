"""OLE compound files by hand ([MS-CFB]), as Outlook writes its mails and old Excel its sheets ([MS-XLS])."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias

Storage: TypeAlias = "Mapping[str, bytes | Storage]"
_SECTOR, _MINI, _END, _FREE, _FAT, _NONE = 512, 64, 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD, 0xFFFFFFFF


def ole_of(root: Storage) -> bytes:
    """A compound file; all streams are in the mini stream."""
    entries, mini, chain = [["Root Entry", 5, _NONE, _NONE, _NONE, 0, 0]], bytearray(), list[int]()
    _add(root, entries, 0, mini, chain)
    directory = b"".join(map(_entry, entries)).ljust(-(-len(entries) * 128 // _SECTOR) * _SECTOR, b"\0")
    minifat = struct.pack(f"<{len(chain)}I", *chain)
    sectors, starts, fat = bytearray(), list[int](), list[int]()
    for content in (directory, minifat, bytes(mini)):
        count = max(1, -(-len(content) // _SECTOR))
        starts.append(len(fat))
        fat += [*range(len(fat) + 1, len(fat) + count), _END]
        sectors += content.ljust(count * _SECTOR, b"\xff" if content is minifat else b"\0")
    entries[0][5], entries[0][6] = starts[2], len(mini)
    sectors[:128] = _entry(entries[0])
    fat.append(_FAT)
    table = struct.pack(f"<{len(fat)}I", *fat).ljust(_SECTOR, b"\xff")
    assert len(table) == _SECTOR, "one sector for the allocation table is enough"
    header = struct.pack(
        "<8s16x5H6xIIIIIIIIII",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6,
        0, 1, starts[0], 0, 4096, starts[1], -(-len(minifat) // _SECTOR) or 1, _END, 0, len(fat) - 1,
    )  # fmt: skip
    return header.ljust(_SECTOR, b"\xff") + bytes(sectors) + table


def _add(storage: Storage, entries: list[list[object]], parent: int, mini: bytearray, chain: list[int]) -> None:
    previous_number = 0
    for name, content in storage.items():
        number = len(entries)
        if previous_number:
            entries[previous_number][3] = number
        else:
            entries[parent][4] = number
        if isinstance(content, bytes):
            start, count = len(chain), -(-len(content) // _MINI)
            chain += [*range(start + 1, start + count), _END] if count else []
            mini += content.ljust(count * _MINI, b"\0")
            entries.append([name, 2, _NONE, _NONE, _NONE, start if count else _END, len(content)])
        else:
            entries.append([name, 1, _NONE, _NONE, _NONE, 0, 0])
            _add(content, entries, number, mini, chain)
        previous_number = number


def _entry(entry: list[object]) -> bytes:
    """Name, kind, left, right and child, start and size."""
    name, kind, left, right, child, start, size = entry
    raw = f"{name}\0".encode("utf-16-le")
    return raw.ljust(64, b"\0") + struct.pack("<HBBIII36xIQ", len(raw), kind, 1, left, right, child, start, size)


def msg(**more: bytes) -> bytes:
    """A mail with two attachments: a file, and a mail."""
    filetime = int((datetime(2026, 10, 5, 8) - datetime(1601, 1, 1)).total_seconds()) * 10**7
    properties = bytes(32) + struct.pack("<HHIQ", 0x0040, 0x0039, 6, filetime)
    inner = _message("Inside", "Deep stones.") | {"__properties_version1.0": bytes(24)}
    return ole_of(
        _message("Old Störnes", "Basalt is dark.")
        | {
            "__properties_version1.0": properties,
            "__attach_version1.0_#00000000": {
                "__substg1.0_3707001F": "../weights.csv".encode("utf-16-le"),
                "__substg1.0_37010102": b"stone,t\nbasalt,3.0\n",
                "__properties_version1.0": bytes(8),
            },
            "__attach_version1.0_#00000001": {"__substg1.0_3701000D": inner, "__properties_version1.0": bytes(8)},
        }
        | more
    )


def _message(subject: str, body: str) -> dict[str, bytes | Storage]:
    properties = {
        "001A": "IPM.Note",
        "0037": subject,
        "1000": body,
        "0C1A": "Ann Lee",
        "5D01": "ann@a.org",
        "0E04": "Bob; Cyd",
    }
    return {f"__substg1.0_{name}001F": text.encode("utf-16-le") for name, text in properties.items()}


def xls(more: bytes = b"") -> bytes:
    """A sheet of four cells, with further records."""
    name, end = b"Weights", record(0x000A)
    begin = _begin(5)
    sheet_offset = len(begin) + 4 + 8 + len(name) + len(end)
    sheet = record(0x0085, struct.pack("<IBBBB", sheet_offset, 0, 0, len(name), 0) + name)
    words = ((0, 0, b"stone"), (0, 1, b"t"), (1, 0, b"basalt"))
    cells = [
        record(0x0204, struct.pack("<4HB", row, sheet_offset, 0, len(cell_text), 0) + cell_text)
        for row, sheet_offset, cell_text in words
    ]
    cells.append(record(0x0203, struct.pack("<3Hd", 1, 1, 0, 3.0)))
    return ole_of({"Workbook": begin + sheet + end + _begin(16) + b"".join(cells) + more + end})


def record(kind: int, content: bytes = b"") -> bytes:
    return struct.pack("<HH", kind, len(content)) + content


def _begin(kind: int) -> bytes:
    """Of the book (5) or of a sheet (16)."""
    return record(0x0809, struct.pack("<4HII", 0x0600, kind, 0, 1996, 0, 6))

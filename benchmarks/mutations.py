"""Broken files: a good one with some changes, also inside of what is packed. The same draw makes the same files."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import TypeAlias

LARGE = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)
Change: TypeAlias = Callable[[bytes, list[bytes], random.Random], bytes]
"""Of a file, with pieces of others."""


def changed(data: bytes, contents: list[bytes], draw: random.Random) -> bytes:
    """A broken file; what is packed is broken inside as often as outside."""
    inside = next((change for begin, change in PACKED.items() if data.startswith(begin)), None)
    return (inside if inside and draw.random() < 0.5 else mutate)(data, contents, draw)


def mutate(data: bytes, contents: list[bytes], draw: random.Random) -> bytes:
    """A file with one to sixteen changes."""
    content = bytearray(data)
    for _ in range(1 << draw.randrange(5)):
        if not content:
            break
        index, length = draw.randrange(len(content)), 1 << draw.randrange(12)
        match draw.randrange(7):
            case 0:
                content[index] ^= 1 << draw.randrange(8)
            case 1:
                content[index : index + draw.randrange(1, 9)] = draw.randbytes(draw.randrange(1, 9))
            case 2:
                del content[index : index + length]
            case 3:
                content[index:index] = content[index : index + length] * draw.randrange(1, 4)
            case 4:
                donor = draw.choice(contents)
                begin = draw.randrange(len(donor) or 1)
                content[index : index + length] = donor[begin : begin + length]
            case 5:
                size = draw.choice((1, 2, 4, 8))
                value = draw.choice(LARGE) % (1 << 8 * size)
                content[index : index + size] = value.to_bytes(size, draw.choice(("little", "big")))
            case _:
                if draw.random() < 0.3:
                    del content[index:]
    return bytes(content)


def _repack(data: bytes, contents: list[bytes], draw: random.Random) -> bytes:
    """An archive of which one member is changed."""
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as archive, zipfile.ZipFile(out, "w") as new_archive:
        members = archive.infolist()
        chosen = draw.randrange(len(members))
        for number, member in enumerate(members):
            content = archive.read(member)
            content = mutate(content, contents, draw) if number == chosen else content
            new_archive.writestr(zipfile.ZipInfo(member.filename), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _packed_again(unpack: Callable[[bytes], bytes], pack: Callable[[bytes], bytes]) -> Change:
    return lambda data, other_values, draw: pack(mutate(unpack(data), other_values, draw))


PACKED: Mapping[bytes, Change] = {
    b"PK": _repack,
    b"\x1f\x8b": _packed_again(gzip.decompress, lambda data: gzip.compress(data, mtime=0)),
    b"BZh": _packed_again(bz2.decompress, bz2.compress),
    b"\xfd7zXZ": _packed_again(lzma.decompress, lzma.compress),
}
"""How what is packed is changed inside, by what it begins with."""

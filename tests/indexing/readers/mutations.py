"""Broken files: what a disk, a network or an enemy makes of a good one. The same seed makes the same files."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Iterator

from tests.indexing.readers.fixtures import zip_of

_NUMBERS = (b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"99999999999", b"-1")
_WORDS = (b"<", b">", b"&", b'"', b"'", b"{", b"}", b"[", b"]", b"\\", b"\0", b"\r\n", b"|", b"=", b"\xff\xfe", b"\xc3")


def mutations(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """So many broken versions of a file; those of a ZIP archive are broken inside as often as outside."""
    chance = random.Random(seed)
    members = _members(data)
    for _ in range(count):
        if members and chance.random() < 0.5:
            name = chance.choice(sorted(members))
            yield zip_of(members | {name: _broken(members[name], chance)}, zipfile.ZIP_STORED)
        else:
            yield _broken(data, chance)


def _members(data: bytes) -> dict[str, bytes]:
    if not data.startswith(b"PK"):
        return {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _broken(data: bytes, chance: random.Random) -> bytes:
    mutated = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        position = chance.randrange(len(mutated) + 1)
        size = chance.choice((1, 2, 4, 16, 100))
        kind = chance.randrange(7)
        if kind == 0:
            del mutated[position:]
        elif kind == 1:
            del mutated[position : position + size]
        elif kind == 2:
            mutated[position : position + size] = chance.randbytes(size)
        elif kind == 3:
            mutated[position:position] = mutated[position : position + size] * chance.choice((1, 3, 50))
        elif kind == 4:
            mutated[position:position] = chance.choice(_WORDS) * chance.choice((1, 3, 500))
        elif kind == 5:
            number = chance.choice(_NUMBERS)
            mutated[position : position + len(number)] = number
        elif mutated:
            mutated[position % len(mutated)] ^= 1 << chance.randrange(8)
    return bytes(mutated)

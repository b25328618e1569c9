"""Checksums of the files of a lexical index, written down beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

CHECKSUMS = "checksums.json"
_BUFFER_BYTES = 1 << 20


def checksums(folder: Path) -> dict[str, list[Any]]:
    """What was written down: size in bytes and BLAKE2b of each file."""
    found: dict[str, list[Any]] = json.loads((folder / CHECKSUMS).read_text())
    return found


def checksum(path: Path) -> list[Any]:
    """Size in bytes and BLAKE2b of a file."""
    total, size = blake2b(digest_size=16), 0
    with path.open("rb") as file:
        while piece := file.read(_BUFFER_BYTES):
            total.update(piece)
            size += len(piece)
    return [size, total.hexdigest()]


def damaged(folder: Path) -> str:
    """What is wrong with an index, in words; empty if nothing is. All of it is read."""
    return _wrong(folder, lambda path, written: checksum(path) != written)


def shortened(folder: Path) -> str:
    """What is wrong with an index as far as sizes tell, in words; nothing but sizes is read."""
    return _wrong(folder, lambda path, written: path.stat().st_size != written[0])


def _wrong(folder: Path, is_wrong: Callable[[Path, list[Any]], bool]) -> str:
    try:
        wrong = [name for name, written in checksums(folder).items() if is_wrong(folder / name, written)]
    except (OSError, ValueError) as error:
        return f"The lexical index {folder} is damaged: {error}"
    return f"The lexical index {folder} is damaged: {', '.join(wrong)} changed since it was written" if wrong else ""

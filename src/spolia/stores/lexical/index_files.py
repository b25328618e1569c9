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


FEW = 1_000
"""Nodes up to which an index is made anew as soon as one is gone: that takes less than 50 CPU-ms."""
SHARE = 0.05
"""Of a larger index, how much of it may be gone."""


def gone(folder: Path) -> int:
    """How many nodes an index counts that are gone.

    Raises:
        OSError, ValueError: it is damaged.
    """
    return sum(dead for _, dead in _segments(folder))


def is_worn(folder: Path, more: int) -> bool:
    """Whether an index is to be made anew instead of being gone on with.

    Args:
        more: nodes that are about to go.
    """
    try:
        segments = _segments(folder)
    except (OSError, ValueError):
        return False  # who goes on with it says that it is damaged
    dead, held = more + sum(dead for _, dead in segments), sum(held for held, _ in segments)
    return dead > (SHARE * held if held > FEW else 0)


def _segments(folder: Path) -> list[tuple[int, int]]:
    """Nodes in each, and how many of them are gone."""
    try:
        found = json.loads((folder / "meta.json").read_text())["segments"]
        return [(one["max_doc"], one["deletes"]["num_deleted_docs"] if one["deletes"] else 0) for one in found]
    except (KeyError, TypeError) as error:
        raise ValueError(f"meta.json lacks {error}") from error

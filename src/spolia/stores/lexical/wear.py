"""What is left in an index of nodes that are gone.

tantivy marks them, finds them no more, and counts them in its statistics until it joins the segments that they are in.
So an index is made anew from time to time, and the weights of terms are put right where it is searched.
"""

from __future__ import annotations

import json
from pathlib import Path

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

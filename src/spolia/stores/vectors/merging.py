"""Which vector segments are joined: few large ones, so that each can have a graph, and none written too often."""

from __future__ import annotations

from collections.abc import Mapping

FROZEN_ROWS = 262_144
"""A segment of so many rows is never joined again: a minute of one core builds its graph, in half a gigabyte."""
_GROWTH = 4


def joined(rows: Mapping[int, int], above: int | None, small: int, many: int) -> list[list[int]]:
    """Numbers of the segments to be joined, for each new segment; in the order in which they were written.

    As soon as some have `FROZEN_ROWS` together they are joined for good. What is left is joined when the rows that no
    graph covers have grown to a quarter of those that one does, and to `above` at least: exact search over them stays
    fast, and a row gets into another graph some few times. Small segments are joined where there are many.

    Args:
        rows: for each segment, how many it has.
        above: rows from which a segment has a graph; None for no graphs.
        small: rows below which a segment is small.
        many: small segments that are too many.

    >>> joined({1: 300_000, 2: 200_000, 3: 70_000, 4: 10}, None, small=4096, many=16)
    [[2, 3]]
    >>> joined({1: 50_000, 2: 9_000, 3: 12_000}, 20_000, small=4096, many=16)
    [[1, 2, 3]]
    """
    groups, rest = _frozen(rows)
    covered = sum(rows[number] for number in rest if above is not None and rows[number] >= above)
    loose = sum(rows[number] for number in rest) - covered
    few = [number for number in rest if rows[number] < small]
    if above is not None and loose >= max(above, covered // _GROWTH) and len(rest) > 1:
        groups.append(rest)
    elif len(few) >= many:
        groups.append(few)
    return groups


def _frozen(rows: Mapping[int, int]) -> tuple[list[list[int]], list[int]]:
    """What is joined for good, and what is left."""
    groups: list[list[int]] = []
    gathered: list[int] = []
    for number in sorted(number for number, count in rows.items() if count < FROZEN_ROWS):
        gathered.append(number)
        if sum(rows[number] for number in gathered) >= FROZEN_ROWS:
            groups.append(gathered)
            gathered = []
    return groups, gathered

"""Texts of nearly one length together, so that little is computed for padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Rows in batches of nearly one length, longest first; a batch holds at most `batch_tokens`, or one row.

    >>> list(batches([3, 9, 4, 5], 10))
    [[1], [3, 2], [0]]
    """
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch

"""Texts of one length together, so that nothing is padded and no vector depends on the texts beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Rows in batches of one length, longest first; a batch holds at most `batch_tokens`, or one row.

    What a model computes for a row then has the same shape, whatever the other rows are: padding changes the order in
    which numbers are added, and so their last bits.

    >>> list(batches([3, 9, 3, 5, 3], 6))
    [[1], [3], [0, 2], [4]]
    """
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batch and (lengths[row] != lengths[batch[0]] or lengths[row] * (len(batch) + 1) > batch_tokens):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch

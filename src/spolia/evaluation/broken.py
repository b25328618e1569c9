"""A flow that cannot be asked at all: it is refused, since its zeros would say that others are better."""

from __future__ import annotations

from collections.abc import Sequence

from spolia.errors import (
    FlowFileError,
    GroupError,
    ManifestMismatch,
    MissingExtra,
    NotAStore,
    StepFailed,
    StoreCorrupt,
    StoreTooNew,
    UndecidedError,
    WeightsError,
    WiringError,
)
from spolia.evaluation.row import Row

SURE = 5
"""Questions of which each fails the same way, so that the others would too."""
OF_THE_FLOW = {
    kind.__name__
    for kind in (
        FlowFileError, GroupError, ManifestMismatch, MissingExtra, NotAStore, StoreCorrupt, StoreTooNew,
        UndecidedError, WeightsError, WiringError,
    )
}  # fmt: skip
"""Failures that have nothing to do with what is asked."""


def refuse_broken(flow: str, rows: Sequence[Row], whole: int) -> None:
    """Refuse a flow that fails whatever it is asked.

    Args:
        flow: what it is called.
        rows: what it was asked first, in order.
        whole: how many questions there are.

    Raises:
        StepFailed: the first failed for a reason that is none of the question's; or all did, and the same way.
    """
    failures = [row.failure for row in rows]
    if not failures or failures[0] is None:
        return
    first, same = failures[0], all(one == failures[0] for one in failures)
    if first.kind in OF_THE_FLOW or (same and len(rows) >= min(SURE, max(whole, 2))):
        told = "the first question" if len(rows) == 1 else f"each of the first {len(rows)} questions, the same way"
        raise StepFailed(
            f"{flow} fails on {told}: {first.kind}: {first.message.rstrip('.')}. What cannot be asked is not measured, "
            "since its zeros would say that others are better: mend it, or leave it out."
        )

"""What is counted as degraded by whatever is run, while inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spolia.run import Run
from spolia.run.frame import Frame


@contextmanager
def degraded() -> Iterator[list[str]]:
    """The reasons, in the order that they were told."""
    reasons: list[str] = []
    whole = Frame.degrade

    def told(frame: Frame, reason: str, row: int | None, error: Exception | None = None) -> None:
        reasons.append(reason)
        whole(frame, reason, row, error)

    with pytest.MonkeyPatch.context() as patch, Run():
        patch.setattr(Frame, "degrade", told)
        yield reasons

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

    def record_failure(
        frame: Frame, reason: str, row: int | None, error: Exception | None = None, partly: bool = False
    ) -> bool:
        reasons.append(reason)
        return whole(frame, reason, row, error, partly)

    with pytest.MonkeyPatch.context() as patch, Run():
        patch.setattr(Frame, "degrade", record_failure)
        yield reasons

"""What a statement has taken so far, against what it may take."""

from __future__ import annotations

import time
from typing import Any

from spolia.core.run_context import check_cancelled
from spolia.errors import StatementError

_EVERY = 500
_MOST_KEPT = 500_000
_LARGEST = 100_000


class Meter:
    """Counts the steps and the values of one statement."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.end = time.monotonic() + timeout_s
        self.steps = self.looked = self.kept = 0

    def step(self, value: Any = None) -> None:
        """One more row, relationship or value is looked at; a long text or list is many."""
        self.steps += 1 + (len(value) // 10 if isinstance(value, (str, list)) else 0)
        if self.steps >= self.looked + _EVERY:
            self.looked = self.steps
            check_cancelled()
            if time.monotonic() > self.end:
                raise StatementError(
                    f"The statement took more than {self.timeout_s} s. Write one that reads less: with a condition, or "
                    "with shorter paths."
                )

    def keep(self) -> None:
        """One more value is held until the statement ends: to be sorted, counted or told apart."""
        self.step()
        self.kept += 1
        if self.kept > _MOST_KEPT:
            raise StatementError(f"The statement holds more than {_MOST_KEPT} rows at a time. Write a narrower one.")


def bounded(value: Any) -> Any:
    """A value that was computed, unless it has grown too large."""
    if isinstance(value, (str, list)) and len(value) > _LARGEST:
        raise StatementError(f"A value has more than {_LARGEST} characters or entries. Write a narrower statement.")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise StatementError("A number is larger than 64 bits. Write a statement with smaller ones.")
    return value

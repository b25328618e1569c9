"""What a step costs: reserved before it is sent, taken from every budget that it falls under, added up to the root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spolia.core.run_context import Reservation
from spolia.errors import BudgetSpent
from spolia.run.budget import Budget, Limiter
from spolia.types import Usage

if TYPE_CHECKING:
    from spolia.run.run import Run

FREE = Usage()


class Costs:
    """The part of a frame that pays. A frame with `rows` stands for a whole batch, whose rows pay."""

    __slots__ = ("limiters", "logical", "optional", "parent", "rows", "run", "spent")

    run: Run
    parent: Costs | None
    rows: Sequence[Costs] | None
    limiters: tuple[Limiter, ...]
    optional: bool
    logical: Usage | None
    spent: Usage | None

    @contextmanager
    def limited(self, max_calls: int) -> Iterator[None]:
        limiter = Limiter(Budget(calls=max_calls, forced=FREE), "this Guard")
        limited = (self,) if self.rows is None else self.rows
        for frame in limited:
            frame.limiters += (limiter,)
        try:
            yield
        finally:
            for frame in limited:
                frame.limiters = tuple(other for other in frame.limiters if other is not limiter)

    @contextmanager
    def reserve(self, usage: Usage, row: int | None) -> Iterator[Reservation]:
        frame = self._of(row)
        with self.run.lock:
            shares = frame.shares(usage)
            for limiter, share in shares.items():
                if why := limiter.refuses(share, optional=self.optional):
                    raise BudgetSpent(why)
            for limiter, share in shares.items():
                limiter.held += share
        held = UsageReservation(Usage(calls=usage.calls))
        try:
            yield held
        finally:
            with self.run.lock:  # in one go, or another call finds the room that this one has used
                for limiter, share in shares.items():
                    limiter.held -= share
                frame.charge(held.spent, None)

    def charge(self, usage: Usage, row: int | None) -> None:
        frame = self._of(row)
        with self.run.lock:
            for limiter, share in frame.shares(usage).items():
                limiter.spent += share
            frame.add(usage, usage)

    def shares(self, usage: Usage) -> dict[Limiter, Usage]:
        """What each budget would bear of a cost; that of a whole batch is split among its rows."""
        if self.rows is None:
            return dict.fromkeys(self.limiters, usage)
        found: dict[Limiter, Usage] = {}
        for row, part in zip(self.rows, _split(usage, len(self.rows)), strict=True):
            if part != FREE:
                for limiter, share in row.shares(part).items():
                    found[limiter] = found[limiter] + share if limiter in found else share
        return found

    def add(self, logical: Usage, spent: Usage) -> None:
        """Let a cost climb to the root. The caller holds the lock."""
        frame: Costs | None = self
        while frame is not None:
            if frame.rows is not None:
                n = len(frame.rows)
                for row, part, real in zip(frame.rows, _split(logical, n), _split(spent, n), strict=True):
                    row.add(part, real)
                return
            frame.logical = logical if frame.logical is None else frame.logical + logical
            frame.spent = spent if frame.spent is None else frame.spent + spent
            frame = frame.parent

    def _of(self, row: int | None) -> Costs:
        return self if row is None or self.rows is None else self.rows[row]


class UsageReservation:
    """What a reservation will be charged."""

    __slots__ = ("spent",)

    def __init__(self, spent: Usage) -> None:
        self.spent = spent

    def settle(self, usage: Usage) -> None:
        self.spent = usage


def _split(usage: Usage, n: int) -> list[Usage]:
    """A cost in n whole parts that add up to it."""
    names = ("calls", "input_tokens", "output_tokens", "embedded")
    return [
        Usage(
            **{name: getattr(usage, name) // n + (row < getattr(usage, name) % n) for name in names},
            cost_usd=usage.cost_usd / n,
        )
        for row in range(n)
    ]


__all__ = ["Costs"]

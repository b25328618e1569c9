"""Asking what may be away: a server that is, is not asked about thousands of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

from spolia.core.run_context import overhearing
from spolia.stores.definition import Part, Pieces, Transform
from spolia.types import Failure

FEW, MANY = 3, 64
"""Parts that a transform is given at once: until it has answered, and afterwards."""


class Reach:
    """Whether that which makes a group could be reached, in one run, and whether what it gave could be read.

    After `FEW` failures in a row of a kind that may pass, nothing more is asked for.

    Attributes:
        failure: the last one of that kind; None where there was none.
        degraded: why results are not what they should be: replies that could not be read, one each.
    """

    def __init__(self) -> None:
        self.failure: Failure | None = None
        self.degraded: list[str] = []
        self._in_a_row, self._has_answered = 0, False

    @property
    def is_away(self) -> bool:
        """Whether there is no use in asking again in this run."""
        return self._in_a_row >= FEW

    @property
    def reason(self) -> str:
        """Why the group is not in step, if nobody could be reached for what it lacks; else empty."""
        if self.failure is None or (self._has_answered and not self.is_away):
            return ""
        return f"{self.failure.kind}: {self.failure.message} What it lacks is made by the next run that finds it there."

    @property
    def makeshift(self) -> str:
        """How often results are not what they should be, and why; empty where all are."""
        if not self.degraded:
            return ""
        times = f"{len(self.degraded)} times" if len(self.degraded) > 1 else "once"
        return f"{times}: {self.degraded[-1]} To have these made again, drop the group and build it."

    def answers(self, transform: Transform, parts: Sequence[Part]) -> Iterator[Pieces | Failure]:
        """What a transform makes of each part; once it is away, the failure that told so."""
        at = 0
        while at < len(parts) and not self.is_away:
            some = parts[at : at + (MANY if self._has_answered else FEW)]
            with overhearing() as said:
                found = transform.batch(some)
            self.degraded += said
            self._note(found)
            yield from found
            at += len(some)
        if at < len(parts):
            assert self.failure is not None
            yield from repeat(self.failure, len(parts) - at)

    def _note(self, answers: Sequence[Pieces | Failure]) -> None:
        for answer in answers:
            if isinstance(answer, Failure) and passes(answer):
                self.failure, self._in_a_row = answer, self._in_a_row + 1
            else:
                self._has_answered, self._in_a_row = True, 0


def passes(failure: Failure) -> bool:
    """Whether it lies at what was asked, which may be there another time."""
    return bool(getattr(failure.raised(), "transient", False))

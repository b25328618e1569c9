"""What an experiment says of one flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from spolia.errors import DataError
from spolia.evaluation.measures.measured import Measured
from spolia.evaluation.row import Row
from spolia.evaluation.statistics.interval import Interval
from spolia.types import Failure, Usage, Value


@dataclass(frozen=True)
class Latency(Value):
    """How long questions took. Those answered from a cache tell nothing of that, and are left out.

    Args:
        setup_s: opening stores, building groups that were not there, and the first question, which loads models.
        p50_s: half of the other questions took at most so long; None where there is none.
        p95_s: and 95 of 100 at most so long.
        n: questions behind that.
        cached: left out, because a step's result came from the cache.
        at_once: how many questions were asked at the same time.
    """

    setup_s: float = 0.0
    p50_s: float | None = None
    p95_s: float | None = None
    n: int = 0
    cached: int = 0
    at_once: int = 1

    @classmethod
    def of(cls, rows: Sequence[Row], at_once: int) -> Latency:
        """The latency of the rows of a flow."""
        first = [row.opening + row.seconds for row in rows if row.opening is not None]
        others = [row for row in rows if row.opening is None]
        taken = sorted(row.seconds for row in others if not row.cached)
        p50, p95 = (taken[-(-len(taken) * share // 100) - 1] if taken else None for share in (50, 95))
        return cls(max(first, default=0.0), p50, p95, len(taken), len(others) - len(taken), at_once)

    def json(self) -> dict[str, Any]:
        """Plain data, seconds."""
        return {name: getattr(self, name) for name in type(self).__dataclass_fields__}


@dataclass(frozen=True)
class Evaluation(Value):
    """What a flow scored.

    Args:
        flow: what it is called.
        notation: how it is written.
        data: what the questions are called.
        measured: by measure, its number, and of how many questions it is made.
        intervals: by measure; None where no question is determined.
        failures: ids of the questions on which the flow failed, which score 0, with what happened.
        without_gold: how many questions were left out because no measure applies to them.
        n: questions that were asked.
        usage: what the flow needed, results from a cache included.
        spent: what it really spent.
        judging: what judges spent on it.
        latency: how long questions took.
        seconds: all questions together, one after the other.
    """

    flow: str
    notation: str
    data: str
    n: int
    measured: tuple[Measured, ...]
    intervals: tuple[Interval | None, ...]
    failures: tuple[tuple[str, Failure], ...] = ()
    without_gold: int = 0
    usage: Usage = field(default=Usage())
    spent: Usage = field(default=Usage())
    judging: Usage = field(default=Usage())
    latency: Latency = field(default=Latency())
    seconds: float = 0.0

    def interval(self, measure: str) -> Interval | None:
        """The number of a measure, as it is written, with its interval; None where no question is determined.

        Raises:
            DataError: it was not measured.
        """
        names = [one.measure for one in self.measured]
        if measure not in names:
            raise DataError(f"{measure!r} was not measured. Measured: {', '.join(names)}.")
        return self.intervals[names.index(measure)]

    def json(self) -> dict[str, Any]:
        """The report as plain data, means in 0 to 1."""
        nothing = {"mean": None, "low": None, "high": None, "n": 0}
        measures = {
            one.measure: (interval.json() if interval is not None else nothing) | {"undetermined": one.undetermined}
            for one, interval in zip(self.measured, self.intervals, strict=True)
        }
        usage = {name: getattr(self, name) for name in ("usage", "spent", "judging")}
        return {
            "flow": self.flow,
            "data": self.data,
            "n": self.n,
            "measures": measures,
            "usage": _plain(usage.pop("usage")),
            "seconds": self.seconds,
            "failures": len(self.failures),
            "without_gold": self.without_gold,
            "latency": self.latency.json(),
            **{name: _plain(one) for name, one in usage.items()},
            "notation": self.notation,
        }


def _plain(usage: Usage) -> dict[str, Any]:
    return {name: getattr(usage, name) for name in Usage.__dataclass_fields__}

"""A flow asked question by question: each in a lane of its own, measured and kept as soon as it is answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

from spolia.errors import BudgetSpent
from spolia.evaluation.identity import inside
from spolia.evaluation.measures.measure import Case, CostMeasure, Measure, Result, Seen, SetMeasure
from spolia.evaluation.row import Row
from spolia.models.protocols import LanguageModel
from spolia.operator import Operator
from spolia.run import Run
from spolia.surrounding import attempt, gather
from spolia.types import Failure, Item, Query


@dataclass(frozen=True)
class Asking:
    """Ask one flow.

    Args:
        run: whose cache, budget and threads are used, by the flow and by judges; it is entered already.
        name: of the flow.
        flow: gives a ranking or an answer for a query.
        measures: what to measure.
        keep: called with each row, by several threads at once.
    """

    run: Run
    name: str
    flow: Operator[Query, Result]
    measures: Sequence[SetMeasure]
    keep: Callable[[Row], None]

    @property
    def waits(self) -> bool:
        """Whether several questions are asked at the same time: where a model is waited for, by the flow or a judge."""
        judges = any(isinstance(part, LanguageModel) for measure in self.measures for part in inside(measure))
        return self.flow.waiting or judges

    def ask(self, items: Sequence[Item], opening: float = 0.0) -> None:
        """Ask the questions, the first one alone: it waits for models to be loaded.

        Args:
            opening: seconds that it took to open the stores.

        Raises:
            BudgetSpent: the run's budget has no room for another call; what was answered is kept.
            MeasureError: the flow gives nothing that a measure can be taken of.
        """
        self._ask(items[:1], opening)
        for start in range(1, len(items), self.run.window):
            self._ask(items[start : start + self.run.window])

    def _ask(self, items: Sequence[Item], opening: float | None = None) -> None:
        for result in gather([partial(self._one, item, opening) for item in items], waits=self.waits):
            if isinstance(result, Failure):
                raise result.raised()

    def _one(self, item: Item, opening: float | None) -> None:
        with self.run.lane() as lane:
            started = time.perf_counter()
            result = attempt(partial(self.flow, Query(item.question)))
            seconds = time.perf_counter() - started
        case = Case(item, result, lane.usage, tuple(lane.retrievals))
        with self.run.lane() as judging:
            seen = tuple((str(measure), _seen(measure, case)) for measure in self.measures if measure.applies(item))
        if self.run.exhausted:
            raise BudgetSpent(
                f"The budget of this run is spent at question {item.id!r} of {self.name}. What was "
                "answered is kept where the experiment has a file: raise the budget, and go on."
            )
        more: dict[str, Any] = {"seconds": seconds, "opening": opening, "run": self.run.id if lane.number else ""}
        more |= {"judging": judging.spent, "interrupted": lane.interrupted or judging.interrupted}
        self.keep(Row.of(self.name, case, lane, seen=seen, **more))


def _seen(measure: SetMeasure, case: Case) -> Seen | None:
    """What a case adds; a score that is no number is undetermined."""
    (seen,) = measure.all_seen([case])
    single = isinstance(measure, Measure | CostMeasure)
    return None if single and seen is not None and not isfinite(seen[0]) else seen

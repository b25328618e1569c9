"""A flow that cannot be asked at all: it is refused, since its zeros would say that others are better."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import isfinite
from typing import TYPE_CHECKING, Any

from spolia.core.operator import Operator
from spolia.core.run_context import attempt, gather
from spolia.errors import (
    BudgetSpent,
    FlowFileError,
    GroupError,
    ManifestMismatch,
    MeasureError,
    MissingExtra,
    NotAStore,
    StepFailed,
    StoreCorrupt,
    StoreTooNew,
    UndecidedError,
    WeightsError,
    WiringError,
)
from spolia.evaluation.experiment.flows import inside
from spolia.evaluation.experiment.rows import QuestionRow, RowFile
from spolia.evaluation.measures.measure import Case, CostMeasure, Measure, Result, Seen, SetMeasure
from spolia.models.protocols import LanguageModel
from spolia.run import Run
from spolia.types import Failure, Item, Query

if TYPE_CHECKING:
    from spolia.evaluation.experiment.experiment import Experiment


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


def refuse_broken(flow: str, rows: Sequence[QuestionRow], whole: int) -> None:
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


def too_short(experiment: Experiment, rows: Mapping[tuple[str, str], QuestionRow]) -> Iterator[str]:
    """Of each flow that is cut off by its `top_k` before a measure's k: that R@10 is then R@3 for it."""
    for name, flow in experiment.flows:
        longest = max(len(rows[name, item.id].found) for item in experiment.asked)
        deeper = [str(one) for one in experiment.measures if (getattr(one, "k", None) or 0) > longest]
        if deeper and longest in {getattr(one, "top_k", None) for one in inside(flow)}:
            yield (
                f"{name} stops at {longest} (top_k={longest}), so that {', '.join(deeper)} cannot say more of it than "
                f"at {longest}."
            )


@dataclass
class FlowExecution:
    """Ask one flow: `begin`, then `finish`.

    Args:
        run: whose cache, budget and threads are used, by the flow and by judges; it is entered already.
        name: of the flow.
        flow: gives a ranking or an answer for a query.
        measures: what to measure.
        items: the questions.
        whole: how many there are with those that were asked before.
        rows: where each row is kept as soon as it is there.
        told: called with the flow, how many questions it was asked, and of how many; by several threads at once.
    """

    run: Run
    name: str
    flow: Operator[Query, Result]
    measures: Sequence[SetMeasure]
    items: Sequence[Item]
    whole: int
    rows: RowFile
    told: Callable[[str, int, int], None]

    def __post_init__(self) -> None:
        self._done = count(self.whole - len(self.items) + 1)

    @property
    def waits(self) -> bool:
        """Whether several questions are asked at the same time: where a model is waited for, by the flow or a judge."""
        judges = any(isinstance(part, LanguageModel) for measure in self.measures for part in inside(measure))
        return self.flow.waiting or judges

    def begin(self, opening: float) -> None:
        """Ask the first of the questions, the very first alone: it waits for models to be loaded.

        Args:
            opening: seconds that it took to open the stores.

        Raises:
            StepFailed: the flow fails whatever it is asked; nothing of that is kept.
            BudgetSpent: the run's budget has no room for another call; what was answered is kept.
            MeasureError: the flow gives nothing that a measure can be taken of, or a measure fails.
        """
        rows: list[QuestionRow] = []
        for some in (self.items[:1], self.items[1:SURE]):
            rows += self._ask(some, opening if not rows else None)
            try:
                refuse_broken(self.name, rows, self.whole)
            except StepFailed:
                self.rows.drop(rows)
                raise

    def finish(self) -> None:
        """Ask the others; raises as `begin`."""
        others = self.items[SURE:]
        for start in range(0, len(others), self.run.window):
            self._ask(others[start : start + self.run.window])

    def _ask(self, items: Sequence[Item], opening: float | None = None) -> list[QuestionRow]:
        found = gather([partial(self._one, item, opening) for item in items], waits=self.waits)
        if failed := next((one for one in found if isinstance(one, Failure)), None):
            raise failed.raised()
        return [one for one in found if isinstance(one, QuestionRow)]

    def _one(self, item: Item, opening: float | None) -> QuestionRow:
        with self.run.lane() as lane:
            started = time.perf_counter()
            result = attempt(partial(self.flow, Query(item.question)))
            seconds = time.perf_counter() - started
        case = Case(item, result, lane.usage, tuple(lane.retrievals))
        with self.run.lane() as judging:
            seen = tuple((str(one), self._seen(one, case)) for one in self.measures if one.applies(item))
        if self.run.exhausted:
            raise BudgetSpent(
                f"The budget of this run is spent at question {item.id!r} of {self.name}. What was "
                "answered is kept where the experiment has a file: raise the budget, and go on."
            )
        more: dict[str, Any] = {"seconds": seconds, "opening": opening, "run": self.run.id if lane.number else ""}
        more |= {"judging": judging.spent, "interrupted": lane.interrupted or judging.interrupted}
        row = QuestionRow.of(self.name, case, lane, seen=seen, **more)
        self.rows.keep(row)
        self.told(self.name, next(self._done), self.whole)
        return row

    def _seen(self, measure: SetMeasure, case: Case) -> Seen | None:
        """What a case adds; a score that is no number is undetermined.

        Raises:
            MeasureError: the measure fails; names the question.
        """
        try:
            (seen,) = measure.all_seen([case])
        except BudgetSpent:
            raise
        except Exception as error:
            said = str(error) if isinstance(error, MeasureError) else f"{type(error).__name__}: {error}"
            raise MeasureError(
                f"{measure} cannot be taken of what {self.name} gave for question {case.item.id!r}: "
                f"{said.removesuffix('.')}. The others that were asked are kept where the experiment has a file."
            ) from error
        single = isinstance(measure, Measure | CostMeasure)
        return None if single and seen is not None and not isfinite(seen[0]) else seen

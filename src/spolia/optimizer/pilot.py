"""Costs of a score, measured on a few flows and questions before a study is planned."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, Self, TypeAlias

from spolia.checksums import recall
from spolia.errors import BudgetSpent
from spolia.optimizer.budget import CALLS, SECONDS, TOKENS, USD, RowCost
from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.flow_scores import FlowScores
from spolia.optimizer.plan import TuningPlan
from spolia.optimizer.score_board import FIRST_QUESTIONS
from spolia.types import Value

Range: TypeAlias = tuple[float, float, float]
MODEL_FLOWS, FREE_FLOWS = 3, 64
"""Flows of a pilot beside the default: of a space that asks language models, and of one that does not."""


@dataclass(frozen=True)
class Pilot(Value):
    """Costs of scores, measured before a study.

    Args:
        mean: over all of its scores; contexts that several flows show were asked once.
        costs: by flow, as each needs it alone.
        rows: scores that were computed.
        held: tokens and USD that its calls held until they were answered, at the most.
    """

    mean: RowCost
    costs: tuple[RowCost, ...] = ()
    rows: int = 0
    held: RowCost = field(default=RowCost())

    def span(self, unit: str) -> tuple[float, float]:
        """Return the amount of the flow that takes least, and of the one that takes most."""
        amounts = [cost.amount(unit) for cost in self.costs] or [self.mean.amount(unit)]
        return min(amounts), max(amounts)

    def json(self) -> dict[str, Any]:
        """Return the pilot as plain data."""
        return asdict(self)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read a stored pilot; None if no readable one exists."""
        try:
            plain = recall(path) or {}
            costs = tuple(RowCost(**entry) for entry in plain["costs"])
            return cls(RowCost(**plain["mean"]), costs, plain["rows"], RowCost(**plain["held"]))
        except (LookupError, TypeError):
            return None

    @classmethod
    def measure(cls, scores: FlowScores, flows: Sequence[int]) -> tuple[Self, bool]:
        """Ask flows a few questions, and return what a score took and whether no budget ended it early; the scores are
        stored like all others.

        The first question is not timed: models are loaded for it.
        """
        groups = [[flow] for flow in flows] if asks_models(scores.candidates) else [list(flows)]
        spent_before, needed_before, rows, seconds, timed = scores.spent, scores.needed, scores.rows, 0.0, 0
        questions, costs, is_ended = min(FIRST_QUESTIONS, len(scores.items)), list[RowCost](), False
        for group in groups:
            group_before, start, rows_before = scores.needed, perf_counter(), scores.rows
            try:
                scores(group, range(1))
                start, rows_before = perf_counter(), scores.rows
                scores(group, range(1, questions))
            except BudgetSpent:
                is_ended = True
            took = perf_counter() - start
            seconds, timed = seconds + took, timed + scores.rows - rows_before
            if is_ended:
                break
            if not all(flow in scores.excluded for flow in group):
                costs.append(RowCost.from_usage(scores.needed - group_before, took, questions * len(group)))
        rows = scores.rows - rows
        usage = scores.spent - spent_before
        mean = RowCost.from_usage(usage, 0.0, max(1, rows))
        if not usage.calls:  # all from a cache, or kept from before: others will not be
            mean = RowCost.from_usage(scores.needed - needed_before, 0.0, max(1, questions * len(costs)))
        return cls(mean.but(seconds=seconds / max(1, timed)), tuple(costs), rows), not is_ended


@dataclass(frozen=True)
class StudyEstimate(Value):
    """Estimate of what a whole study would take: at least, about, at most.

    Args:
        choosing, reporting: scores.
    """

    choosing: int
    reporting: int
    calls: Range
    tokens: Range
    usd: Range
    seconds: Range

    @classmethod
    def from_pilot(cls, plan: TuningPlan, pilot: Pilot, context_share: float = 1.0) -> Self:
        """Estimate a study whose scores take what those of a pilot took; `context_share` of them have a context of
        their own."""
        reporting = plan.count_finalists(plan.rows) * len(plan.fresh)
        rows = plan.rows + reporting

        def estimate_range(unit: str) -> Range:
            about, (minimum, maximum) = pilot.mean.amount(unit), pilot.span(unit)
            part = 1.0 if unit == SECONDS else context_share
            return part * rows * min(minimum, about), (part * plan.rows + reporting) * about, rows * max(maximum, about)

        return cls(plan.rows, reporting, *map(estimate_range, (CALLS, TOKENS, USD, SECONDS)))


def asks_models(candidates: FlowTable) -> bool:
    """Return whether flows of the space ask language models."""
    return candidates.space.flow.calls() != 0


def choose_pilot_flows(candidates: FlowTable, prior: Sequence[int], seed: int) -> list[int]:
    """Return the default flow, the best flow of earlier studies, and a few drawn ones."""
    sample = candidates.draw_flows(MODEL_FLOWS if asks_models(candidates) else FREE_FLOWS, Random(seed))
    return list(dict.fromkeys([0, *prior[:1], *sample]))

"""What a score takes, measured on a few flows and questions before a study is planned."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, Self, TypeAlias

from spolia.checksums import recall
from spolia.errors import BudgetSpent
from spolia.optimizer.budget import CALLS, SECONDS, TOKENS, USD, RowCost
from spolia.optimizer.candidates import Candidates
from spolia.optimizer.flow_scores import FlowScores
from spolia.optimizer.plan import TuningPlan
from spolia.optimizer.score_board import FIRST
from spolia.types import Value

Range: TypeAlias = tuple[float, float, float]
ASKING, FREE = 3, 64
"""Flows of a pilot beside the default: of a space that asks language models, and of one that does not."""


@dataclass(frozen=True)
class Pilot(Value):
    """What a score took.

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
        """From the flow that takes least to the one that takes most."""
        found = [one.amount(unit) for one in self.costs] or [self.mean.amount(unit)]
        return min(found), max(found)

    def json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """A stored pilot; None if no readable one exists."""
        try:
            plain = recall(path) or {}
            costs = tuple(RowCost(**one) for one in plain["costs"])
            return cls(RowCost(**plain["mean"]), costs, plain["rows"], RowCost(**plain["held"]))
        except (LookupError, TypeError):
            return None

    @classmethod
    def measured(cls, scores: FlowScores, flows: Sequence[int]) -> tuple[Self, bool]:
        """Flows asked a few questions; their scores are kept as all others. And whether no budget ended it early.

        The first question is not timed: models are loaded for it.
        """
        groups = [[flow] for flow in flows] if asks_models(scores.candidates) else [list(flows)]
        spent, needed, rows, seconds, timed = scores.spent, scores.needed, scores.rows, 0.0, 0
        questions, costs, ended = min(FIRST, len(scores.items)), list[RowCost](), False
        for group in groups:
            own, start, asked = scores.needed, perf_counter(), scores.rows
            try:
                scores(group, range(1))
                start, asked = perf_counter(), scores.rows
                scores(group, range(1, questions))
            except BudgetSpent:
                ended = True
            took = perf_counter() - start
            seconds, timed = seconds + took, timed + scores.rows - asked
            if ended:
                break
            if not all(flow in scores.excluded for flow in group):
                costs.append(RowCost.of(scores.needed - own, took, questions * len(group)))
        rows = scores.rows - rows
        taken = scores.spent - spent
        mean = RowCost.of(taken, 0.0, max(1, rows))
        if not taken.calls:  # all from a cache, or kept from before: others will not be
            mean = RowCost.of(scores.needed - needed, 0.0, max(1, questions * len(costs)))
        return cls(mean.but(seconds=seconds / max(1, timed)), tuple(costs), rows), not ended


@dataclass(frozen=True)
class StudyEstimate(Value):
    """What a whole study would take: the least, about as much, the most.

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
    def of(cls, plan: TuningPlan, pilot: Pilot, own: float = 1.0) -> Self:
        """If scores take what those of a pilot took, and so large a share of them has a context of its own."""
        reporting = plan.finalists(plan.rows) * len(plan.fresh)
        rows = plan.rows + reporting

        def whole(unit: str) -> Range:
            about, (least, most) = pilot.mean.amount(unit), pilot.span(unit)
            part = 1.0 if unit == SECONDS else own
            return part * rows * min(least, about), (part * plan.rows + reporting) * about, rows * max(most, about)

        return cls(plan.rows, reporting, *map(whole, (CALLS, TOKENS, USD, SECONDS)))


def asks_models(candidates: Candidates) -> bool:
    """Whether flows of the space ask language models."""
    return candidates.space.flow.calls() != 0


def pilot_flows(candidates: Candidates, prior: Sequence[int], seed: int) -> list[int]:
    """The default, what was best elsewhere, and a few drawn."""
    drawn = candidates.draw(ASKING if asks_models(candidates) else FREE, Random(seed))
    return list(dict.fromkeys([0, *prior[:1], *drawn]))

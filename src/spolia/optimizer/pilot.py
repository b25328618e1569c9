"""What a score takes, measured on a few flows and questions before a study is planned."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, Self

from spolia.errors import BudgetSpent
from spolia.optimizer.board import FIRST
from spolia.optimizer.budget import RowCost
from spolia.optimizer.candidates import Candidates
from spolia.optimizer.flow_scores import FlowScores
from spolia.types import Value

ASKING, FREE = 3, 64
"""Flows of a pilot beside the default: of a space that asks language models, and of one that does not."""


@dataclass(frozen=True)
class Pilot(Value):
    """What a score took.

    Args:
        mean: over all of its scores; contexts that several flows show were asked once.
        costs: by flow, as each needs it alone.
        rows: scores that were computed.
        ended: why it ended early; empty where it did not.
    """

    mean: RowCost
    costs: tuple[RowCost, ...] = ()
    rows: int = 0
    ended: str = ""

    def span(self, unit: str) -> tuple[float, float]:
        """From the flow that takes least to the one that takes most."""
        found = [one.amount(unit) for one in self.costs] or [self.mean.amount(unit)]
        return min(found), max(found)

    def json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """A pilot that was kept; None where there is none that can be read."""
        try:
            plain = json.loads(path.read_text("utf-8"))
            costs = tuple(RowCost(**one) for one in plain["costs"])
            return cls(RowCost(**plain["mean"]), costs, plain["rows"])
        except (OSError, ValueError, LookupError, TypeError):
            return None

    @classmethod
    def measured(cls, scores: FlowScores, flows: Sequence[int]) -> Self:
        """Flows asked a few questions; their scores are kept as all others. A budget may end it early.

        The first question is not timed: models are loaded for it.
        """
        groups = [[flow] for flow in flows] if asks_models(scores.candidates) else [list(flows)]
        spent, needed, rows, seconds, timed = scores.spent, scores.needed, scores.rows, 0.0, 0
        questions, costs, ended = min(FIRST, len(scores.items)), list[RowCost](), ""
        for group in groups:
            own, start, asked = scores.needed, perf_counter(), scores.rows
            try:
                scores(group, range(1))
                start, asked = perf_counter(), scores.rows
                scores(group, range(1, questions))
            except BudgetSpent as error:
                ended = str(error)
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
        return cls(mean.but(seconds=seconds / max(1, timed)), tuple(costs), rows, ended)


def asks_models(candidates: Candidates) -> bool:
    """Whether flows of the space ask language models."""
    return candidates.space.flow.calls() != 0


def pilot_flows(candidates: Candidates, prior: Sequence[int], seed: int) -> list[int]:
    """The default, what was best elsewhere, and a few drawn."""
    drawn = candidates.draw(ASKING if asks_models(candidates) else FREE, Random(seed))
    return list(dict.fromkeys([0, *prior[:1], *drawn]))

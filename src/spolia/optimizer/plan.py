"""What a study will ask: which flows, which questions to choose and to report, how many scores."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from random import Random
from typing import Any, Self

from spolia.core.combinators.space import Space
from spolia.core.operator import Operator
from spolia.core.plurals import several
from spolia.errors import DataError
from spolia.evaluation.data.dataset import part_of
from spolia.evaluation.data.usage_log import REPORT
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.measures.measure import SetMeasure
from spolia.optimizer.board import Board
from spolia.optimizer.budget import TuningBudget
from spolia.optimizer.candidates import Candidates
from spolia.optimizer.named_strategies import strategy_named
from spolia.optimizer.objectives import Limit, Objectives
from spolia.optimizer.strategies import GridSearch, HalvingWithNeighbours, Strategy
from spolia.types import Item, Query

FEW = 200
"""Questions below which none are kept for the report: all choose, and the score is corrected for the choice, which is
known how for one objective."""


@dataclass(frozen=True, eq=False)
class TuningPlan:
    """What a study is about, checked before anything is asked.

    Args:
        choosing: the questions that choose, in the order in which they are asked.
        fresh: those that report; none where there are too few.
        rows: how many scores may be asked for to choose.
        seed: of all that is drawn.
    """

    candidates: Candidates
    objectives: Objectives
    choosing: Sequence[Item]
    fresh: Sequence[Item]
    strategy: Strategy
    rows: int
    seed: int

    @classmethod
    def of(
        cls,
        flow: Operator[Query, Any],
        items: Iterable[Item],
        objective: str | SetMeasure | Sequence[SetMeasure],
        *,
        budget: str | TuningBudget | None = None,
        strategy: str | Strategy | None = None,
        seed: int = 0,
        under: Sequence[str | Limit] = (),
    ) -> Self:
        """The plan for these arguments of `tune`, which names the errors."""
        objectives = Objectives.of(objective, under)
        measures = objectives.measures
        every = Experiment(flow, items, measures).asked  # which refuses what cannot be measured
        asked = [item for item in every if all(measure.applies(item) for measure in measures)]
        if not asked:
            raise DataError(f"No question has gold for all of {', '.join(map(str, measures))}. Name fewer measures.")
        candidates = Candidates(Space(flow), seed)
        choosing, fresh = _parts(asked, seed, FEW if len(objectives.best) == 1 else 0)
        if len(objectives.best) > 1 and not fresh:
            raise DataError(f"Several objectives need more than {several(len(asked), 'question')}. Write more, or one.")
        given = TuningBudget.parse(budget) if isinstance(budget, str) else budget
        _refuse_space(candidates, given, len(choosing))
        grid = candidates.size * len(choosing)
        rows = grid if given is None else given.rows(grid)
        if isinstance(strategy, str):
            strategy = strategy_named(strategy)
        strategy = strategy or (GridSearch() if rows == grid else HalvingWithNeighbours())
        if not (strategy.takes_several or objectives.is_single):
            raise DataError(f"{strategy!r} takes one objective without limits. Name another strategy.")
        found = cls(candidates, objectives, choosing, fresh, strategy, rows, seed)
        found._refuse_small()
        return found

    @property
    def grid(self) -> int:
        """How many scores there are in all: flows × questions that choose."""
        return self.candidates.size * len(self.choosing)

    @property
    def items(self) -> Sequence[Item]:
        """All questions, in the order in which they are asked."""
        return [*self.choosing, *self.fresh]

    def board(self, prior: Sequence[int] = ()) -> Board:
        """An empty matrix of scores."""
        return Board(self.candidates, len(self.choosing), self.rows, self.seed, prior, self.objectives)

    def _refuse_small(self) -> None:
        if self.rows < (least := min(self.grid, self.strategy.least(self.board()))):
            raise DataError(
                f"A budget of {several(self.rows, 'row')} is too small for {self.strategy!r} on "
                f"{several(self.candidates.size, 'flow')} and {several(len(self.choosing), 'question')}. Write at "
                f"least '{least} rows', or {ceil(10_000 * least / self.grid) / 100:g}%."
            )


def _parts(items: Sequence[Item], seed: int, few: int) -> tuple[list[Item], list[Item]]:
    """The questions that choose, in the order in which they are asked, and those that report."""
    listed = list(items)
    fresh = [item for item in listed if part_of(item.id) == REPORT]
    choosing = [item for item in listed if part_of(item.id) != REPORT]
    if len(listed) < few or not fresh or not choosing:
        fresh, choosing = [], listed
    Random(seed).shuffle(choosing)
    return choosing, fresh


def _refuse_space(candidates: Candidates, budget: TuningBudget | None, questions: int) -> None:
    if candidates.size < 2:
        what = "gives the same flow at every point" if candidates.space.places else "has no open places"
        raise DataError(f"There is nothing to choose: the space {what}. Write Choice(...), or .vary(top_k=(5, 10)).")
    if not candidates.is_listed and (budget is None or budget.is_share):
        raise DataError(
            f"The space has about {candidates.size:.2g} points, too many to ask a share of them. Write a budget in "
            f"rows, such as '{40 * questions} rows'."
        )

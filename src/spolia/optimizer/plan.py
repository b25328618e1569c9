"""Plan of a study: its flows, the questions that choose and report, and how many scores it asks for."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from spolia.evaluation.measures.costs import UsDollars
from spolia.evaluation.measures.measure import SetMeasure
from spolia.models.protocols import LanguageModel, pricing_of
from spolia.optimizer.budget import USD, RowCost, TuningBudget
from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.contexts import Contexts
from spolia.optimizer.model_based import HierarchicalBandit, TreeParzen
from spolia.optimizer.objectives import Limit, Objectives
from spolia.optimizer.score_board import Board
from spolia.optimizer.strategies import (
    GreedySearch,
    GridSearch,
    Halving,
    HalvingWithNeighbours,
    ModelsFirst,
    Racing,
    RandomSearch,
    Strategy,
)
from spolia.run import Run
from spolia.types import Item, Query, Usage

FINALISTS = 16
MINIMUM_TO_HOLD_OUT = 200
"""Questions below which none are kept for the report: all choose, and the score is corrected for the choice, which is
known how for one objective."""

STRATEGIES: Mapping[str, Strategy] = {
    "neighbours": HalvingWithNeighbours(), "halving": Halving(), "third": Halving(1 / 3), "greedy": GreedySearch(),
    "models-first": ModelsFirst(), "tpe": TreeParzen(), "prove": Racing(), "random": RandomSearch(),
    "grid": GridSearch(), "bandit": HierarchicalBandit(),
}  # fmt: skip
"""As `spolia tune --strategy` takes them."""


@dataclass(frozen=True, eq=False)
class TuningPlan:
    """Plan of a study, checked before anything is asked.

    Args:
        choosing: the questions that choose, in the order in which they are asked.
        fresh: those that report; none where there are too few.
        rows: how many scores may be asked for to choose; of a budget in calls, tokens, USD or time it is not known
            before `fit_budget`.
        seed: of all that is drawn.
        budget: None for all scores.
        named_strategy: the strategy that was named; None for the default one.
        trained: how many questions are left out, because a part of a candidate was trained on them.
        copies: how many are left out, because they have the text of another one: neither a fresh question nor another
            sample.
        without_gold: how many are left out, because they have no gold for one of the measures.
    """

    candidates: FlowTable
    objectives: Objectives
    choosing: Sequence[Item]
    fresh: Sequence[Item]
    strategy: Strategy
    rows: int
    seed: int
    budget: TuningBudget | None = None
    named_strategy: Strategy | None = None
    trained: int = 0
    copies: int = 0
    without_gold: int = 0

    @classmethod
    def from_space(
        cls,
        flow: Operator[Query, Any],
        items: Iterable[Item],
        objective: str | SetMeasure | Sequence[SetMeasure],
        *,
        budget: str | TuningBudget | None = None,
        strategy: str | Strategy | None = None,
        seed: int = 0,
        under: Sequence[str | Limit] = (),
        combine: str = "front",
    ) -> Self:
        """Make the plan for these arguments of `tune`, which names the errors."""
        objectives = Objectives.from_measures(objective, under, combine)
        measures = objectives.measures
        experiment = Experiment(flow, items, measures, overlap=True)  # refuses what cannot be measured
        usable_items = [
            item for item in experiment.measurable_items if all(measure.applies(item) for measure in measures)
        ]
        if not usable_items:
            raise DataError(f"No question has gold for all of {', '.join(map(str, measures))}. Name fewer measures.")
        without_gold, trained = len(experiment.items) - len(usable_items), frozenset(experiment.trained_on)
        usable_items = [item for item in usable_items if item.id not in trained]
        if not usable_items:
            raise DataError(
                f"A part of a candidate was trained on all {several(len(trained), 'question')}, so their scores would "
                "choose it. Give other questions."
            )
        # Reversed twice, so that the first of equal questions stays, at its place.
        different = list(
            {" ".join(item.question.casefold().split()): item for item in reversed(usable_items)}.values()
        )[::-1]
        copies, usable_items = len(usable_items) - len(different), different
        candidates = FlowTable(Space(flow), seed)
        choosing, fresh = _split_items(usable_items, seed, MINIMUM_TO_HOLD_OUT if len(objectives.best) == 1 else 0)
        if len(objectives.best) > 1 and not fresh:
            note = f" ({len(trained)} were left out: a part of a candidate was trained on them)" if trained else ""
            raise DataError(
                f"Several objectives need more than {several(len(usable_items), 'question')}{note}. Give more "
                "questions, or one objective."
            )
        if isinstance(budget, str):
            budget = TuningBudget.parse(budget)
        if (budget and budget.unit == USD) or any(isinstance(measure, UsDollars) for measure in measures):
            _refuse_unpriced(flow)
        # Before any score is asked for: a share of a huge space has no number of rows.
        _refuse_space(candidates, budget, len(choosing))
        if isinstance(strategy, str):
            strategy = find_strategy(strategy)
        if strategy and not (strategy.takes_several or objectives.is_single):
            raise DataError(f"{strategy!r} takes one objective without limits. Name another strategy.")
        left_out = {"trained": len(trained), "copies": copies, "without_gold": without_gold}
        # The strategy and the rows depend on the budget: `fit_budget` puts them in.
        plan = cls(candidates, objectives, choosing, fresh, GridSearch(), 0, seed, budget, strategy, **left_out)
        # A cost is first measured by the pilot.
        return plan.but(rows=plan.grid) if budget and budget.is_cost else plan.fit_budget(RowCost())

    def fit_budget(self, row_cost: RowCost, held_cost: RowCost | None = None) -> Self:
        """Return the plan if each score takes `row_cost` and open calls hold `held_cost`; `DataError` if the budget is
        too small."""
        rows = self.grid if self.budget is None else self.budget.rows(self.grid, row_cost)
        if self.budget is not None and self.budget.is_cost:
            rows = self._count_choosing_rows(
                self.budget.rows(self.grid + FINALISTS * len(self.fresh), row_cost, held_cost)
            )
        default = GridSearch() if rows == self.grid else HalvingWithNeighbours()
        plan = self.but(rows=rows, strategy=self.named_strategy or default)
        minimum = min(self.grid, plan.strategy.minimum_rows(plan.make_board()))
        if self.budget is not None and rows < minimum:
            raise DataError(self._explain_too_small(self.budget, plan.strategy, minimum, row_cost, held_cost))
        return plan

    def but(self, **changes: Any) -> Self:
        """Return the same plan with some fields changed."""
        return replace(self, **changes)

    def _count_choosing_rows(self, rows: int) -> int:
        """Return how many of these scores choose: the finalists on the fresh questions take the rest."""
        n = len(self.fresh)
        if not n:
            return min(self.grid, rows)
        # For each number k of finalists: the most rows with which `count_finalists` gives k and all is paid.
        limits = [min(rows - k * n, (k + 1) * n - 1 if k < FINALISTS else rows) for k in range(2, FINALISTS + 1)]
        return min(self.grid, max(0, *(limit for k, limit in enumerate(limits, 2) if limit >= k * n or k == 2)))

    def count_finalists(self, rows: int) -> int:
        """Return how many flows are asked the fresh questions, for at most the `rows` scores that the choice took."""
        return max(2, min(FINALISTS, rows // max(1, len(self.fresh))))

    def _explain_too_small(
        self, budget: TuningBudget, strategy: Strategy, minimum: int, row_cost: RowCost, held_cost: RowCost | None
    ) -> str:
        if budget.is_cost:
            rows = minimum + self.count_finalists(minimum) * len(self.fresh)
            minimum_text, amount = f"'{budget.format_minimum(rows, row_cost, held_cost)}'", str(budget)
        else:
            share = ceil(10_000 * minimum / self.grid) / 100
            minimum_text, amount = f"'{minimum} rows', or {share:g}%", several(budget.rows(self.grid), "row")
        flows = several(self.candidates.size, "flow")
        name = next((name for name, entry in STRATEGIES.items() if entry == strategy), repr(strategy))
        return (
            f"A budget of {amount} is too small for the strategy {name} on {flows} and "
            f"{several(len(self.choosing), 'question')}. Write at least {minimum_text}."
        )

    @property
    def grid(self) -> int:
        """Return how many scores there are in all: flows × questions that choose."""
        return self.candidates.size * len(self.choosing)

    @property
    def items(self) -> Sequence[Item]:
        """Return all questions, in the order in which they are asked."""
        return [*self.choosing, *self.fresh]

    def make_contexts(
        self, items_for: Callable[[int], Sequence[Item]], run: Run, questions: int | None = None
    ) -> Contexts | None:
        """Make the contexts of readers on the first questions that choose; None if no reader is asked, flows are timed,
        or the space is not listed."""
        is_known = self.candidates.is_listed and not self.objectives.are_timed
        if not is_known or not Contexts.applies(self.candidates):
            return None
        n = len(self.choosing)
        return Contexts(self.candidates, items_for, n if questions is None else min(n, questions), run)

    def make_board(self, prior: Sequence[int] = (), contexts: Contexts | None = None) -> Board:
        """Make an empty matrix of scores; if contexts of readers are known, a share of the grid is a share of these."""
        rows = self.rows
        if contexts is not None and (self.budget is None or self.budget.is_share):
            rows = contexts.total if self.budget is None else self.budget.rows(contexts.total)
        return Board(self.candidates, len(self.choosing), rows, self.seed, prior, self.objectives, contexts)


def _split_items(items: Sequence[Item], seed: int, minimum: int) -> tuple[list[Item], list[Item]]:
    """Split questions into those that choose, in the order in which they are asked, and those that report."""
    listed = list(items)
    fresh = [item for item in listed if part_of(item.id) == REPORT]
    choosing = [item for item in listed if part_of(item.id) != REPORT]
    if len(listed) < minimum or not fresh or not choosing:
        fresh, choosing = [], listed
    Random(seed).shuffle(choosing)  # the first questions must be like the others: flows are dropped by them
    return choosing, fresh


def _refuse_unpriced(flow: Operator[Query, Any]) -> None:
    """Raise DataError if USD must be counted and a server's price is unknown."""
    million = Usage(input_tokens=10**6, output_tokens=10**6)
    for model in flow.resources:
        add_price = pricing_of(model)
        if isinstance(model, LanguageModel) and add_price is not None and not add_price(million).cost_usd:
            raise DataError(
                f"The price of {model.name} is not known, so USD cannot be counted. Write usd_per_million for the "
                "model in the flow, or a budget in calls or tokens, and ATC for USD."
            )


def _refuse_space(candidates: FlowTable, budget: TuningBudget | None, questions: int) -> None:
    if not candidates.is_listed and (budget is None or budget.is_share):
        raise DataError(
            f"The space has about {candidates.size:.2g} points, too many to ask a share of them. Write a budget in "
            f"rows, such as '{40 * questions} rows'."
        )


def find_strategy(name: str) -> Strategy:
    """Return the strategy of a name; `DataError` for an unknown name."""
    if name not in STRATEGIES:
        raise DataError(f"There is no strategy {name!r}. Write one of: {', '.join(STRATEGIES)}.")
    return STRATEGIES[name]

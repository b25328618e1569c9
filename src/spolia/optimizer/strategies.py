"""Strategies that search for the best flow of a space within a budget: each asks for scores and reads what comes."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import ceil, log2, sqrt
from typing import ClassVar, TypeAlias

import numpy as np

from spolia.core.operator import Operator
from spolia.errors import DataError
from spolia.evaluation.statistics.interval import student_t
from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.objectives import COMBINED
from spolia.optimizer.score_board import FIRST_QUESTIONS, Board, ScoreRequest, ScoreSource
from spolia.types import Value

Requests: TypeAlias = Generator[ScoreRequest, None, int]
"""Each batch that it gives is asked before it goes on; it ends with the flow that it chooses."""
MINIMUM_QUESTIONS = 30
"""Questions before a flow can be shown to be worse."""
HALVING_END = 8
"""Flows at which a first halving ends."""
COMPARED_FLOWS = 4
"""Flows beside the leader that are compared last."""
WARM_FLOWS = 16
"""Flows that were best elsewhere, with which a search begins."""


class Strategy(Value, ABC):
    """Search for the best flow.

    A subclass is a frozen dataclass that writes `search`, a generator: it yields a `ScoreRequest` (ask), finds its
    scores on the board when it goes on (tell), stays within `board.left` (budget), and returns the flow it chooses.

    >>> @dataclass(frozen=True)
    ... class Default(Strategy):
    ...     def search(self, board: Board) -> Requests:
    ...         yield ScoreRequest([0], board.question_total)
    ...         return 0
    """

    takes_several: ClassVar[bool] = True
    """Whether it takes several objectives and limits."""
    begins_with_prior: ClassVar[bool] = False
    """Whether it begins with flows that were best elsewhere."""

    @abstractmethod
    def search(self, board: Board) -> Requests:
        """Look for the best flow."""

    def minimum_rows(self, board: Board) -> int:
        """Return the least number of rows with which the strategy makes sense."""
        return 2 * board.question_total


@dataclass(frozen=True)
class RandomSearch(Strategy):
    """Search that draws flows at random and asks each all questions.

    Source: Bergstra and Bengio 2012.
    """

    def search(self, board: Board) -> Requests:
        flows = board.candidates.draw_flows(max(1, int(board.left // board.question_total)), board.random)
        yield ScoreRequest(flows, board.question_total)
        return board.rank(flows, board.question_total)[0]


@dataclass(frozen=True)
class GridSearch(Strategy):
    """Search that asks every flow as many questions as the budget allows for all, at most all of them."""

    def search(self, board: Board) -> Requests:
        flows = board.candidates.all_flows
        question_count = board.affordable_questions(flows, board.left)
        yield ScoreRequest(flows, question_count)
        return board.rank(flows, question_count)[0]

    def minimum_rows(self, board: Board) -> int:
        return len(board.candidates.all_flows)


@dataclass(frozen=True)
class GreedySearch(Strategy):
    """Search place by place in the order of the flow: each candidate of a place is asked all questions, with the best
    of the places before and the default of those after. It never finds a pair of candidates that are good only
    together.

    Args:
        passes: how often it goes through the places; it ends early where nothing changes.
        combine: how several objectives are one: AutoRAG's `mean` of them as they are, `rank` or `normalize_mean`;
            `front` for what the study says, by default the knee of the Pareto front.

    Source: AutoRAG, Kim et al. 2024, which chooses node by node.
    """

    passes: int = 1
    combine: str = "front"

    def __post_init__(self) -> None:
        if self.combine not in COMBINED:
            raise DataError(f"{self.combine!r} combines no measures. Write one of: {', '.join(COMBINED)}.")

    def search(self, board: Board) -> Requests:
        current, n = 0, board.question_total
        for _ in range(self.passes):
            previous = current
            for place in self.order_places(board.candidates):
                flows = board.candidates.vary_place(current, place)
                if len(flows) > 1 and board.cost(flows, n) <= board.left:
                    yield ScoreRequest(flows, n)
                    current = board.rank(flows, n, COMBINED[self.combine] if self.combine != "front" else None)[0]
            if current == previous:
                break
        return current

    def order_places(self, candidates: FlowTable) -> Sequence[str]:
        """Return the places by name, in the order of the search."""
        return [*candidates.space.places]

    def minimum_rows(self, board: Board) -> int:
        sizes = [len(place.values) for place in board.candidates.space.places.values()]
        return board.question_total * min(size for size in sizes if size > 1)


@dataclass(frozen=True)
class ModelsFirst(GreedySearch):
    """Greedy search that begins with the places where a candidate asks language models: what is chosen for the other
    places is then chosen for that candidate."""

    def order_places(self, candidates: FlowTable) -> Sequence[str]:
        return sorted(candidates.space.places, key=lambda place: not _asks_model(candidates, place))


@dataclass(frozen=True)
class Halving(Strategy):
    """Search that asks all flows, or a random share, few questions, and the better half more, until one is left.

    Args:
        share: of the flows.

    Source: sequential halving, Karnin, Koren and Somekh 2013; Jamieson and Talwalkar 2016.
    """

    share: float = 1.0

    def search(self, board: Board) -> Requests:
        all_flows = board.candidates.all_flows
        flows = board.candidates.draw_flows(max(1, ceil(self.share * len(all_flows))), board.random)
        return (yield from halve(board, flows, board.left))

    def minimum_rows(self, board: Board) -> int:
        flows = max(2, ceil(self.share * len(board.candidates.all_flows)))
        return flows * _count_rounds(flows)


@dataclass(frozen=True)
class HalvingWithNeighbours(Strategy):
    """Search that halves the default flow, the best of earlier studies and a draw (`Board.draw`) until few are left.
    The winner then competes with its neighbours: the flows that need no search beyond its own, and so cost little more,
    or else the flows that differ in one place. The flows asked most take the rest of the budget.

    Args:
        local: share of the budget for neighbours.
        first: questions that the budget allows each flow of the draw in the first round.
        first_warm: the same with flows of earlier studies: fewer flows are drawn beside them.
        later: rows of a round, as a share of those of the round before. Few flows share few searches, so that a row of
            a late round costs more.
        share: of the flows that are drawn at most, if there are more than 32: a larger budget then asks more questions,
            where all flows on few questions would lose good ones by chance.
    """

    local: float = 0.4
    first: int = 2
    first_warm: int = 60
    later: float = 0.9
    share: float = 0.5

    begins_with_prior: ClassVar[bool] = True

    def search(self, board: Board) -> Requests:
        rows, candidates = (1 - self.local) * board.left, board.candidates
        leader = yield from halve(board, self.draw_flows(board, rows), rows, HALVING_END, self.later)
        question_count = int(board.question_counts[leader])
        neighbours = candidates.sharing_searches(leader) or candidates.neighbours(leader)
        # With less than half the questions of the leader, chance would decide between neighbours.
        if neighbours and 2 * board.affordable_questions([leader, *neighbours], board.left) >= question_count:
            leader = yield from halve(board, [leader, *neighbours], board.left, 2, self.later)
        return (yield from halve(board, list(dict.fromkeys([leader, *board.finalists(COMPARED_FLOWS)])), board.left))

    def draw_flows(self, board: Board, rows: float) -> list[int]:
        """Return the flows to begin with: as many as the first round can ask `first` questions."""
        warm = list(dict.fromkeys([0, *board.prior[:WARM_FLOWS]]))
        first_rows = rows / (self.first_warm if board.prior else self.first)
        size = max(HALVING_END, len(warm))
        while 2 * size * _count_rounds(2 * size, HALVING_END) <= first_rows:
            size *= 2
        size = max(size, int(first_rows / _count_rounds(2 * size, HALVING_END)))
        size = min(size, max(4 * HALVING_END, ceil(self.share * board.candidates.size)))
        return list(dict.fromkeys([*warm, *board.draw_promising(size)]))[:size]

    def minimum_rows(self, board: Board) -> int:
        return HALVING_END * FIRST_QUESTIONS


@dataclass(frozen=True)
class Racing(Strategy):
    """Search that asks all flows more and more questions: a flow is dropped when it is shown to be worse than the
    leader.

    A flow f is dropped where mean(leader - f) > t · se, with t of Student's distribution at α / looks / (flows - 1), so
    that all looks and all flows together drop the true best with a probability of at most about α. It takes most of
    the grid where many flows are nearly as good as the best.

    Args:
        alpha: how often the true best may be dropped.
        looks: how often flows are compared; from 30 questions on.

    Source: Hoeffding races, Maron and Moore 1993, with Student's t and Bonferroni's correction.
    """

    takes_several: ClassVar[bool] = False
    alpha: float = 0.05
    looks: int = 20

    def search(self, board: Board) -> Requests:
        flows, n = list(board.candidates.all_flows), board.question_total
        for step in range(self.looks):
            question_count = min(n, MINIMUM_QUESTIONS + (n - MINIMUM_QUESTIONS) * step // (self.looks - 1))
            # One question has no standard error.
            if len(flows) == 1 or question_count < 2 or board.cost(flows, question_count) > board.left:
                break
            yield ScoreRequest(flows, question_count)
            flows = self.drop_worse(board, flows, question_count)
        return flows[0]

    def drop_worse(self, board: Board, flows: Sequence[int], question_count: int) -> list[int]:
        """Return the flows not shown to be worse on the first questions, the leader first."""
        ranked = board.rank(flows, question_count)
        can_run = np.isfinite(board.means(ranked, question_count)).tolist()
        # If no flow can run, the first one stays, so that the study can report its error.
        flows = [flow for flow, runs in zip(ranked, can_run, strict=True) if runs] or ranked
        gaps = board.scores[flows[0], :question_count] - board.scores[flows, :question_count]
        error = np.nanstd(gaps, axis=1, ddof=1) / sqrt(question_count)
        # `student_t` takes a two-sided level.
        level = 1 - 2 * self.alpha / self.looks / max(1, len(board.candidates.all_flows) - 1)
        worse = np.nanmean(gaps, axis=1) > student_t(level, question_count - 1) * error
        return [flow for flow, is_worse in zip(flows, worse.tolist(), strict=True) if not is_worse]

    def minimum_rows(self, board: Board) -> int:
        return len(board.candidates.all_flows) * min(MINIMUM_QUESTIONS, board.question_total)


def find_best(strategy: Strategy, board: Board, source: ScoreSource) -> int:
    """Run a strategy batch by batch and return the flow that it chooses; raise ValueError if it exceeds its budget."""
    search = strategy.search(board)
    try:
        while True:
            batch = next(search)
            if board.cost(batch.flows, batch.question_count) > board.left:
                raise ValueError(f"{strategy} asks for {batch!r:.80}, which is more than the {board.left:g} rows left.")
            board.fill(batch, source)
    except StopIteration as end:
        return int(end.value)


def halve(board: Board, flows: Sequence[int], rows: float, last: int = 1, later: float = 1.0) -> Requests:
    """Return the best of some flows: each round takes `later` times the rows of the round before, and the better half
    goes on, until no more than `last` are left."""
    end, question_count, rounds = board.left - rows, 0, _count_rounds(len(flows), last)
    for number in range(rounds):
        parts = sum(later**ahead for ahead in range(rounds - number))
        question_count = board.affordable_questions(flows, max(0.0, board.left - end) / parts, question_count)
        if not question_count:
            break
        yield ScoreRequest(flows, question_count)
        flows = board.rank(flows, question_count)[: ceil(len(flows) / 2)]
        if len(flows) == 1:
            break
    return flows[0]


def _asks_model(candidates: FlowTable, place: str) -> bool:
    """Return whether a candidate of a place asks language models."""
    return any(isinstance(value, Operator) and value.calls() != 0 for value in candidates.space.places[place].values)


def _count_rounds(flows: int, last: int = 1) -> int:
    return max(1, ceil(log2(flows / last)))

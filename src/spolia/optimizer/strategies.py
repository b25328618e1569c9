"""Ways to look for the best flow of a space within a budget: each asks for scores and reads what came back."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import ceil, log2, sqrt
from typing import ClassVar, TypeAlias

import numpy as np

from spolia.core.operator import Operator
from spolia.errors import DataError
from spolia.evaluation.statistics.interval import student
from spolia.optimizer.candidates import Candidates
from spolia.optimizer.objectives import COMBINED
from spolia.optimizer.score_board import FIRST, Board, ScoreRequest, ScoreSource
from spolia.types import Value

Requests: TypeAlias = Generator[ScoreRequest, None, int]
"""Each batch that it gives is asked before it goes on; it ends with the flow that it chooses."""
LEAST = 30
"""Questions before a flow can be shown to be worse."""
LAST = 8
"""Flows at which a first halving ends."""
COMPARED = 4
"""Flows beside the leader that are compared last."""
WARM = 16
"""Flows that were best elsewhere, with which a search begins."""


class Strategy(Value, ABC):
    """How the best flow is looked for.

    A subclass is a frozen dataclass that writes `search`, a generator: it yields a `ScoreRequest` (ask), finds its
    scores on the board when it goes on (tell), stays within `board.left` (budget), and returns the flow it chooses.

    >>> @dataclass(frozen=True)
    ... class Default(Strategy):
    ...     def search(self, board: Board) -> Requests:
    ...         yield ScoreRequest([0], board.questions)
    ...         return 0
    """

    takes_several: ClassVar[bool] = True
    """Whether it takes several objectives and limits."""
    begins_with_prior: ClassVar[bool] = False
    """Whether it begins with flows that were best elsewhere."""

    @abstractmethod
    def search(self, board: Board) -> Requests:
        """Look for the best flow."""

    def least(self, board: Board) -> int:
        """The least rows that make any sense."""
        return 2 * board.questions


@dataclass(frozen=True)
class RandomSearch(Strategy):
    """Flows drawn at random, each asked all questions.

    Source: Bergstra and Bengio 2012.
    """

    def search(self, board: Board) -> Requests:
        flows = board.candidates.draw(max(1, int(board.left // board.questions)), board.random)
        yield ScoreRequest(flows, board.questions)
        return board.ranked(flows, board.questions)[0]


@dataclass(frozen=True)
class GridSearch(Strategy):
    """Every flow, on as many questions as the budget allows for all: on all of them, if it allows that."""

    def search(self, board: Board) -> Requests:
        flows = board.candidates.every
        upto = board.reach(flows, board.left)
        yield ScoreRequest(flows, upto)
        return board.ranked(flows, upto)[0]

    def least(self, board: Board) -> int:
        return len(board.candidates.every)


@dataclass(frozen=True)
class GreedySearch(Strategy):
    """Place by place in the order of the flow: each candidate of a place with the best of the places before and the
    default of those after, on all questions. A pair of candidates that are good together and bad alone is never found.

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
        current, n = 0, board.questions
        for _ in range(self.passes):
            before = current
            for place in self.order(board.candidates):
                flows = board.candidates.along(current, place)
                if len(flows) > 1 and board.cost(flows, n) <= board.left:
                    yield ScoreRequest(flows, n)
                    current = board.ranked(flows, n, COMBINED[self.combine] if self.combine != "front" else None)[0]
            if current == before:
                break
        return current

    def order(self, candidates: Candidates) -> Sequence[str]:
        """The places by name, as they are gone through."""
        return [*candidates.space.places]

    def least(self, board: Board) -> int:
        sizes = [len(place.values) for place in board.candidates.space.places.values()]
        return board.questions * min(size for size in sizes if size > 1)


@dataclass(frozen=True)
class ModelsFirst(GreedySearch):
    """Greedy, where the places with a candidate that asks language models come first: what is chosen for the other
    places is then chosen for that one."""

    def order(self, candidates: Candidates) -> Sequence[str]:
        return sorted(candidates.space.places, key=lambda place: not _asks(candidates, place))


@dataclass(frozen=True)
class Halving(Strategy):
    """All flows, or a share drawn at random, on few questions; the better half on more, until one is left.

    Args:
        share: of the flows.

    Source: sequential halving, Karnin, Koren and Somekh 2013; Jamieson and Talwalkar 2016.
    """

    share: float = 1.0

    def search(self, board: Board) -> Requests:
        every = board.candidates.every
        flows = board.candidates.draw(max(1, ceil(self.share * len(every))), board.random)
        return (yield from halve(board, flows, board.left))

    def least(self, board: Board) -> int:
        flows = max(2, ceil(self.share * len(board.candidates.every)))
        return flows * _rounds(flows)


@dataclass(frozen=True)
class HalvingWithNeighbours(Strategy):
    """The default flow, the best of earlier studies and a draw (`Board.draw`) are halved until few are left. The winner
    then competes with its neighbours: the flows that need no search beyond its own, and so cost little more, or else
    the flows that differ in one place. The flows asked most take the rest of the budget.

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
        leader = yield from halve(board, self.drawn(board, rows), rows, LAST, self.later)
        upto = int(board.asked[leader])
        around = candidates.sharing(leader) or candidates.neighbours(leader)
        if around and 2 * board.reach([leader, *around], board.left) >= upto:
            leader = yield from halve(board, [leader, *around], board.left, 2, self.later)
        return (yield from halve(board, list(dict.fromkeys([leader, *board.finalists(COMPARED)])), board.left))

    def drawn(self, board: Board, rows: float) -> list[int]:
        """The flows to begin with: as many as the first round can ask `first` questions."""
        warm = list(dict.fromkeys([0, *board.prior[:WARM]]))
        each = rows / (self.first_warm if board.prior else self.first)
        size = max(LAST, len(warm))
        while 2 * size * _rounds(2 * size, LAST) <= each:
            size *= 2
        size = max(size, int(each / _rounds(2 * size, LAST)))
        size = min(size, max(4 * LAST, ceil(self.share * board.candidates.size)))
        return list(dict.fromkeys([*warm, *board.draw(size)]))[:size]

    def least(self, board: Board) -> int:
        return LAST * FIRST


@dataclass(frozen=True)
class Racing(Strategy):
    """All flows, and more and more questions: a flow is dropped when it is shown to be worse than the leader.

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
        flows, n = list(board.candidates.every), board.questions
        for look in range(self.looks):
            upto = min(n, LEAST + (n - LEAST) * look // (self.looks - 1))
            if len(flows) == 1 or upto < 2 or board.cost(flows, upto) > board.left:
                break
            yield ScoreRequest(flows, upto)
            flows = self.kept(board, flows, upto)
        return flows[0]

    def kept(self, board: Board, flows: Sequence[int], upto: int) -> list[int]:
        """The flows not shown to be worse on the first questions, the leader first."""
        ranked = board.ranked(flows, upto)
        can_run = np.isfinite(board.means(ranked, upto)).tolist()
        flows = [flow for flow, runs in zip(ranked, can_run, strict=True) if runs] or ranked
        gaps = board.scores[flows[0], :upto] - board.scores[flows, :upto]
        error = np.nanstd(gaps, axis=1, ddof=1) / sqrt(upto)
        level = 1 - 2 * self.alpha / self.looks / max(1, len(board.candidates.every) - 1)
        worse = np.nanmean(gaps, axis=1) > student(level, upto - 1) * error
        return [flow for flow, is_worse in zip(flows, worse.tolist(), strict=True) if not is_worse]

    def least(self, board: Board) -> int:
        return len(board.candidates.every) * min(LEAST, board.questions)


def find_best(strategy: Strategy, board: Board, source: ScoreSource) -> int:
    """The flow that a strategy chooses, asked batch by batch; it is stopped where it would go beyond its budget."""
    search = strategy.search(board)
    try:
        while True:
            batch = next(search)
            if board.cost(batch.flows, batch.upto) > board.left:
                raise ValueError(f"{strategy} asks for {batch!r:.80}, which is more than the {board.left:g} rows left.")
            board.fill(batch, source)
    except StopIteration as end:
        return int(end.value)


def halve(board: Board, flows: Sequence[int], rows: float, last: int = 1, later: float = 1.0) -> Requests:
    """The best of some flows: each round takes `later` times the rows of the round before, and the better half goes on,
    until no more than `last` are left."""
    end, upto, rounds = board.left - rows, 0, _rounds(len(flows), last)
    for number in range(rounds):
        parts = sum(later**ahead for ahead in range(rounds - number))
        upto = board.reach(flows, max(0.0, board.left - end) / parts, upto)
        if not upto:
            break
        yield ScoreRequest(flows, upto)
        flows = board.ranked(flows, upto)[: ceil(len(flows) / 2)]
        if len(flows) == 1:
            break
    return flows[0]


def _asks(candidates: Candidates, place: str) -> bool:
    """Whether a candidate of a place asks language models."""
    return any(isinstance(value, Operator) and value.calls() != 0 for value in candidates.space.places[place].values)


def _rounds(flows: int, last: int = 1) -> int:
    return max(1, ceil(log2(flows / last)))

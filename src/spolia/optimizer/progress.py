"""Progress of a study while it runs."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import TypeAlias

import numpy as np

from spolia.errors import BudgetSpent
from spolia.evaluation.statistics.interval import Interval, student_t
from spolia.optimizer.flow_scores import FlowScores
from spolia.optimizer.score_board import Board
from spolia.types import Usage, Value

StudyCallback: TypeAlias = Callable[["StudyProgress"], None]
"""Called when more scores are there, by several threads; it may read everything."""


@dataclass(frozen=True)
class Leader(Value):
    """Flow that leads while the search goes on: its score on the questions that choose, which is too high for the best
    of many flows."""

    choices: tuple[tuple[str, str], ...]
    score: Interval
    questions: int


class StudyProgress:
    """Progress of a study.

    Args:
        total: how many scores there may be, those of the report included.
        seconds: that it may take.
        on_progress: called when more scores are there.

    Attributes:
        done: scores that are there.
        board: of the search; None before that.
        share: of the seconds, that the present part of the study must end in.
    """

    def __init__(self, total: int, seconds: float, on_progress: StudyCallback) -> None:
        self.done, self.total = 0, total
        self.board: Board | None = None
        self.scores: FlowScores | None = None
        self._start, self._seconds, self._on_progress, self._lock = monotonic(), seconds, on_progress, Lock()
        self.share = 1.0

    @property
    def seconds(self) -> float:
        """Return the seconds since the study began."""
        return monotonic() - self._start

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds left at the present speed; None at the beginning."""
        computed = self.scores.rows if self.scores is not None else 0
        return None if not computed else max(0, self.total - self.done) * self.seconds / computed

    @property
    def spent(self) -> Usage:
        """Return what models took."""
        return Usage() if self.scores is None else self.scores.spent

    def leaders(self, count: int = 5) -> list[Leader]:
        """Return the flows that were asked most, the best first, with 95 % intervals of Student's t."""
        board = self.board
        if board is None:
            return []
        leaders = []
        for flow in board.finalists(count):
            scores = board.scores[flow]
            known_scores = scores[np.isfinite(scores)]
            sign = 1.0 if board.objectives is None else float(board.objectives.signs[0])
            mean, wide = sign * float(known_scores.mean()), float("inf")
            if known_scores.size > 1:
                wide = student_t(0.95, known_scores.size - 1) * float(known_scores.std(ddof=1)) / known_scores.size**0.5
            score = Interval(mean, mean - wide, mean + wide, known_scores.size)
            leaders.append(Leader(board.candidates.choices(flow), score, int(board.question_counts[flow])))
        return leaders

    def add_rows(self, rows: int) -> None:
        """Count new scores; raise `BudgetSpent` if the time is over."""
        with self._lock:
            self.done += rows
            # The total is an estimate: a strategy may ask for more scores than planned.
            self.total = max(self.done, self.total)
        self._on_progress(self)  # not under the lock: the callback may take long
        if self.seconds > self.share * self._seconds:
            raise BudgetSpent(f"the time of {self.share * self._seconds:.0f} s is over")

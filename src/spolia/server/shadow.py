"""A candidate that is asked a share of the questions that production has answered; nobody waits for it."""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from random import Random
from time import perf_counter, time

from spolia.core.operator import Operator
from spolia.errors import Cancelled
from spolia.journal import Journal
from spolia.run import Budget, Run
from spolia.services.traffic import answers, record, served_answer
from spolia.types import Answer, Query

DAY_S = 86_400.0
WAITING = 4
"""Questions that wait for the candidate; others that come then are left out."""


class Shadow:
    """Asks one question at a time, with the access rights of its user, without a cache.

    Args:
        journal: where the answers go.
        share: of the questions, 0 to 1.
        calls: of language models in any 24 hours, at most, also after a restart.
    """

    def __init__(self, journal: Journal, share: float, calls: int) -> None:
        self.journal, self.share, self.calls = journal, share, calls
        self._random, self._waiting = Random(), 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="spolia-shadow")
        before = answers(journal, time() - DAY_S)
        self._spent = deque((one.started, one.calls) for one in before if one.shadow_of)

    def offer(self, flow: Operator[Query, Answer], version: str, run: Run, query: Query) -> None:
        """Ask the candidate too, if the lot, the queue and the budget allow it."""
        if self._waiting < WAITING and self._random.random() < self.share and (left := self._left()) > 0:
            self._waiting += 1
            self._pool.submit(self._ask, flow, version, run.id, tuple(run.principals), query, left)

    def _left(self) -> int:
        since = time() - DAY_S
        while self._spent and self._spent[0][0] < since:
            self._spent.popleft()
        return self.calls - sum(calls for _, calls in self._spent)

    def _ask(
        self, flow: Operator[Query, Answer], version: str, of: str, who: tuple[str, ...], query: Query, left: int
    ) -> None:
        began = perf_counter()
        try:
            with Run(groups=who, journal=self.journal, budget=Budget(calls=left), threads=1) as run, run.lane() as lane:
                try:
                    answer = flow(query)
                except Exception as error:  # a flow may raise anything; a failure counts as no answer
                    logging.getLogger(__name__).warning("The candidate failed: %s", type(error).__name__)
                    answer = Answer("", stop_reason="error")
            seconds = perf_counter() - began
            self._spent.append((time(), run.spent.calls))
            if not run.exhausted:  # an answer that the budget has cut says nothing of the candidate
                record(self.journal, served_answer("candidate", version, run, lane, query, answer, seconds, of))
        except Cancelled:
            pass
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Leave out what waits, and end with the question in progress."""
        self._pool.shutdown(cancel_futures=True)

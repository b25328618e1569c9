"""Random flows of steps that work, fail and are degraded: the account agrees with what the steps did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.combinators import Branch, Guard
from spolia.core.function import step
from spolia.core.operator import Operator, walk_values
from spolia.core.run_context import degrade
from spolia.errors import QueryError
from spolia.run import Run
from spolia.run.lane import numbered_step_names

OUTCOMES = ("worked", "failed", "partly", "in vain", "raised")
NUMBERS = count()
did: list[tuple[int, str]] = []
lock = Lock()


@dataclass(frozen=True)
class Leaf(Operator[int, int]):
    """Work, be degraded wholly or in part, ask another step in vain, or raise: as the value says."""

    outcomes: tuple[str, ...]
    number: int = field(default_factory=lambda: next(NUMBERS))

    waits: ClassVar[bool] = True

    def apply(self, value: int, /) -> int:
        outcome = self.outcomes[value % len(self.outcomes)]
        with lock:
            did.append((self.number, outcome))
        if outcome in ("failed", "partly"):
            degrade(outcome, partly=outcome == "partly")
        elif outcome == "in vain":
            Leaf(("failed",), -1)(0)  # a step that the flow does not name
        elif outcome == "raised":
            raise QueryError(outcome)
        return value


@step
def first(found: Sequence[int]) -> int:
    return found[0]


LEAVES = st.builds(Leaf, st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=3).map(tuple))
FLOWS: st.SearchStrategy[Operator[int, int]] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a >> b, inner, inner),
        st.builds(lambda a, b: Guard(a, fallback=b), inner, inner),
        st.builds(lambda a, b: Branch(a, b, min_arms=1) >> first, inner, inner),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=150)
@given(FLOWS, st.lists(st.integers(0, 5), min_size=1, max_size=4), st.booleans(), st.sampled_from([1, 4]))
def test_the_account_of_a_question_has_what_each_step_did(
    flow: Operator[int, int], values: list[int], batched: bool, threads: int
) -> None:
    did.clear()
    with Run(threads=threads) as run, run.lane() as lane:
        if batched:
            flow.batch(values)
        else:
            for value in values:
                Guard(flow, fallback=Leaf(("worked",), -1))(value)
    mine = [(number, outcome) for number, outcome in did if number >= 0]
    calls, failed = Counter[str](), Counter[str]()
    names = dict(name_leaves(flow))
    for number, outcome in mine:
        calls[names[number]] += 1
        failed[names[number]] += outcome in ("failed", "in vain", "raised")
    steps = [counted for counted in lane.count_calls(flow) if counted.step in names.values()]
    # What passes a failure on has not failed.
    assert not any(counted.failed for counted in lane.count_calls(flow) if counted not in steps)
    assert {counted.step: counted.calls for counted in steps} == dict(calls)
    assert {counted.step: counted.failed for counted in steps} == dict(failed)
    assert all(counted.never_worked == (counted.failed == counted.calls) for counted in steps)
    for counted in steps:
        assert sum(n for _, n in counted.reasons) == sum(
            outcome != "worked" for number, outcome in mine if names[number] == counted.step
        )


def name_leaves(flow: Operator[int, int]) -> list[tuple[int, str]]:
    """The number of each leaf, and what the account calls it."""
    names = numbered_step_names(flow)
    return [(leaf.number, names[id(leaf)]) for leaf in walk_values(flow) if isinstance(leaf, Leaf)]

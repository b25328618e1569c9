"""Small operators and random flows for the tests of the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hypothesis import strategies as st

from spolia.core.combinators import Branch, Each, Guard, Identity, Loop, Route, Samples
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.core.run_context import charge, emit, reserve
from spolia.errors import ModelUnavailable
from spolia.types import Answer, Hit, Node, Query, Ranking, State, Usage, Value, Verdict


class Counter:
    """Counts calls, and how many run at the same time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        self.calls = self.now = self.most = 0
        self.threads: set[int] = set()
        self.seen: list[Any] = []

    @contextmanager
    def counted(self, value: Any = None) -> Iterator[None]:
        with self.lock:
            self.calls, self.now = self.calls + 1, self.now + 1
            self.most = max(self.most, self.now)
            self.threads.add(threading.get_ident())
            self.seen.append(value)
        try:
            yield
        finally:
            with self.lock:
                self.now -= 1


COUNTER = Counter()


@dataclass(frozen=True)
class Model(Value):
    """A stand-in for a model: an address with a fingerprint that tests can move."""

    name: str = "model"
    scoped: ClassVar[bool] = False
    moves: ClassVar[dict[str, str | None]] = {}

    def fingerprint(self) -> str | None:
        return self.moves.get(self.name, "1")


@dataclass(frozen=True)
class Store(Model):
    scoped: ClassVar[bool] = True


@dataclass(frozen=True)
class Ask(Operator[Query, Query]):
    """One reserved model call: appends to the question. Deterministic in text, sample and `by`."""

    by: str = "a"
    model: Model = field(default_factory=Model)
    cached: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def apply(self, value: Query, /) -> Query:
        with reserve(Usage(calls=1, output_tokens=10)) as call, COUNTER.counted(value.text):
            call.settle(Usage(calls=1, output_tokens=len(self.by)))
        return value.rewritten(f"{value.text}{self.by}{value.sample or ''}")

    def reads(self, value: Query, /) -> object:
        return (value.text, value.question, value.sample)


@dataclass(frozen=True)
class Search(Operator[Query, Ranking]):
    """Vectorised and costly: hits are the letters of the query."""

    top_k: int = 3
    store: Store = field(default_factory=Store)
    cached: ClassVar[bool] = True

    def apply(self, value: Query, /) -> Ranking:
        charge(Usage(embedded=1))
        letters = dict.fromkeys(value.text)
        return Ranking(value, tuple(Hit(Node(c, c * 3), 1.0 / (i + 1)) for i, c in enumerate(letters))[: self.top_k])

    def apply_batch(self, values: Sequence[Query], /) -> list[Ranking]:
        return [self._one(value, row) for row, value in enumerate(values)]

    def _one(self, value: Query, row: int) -> Ranking:
        charge(Usage(embedded=1), row=row)
        letters = dict.fromkeys(value.text)
        return Ranking(value, tuple(Hit(Node(c, c * 3), 1.0 / (i + 1)) for i, c in enumerate(letters))[: self.top_k])

    def reads(self, value: Query, /) -> object:
        return value.text


@dataclass(frozen=True)
class First(Operator[Sequence[Ranking], Ranking]):
    def apply(self, value: Sequence[Ranking], /) -> Ranking:
        hits = {hit.node.id: hit for ranking in value for hit in ranking.hits}
        return Ranking(value[0].query, tuple(hits.values()))


@dataclass(frozen=True)
class Say(Operator[Ranking, Answer]):
    """Reads the hits out loud, one token each."""

    model: Model = field(default_factory=Model)
    cached: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def apply(self, value: Ranking, /) -> Answer:
        with reserve(Usage(calls=1)) as call, COUNTER.counted(value.query.text):
            for hit in value.hits:
                emit(hit.node.text)
            call.settle(Usage(calls=1, input_tokens=len(value.hits)))
        return Answer("".join(hit.node.text for hit in value.hits), evidence=value)

    def reads(self, value: Ranking, /) -> object:
        return (value.query.text, value.hits)


@dataclass(frozen=True)
class Down(Operator[Query, Query]):
    """A server that is down for some questions."""

    when: str = "x"
    waits: ClassVar[bool] = True

    def apply(self, value: Query, /) -> Query:
        if self.when in value.text:
            raise ModelUnavailable(f"down for {value.text}")
        return value


@dataclass(frozen=True)
class Sleep(Operator[Query, Query]):
    seconds: float
    waits: ClassVar[bool] = True

    def apply(self, value: Query, /) -> Query:
        with COUNTER.counted(value.text):
            time.sleep(self.seconds)
        return value


@dataclass(frozen=True)
class Growing(State):
    text: str = ""
    steps: int = 0


@dataclass(frozen=True)
class Grow(Operator[Growing, Growing]):
    """One model call a step."""

    model: Model = field(default_factory=Model)
    cached: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def apply(self, value: Growing, /) -> Growing:
        with reserve(Usage(calls=1)) as call, COUNTER.counted(value.text):
            call.settle(Usage(calls=1))
        return value.but(text=f"{value.text}.{value.sample}", steps=value.steps + 1)


@dataclass(frozen=True)
class LongEnough(Operator[Growing, Verdict]):
    n: int = 3

    def apply(self, value: Growing, /) -> Verdict:
        return Verdict(value.steps >= self.n, "sufficient")


@dataclass(frozen=True)
class Start(Operator[Query, Growing]):
    def apply(self, value: Query, /) -> Growing:
        return Growing(value.text, sample=value.sample)


@dataclass(frozen=True)
class End(Operator[Growing, Query]):
    def apply(self, value: Growing, /) -> Query:
        return Query(f"{value.text}/{value.stop}", sample=value.sample)


@dataclass(frozen=True)
class Glue(Operator[Sequence[Query], Query]):
    def apply(self, value: Sequence[Query], /) -> Query:
        return value[0].rewritten("+".join(query.text for query in value))


@step
def parity(query: Query) -> str:
    return "even" if len(query.text) % 2 == 0 else "odd"


Q = Operator[Query, Query]


def flows(*, limits: bool = False) -> st.SearchStrategy[Operator[Query, Query]]:
    """Random small flows from query to query, with every combinator that keeps the type.

    With `limits` some guards limit calls; which arm gets the last call then depends on which comes first.
    """
    leaf: st.SearchStrategy[Q] = st.one_of(
        st.just(Identity()),
        st.sampled_from("ab").map(Ask),
        st.sampled_from("xy").map(lambda w: Guard(Down(w), Identity())),
    )

    def wider(inner: st.SearchStrategy[Q]) -> st.SearchStrategy[Q]:
        return st.one_of(
            st.tuples(inner, inner).map(lambda pair: pair[0] >> pair[1]),
            st.lists(inner, min_size=1, max_size=3).map(lambda arms: Branch(*arms) >> Glue()),
            inner.map(lambda arm: Samples[Query](3) >> Each(arm) >> Glue()),
            st.tuples(inner, inner).map(lambda pair: Route(parity, {"even": pair[0], "odd": pair[1]}, default="odd")),
            st.integers(1, 3).map(lambda n: Start() >> Loop(Grow(), until=LongEnough(n), max_steps=2) >> End()),
            inner.map(lambda body: Guard(body, fallback=Identity(), max_calls=2 if limits else None)),
        )

    return st.recursive(leaf, wider, max_leaves=6)


def queries() -> st.SearchStrategy[list[Query]]:
    """A few short questions, repeated ones among them."""
    return st.lists(st.text("abxy", min_size=1, max_size=3).map(Query), min_size=1, max_size=6)


def outcome(call: Callable[[], Any]) -> Any:
    """The result of a call, or what it raised, comparable."""
    try:
        return call()
    except Exception as error:
        return type(error).__name__

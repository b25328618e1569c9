"""What an operator says of its calls to language models is never less than what it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial, singledispatch
from types import ModuleType
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.combinators import (
    Best,
    Branch,
    Choice,
    Each,
    Guard,
    Identity,
    Loop,
    Route,
    Samples,
    decide,
    places,
)
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.errors import BudgetSpent, SpoliaError
from spolia.indexing.transforms.function import transform
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.orchestration.llm_router import ByLabel
from spolia.post_retrieval.rerankers import RankGPT
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Piece
from spolia.types import Generation, Hit, Message, Node, Prompt, Query, Ranking, State, Verdict

MADE: list[str] = []


@dataclass(frozen=True)
class CountingModel(ScriptedModel):
    """Counts its calls itself, whatever a run counts."""

    def generate(self, prompt: Prompt, **more: Any) -> Generation:
        reply = super().generate(prompt, **more)
        MADE.append(prompt.text)
        return reply


MODEL = CountingModel((("<", "hard to say"), ("", "hard to say")))


def called(text: str) -> str:
    return MODEL.generate(Prompt((Message("user", text),))).text


@step
def shouted(query: Query) -> Query:
    return query.rewritten(" ".join(sorted(query.text.upper().split())))


@step
def hidden(query: Query) -> Query:
    return query.rewritten(called(query.text) + called(query.text))


@step(calls=2)
def stated(query: Query) -> Query:
    return query.rewritten(called(query.text) + called(query.text))


@step
def length(query: Query) -> float:
    return float(len(query.text))


@step
def judged(query: Query) -> float:
    return float(len(called(query.text)))


@dataclass(frozen=True)
class First(Operator[Sequence[Query], Query]):
    def apply(self, value: Sequence[Query], /) -> Query:
        return value[0]


@dataclass(frozen=True)
class Twice(Operator[Query, Query]):
    """Of the user's, with a model in a field, asked twice."""

    llm: ScriptedModel = MODEL

    def apply(self, value: Query, /) -> Query:
        texts = [self.llm.generate(Prompt((Message("user", value.text),))).text for _ in range(2)]
        return value.rewritten(" ".join(texts))


@dataclass(frozen=True)
class Rewritten(State):
    query: Query


@step
def begin(query: Query) -> Rewritten:
    return Rewritten(query=query)


@step(calls=2)
def twice(state: Rewritten) -> Rewritten:
    return state.but(query=stated(state.query))


@step(calls=1)
def enough(state: Rewritten) -> bool:
    return len(called(state.query.text)) > 1000


@step
def end(state: Rewritten) -> Query:
    return state.query


ROUTER = ByLabel(MODEL, (("one", "what is one"), ("other", "what is other")), otherwise="one")
LEAVES: tuple[Operator[Query, Query], ...] = (Identity(), shouted, hidden, stated, Twice())


def flows() -> st.SearchStrategy[Operator[Query, Query]]:
    def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.builds(lambda item, other_value: item >> other_value, inner, inner),
            st.builds(lambda body, maximum: Guard(body, Identity(), maximum), inner, st.integers(0, 3)),
            st.builds(lambda item, other_value: Branch(item, other_value) >> First(), inner, inner),
            st.builds(
                lambda item, other_value, name: Choice(item, other_value, name=name), inner, inner, st.just("either")
            ),
            st.builds(
                lambda item, maximum, steps: (
                    item >> begin >> Guard(Loop(twice, enough, steps), max_calls=maximum) >> end
                ),
                inner,
                st.none() | st.integers(0, 5),
                st.integers(1, 3),
            ),
            st.builds(
                lambda item, other_value: Route(ROUTER, {"one": item, "other": other_value}, default="one"),
                inner,
                inner,
            ),
            st.builds(
                lambda n, body, score: Samples[Query](n) >> Each(body) >> Best(score),
                st.integers(1, 3),
                inner,
                st.sampled_from((length, judged)),
            ),
        )

    return st.recursive(st.sampled_from(LEAVES), grown, max_leaves=5)


@pytest.mark.slow
@settings(max_examples=120)
@given(flow=flows(), index=st.integers(0, 1), in_run=st.booleans())
def test_no_flow_makes_more_calls_than_it_says(flow: Operator[Query, Query], index: int, in_run: bool) -> None:
    bound = flow.calls()
    MADE.clear()
    with Run() if in_run else nullcontext() as run, suppress(SpoliaError):
        decide(flow, dict.fromkeys(places(flow), index))(Query("so it is"))
    assert bound is None or len(MADE) <= bound
    assert run is None or run.actual_usage.calls == len(MADE)


def test_a_guard_holds_its_limit_without_a_run_too() -> None:
    inner, outer = Guard(stated, Identity(), 1), Guard(Branch(stated, stated) >> First(), max_calls=3)
    query = Query("so it is")
    assert inner.calls() == 1
    assert inner(query) == query
    assert inner.batch([query, query]) == [query, query]
    assert outer.calls() == 3
    with pytest.raises(BudgetSpent, match="Guard"):
        outer(query)
    assert Guard(stated, max_calls=2)(query) == stated(query)


def test_a_body_that_cannot_be_seen_is_unknown_and_one_that_shows_that_it_asks_nobody_makes_none() -> None:
    assert (shouted.calls(), length.calls(), First().calls()) == (0, 0, 0)
    assert (hidden.calls(), judged.calls(), Twice().calls()) == (None, None, None)
    assert stated.calls() == 2
    assert (shouted >> stated).calls() == 2
    assert (shouted >> hidden).calls() is None


@dataclass(frozen=True)
class Notes(State):
    """A state of the user's."""

    query: Query
    found: tuple[str, ...] = ()

    def added(self, text: str) -> Notes:
        return self.but(found=(*self.found, text))


@dataclass(frozen=True)
class Grown(State):
    """A state that holds what may ask."""

    ask: Callable[[str], str]


@dataclass(frozen=True)
class Note(Operator[Notes, Notes]):
    text: str = "so"

    def apply(self, value: Notes, /) -> Notes:
        return value.added(self._written(value))

    def _written(self, state: Notes) -> str:
        return f"{self.text} {len(state.found)}"


@dataclass(frozen=True)
class AskState(Operator[Grown, Verdict]):
    def apply(self, value: Grown, /) -> Verdict:
        return Verdict(bool(value.ask("?")))


@dataclass(frozen=True)
class OfClass(Operator[Query, Query]):
    """Its model is an attribute of the class."""

    ask: ClassVar[Any] = staticmethod(called)

    def apply(self, value: Query, /) -> Query:
        return value.rewritten(self.ask(value.text))


@dataclass(frozen=True)
class Kept(RankGPT):
    """One of Spolia's, of which the user has rewritten a part."""

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        return [float(len(called(text))) for text in texts]


def unannotated(query):  # type: ignore[no-untyped-def]
    return query.rewritten(query.text.upper())


def looked_up(query: Query) -> Query:
    return query.rewritten(str(eval("called(query.text)")))


def through_globals(query: Query) -> Query:
    return query.rewritten(shouted.__globals__["called"](query.text))  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Around(Operator[Query, Query]):
    """Runs what is in its field, as often as it likes."""

    body: Operator[Query, Query]

    def apply(self, value: Query, /) -> Query:
        return self.body(self.body(value))


HANDLERS: list[Callable[[str], str]] = []


def through_a_list(query: Query) -> Query:
    return query.rewritten("".join(handle(query.text) for handle in HANDLERS))


def by_import(query: Query) -> Query:
    from tests.core import test_call_bounds

    return query.rewritten(test_call_bounds.called(query.text))


def through_default(query: Query, *, handle: Callable[[str], str] = called) -> Query:
    return query.rewritten(handle(query.text))


class Models:
    """Where a user keeps models."""

    best: ClassVar[ScriptedModel] = MODEL
    asking: ClassVar[Any] = staticmethod(called)


class Sizes(Enum):
    SMALL = MODEL


class Words(Enum):
    """Holds texts, and asks nobody."""

    WHY = "why"


def through_a_class(query: Query) -> Query:
    return query.rewritten(Models.best.generate(Prompt((Message("user", query.text),))).text)


def through_an_enum(query: Query) -> Query:
    return query.rewritten(Sizes.SMALL.value.generate(Prompt((Message("user", query.text),))).text)


def with_a_word(query: Query) -> Query:
    return query.rewritten(Words.WHY.value)


@dataclass(frozen=True)
class Held(State):
    """A state that does not say what its fields hold."""

    models: tuple = ()  # type: ignore[type-arg]


def through_a_state(state: Held) -> Held:
    return state.but(stop=state.models[0].generate(Prompt((Message("user", "?"),))).text)


def through_a_list_of_anything(models: list) -> Query:  # type: ignore[type-arg]
    return Query(models[0].generate(Prompt((Message("user", "?"),))).text)


@singledispatch
def said_of(value: object) -> str:
    return called(str(value))


def through_a_dispatch(query: Query) -> Query:
    return query.rewritten(said_of(query.text))


@dataclass(frozen=True)
class WithClient(Operator[Query, Query]):
    """Keeps its model beside its fields."""

    style: str = "short"

    def __post_init__(self) -> None:
        object.__setattr__(self, "client", MODEL)

    def apply(self, value: Query, /) -> Query:
        client: Any = vars(self)["client"]
        return value.rewritten(client.generate(Prompt((Message("user", value.text),))).text)


LATE: Any = None


def through_what_is_given_later(query: Query) -> Query:
    return LATE.generate(query) if LATE else query


@pytest.mark.parametrize(
    "function", [through_a_state, through_a_list_of_anything, through_a_dispatch, through_what_is_given_later]
)
def test_what_does_not_say_what_it_holds_or_runs_may_hold_a_model(function: Callable[..., Any]) -> None:
    assert step(function).calls() is None
    assert WithClient().calls() is None


def test_models_that_a_class_of_the_users_holds_count() -> None:
    assert [step(item).calls() for item in (through_a_class, through_an_enum, with_a_word)] == [None, None, 0]


def test_what_is_proven_about_a_users_code() -> None:
    assert Note().calls() == 0
    assert Loop(Note(), max_steps=3).calls() == 0
    assert (Around(shouted).calls(), Around(stated).calls()) == (0, None)
    for unknown in (AskState(), OfClass(), Kept(MODEL)):
        assert unknown.calls() is None
    for function in (unannotated, looked_up, through_globals, through_a_list, by_import, through_default):
        assert step(function).calls() is None, function.__name__
    assert step(partial(through_default, handle=called)).calls() is None
    assert step(lambda query: query).calls() is None


@pytest.mark.parametrize(("window", "by", "windows"), [(3, 1, 3), (3, 2, 2), (20, 10, 1)])
def test_windows_and_repairs_of_a_reranker_count(window: int, by: int, windows: int) -> None:
    ranker = RankGPT(MODEL, top_k=5, judged=5, window=window, step=by)
    once = ranker.but(role=ranker.role.but(repair=""))
    hits = tuple(Hit(Node(str(n), f"text {n}"), 1.0) for n in range(5))
    for op, calls in ((once, windows), (ranker, 2 * windows)):
        with Run() as run:
            op(Ranking(Query("?"), hits))
        assert run.actual_usage.calls == calls == op.calls() == op.calls(1)


def test_a_search_that_may_first_build_its_group_by_a_model_is_unknown() -> None:
    corpus = Corpus("notes.spolia")
    assert BM25(corpus.group()).calls() == 0
    assert BM25(corpus.group("short", Definition(BY_MODEL))).calls() is None


@transform
def lines(text: str) -> list[Piece]:
    return [Piece(line) for line in text.split("\n")]


@transform
def summed_up(text, refs):  # type: ignore[no-untyped-def]
    return called(" ".join((text, *refs)))


def test_a_transform_whose_code_shows_that_it_asks_nobody_makes_no_calls() -> None:
    assert (lines.calls(), (lines >> step(len)).calls(), summed_up.calls()) == (0, None, None)


requests = ModuleType("requests")  # `re`, with which its name begins, calls no model
requests.post = called  # type: ignore[attr-defined]


def posted(query: Query) -> Query:
    return query.rewritten(requests.post(query.text))


def test_a_package_is_known_by_its_whole_name() -> None:
    assert step(posted).calls() is None


@step
def BY_MODEL(part: Any) -> Any:
    return called(str(part))

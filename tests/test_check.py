"""What is wrong with a flow is said before anything is spent; what is right with it passes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from spolia.core.check import CheckResult, Problem, check
from spolia.core.combinators import Best, Branch, Choice, Each, Explore, Guard, Identity, Loop, Route, Samples, Stopped
from spolia.core.function import step
from spolia.core.operator import Operator, Then
from spolia.models.protocols import LanguageModel, StatesLogprobs
from spolia.types import Generation, Prompt, Query, State, Value
from tests.cases import check_each


@dataclass(frozen=True)
class Model(Value):
    able: tuple[str, ...] = ("chat",)
    name: ClassVar[str] = "model"
    scoped: ClassVar[bool] = False

    def generate(self, prompt: Prompt, **settings: Any) -> Generation:
        raise AssertionError("it is never asked")

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset(self.able)

    def fingerprint(self) -> str | None:
        return "model"


class Once:
    """Says that it asks its model once, if it has one."""

    llm: LanguageModel | None

    def calls(self, rows: int | None = None, /) -> int | None:
        return int(self.llm is not None)


@dataclass(frozen=True)
class Rewrite(Once, Operator[Query, Query]):
    llm: LanguageModel
    temperature: float = 0.0
    words: tuple[str, ...] = ()

    def apply(self, value: Query, /) -> Query:
        return value


@dataclass(frozen=True)
class Judge(Once, Operator[Query, float]):
    llm: StatesLogprobs | None

    def apply(self, value: Query, /) -> float:
        return 0.0


@dataclass(frozen=True)
class Adaptive(Operator[Query, Query]):
    body: Operator[Query, Query]

    def apply(self, value: Query, /) -> Query:
        return self.body(value)


@dataclass(frozen=True)
class Walk(State):
    text: str = ""


@dataclass(frozen=True)
class Hop(Once, Operator[Walk, Walk]):
    llm: Model

    def apply(self, value: Walk, /) -> Walk:
        return value


@dataclass(frozen=True)
class Grow(Once, Operator[Walk, tuple[Walk, ...]]):
    llm: Model

    def apply(self, value: Walk, /) -> tuple[Walk, ...]:
        return (value,)


@step
def worth(walk: Walk) -> float:
    return 0.0


@step
def language(query: Query) -> Literal["en", "ko"]:
    return "en"


@step
def first(queries: Sequence[Query]) -> Query:
    return queries[0]


LLM = Model()
ASK = Rewrite(LLM)
KEEP = Identity[Query]()


def problems(flow: Operator[Any, Any], **options: Any) -> list[str]:
    return [str(problem) for problem in check(flow, **options).problems]


CALLS: list[tuple[Operator[Any, Any], int | None]] = [
    (KEEP, 0),
    (ASK, 1),
    (ASK >> ASK, 2),
    (Branch(ASK, ASK >> ASK, KEEP), 3),
    (Samples[Query](4) >> Each(ASK >> ASK) >> first, 8),
    (Samples[Query](4) >> Each(ASK) >> Each(ASK) >> Best(Judge(LLM)), 12),
    (Branch(ASK, KEEP) >> Each(ASK), 3),
    (Each(ASK), None),
    (Each(KEEP), 0),
    (Route(language, {"en": ASK, "ko": ASK >> ASK}, default="en"), 2),
    (Choice(KEEP, ASK, ASK >> ASK), 2),
    (Choice(Samples[Query](2), Samples[Query](5)) >> Each(ASK), 5),
    (Samples[Query](2).vary(n=(1, 7)) >> Each(ASK), 7),
    (Loop(Hop(LLM) >> Hop(LLM), max_steps=5), 10),
    (Loop(Identity[Walk](), Stopped(), max_steps=5), 0),
    (Guard(ASK >> ASK >> ASK, fallback=ASK, max_calls=2), 3),
    (Guard(Adaptive(ASK), max_calls=6), 6),
    (Adaptive(ASK), None),
    (Adaptive(KEEP), 0),
    (Explore(Grow(LLM), max_depth=4, max_states=20), 21),
    (Explore(Grow(LLM), max_depth=4, max_states=50, score=worth, width=2), 7),
    (Judge(None), 0),
]


@check_each(("flow", "calls"), CALLS)
def test_the_calls_to_language_models_are_bounded(flow: Operator[Any, Any], calls: int | None) -> None:
    assert check(flow).calls == calls


def test_a_sound_flow_has_no_problems() -> None:
    flow = Route(language, {"en": ASK, "ko": Guard(ASK, fallback=KEEP, max_calls=1)}, default="en")
    checked = check(flow, takes=Query, gives=Query)
    assert checked == CheckResult("Query", "Query", 1)
    assert checked.ok
    assert str(checked) == "Query → Query, at most 1 call to language models"


def set_fields(flow: Operator[Any, Any], **fields: object) -> Operator[Any, Any]:
    """An operator that would have been refused while building: what a subclass that does not ask for it lets pass."""
    for name, value in fields.items():
        object.__setattr__(flow, name, value)
    return flow


WRONG: list[tuple[Operator[Any, Any], str]] = [
    (set_fields(Rewrite(LLM), llm="gpt"), r"llm: Rewrite needs a model here; 'gpt' states no capabilities"),
    (set_fields(Rewrite(LLM), temperature="hot"), r"temperature: Here belongs a number; there was the text 'hot'"),
    (KEEP >> Rewrite(LLM, float("nan")), r"steps.1.temperature: nan is not a finite number"),
    (set_fields(Rewrite(LLM), words=("a", 1)), r"words.1: Here belongs text; there was the number 1"),
    (set_fields(Rewrite(LLM), llm=ASK), r"llm: Here belongs a LanguageModel; there was Rewrite"),
    (set_fields(Samples(1), n=True), r"n: Here belongs a whole number; there was true"),
    (
        set_fields(ASK.vary(temperature=(0.0, 0.5)), ranges=(("temperature", (0.0, "hot")),)),
        r"ranges.temperature.1: Here belongs a number",
    ),
    (ASK.vary(temperature=(0.0, 1.0, 0.0)), r"ranges.temperature.2: This candidate is number 0 again"),
    (Choice(KEEP, ASK, KEEP), r"options.2: This candidate is number 0 again"),
    (Judge(LLM), r"llm: Judge needs logprobs of this model; Model\(able=\('chat',\)\) has chat. Give a model that"),
    (set_fields(Judge(LLM), llm=KEEP), r"llm: Judge needs a model here; Identity\(\) states no capabilities"),
    (
        Route(language, {"en": ASK, "ko": ASK, "fr": ASK}, default="en"),
        r"arms.fr: This arm can never run: the router only names en, ko",
    ),
    (Route(language, {"en": ASK, "fr": ASK}, default="en"), r"arms: The router may name 'ko', which is not an arm"),
    (Guard(ASK), r"Guard has neither a limit nor a fallback"),
    (Guard(ASK, fallback=KEEP, on=()), r"fallback: The fallback can never run: on names no errors"),
    (Guard(ASK, fallback=ASK), r"fallback: The fallback is the body again"),
    (Guard(ASK, fallback=KEEP, on=("ModelEror",)), r"on.0: No error is called 'ModelEror'. Did you mean ModelError"),
    (Guard(KEEP, max_calls=3), r"max_calls: The body asks no model"),
    (Guard(ASK, fallback=KEEP, max_calls=0), r"max_calls: With 0 calls the body can never ask its model"),
    (Loop(Identity[Walk]() >> Identity()), r"body: This loop cannot end before its cap: the body changes nothing"),
    (Choice(KEEP, ASK, name="a") >> Choice(KEEP, name="a"), r"Two choices are called 'a'"),
]


@check_each(("flow", "message"), WRONG)
def test_what_is_wrong_is_said_with_its_place_and_what_to_write(flow: Operator[Any, Any], message: str) -> None:
    reported = problems(flow)
    assert any(re.match(message, problem) for problem in reported), reported


def test_a_problem_is_found_at_any_depth() -> None:
    flow = Branch(KEEP, Adaptive(Guard(set_fields(Rewrite(LLM), temperature="x"), max_calls=1)))
    assert check(flow).problems == (
        Problem("arms.1.body.body.temperature", "Here belongs a number; there was the text 'x'."),
    )


def test_a_flow_that_is_given_or_gives_something_else_than_wanted_is_refused() -> None:
    assert problems(ASK, takes=str) == [f"{ASK.short} takes Query, not str"]
    assert problems(ASK, takes=Query, gives=str) == ["The flow gives Query; str is required."]


def test_open_places_are_listed_and_are_no_problem() -> None:
    checked = check(Choice(KEEP, ASK, name="rewriting") >> ASK.vary(temperature=(0.0, 0.5, 1.0)))
    assert checked.ok
    assert checked.open == (("rewriting", 2), ("Rewrite.temperature", 3))
    assert "open: rewriting (2 candidates)" in str(checked)


def test_a_bound_over_too_many_combinations_is_unknown() -> None:
    wide = ASK.vary(temperature=tuple(map(float, range(50))), words=tuple((str(n),) for n in range(50)))
    assert check(wide).calls is None
    assert check(Then(KEEP)).calls == 0


def test_samples_that_come_out_equal_are_told_whatever_merges_and_reads_them() -> None:
    @step
    def longest(query: Query) -> float:
        return float(len(query.text))

    samples_of_each = Samples[Query](3) >> Each(KEEP) >> Best(longest) >> Rewrite(LLM, 0.7)
    assert "The 3 samples come out equal" in str(check(samples_of_each, takes=Query))
    varied = Samples[Query](3) >> Each(Rewrite(LLM, 0.7)) >> Best(longest)
    assert "come out equal" not in str(check(varied, takes=Query))

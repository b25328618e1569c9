"""What `check` sees of Spolia's own routers, judges and fusions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from spolia.core.check import check
from spolia.core.combinators import Branch, Choice, Guard, Identity, Loop, Route
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.errors import WiringError
from spolia.flows.corag import build_hop
from spolia.models.parsers import OneOf
from spolia.models.prompting.role import Role
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.orchestration.arm_choice import Blend, Exceeds, PickArm
from spolia.orchestration.judges import StopOn, StopWhen, Sufficient
from spolia.orchestration.llm_router import ByLabel
from spolia.orchestration.rank_fusion import ConvexCombination, ReciprocalRankFusion
from spolia.orchestration.similarity_router import ByKeywords, ByMeaning
from spolia.post_retrieval.selection import Cut, Threshold
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense
from spolia.stores.corpus import Corpus
from spolia.testing import HashingEmbedder
from spolia.types import Chain, Query, Ranking, State
from tests.cases import check_each

GROUP = Corpus("notes.spolia").group()
LAW, DRUGS = ("law", ("court",)), ("drugs", ("dose",))
WORDS = ByKeywords((LAW, DRUGS))
MEANING = ByMeaning(HashingEmbedder(), (LAW, ("tides", ("sea",))))
LABELS = ByLabel(ScriptedModel(("law",)), (("law", "courts"), ("drugs", "doses")), otherwise="law")
KEYWORDS, VECTORS = BM25(GROUP), Dense(GROUP, HashingEmbedder())
ARMS: dict[str, Operator[Any, Any]] = {"law": KEYWORDS, "drugs": VECTORS}


def problems(flow: Operator[Any, Any]) -> str:
    return "\n".join(map(str, check(flow).problems))


ROUTERS: list[tuple[Operator[Query, str], dict[str, Operator[Any, Any]], str]] = [
    (LABELS, ARMS, ""),
    (LABELS, ARMS | {"other": KEYWORDS}, "arms.other: This arm can never run: the router only names law, drugs."),
    (LABELS, {"law": KEYWORDS}, "arms: The router may name 'drugs', which is not an arm."),
    (WORDS >> PickArm("law"), ARMS, ""),
    (WORDS >> PickArm("law"), ARMS | {"tides": KEYWORDS}, "arms.tides: This arm can never run"),
    (WORDS >> PickArm("law", floor=1.5), ARMS, "arms.drugs: This arm can never run: the router only names law."),
    (WORDS >> Exceeds("drugs", "law", 0.2), ARMS, ""),
    (WORDS >> Exceeds("drugs", "law", 1.0), ARMS, "arms.drugs: This arm can never run"),
    (WORDS >> Exceeds("tides", "law"), ARMS | {"tides": KEYWORDS}, "arms.tides: This arm can never run"),
    (Blend(WORDS, MEANING) >> PickArm("law"), ARMS | {"tides": KEYWORDS}, ""),
    (Blend(WORDS, MEANING, 1.0) >> PickArm("law"), ARMS | {"tides": KEYWORDS}, "arms.tides: This arm can never run"),
    (ByKeywords((LAW, ("drugs", ()))) >> PickArm("law"), ARMS, "arms.drugs: This arm can never run"),
    (Blend(WORDS, MEANING, 0.0) >> PickArm("law"), {"law": KEYWORDS, "tides": VECTORS}, ""),
]


@check_each(("router", "arms", "problem"), ROUTERS)
def test_arms_that_no_label_score_or_threshold_leads_to_are_told(
    router: Operator[Query, str], arms: dict[str, Operator[Any, Any]], problem: str
) -> None:
    reported = problems(Route(router, arms, default="law"))
    assert problem in reported if problem else not reported


def test_an_arm_below_every_threshold_is_told() -> None:
    flow = Route(WORDS >> Exceeds("drugs", "law", -0.1), ARMS, default="drugs")
    assert "arms.law: This arm can never run: the router only names drugs." in problems(flow)


@step
def hop(chain: Chain) -> Chain:
    return chain.but(pairs=(*chain.pairs, ("?", "!")))


@dataclass(frozen=True)
class Walk(State):
    query: Query


@step
def walk(state: Walk) -> Walk:
    return state


def test_a_rule_on_a_field_that_the_state_lacks_is_refused_while_building() -> None:
    with pytest.raises(WiringError, match=r"Chain has no field 'pears'. It has: .*pairs"):
        Loop(hop, StopWhen("pears", 3))
    with pytest.raises(WiringError, match=r"The field 'query' holds Query\. Write one with a number or entries\."):
        Loop(walk, StopWhen("query", 3))
    assert not problems(Loop(hop, StopWhen("pairs", 3), max_steps=3))


def test_a_rule_beyond_the_cap_is_told() -> None:
    hop = build_hop(ScriptedModel(("?",)), KEYWORDS, 9)
    assert "until: StopWhen waits for 4 in 'pairs', and the loop takes 3 steps" in problems(
        Loop(hop, StopWhen("pairs", 4), max_steps=3)
    )
    assert "waits for 4" in problems(Loop(hop, Guard(StopWhen("pairs", 4), max_calls=1), max_steps=3))
    varied = problems(Loop(hop, StopWhen("pairs", 2).vary(at_least=(2, 4, 5)), max_steps=3))
    assert ["waits for 2" in varied, "waits for 4" in varied, "waits for 5" in varied] == [False, True, True]
    steps = problems(Loop(hop, StopWhen("pairs", 4), max_steps=3).vary(max_steps=(2, 4, 9)))
    assert ["takes 3 steps" in steps, "takes 2 steps" in steps, "takes 4 steps" in steps] == [False, True, False]


@step
def twice(chain: Chain) -> Chain:
    return chain.but(pairs=(*chain.pairs, ("?", "!"), ("?", "!")))


def test_a_step_of_yours_may_add_several_pairs_at_a_time() -> None:
    loop = Loop(twice, StopWhen("pairs", 4), max_steps=3)
    assert not problems(loop)
    assert loop(Chain(Query("?"))).stop == "sufficient"


def test_an_arm_that_only_some_candidates_of_a_router_lead_to_is_alive() -> None:
    def find_problems(router: Operator[Query, str], arms: dict[str, Operator[Any, Any]] = ARMS) -> str:
        return problems(Route(router, arms, default="law"))

    assert not find_problems(WORDS >> Exceeds("drugs", "law", 1.0).vary(threshold=(0.2, 1.0)))
    assert not find_problems(WORDS >> Exceeds("drugs", "law").vary(arm=("drugs", "law")))
    assert not find_problems(WORDS >> PickArm("law", floor=1.5).vary(floor=(0.1, 1.5)))
    assert not find_problems(WORDS >> PickArm("law").vary(default=("law", "tides")), ARMS | {"tides": KEYWORDS})
    never = find_problems(WORDS >> Exceeds("drugs", "law").vary(threshold=(1.0, 2.0)))
    assert "arms.drugs: This arm can never run: the router only names law." in never
    assert "The router may name 'tides', which is not an arm" in find_problems(
        WORDS >> PickArm("law").vary(default=("law", "tides"))
    )


def test_a_judge_whose_labels_lack_the_one_that_stops_is_refused_while_building() -> None:
    role = Role("{{question}} {{passages}}", OneOf(("enough", "more")), default="more")
    with pytest.raises(WiringError, match=r"Sufficient stops at 'sufficient'; the role names enough, more\."):
        Sufficient(ScriptedModel(("enough",)), role=role)


def test_a_rule_that_always_holds_is_told() -> None:
    expected = "until: StopWhen stops after the first step: 'pairs' has 0 entries or more. Write at_least=1 or more."
    for always in (0, -1):
        assert expected in problems(Loop(hop, StopWhen("pairs", always), max_steps=3))
    assert not problems(Loop(hop, StopWhen("pairs", 1), max_steps=3))


def test_a_judge_that_waits_for_a_label_that_its_router_never_names_is_refused_while_building() -> None:
    router = WORDS >> PickArm("law")
    assert (router >> StopOn("drugs"))(Query("Which dose?")).stop
    with pytest.raises(WiringError, match=r"StopOn waits for 'drug'; the router before it only names law, drugs\."):
        router >> StopOn("drug")


@dataclass(frozen=True)
class Notes(State):
    query: Query
    text: str = ""
    found: tuple[str, ...] = ()
    tokens: int = 0


@step
def noted(state: Notes) -> Notes:
    return state.but(text=f"{state.text} and so on", found=(*state.found, "a", "b"), tokens=state.tokens + 100)


def test_a_number_may_be_below_0_so_a_rule_may_wait_for_0() -> None:
    assert not problems(Loop(noted, StopWhen("tokens", 0), max_steps=3))
    assert "'text' has 0 entries or more" in problems(Loop(noted, StopWhen("text", 0), max_steps=3))


@pytest.mark.parametrize(("field", "at_least"), [("text", 20), ("found", 5), ("tokens", 300)])
def test_a_step_of_yours_may_add_several_at_a_time(field: str, at_least: int) -> None:
    loop = Loop(noted, StopWhen(field, at_least), max_steps=3)
    assert not problems(loop)
    assert loop(Notes(Query("?"))).stop == "sufficient"


@step
def searched(query: Query) -> Ranking:
    return Ranking(query, (), "mine")


@dataclass(frozen=True)
class OwnFile(Operator[Query, Ranking]):
    source: str = "notes.csv"

    def apply(self, value: Query, /) -> Ranking:
        return Ranking(value, (), "mine")


@pytest.mark.parametrize("own", [searched, OwnFile()])
def test_the_source_that_a_step_of_yours_gives_is_not_guessed(own: Operator[Query, Ranking]) -> None:
    assert not problems(Branch(own, KEYWORDS) >> ConvexCombination((("mine", 0.5), ("bm25", 0.5))))


def test_an_error_that_is_not_loaded_yet_may_be_named() -> None:
    assert not problems(Guard(KEYWORDS, VECTORS, on=("MyOwnError", "ReadTimeout")))


@dataclass(frozen=True)
class Recut(Cut):
    """Of the user's, with another source."""

    def apply(self, value: Ranking, /) -> Ranking:
        return super().apply(value).but(source="bm25")


SPARSE = KEYWORDS.but(source="sparse")
FUSIONS: list[tuple[Operator[Query, Any], str]] = [
    (Branch(KEYWORDS, VECTORS) >> ConvexCombination(), ""),
    (Branch(SPARSE, VECTORS) >> ReciprocalRankFusion(), ""),
    (Branch(SPARSE, VECTORS) >> ConvexCombination(), "no weight or minimum for the source 'sparse', only for 'bm25', "),
    (Branch(Choice(KEYWORDS, SPARSE), VECTORS) >> ConvexCombination(), "for the source 'sparse'"),
    (Branch(Guard(KEYWORDS, SPARSE), VECTORS) >> ConvexCombination(), "for the source 'sparse'"),
    (Branch(KEYWORDS.vary(source=("bm25", "sparse")), VECTORS) >> ConvexCombination(), "for the source 'sparse'"),
    (Branch(SPARSE, VECTORS) >> Choice(ReciprocalRankFusion(), ConvexCombination()), "for the source 'sparse'"),
    (
        Branch(Identity[Query]() >> SPARSE, VECTORS)
        >> ConvexCombination((("sparse", 0.5), ("dense", 0.5)), "theoretical-min-max"),
        "for the source 'sparse'",
    ),
    (Branch(Branch(KEYWORDS, VECTORS) >> ReciprocalRankFusion(), VECTORS) >> ConvexCombination(), ""),
    (Branch(SPARSE >> Cut(3), VECTORS >> Threshold(0.1)) >> ConvexCombination(), "for the source 'sparse'"),
    (Branch(SPARSE >> Recut(3), VECTORS) >> ConvexCombination(), ""),
    (Branch(SPARSE, VECTORS) >> Guard(ConvexCombination(), ReciprocalRankFusion()), "for the source 'sparse'"),
    (Branch(SPARSE, VECTORS) >> Choice(ReciprocalRankFusion(), ConvexCombination() >> Cut(3)), "source 'sparse'"),
    (Branch(SPARSE, VECTORS) >> Branch(ReciprocalRankFusion(), ConvexCombination()), "for the source 'sparse'"),
]


@check_each(("flow", "problem"), FUSIONS)
def test_a_fusion_whose_sources_lack_a_weight_is_told(flow: Operator[Query, Any], problem: str) -> None:
    reported = problems(flow)
    assert problem in reported if problem else "source" not in reported

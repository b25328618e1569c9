"""Questions are split into steps that need each other, and drafts are verified without being seen."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia import BM25, Budget, Each, Query, Reader, ReciprocalRankFusion, Route, Run, check, dump, load
from spolia.core.function import step
from spolia.errors import BudgetSpent, QueryError
from spolia.generation.reader import ClosedBook
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.pre_retrieval.chain_of_verification import ChainOfVerification
from spolia.pre_retrieval.decomposition import Decompose, LeastToMost
from spolia.pre_retrieval.hyde import WithDraft
from spolia.pre_retrieval.query_llm import Steps
from spolia.stores import NodeGroup
from spolia.types import Answer, Plan
from tests.cases import check_each
from tests.pre_retrieval.fixtures import Recorded, degraded
from tests.retrieval.conftest import Stored, stored  # noqa: F401

WHERE = Query("Where is the employer of Olsen?", sample=2)


# -------------------------------------------------------------------------------------------------------------- plan


@check_each(
    ("reply", "expected"),
    [
        ("1. Who employs Olsen?\n2. Where is #1?", ("Who employs Olsen?", "Where is #1?")),
        ("Decompositions:\n1: Who employs Olsen?\n2: Where is #1?", ("Who employs Olsen?", "Where is #1?")),
        ("**1.** Who?\n\n**2.** Where is #1?", ("Who?", "Where is #1?")),
        ("Sub-question 1: Who?\nSub-question 2: Where is #1?", ("Who?", "Where is #1?")),
        ("1. A?\n2. A?\n3. B of #2?", ("A?", "B of #1?")),
        ("2. A?\n5. B of #2?", ("A?", "B of #1?")),
        ('["Who?", "Where is #1?"]', ("Who?", "Where is #1?")),
        ("- Who?\n- Where?", ("Who?", "Where?")),
        ("1、谁雇用了他？\n2、#1在哪里？", ("谁雇用了他？", "#1在哪里？")),
        ("none", ()),
        ("No decomposition needed: none", None),
        ("1. Where is #2?\n2. Who?", ()),
        ("1. Where is #1?", ()),
        ("1. Where is #7?", ()),
        ("", ()),
        ("<think>1. Who?", ()),
        ("1. Where is the EMPLOYER of Olsen?", ()),
        ("\n".join(f"{n}. Question {n}?" for n in range(1, 60)), tuple(f"Question {n}?" for n in range(1, 6))),
    ],
)
@pytest.mark.filterwarnings("ignore::spolia.errors.DegradedWarning")
def test_the_steps_of_a_reply(reply: str, expected: tuple[str, ...] | None) -> None:
    plan = Decompose(ScriptedModel((reply,)))(WHERE)
    assert plan.query == WHERE
    if expected is not None:
        assert plan.steps == expected


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(1, 8), max_size=3), max_size=8))
def test_no_plan_goes_round_in_a_circle(needs: list[list[int]]) -> None:
    steps = tuple(
        f"q{number} " + " ".join(f"#{needed}" for needed in references) for number, references in enumerate(needs, 1)
    )
    forward = all(needed < number for number, references in enumerate(needs, 1) for needed in references)
    if not forward:
        with pytest.raises(QueryError, match="not before it"):
            Plan(WHERE, steps)
        return
    plan = Plan(WHERE, steps)
    assert sorted(number for level in plan.levels for number in level) == list(range(1, len(steps) + 1))
    place = {number: depth for depth, level in enumerate(plan.levels) for number in level}
    assert all(place[needed] < place[number] for number, references in enumerate(needs, 1) for needed in references)
    assert all(level for level, _ in pairwise((*plan.levels, ())))


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(["1. a?", "2. b of #1?", "3. c of #2 and #1", "#9", "none", "\n", "7: x #3"]), max_size=8)
)
def test_whatever_is_read_is_a_plan_or_is_refused(lines: list[str]) -> None:
    try:
        steps = Steps().parse("\n".join(lines))
    except ValueError:
        return
    assert Plan(WHERE, steps).steps == steps


TWO_STEPS = ("Who employs Olsen?", "Where is #1?")


@check_each(
    ("reply", "steps"),
    [
        ('```json\n{\n "steps": [\n  "1. Who employs Olsen?",\n  "2. Where is #1?"\n ]\n}\n```', TWO_STEPS),
        ('[{"id": 1, "question": "Who employs Olsen?"}, {"id": 2, "question": "Where is #1?"}]', TWO_STEPS),
        ('{"1": "Who employs Olsen?", "2": "Where is #1?"}', TWO_STEPS),
        ("To answer this, two steps are needed.\nWho employs Olsen?\nWhere is #1?", TWO_STEPS),
        ("Sure, here is the plan\nWho employs Olsen?\nWhere is #1?", TWO_STEPS),
        ("<think>1. Who?\n2. Where?</think>1. Who employs Olsen?\n2. Where is #1?", TWO_STEPS),
        ("<answer>1. Who employs Olsen?\n2. Where is #1?</answer>", TWO_STEPS),
        ("1.) Who employs Olsen?\n2.) Where is #1?", TWO_STEPS),
        ("1. Question: Who employs Olsen?\n2. Question: Where is #1?", TWO_STEPS),
        ("1) Who employs Olsen? 2) Where is #1?", TWO_STEPS),
        (
            "1. Who employs Olsen,\n   the engineer?\n2. Where is #1?",
            ("Who employs Olsen, the engineer?", "Where is #1?"),
        ),
        ("步骤1：谁雇用了奥尔森？\n步骤2：＃1 在哪里？", ("谁雇用了奥尔森？", "#1 在哪里？")),
        ("第1步：谁雇用了奥尔森？\n第2步：#1 在哪里？", ("谁雇用了奥尔森？", "#1 在哪里？")),
        ("1단계: 누가 고용했나?\n2단계: #1은 어디?", ("누가 고용했나?", "#1은 어디?")),
    ],
)
def test_steps_are_read_however_a_model_writes_them(reply: str, steps: tuple[str, ...]) -> None:
    assert Steps().parse(reply) == steps


# --------------------------------------------------------------------------------------------------- least to most

ASKED: list[Query] = []


@step
def known(query: Query) -> Answer:
    ASKED.append(query)
    if "trap" in query.text:
        return Answer("#2 [1]\nof two lines.")
    if "unknown" in query.text:
        return Answer("I do not know.", stop_reason="abstained")
    if "broken" in query.text:
        raise ValueError("no server")
    return Answer("Nokia [1].")


def texts(plan: Plan) -> list[str]:
    ASKED.clear()
    return [query.text for query in LeastToMost(known)(plan)]


def test_steps_are_answered_in_order_where_others_need_them() -> None:
    plan = Plan(WHERE, ("Who employs Olsen?", "Who founded it?", "Where is #1?", "Who heads #3 of #1?"))
    assert texts(plan) == [
        WHERE.text,
        "Who employs Olsen?",
        "Who founded it?",
        "Where is Nokia?",
        "Who heads Nokia of Nokia?",
    ]
    assert [query.text for query in ASKED] == ["Who employs Olsen?", "Where is Nokia?"]
    assert {(query.question == query.text, query.sample) for query in ASKED} == {(True, 2)}


def test_no_step_without_its_answer_is_searched_for() -> None:
    for dead in ("unknown", "broken"):
        with degraded("spolia.pre_retrieval.decomposition") as reasons:
            searches = texts(Plan(WHERE, (f"{dead}?", "Where is #1?", "Who heads #2?", "Who?")))
        assert searches == [WHERE.text, f"{dead}?", "Who?"]
        assert not any("#" in text for text in searches)
        assert reasons


def test_an_answer_is_put_in_as_it_is_and_never_looked_at_again() -> None:
    assert texts(Plan(WHERE, ("trap?", "b?", "Where is #1?")))[3] == "Where is #2 of two lines?"


def test_without_steps_the_question_is_alone() -> None:
    assert LeastToMost(known)(Plan(WHERE)) == (WHERE,)


def test_what_goes_on_to_a_search_answers_the_question_that_was_asked() -> None:
    queries = LeastToMost(known)(Plan(WHERE, ("Who?",)))
    assert {query.question for query in queries} == {WHERE.text}


def test_a_spent_budget_is_no_step_without_an_answer() -> None:
    book = ClosedBook(ScriptedModel(("Nokia.",)))
    with Run(budget=Budget(calls=0)), pytest.raises(BudgetSpent):
        LeastToMost(book)(Plan(WHERE, ("Who?", "Where is #1?")))


@pytest.mark.slow
def test_the_whole_flow_finds_what_every_step_needs(stored: Stored) -> None:  # noqa: F811
    chunks: NodeGroup = stored({"a": "Olsen is employed by Nokia.", "b": "Nokia is in Salo.", "c": "Salt is dug."})
    llm = ScriptedModel(
        (
            ("You split", "1. Who is Olsen employed by?\n2. Where is #1?"),
            ("Who is Olsen employed by", "Nokia [1]."),
            ("", "In Salo [2]."),
        )
    )
    flow = (
        Decompose(llm)
        >> LeastToMost(BM25(chunks, top_k=1) >> Reader(llm))
        >> Each(BM25(chunks, top_k=2))
        >> ReciprocalRankFusion(top_k=2)
        >> Reader(llm)
    )
    answer = flow(Query("In which town is the employer of Olsen?"))
    assert answer.text == "In Salo [2]."
    assert answer.evidence is not None
    assert {node.id for node in answer.evidence.nodes} == {"a", "b"}
    assert load(dump(flow, {"llm": llm}), {"llm": llm}) == flow
    assert check(flow, takes=Query).calls == 2 + 8 + 1


# ------------------------------------------------------------------------------------------------- verification


def chain_of_verification(checks: str, answers: dict[str, str], revision: str) -> tuple[ChainOfVerification, Recorded]:
    def reply(prompt: str) -> str:
        if "<checks" in prompt:
            return revision
        if "<draft>" in prompt:
            return checks
        return next((message for name, message in answers.items() if name in prompt), "I do not know.")

    model = Recorded(reply)
    book = ClosedBook(model)
    return ChainOfVerification(model, draft=book, answer=book), model


EMMA = Query("Of which year is Emma?")
ANSWERS = {EMMA.text: "Emma is of 1899.", "When did Emma appear?": "In 1815."}


def test_a_contradiction_changes_the_answer_and_agreement_leaves_it() -> None:
    changed, model = chain_of_verification("1. When did Emma appear?\n2. Who wrote it?", ANSWERS, "Emma is of 1815.")
    assert changed(EMMA).text == "Emma is of 1815."
    agreed, _ = chain_of_verification("1. When did Emma appear?", ANSWERS, "none")
    assert agreed(EMMA).text == "Emma is of 1899."
    assert len(model.sent) == 1 + 1 + 2 + 1


def test_no_check_has_seen_the_draft() -> None:
    chain, model = chain_of_verification("When did Emma appear?\nWho wrote it?", ANSWERS, "none")
    chain(EMMA)
    draft, plan, *checks, revise = model.sent
    assert "1899" not in draft.text
    assert "1899" in plan.text
    assert "1899" in revise.text
    assert len(checks) == 2
    assert not any("1899" in prompt.text or EMMA.text in prompt.text for prompt in checks)


@pytest.mark.parametrize("checks", ["none", "", "<think>hm"])
@pytest.mark.filterwarnings("ignore::spolia.errors.DegradedWarning")
def test_with_nothing_to_check_the_draft_stays(checks: str) -> None:
    chain, model = chain_of_verification(checks, ANSWERS, "Emma is of 1815.")
    assert chain(EMMA).text == "Emma is of 1899."
    assert not any("<checks" in prompt.text for prompt in model.sent)


@pytest.mark.parametrize("revision", ["", "none", "<think>"])
@pytest.mark.filterwarnings("ignore::spolia.errors.DegradedWarning")
def test_a_revision_that_cannot_be_read_leaves_the_draft(revision: str) -> None:
    assert chain_of_verification("When did Emma appear?", ANSWERS, revision)[0](EMMA).text == "Emma is of 1899."


def test_an_abstention_is_not_checked() -> None:
    chain, model = chain_of_verification("When?", {}, "x")
    assert chain(EMMA).abstained
    assert len(model.sent) == 1


def test_no_more_checks_than_are_wanted_and_those_that_fail_are_left_out() -> None:
    @step
    def failing(query: Query) -> Answer:
        if "2" in query.text:
            raise ValueError("no server")
        return Answer("yes")

    chain, model = chain_of_verification("\n".join(f"Check {n}?" for n in range(9)), ANSWERS, "none")
    with degraded("spolia.pre_retrieval.chain_of_verification") as reasons:
        chain.but(answer=failing, questions=4)(EMMA)
    assert len(reasons) == 1
    assert model.sent[-1].text.count("<checks number=") == 3


def test_a_verified_draft_is_searched_for() -> None:
    chain, _ = chain_of_verification("When did Emma appear?", ANSWERS, "Emma is of 1815.")
    query = WithDraft(chain)(EMMA)
    assert query.text == f"{EMMA.text}\nEmma is of 1815."
    assert query.question == EMMA.text
    assert WithDraft(chain, beside=False)(EMMA).text == "Emma is of 1815."
    silent, _ = chain_of_verification("", {}, "")
    assert WithDraft(silent)(EMMA) == EMMA


def test_an_answer_without_documents_is_an_arm_that_abstains() -> None:
    book: Any = ClosedBook(ScriptedModel((("Emma", "Jane Austen."), ("", "I do not know"))))
    assert book(EMMA).citations == ()
    assert book(Query("?")).abstained

    @step
    def plain(query: Query) -> str:
        return "recall"

    assert Route(plain, {"recall": book}, default="recall")(EMMA).text == "Jane Austen."
    assert check(ChainOfVerification(book.llm, book, book)).calls == 2 + 5 * 2 + 2 + 2

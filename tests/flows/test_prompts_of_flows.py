"""What each step of a published flow shows to the model, and what it keeps from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from spolia import Query, Ranking, Run, step
from spolia.flows import prefrag, self_rag
from spolia.models.prompting import template
from spolia.types import Prompt, Token
from tests.cases import check_each
from tests.flows.test_published import ASKED, Model, Scores, build_flow, hopper, preferring, ranking_of

EMPLOYER, TOWN, MINES, PAGE = (
    "Olsen worked for Nokia.", "Nokia has its headquarters in Espoo.", "Salt is dug in mines.", "A page of the web.",
)  # fmt: skip


@dataclass(frozen=True)
class Listening(Model):
    """Keeps the prompts that it is sent."""

    asked: list[Prompt] = field(default_factory=list, compare=False)

    def _reply(self, prompt: Prompt) -> str:
        self.asked.append(prompt)
        return super()._reply(prompt)

    def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        self.asked.append(prompt)
        return super().continuation(prompt, text)


@step
def local(query: Query) -> Ranking:
    """What a question about Olsen, or else about Nokia, finds first."""
    first = EMPLOYER if "Olsen" in query.text else TOWN
    return ranking_of(query, f"local {first[:2]} ", (first, MINES))


@step
def web(query: Query) -> Ranking:
    return ranking_of(query, "web", (PAGE,))


def prompts(name: str, model: Model, **parts: Any) -> dict[str, list[str]]:
    """The prompts of a flow by the name of the prompt file, in the order in which they were sent."""
    listening = Listening(model.replies)
    with Run():
        build_flow(name, listening, **{"search": local, "web": web, "scorer": Scores(), **parts})(ASKED)
    texts_by_role: dict[str, list[str]] = {}
    for prompt in listening.asked:
        role = prompt.role.rpartition("/")[2].partition(".")[0]
        texts_by_role.setdefault(role, []).append(
            "\n".join(message.content for message in prompt.messages if message.role != "system")
        )
    return texts_by_role


THINKS = Model((
    ("step by step[\\s\\S]*<thoughts>.+</thoughts>", "So the answer is: Espoo."),
    ("step by step", "Nokia was it."), ("", "Espoo [1]."),
))  # fmt: skip
LOOK = "<thought>My thought.</thought><source>web</source><search>Nokia</search>"
ACTS = Model((("<log", "<thought>!</thought><answer>Espoo</answer>"), ("has to be changed", "no"), ("", LOOK)))
TOC = Model((("may mean several", "Which town? | Espoo"), ("", "yes")))
Q, FIRST, SECOND = ASKED.question, "Who employed Olsen?", "Where is Nokia?"
CASES: tuple[tuple[str, Model, str, int, tuple[str, ...], tuple[str, ...]], ...] = (
    ("closed-book", Model(("Espoo",)), "", 0, (Q,), (EMPLOYER, TOWN)),
    ("naive", Model(("Espoo",)), "", 0, (Q, EMPLOYER, MINES), (PAGE,)),
    ("naive-web", Model(("Espoo",)), "", 0, (Q, PAGE), (EMPLOYER,)),
    ("naive-both", Model(("Espoo",)), "", 0, (Q, PAGE, EMPLOYER), ()),
    ("rrr", Model(("Nokia town",)), "", -1, (Q, TOWN), (EMPLOYER,)),
    ("hyde", Model(("Nokia drafted.",)), "", -1, (Q,), ("Nokia drafted.",)),
    ("step-back", Model(("Nokia town",)), "", -1, (Q, EMPLOYER, TOWN), ()),
    ("iter-retgen", Model(("Espoo",)), "", 1, (Q, EMPLOYER), ("<answer",)),
    ("ircot", THINKS, "ircot_thought", 0, (Q, "<thoughts></thoughts>"), ("Nokia was it.", TOWN)),
    ("ircot", THINKS, "ircot_thought", 1, (Q, "Nokia was it.", EMPLOYER, TOWN), ()),
    ("corag", hopper(FIRST, SECOND), "corag_next", 0, (Q,), (EMPLOYER, TOWN, FIRST)),
    ("corag", hopper(FIRST, SECOND), "corag_next", 1, (Q, FIRST, "Nokia."), (EMPLOYER, TOWN)),
    ("corag", hopper(FIRST, SECOND), "corag_reply", 0, (FIRST, EMPLOYER), (Q, TOWN, SECOND)),
    ("corag", hopper(FIRST, SECOND), "corag_reply", 1, (SECOND, TOWN), (Q, EMPLOYER, FIRST)),
    ("corag", hopper(FIRST, SECOND), "corag_final", 0, (Q, FIRST, SECOND, EMPLOYER), (PAGE,)),
    ("corag-oracle", hopper(FIRST, SECOND), "corag_enough", 0, (Q, FIRST), (EMPLOYER, SECOND)),
    ("corag-tree", hopper(FIRST, SECOND), "corag_next", 0, (Q,), (EMPLOYER, TOWN, FIRST)),
    ("corag-tree", hopper(FIRST, SECOND), "corag_reply", 0, (FIRST, EMPLOYER), (Q, TOWN, SECOND)),
    ("corag-tree", hopper(FIRST, SECOND), "", -1, (Q, FIRST, SECOND, EMPLOYER), (PAGE,)),
    ("corag-classifier-tree", hopper(FIRST, SECOND), "corag_next", 0, (Q,), (EMPLOYER, TOWN, FIRST)),
    ("corag-classifier-tree", hopper(FIRST, SECOND), "corag_final", 0, (Q, FIRST, SECOND, EMPLOYER), (PAGE,)),
    ("tree-of-clarifications", TOC, "toc_meanings", 0, (Q, EMPLOYER), ("Which town?", PAGE)),
    ("tree-of-clarifications", TOC, "toc_meanings", 1, ("Which town?",), (Q, PAGE)),
    ("tree-of-clarifications", TOC, "toc_answer", 0, (Q, "Which town?", "Espoo", EMPLOYER), (PAGE,)),
    ("prefrag", preferring(("", LOOK), helps="yes"), "prefrag_turn", 1, (Q, TOWN), (PAGE, EMPLOYER)),
    ("prefrag", preferring(("", LOOK), helps="yes"), "prefrag_forced", 0, (Q, TOWN), (PAGE,)),
    ("prefrag", preferring(("", LOOK), helps="no"), "prefrag_helps", 0, (Q, TOWN), (PAGE,)),
    ("prefrag", preferring(("", LOOK), helps="no"), "prefrag_turn", 2, (Q, TOWN, PAGE), ()),
    ("prefrag-prompt", preferring(("", LOOK)), "prefrag_turn", 1, (Q, PAGE), (TOWN, EMPLOYER)),
    ("prefrag-no-preference", preferring(("", LOOK)), "prefrag_turn", 1, (Q, PAGE, TOWN), (EMPLOYER,)),
    ("react", ACTS, "react_turn", 0, (Q,), (PAGE, TOWN, "My thought.")),
    ("react", ACTS, "react_turn", 1, (Q, PAGE, "My thought.", "search: Nokia"), (TOWN,)),
    ("react-concat", ACTS, "react_turn", 1, (Q, PAGE, TOWN), ()),
    ("auto-rag", ACTS, "auto_rag_decide", 1, (Q, TOWN, "search: Nokia"), (PAGE, EMPLOYER)),
    ("planrag", ACTS, "planrag_plan", 0, (Q,), (TOWN, EMPLOYER)),
    ("planrag", ACTS, "planrag_act", 0, (Q, "<plan>"), (TOWN, "My thought.")),
    ("planrag", ACTS, "planrag_again", 0, (Q, TOWN, "<plan>", "My thought."), (PAGE,)),
    ("crag", Model(("Nokia",)), "crag_keywords", 0, (Q,), (EMPLOYER, TOWN)),
    ("crag-grader", Model(("no",)), "", -1, (Q, PAGE), (EMPLOYER, MINES)),
    ("self-rag", Model((("which kind", "[Retrieval]"), "Espoo")), "self_rag_read", 0, (Q, EMPLOYER), (MINES,)),
    ("self-rag", Model((("which kind", "[No Retrieval]"), "Espoo")), "self_rag_recall", 0, (Q,), (EMPLOYER,)),
    ("flare", Model((("<text></text>", "One fact."), ("", "[END]"))), "flare_go_on", 1, (Q, "One fact."), ()),
    ("tree-of-clarifications", TOC, "toc_holds", 0, (Q, "Which town?", "Espoo"), (MINES,)),
    ("adaptive-rag", Model(("none",)), "label", 0, (Q,), (EMPLOYER, MINES)),
    ("wikichat", Model(("Espoo",)), "closed_book", 0, (Q,), (EMPLOYER, MINES)),
)  # fmt: skip


@check_each(("name", "model", "role", "at", "holds", "lacks"), CASES)
@pytest.mark.filterwarnings("ignore::spolia.errors.DegradedWarning")
def test_a_step_shows_what_it_needs_and_nothing_else(
    name: str, model: Model, role: str, at: int, holds: tuple[str, ...], lacks: tuple[str, ...]
) -> None:
    texts_by_role = prompts(name, model)
    all_prompts = [prompt for prompts in texts_by_role.values() for prompt in prompts]
    prompt_shown = (texts_by_role[role] if role else all_prompts)[at]
    assert [text for text in holds if text not in prompt_shown] == []
    assert [text for text in lacks if text in prompt_shown] == []


@pytest.mark.parametrize(
    ("name", "role"), [("crag-grader", "useful"), ("self-rag", "self_rag_read"), ("replug", "brief")]
)
def test_each_passage_is_judged_alone(name: str, role: str) -> None:
    judging = prompts(name, Model((("which kind", "[Retrieval]"), "no")))[role]
    assert all((EMPLOYER in prompt) + (MINES in prompt) == 1 for prompt in judging)
    assert {EMPLOYER in prompt for prompt in judging} == {True, False}


def test_a_chain_is_scored_by_the_prompt_of_its_sub_answers_with_its_pairs_for_documents() -> None:
    *_, scored = prompts("corag-best-of-n", hopper(FIRST, SECOND), steps=2, n=1)["corag_reply"]
    assert f'<passages number="2">\nQ: {SECOND}\nA: Nokia.\n</passages>' in scored
    assert f"<question>{Q}</question>" in scored


def test_a_chain_is_shown_in_the_form_of_the_published_model() -> None:
    texts_by_role = prompts("corag", hopper(FIRST), form="corag-8b", steps=1)
    chain = f"<chain>Intermediate query 1: {FIRST}\nIntermediate answer 1: Nokia.</chain>"
    assert "<chain>Nothing yet</chain>" in texts_by_role["corag_next"][0]
    assert chain in texts_by_role["corag_final"][0]


def test_prefrag_shows_later_turns_why_it_has_searched_and_doubted() -> None:
    doubted = (
        "<thought>It may be Salo.</thought><answer>Salo</answer><evaluation>INCORRECT</evaluation>"
        "<explanation>No passage names Salo.</explanation><suggestion>Search for Nokia.</suggestion>"
    )
    verdict = "<analysis>Nothing new is said.</analysis><verdict>no</verdict>"
    turns = (("Nothing new", doubted), ("", LOOK))
    texts_by_role = prompts("prefrag", preferring(*turns, helps=verdict))
    first, second, third, fourth = (texts_by_role["prefrag_turn"][index] for index in range(4))
    assert "My thought.\nlocal: Nokia" in second
    assert "My thought.\nweb: Nokia\nNothing new is said." in third
    assert "It may be Salo.\nSalo (INCORRECT)\nNo passage names Salo.\nSearch for Nokia." in fourth
    assert "My thought." not in first


@pytest.mark.parametrize(
    ("file", "marks"),
    [
        (
            "prefrag_turn",
            (
                *(f"<{name}>" for name in (*prefrag.SAYS.optional, *prefrag.SAYS.one_of)),
                " CORRECT",
                "PARTIALLY CORRECT",
            ),
        ),
        ("self_rag_read", ("[Relevant]", *self_rag.SUPPORTED, "[Utility:1]", "[Utility:5]")),
    ],
)
def test_prompts_in_every_language_ask_for_the_marks_that_the_flow_reads(file: str, marks: tuple[str, ...]) -> None:
    texts = template.read_all(f"spolia:flows/prompts/{file}.txt", "")
    assert {"en", "ko", "zh"} <= set(texts)
    for language, text in texts.items():
        prompt_text = " ".join("\n".join(message.content for message in text.messages).split())
        assert [mark for mark in marks if mark not in prompt_text] == [], language

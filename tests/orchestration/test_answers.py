"""Several answers become one."""

from __future__ import annotations

import pytest

from spolia.errors import StepFailed
from spolia.flow_files.files import dump, load
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.orchestration.answer_fusion import LLMFusion, MajorityVote
from spolia.run import Run
from spolia.types import Answer, Citation, Hit, Node, Query, Ranking
from tests.degradation import degraded


def answer(text: str, *nodes: str) -> Answer:
    citations = tuple(Citation(str(number), node, "d", "a.txt", f"text {node}") for number, node in enumerate(nodes, 1))
    hits = tuple(Hit(Node(node, f"text {node}"), 1.0) for node in nodes)
    return Answer(text, citations, "answered", Ranking(Query("Who?"), hits))


ABSTAINED = Answer("I do not know.", stop_reason="abstained")


@pytest.mark.parametrize(
    ("texts", "winner"),
    [
        (("Salo", "Nokia", "nokia."), 1),
        (("Salo", "Nokia"), 0),
        (("caf\u00e9 [1]", "tea", "CAFE\u0301"), 0),
        (("5", "-5", "\u22125"), 1),
        (("東京。", "大阪", "「東京」"), 0),
    ],
)
def test_most_voices_win_as_the_first_of_them_says_it(texts: tuple[str, ...], winner: int) -> None:
    answers = tuple(map(Answer, texts))
    assert MajorityVote()(answers) is answers[winner]


def test_those_that_abstain_are_of_one_voice() -> None:
    unfound = Answer("Nothing was found.", stop_reason="abstained")
    assert MajorityVote()((Answer("Nokia"), ABSTAINED, unfound)) is ABSTAINED
    assert MajorityVote()((Answer("Nokia"), ABSTAINED)).text == "Nokia"


@pytest.mark.parametrize("op", [MajorityVote(), LLMFusion(ScriptedModel(("x",)))])
def test_nothing_to_choose_from_is_an_error(op: MajorityVote | LLMFusion) -> None:
    with pytest.raises(StepFailed):
        op(())
    assert load(dump(op)) == op


def test_marks_get_one_numbering_and_become_citations() -> None:
    one, two = answer("Nokia [1], Salo [2].", "a", "b"), answer("Salo [1], 1998 [2].", "b", "c")
    pattern = r"(?s)Nokia \[1\], Salo \[2\].*Salo \[2\], 1998 \[3\]"
    fused = LLMFusion(ScriptedModel(((pattern, "Nokia in Salo [2] until 1998 [3], say some [9]."),)))((one, two))
    assert fused.text == "Nokia in Salo [2] until 1998 [3], say some."
    assert [(citation.marker, citation.node) for citation in fused.citations] == [("2", "b"), ("3", "c")]
    assert fused.evidence is not None
    assert [node.id for node in fused.evidence.nodes] == ["a", "b", "c"]
    assert fused.evidence.query.question == "Who?"


def test_nobody_is_asked_where_there_is_nothing_to_fuse() -> None:
    llm = ScriptedModel(())
    assert LLMFusion(llm)((ABSTAINED, answer("Nokia"))).text == "Nokia"
    assert LLMFusion(llm)((ABSTAINED, ABSTAINED)) is ABSTAINED


@pytest.mark.parametrize(("lengths", "calls"), [((10, 10), 1), ((10, 5000), 2), ((5000, 6000, 10), 3)])
def test_each_answer_that_is_too_long_is_shortened_once(lengths: tuple[int, ...], calls: int) -> None:
    llm = ScriptedModel((("<answers", "Fused."), ("<answer>", "Short.")))
    answers = tuple(Answer(f"{index} " + "x" * length) for index, length in enumerate(lengths))
    with Run() as run:
        assert LLMFusion(llm, characters=1000)(answers).text == "Fused."
        assert run.usage.calls == calls


def test_what_could_not_be_fused_is_the_first_answer() -> None:
    one, two = answer("Nokia [1].", "a"), answer("Salo [1].", "b")
    with degraded() as reasons:
        assert LLMFusion(ScriptedModel((("Oslo", "x"),)))((one, two)) is one
    assert reasons
    assert LLMFusion(ScriptedModel(("[9]",)))((one, two)) is one

"""Answers are held against passages."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.core.check import check
from spolia.core.function import step
from spolia.flow_files.files import dump, load
from spolia.generation.reader import Reader
from spolia.generation.verification import VerifyClaims, VerifyGrounding
from spolia.journal import Runs
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.pre_retrieval.rewrite import Rewrite
from spolia.run import Run
from spolia.types import Answer, Hit, Node, Query, Ranking
from tests.degradation import degraded
from tests.pre_retrieval.fixtures import Recorded

ANSWER = Answer("Nokia employed him until 1990. He liked salt.", evidence=Ranking(Query("Who?"), ()))
CLAIMS = ("<answer>", "Nokia employed him.\nHe left in 1990.\nHe liked salt.")
VERDICTS = (("<statement>Nokia", "supported"), ("<statement>He left", "Refuted, it was 1998."), ("<statement>", "?"))


@step
def library(query: Query) -> Ranking:
    nodes = {"Nokia": "Nokia employed Olsen.", "left": "He left in 1998.", "salt": "Salt is dug."}
    hits = [Hit(Node(name, text), 1.0) for name, text in nodes.items() if name in query.text]
    return Ranking(query, tuple(hits))


@step
def empty(query: Query) -> Ranking:
    return Ranking(query, ())


def test_only_what_is_supported_stays_with_its_evidence() -> None:
    op = VerifyClaims(ScriptedModel((("<facts>Nokia", "It was Nokia [1]."), *VERDICTS, CLAIMS)), library)
    answer = op(ANSWER)
    assert answer.text == "It was Nokia [1]."
    assert [(citation.marker, citation.quote) for citation in answer.citations] == [("1", "Nokia employed Olsen.")]
    assert answer.evidence is not None
    assert answer.evidence.query == Query("Who?")


@step
def much(query: Query) -> Ranking:
    return Ranking(query, tuple(Hit(Node(str(n), f"Passage {n}."), 1.0) for n in range(5)))


@pytest.mark.parametrize("evidence", [1, 2, 4])
def test_each_claim_is_held_against_so_many_passages(evidence: int) -> None:
    model = Recorded(lambda text: "supported" if "<statement>" in text else "Nokia employed him.")
    VerifyClaims(model, much, evidence=evidence)(ANSWER)
    (judged,) = [prompt.text for prompt in model.sent if "<statement>" in prompt.text]
    assert judged.count("] Passage ") == evidence


@pytest.mark.parametrize("draft", ["He LEFT, in 1990. And Nokia [1].", "none", "I like that he liked salt [1].", "[7]"])
def test_a_refuted_claim_never_comes_back(draft: str) -> None:
    answer = VerifyClaims(ScriptedModel((("<facts>", draft), *VERDICTS, CLAIMS)), library)(ANSWER)
    assert "1990" not in answer.text
    assert "salt" not in answer.text
    assert answer.text == "Nokia employed him. [1]"


def test_a_supported_claim_that_holds_a_refuted_one_goes_too() -> None:
    claims = ("<answer>", "He left in 1990.\nNokia employed him.\nNokia was sad, and he left in 1990.")
    verdicts = (("<statement>He left", "refuted"), ("<statement>", "supported"))
    answer = VerifyClaims(ScriptedModel((("<facts>", "none"), *verdicts, claims)), library)(ANSWER)
    assert answer.text == "Nokia employed him. [1]"


def test_what_is_wholly_supported_stays_as_it_was() -> None:
    assert VerifyClaims(ScriptedModel((("<statement>", "supported"), CLAIMS)), library)(ANSWER) == ANSWER


def test_nothing_supported_is_said_so() -> None:
    answer = VerifyClaims(ScriptedModel((("<statement>", "refuted"), CLAIMS)), library)(ANSWER)
    assert answer.abstained
    with Run() as run:
        assert VerifyClaims(ScriptedModel((CLAIMS,)), empty)(ANSWER).abstained
        assert run.usage.calls == 1  # nobody is asked about a claim without evidence


@pytest.mark.parametrize("said", ["none", "None.", "- none"])
def test_an_answer_that_states_nothing_passes(said: str) -> None:
    assert VerifyClaims(ScriptedModel((said,)), library)(ANSWER) is ANSWER
    abstained = Answer("I do not know.", stop_reason="abstained")
    assert VerifyClaims(ScriptedModel(()), library)(abstained) is abstained


def test_that_an_answer_states_nothing_is_noted(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.db")
    with Run(journal=runs.journal) as run:
        VerifyClaims(ScriptedModel(("none",)), library)(ANSWER)
    runs.journal.flush()
    notes = [note for span in runs.journal.spans(run.id) for note in span.notes]
    runs.close()
    assert notes == ["The answer states nothing that could be verified, and passes."]


def test_claims_beyond_the_limit_are_not_kept() -> None:
    model = ScriptedModel((("<facts>", "none"), ("<statement>", "supported"), CLAIMS))
    assert VerifyClaims(model, library, max_claims=1)(ANSWER).text == "Nokia employed him. [1]"


def test_a_claim_that_cannot_be_judged_is_not_kept() -> None:
    rows = (("<facts>", "none"), ("<statement>Nokia", "supported"), ("^(?!.*statement)(?s:.*)<answer>", CLAIMS[1]))
    with degraded() as reasons:
        assert VerifyClaims(ScriptedModel(rows), library)(ANSWER).text == "Nokia employed him. [1]"
    assert reasons


# ---------------------------------------------------------------------------------------------------- by a model


def verify_answer(
    *verdicts: str, replies: tuple[str, ...] = ("A [1]", "B [1]", "C [1]"), rounds: int = 3
) -> tuple[Answer, int]:
    """The answer, and how many were written; the verdict on A, B, C in their order."""
    judge = ScriptedModel(tuple((f"<answer>{name}", verdict) for name, verdict in zip("ABC", verdicts, strict=False)))
    reader = ScriptedModel((("", "A [1]", "B [1]", "C [1]"),), name="reader")
    with Run() as run:
        answer = VerifyGrounding(library, Reader(reader, temperature=0.5), judge, max_rounds=rounds)(Query("Nokia"))
        return answer, run.usage.calls


def test_two_bad_verdicts_then_a_good_one_are_three_answers() -> None:
    answer, calls = verify_answer("wrong answer", "wrong passages", "right")
    assert (answer.text, answer.stop_reason, calls) == ("C [1]", "answered", 6)


def test_at_the_cap_the_last_answer_is_not_verified() -> None:
    answer, calls = verify_answer("wrong answer", "wrong answer", "wrong answer")
    assert (answer.text, answer.stop_reason, calls) == ("C [1]", "cap", 6)
    assert verify_answer("wrong answer", rounds=1)[0].stop_reason == "cap"


def test_wrong_passages_are_searched_for_again_by_another_query() -> None:
    @step
    def other(query: Query) -> Query:
        return query.rewritten("he left")

    rows = (
        ("<answer>(?s:.*)1998", "right"),
        ("<answer>", "wrong passages"),
        ("1998", "In 1998 [1]"),
        ("", "Nokia [1]"),
    )
    model = ScriptedModel(rows)
    answer = VerifyGrounding(library, Reader(model), model, rewrite=other)(Query("Nokia"))
    assert answer.text == "In 1998 [1]"
    assert answer.evidence is not None
    assert answer.evidence.query.question == "Nokia"


@pytest.mark.parametrize(("verdict", "searches"), [("wrong passages", 3), ("wrong answer", 1), ("right", 1)])
def test_it_is_searched_again_before_each_answer_to_other_passages_and_not_after_the_last(
    verdict: str, searches: int
) -> None:
    reader, judge = ScriptedModel(("A [1]",), name="reader"), ScriptedModel((verdict,))
    with Run() as run, run.lane() as lane:
        VerifyGrounding(library, Reader(reader), judge)(Query("Nokia"))
    assert len(lane.retrievals) == searches


def test_nothing_found_is_searched_again_without_asking() -> None:
    with Run() as run:
        answer = VerifyGrounding(empty, Reader(ScriptedModel(())), ScriptedModel(()))(Query("Nokia"))
        assert run.usage.calls == 0
    assert (answer.abstained, answer.stop_reason) == (True, "abstained")


def test_calls_are_bounded() -> None:
    llm = ScriptedModel(("x",))
    # each reply may be sent back once: two calls for the list, two for each verdict, two for the text
    assert check(VerifyClaims(llm, library, max_claims=7)).calls == 2 + 7 * 2 + 2
    # of each round an answer and a verdict; between the rounds two calls for another query
    assert check(VerifyGrounding(library, Reader(llm), llm)).calls == 3 * (1 + 2)
    assert check(VerifyGrounding(library, Reader(llm), llm, rewrite=Rewrite(llm))).calls == 3 * (1 + 2) + 2 * 2


def test_each_is_written_to_a_file() -> None:
    llm = ScriptedModel(("x",))
    for op in (VerifyClaims(llm, library), VerifyGrounding(library, Reader(llm), llm)):
        assert load(dump(op), operators=(library,)) == op

"""What users say of answers becomes questions, once, and never of the part that reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spolia import Node
from spolia.core.redaction import Patterns
from spolia.evaluation.creation.draft import QuestionDraft
from spolia.evaluation.creation.feedback import Feedback, FeedbackQueue, drafts_of
from spolia.evaluation.creation.items import tuning_item
from spolia.evaluation.data.dataset import part_of
from spolia.journal.values import make_redaction
from spolia.types import Span

NODES = {id: Node(id, text, f"{id}.txt", span=Span(5, 5 + len(text))) for id, text in (
    ("tides", "The moon causes the tides."), ("mines", "Nokia had mines."),
)}  # fmt: skip
GOOD = Feedback("r", "ann", "What causes tides?", "The moon [1].", False, ("tides",), ("mines",), "up")


def draft_from(feedback: Feedback) -> QuestionDraft:
    (question_draft,) = drafts_of([feedback], NODES)
    return question_draft


def test_a_good_answer_has_the_cited_passages_as_gold() -> None:
    question_draft = draft_from(GOOD)
    assert (question_draft.answers, [(quote.start, quote.text) for quote in question_draft.quotes]) == (
        ("The moon.",), [(5, "The moon causes the tides.")],
    )  # fmt: skip
    assert draft_from(replace(GOOD, answer="Unknown.", abstained=True, cited=())).type == "unanswerable"


def test_a_corrected_answer_is_quoted_where_it_is() -> None:
    (quote,) = draft_from(replace(GOOD, thumb="down", corrected="Nokia")).quotes
    assert (quote.document, quote.start, quote.text) == ("mines.txt", 5, "Nokia")
    assert draft_from(replace(GOOD, thumb="down", corrected="Luna")).quotes[0].document == "tides.txt"


@pytest.mark.parametrize(
    "changed", [{"question": ""}, {"thumb": "down"}, {"cited": ("unreadable",)}, {"cited": (), "corrected": "Luna"}]
)
def test_what_is_not_known_to_be_right_is_dropped(changed: dict[str, Any]) -> None:
    assert draft_from(replace(GOOD, **changed)).dropped_by == "Feedback"


def test_no_question_is_in_the_part_that_reports() -> None:
    drafts = [draft_from(replace(GOOD, question=f"What causes tide {number}?")) for number in range(50)]
    assert {part_of(tuning_item(question_draft).id) for question_draft in drafts} == {"tune", "select"}


def test_the_queue_keeps_one_line_for_equal_feedback_and_survives_a_cut(tmp_path: Path) -> None:
    file = tmp_path / "feedback.jsonl"
    queue = FeedbackQueue(file)
    queue.add(GOOD)
    size = file.stat().st_size
    queue.add(GOOD)
    FeedbackQueue(file).add(GOOD)
    assert file.stat().st_size == size
    with file.open("ab") as cut:
        cut.write(file.read_bytes()[: size // 2])
    FeedbackQueue(file).add(replace(GOOD, thumb="down"))
    assert FeedbackQueue(file).read() == {"r": replace(GOOD, thumb="down")}


def test_what_is_to_be_hidden_is_not_written(tmp_path: Path) -> None:
    queue, mail = FeedbackQueue(tmp_path / "feedback.jsonl", make_redaction(Patterns())), "ann@example.org"
    queue.add(replace(GOOD, question=f"Who is {mail}?", answer=mail, reason=f"Ask {mail}.", corrected=mail))
    assert mail.encode() not in queue.file.read_bytes()
    assert queue.read()["r"].reason == "Ask [EMAIL]."

"""A judge beside labels of people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import DataError, MeasureError
from spolia.evaluation.measures.judged.calibration import calibrated, read_labelled_answers
from spolia.evaluation.measures.judged.citation_support import SupportRecall
from spolia.evaluation.measures.judged.g_eval import GEval
from spolia.evaluation.measures.judged.ragas import Correctness, Faithfulness
from spolia.evaluation.measures.registry import parse_measure
from spolia.models.prompting.stand_in_models import ScriptedModel


def write_labels(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "labels.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def row(n: int, correctness: str, label: object, **more: Any) -> dict[str, Any]:
    return {
        "id": f"a{n}",
        "question": "Who?",
        "answers": ["Nokia"],
        "answer": f"answer {correctness}",
        "label": label,
    } | more


def test_kappa_and_confusion_are_what_one_works_out_by_hand(tmp_path: Path) -> None:
    judge = ScriptedModel((("answer right", "yes"), ("answer wrong", "no"), ("", "hard to say")), name="judge")
    correctnesses = ["right"] * 5 + ["wrong"] * 4 + ["odd"]
    labels = [1, "yes", True, 1, 0, "no", 0, 0, 1, 1]
    rows = [
        row(n, correctness, label) for n, (correctness, label) in enumerate(zip(correctnesses, labels, strict=True))
    ]
    calibration = calibrated(Correctness(judge), read_labelled_answers(write_labels(tmp_path, *rows)))
    # by hand: of nine, 4 and 3 are the same; people say yes 5 times, and so does the judge
    assert calibration.agreement.observed == pytest.approx(7 / 9)
    assert calibration.agreement.kappa == pytest.approx((7 / 9 - 41 / 81) / (1 - 41 / 81))
    assert calibration.agreement.confusion == ((("0", "0"), 3), (("0", "1"), 1), (("1", "0"), 1), (("1", "1"), 4))
    assert (calibration.agreement.undetermined, calibration.rows[-1]) == (1, ("a9", 1.0, None))
    assert calibration.disagreements == (("a4", 0.0, 1.0), ("a8", 1.0, 0.0))


def test_a_score_counts_as_the_nearest_label(tmp_path: Path) -> None:
    passages = {"passages": ["He worked for Nokia."]}
    half = ScriptedModel((("<statements", "1: yes\n2: no"), ("", "He worked.\nHe slept.")))
    labelled = read_labelled_answers(write_labels(tmp_path, row(0, "x", 1, **passages), row(1, "y", 0, **passages)))
    assert {score for *_, score in calibrated(Faithfulness(half), labelled).rows} == {1.0}
    grades = ScriptedModel((("", "4", "4", "5"),))
    graded = read_labelled_answers(
        write_labels(tmp_path, *(row(n, "x", grade, **passages) for n, grade in enumerate((1, 2, 4, 5))))
    )
    assert [score for *_, score in calibrated(GEval(grades, samples=3), graded).rows] == [4.0] * 4


def test_marks_in_an_answer_cite_its_passages(tmp_path: Path) -> None:
    judge = ScriptedModel((("Nokia paid him(.|\n)*He was paid", "yes"), ("", "no")))
    rows = [
        row(0, "", 1, answer="He was paid [2].", passages=["It rained.", "Nokia paid him."]),
        row(1, "", 0, answer="He was paid [1].", passages=["It rained.", "Nokia paid him."]),
    ]
    assert (
        calibrated(SupportRecall(judge), read_labelled_answers(write_labels(tmp_path, *rows))).agreement.observed == 1
    )


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "has no labelled answer"),
        ([row(0, "x", "maybe")], "line 1: 'label' is 'maybe'"),
        ([row(0, "x", None)], "'label' is None"),
        ([row(0, "x", float("nan"))], "'label' is nan"),
        ([row(0, "x", 1), row(0, "y", 0)], "line 2: id 'a0' is on an earlier line too"),
        ([row(0, "x", 1, answer=None)], "'answer' is None. Write a text; the fields are id, question"),
        ([row(0, "x", 1, passages="one")], "'passages' is 'one'. Write a list"),
    ],
)
def test_what_is_no_label_is_named_with_its_line(tmp_path: Path, rows: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(DataError) as error:
        read_labelled_answers(write_labels(tmp_path, *rows))
    assert says in str(error.value)


def test_what_cannot_be_judged_is_refused(tmp_path: Path) -> None:
    labelled = read_labelled_answers(write_labels(tmp_path, row(0, "x", 1, answers=[])))
    with pytest.raises(MeasureError, match="does not apply to 'a0': it needs 'answers'"):
        calibrated(Correctness(ScriptedModel(("yes",))), labelled)
    whole: Any = parse_measure("BLEU")
    with pytest.raises(MeasureError, match="BLEU says nothing of a single answer"):
        calibrated(whole, labelled)
    with pytest.raises(DataError, match="There is no file"):
        read_labelled_answers(tmp_path / "none.jsonl")

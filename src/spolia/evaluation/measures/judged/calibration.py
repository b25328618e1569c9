"""Calibration of a judge: its verdicts against labels that people gave, or against its own of another day."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from spolia.errors import DataError, MeasureError
from spolia.evaluation.data.json_lines import read_records
from spolia.evaluation.measures.measure import Case, Measure, measured
from spolia.types import Answer, Citation, Hit, Item, Node, Query, Ranking, Value


@dataclass(frozen=True)
class Agreement(Value):
    """Verdicts beside labels: how often each pair of label and verdict occurs, and how many are not counted, because
    the judge could not tell or there is no label."""

    confusion: tuple[tuple[tuple[str, str], int], ...]
    undetermined: int

    @property
    def n(self) -> int:
        return sum(count for _, count in self.confusion)

    @property
    def observed(self) -> float | None:
        """Share of the pairs that are the same; None without a pair."""
        same = sum(count for (label, verdict), count in self.confusion if label == verdict)
        return same / self.n if self.n else None

    @property
    def expected(self) -> float | None:
        """Share of the pairs that would be the same if the judge drew its verdicts as often, but blindly."""
        labels, verdicts = Counter[str](), Counter[str]()
        for (label, verdict), count in self.confusion:
            labels[label] += count
            verdicts[verdict] += count
        return sum(labels[word] * verdicts[word] for word in labels) / self.n**2 if self.n else None

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa: (observed - expected) / (1 - expected), 1 is perfect, 0 is chance; None if only one word was
        used."""
        if self.observed is None or self.expected is None or self.expected == 1:
            return None
        return (self.observed - self.expected) / (1 - self.expected)

    def __str__(self) -> str:
        kappa = "undefined" if self.kappa is None else f"{self.kappa:.3f}"
        same = "nothing" if self.observed is None else f"{self.observed:.1%}"
        return f"kappa {kappa}, {same} of {self.n} the same, {self.undetermined} undetermined"


def agreement(verdicts: Sequence[Hashable], labels: Sequence[Hashable]) -> Agreement:
    """Compare a judge's verdicts with labels of the same things: yes and no, grades, words.

    Numbers that are equal are the same word (1, 1.0 and True), so that scores of a measure fit to labels of people.

    Args:
        verdicts: one for each thing; None, and a number that is none, where the judge could not tell.
        labels: the same; None where nobody did.

    Source: Cohen 1960, "A coefficient of agreement for nominal scales".

    >>> found = agreement([1, 1, 0, 0, None], [1, 0, 0, 0, 1])  # observed 3/4, expected (1·2 + 3·2) / 16 = 1/2
    >>> print(found)
    kappa 0.500, 75.0% of 4 the same, 1 undetermined
    >>> found.confusion
    ((('0', '0'), 2), (('0', '1'), 1), (('1', '1'), 1))
    """
    if len(verdicts) != len(labels):
        raise MeasureError(
            f"Got {len(verdicts)} verdicts and {len(labels)} labels. Give one of each for every thing that was judged."
        )
    pairs = [(_word(label), _word(verdict)) for label, verdict in zip(labels, verdicts, strict=True)]
    counts = Counter((label, verdict) for label, verdict in pairs if label is not None and verdict is not None)
    return Agreement(tuple(sorted(counts.items())), len(pairs) - counts.total())


def _word(value: Hashable) -> str | None:
    # NaN is the only value that differs from itself.
    if value is None or value != value:
        return None
    return f"{float(value):g}" if isinstance(value, (bool, int, float)) else str(value)


FIELDS = ("id", "question", "answers", "answer", "passages", "label")
BATCH_SIZE = 32
"""Answers that are judged between two signs of progress."""
WORDS: Mapping[str, float] = {"yes": 1, "no": 0, "true": 1, "false": 0, "right": 1, "wrong": 0}


@dataclass(frozen=True)
class LabelledAnswer(Value):
    """An answer, and what people say of it: a number, 1 for yes and 0 for no, or a grade."""

    case: Case
    label: float


@dataclass(frozen=True)
class Calibration(Value):
    """Verdicts of a judge on labelled answers: `rows` of id, label and verdict, None where it could not tell."""

    measure: str
    agreement: Agreement
    rows: tuple[tuple[str, float, float | None], ...]

    @property
    def disagreements(self) -> tuple[tuple[str, float, float], ...]:
        """Return the rows whose verdict differs from the label."""
        return tuple(
            (id, label, verdict) for id, label, verdict in self.rows if verdict is not None and verdict != label
        )

    def json(self) -> dict[str, Any]:
        result = self.agreement
        confusion = [{"label": label, "verdict": verdict, "n": n} for (label, verdict), n in result.confusion]
        rows = [{"id": id, "label": label, "verdict": verdict} for id, label, verdict in self.rows]
        counts = {"n": result.n, "undetermined": result.undetermined, "same": result.observed, "kappa": result.kappa}
        return {"measure": self.measure} | counts | {"confusion": confusion, "rows": rows}


def calibrated(
    measure: Measure,
    labelled: Sequence[LabelledAnswer],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Calibration:
    """Judge labelled answers, and compare. A score between labels counts as the nearest label, the higher of two as
    near: with labels 0 and 1 a threshold of 0.5, with grades rounding.

    Run it in a run of its own, whose cache, threads and budget are used.

    Args:
        measure: of single answers, as a rule one that asks a judge.

    Raises:
        MeasureError: the measure needs something that an answer lacks, or does not score single answers.

    >>> from spolia.evaluation.measures.answers.string_match import F1
    >>> told = [("Nokia", 1), ("Nokia in Salo", 1), ("Siemens", 0)]
    >>> cases = [Case(Item(text, "Who?", answers=("Nokia",)), Answer(text)) for text, _ in told]
    >>> found = calibrated(F1(), [LabelledAnswer(case, label) for case, (_, label) in zip(cases, told)])
    >>> print(found.agreement)
    kappa 1.000, 100.0% of 3 the same, 0 undetermined
    """
    if not isinstance(measure, Measure):
        raise MeasureError(f"{measure} says nothing of a single answer. Write a measure such as Correctness.")
    if inapplicable := [answer.case.item.id for answer in labelled if not measure.applies(answer.case.item)]:
        raise MeasureError(
            f"{measure} does not apply to {inapplicable[0]!r}: it needs 'answers', the accepted ones, or gold "
            "passages, which labels do not have."
        )
    # The highest first: of two labels that are as near, the first one is taken.
    labels = sorted({answer.label for answer in labelled}, reverse=True)
    verdicts: list[float | None] = []
    for start in range(0, len(labelled), BATCH_SIZE):
        measurement = measured(measure, [answer.case for answer in labelled[start : start + BATCH_SIZE]])
        verdicts += [
            None if observation is None else _nearest(observation[0], labels)
            for observation in measurement.observations
        ]
        on_progress(len(verdicts), len(labelled))
    rows = [(answer.case.item.id, answer.label, verdict) for answer, verdict in zip(labelled, verdicts, strict=True)]
    return Calibration(str(measure), agreement(verdicts, [answer.label for answer in labelled]), tuple(rows))


def read_labelled_answers(path: Path) -> tuple[LabelledAnswer, ...]:
    """Read labelled answers from a file of JSON lines, or of one array, with the fields `FIELDS`: `answers` are
    accepted ones, `passages` what the answer was made from; `[1]` in it cites the first."""
    if not path.is_file():
        raise DataError(f"There is no file {path}. Write one with a line for each answer: {', '.join(FIELDS)}.")
    answers: dict[str, LabelledAnswer] = {}
    for place, row in read_records(path):
        answer = _read_labelled_answer(place, row)
        if answers.setdefault(answer.case.item.id, answer) is not answer:
            raise DataError(f"{place}: id {answer.case.item.id!r} is on an earlier line too. Give every row its own.")
    if not answers:
        raise DataError(f"{path} has no labelled answer. Write a line for each: {', '.join(FIELDS)}.")
    return tuple(answers.values())


def _nearest(score: float, labels: Sequence[float]) -> float:
    return min(labels, key=lambda label: abs(label - score))


def _read_labelled_answer(place: str, row: Mapping[str, Any]) -> LabelledAnswer:
    id, question, answer = (_read_text(place, row, name) for name in ("id", "question", "answer"))
    answers, passages = (_read_texts(place, row, name) for name in ("answers", "passages"))
    nodes = [Node(f"passage {number}", text) for number, text in enumerate(passages, start=1)]
    citations = [
        Citation(str(number), node.id, node.id, node.id, node.text)
        for number, node in enumerate(nodes, start=1)
        if f"[{number}]" in answer
    ]
    evidence = Ranking(Query(question), tuple(Hit(node, 0.0) for node in nodes))
    case = Case(Item(id, question, answers=answers), Answer(answer, tuple(citations), evidence=evidence))
    return LabelledAnswer(case, _read_label(place, row.get("label")))


def _read_label(place: str, label: object) -> float:
    if isinstance(label, str):
        label = WORDS.get(label.strip().lower(), label)
    if not isinstance(label, int | float) or not isfinite(label):
        raise DataError(f"{place}: 'label' is {label!r}. Write 1 or 0, yes or no, or a grade.")
    return float(label)


def _read_text(place: str, row: Mapping[str, Any], name: str) -> str:
    if not isinstance(value := row.get(name), str) or (name == "id" and not value):
        raise DataError(f"{place}: {name!r} is {value!r}. Write a text; the fields are {', '.join(FIELDS)}.")
    return value


def _read_texts(place: str, row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = row.get(name, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise DataError(f"{place}: {name!r} is {values!r}. Write a list of texts.")
    return tuple(values)

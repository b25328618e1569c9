"""The average that PrefRAG reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.answers.accuracy import Accuracy
from spolia.evaluation.measures.answers.answer import AnswerMeasure
from spolia.evaluation.measures.answers.exact_match import ExactMatch
from spolia.evaluation.measures.answers.f1 import F1


@dataclass(frozen=True)
class PrefRAGAverage(AnswerMeasure):
    """Mean of `Acc(rule="prefrag")`, `F1` and `EM`.

    Source: Zhao et al. 2024 (PrefRAG), the column Avg.

    >>> str(PrefRAGAverage()), PrefRAGAverage().of("in Paris", ["Paris"])  # (1 + 2/3 + 0) / 3
    ('PrefRAG-Avg', 0.5555555555555555)
    """

    called: ClassVar[str] = "PrefRAG-Avg"

    def of(self, text: str, answers: Sequence[str]) -> float:
        parts = (Accuracy(rule="prefrag"), F1(), ExactMatch())
        return sum(part.of(text, answers) for part in parts) / len(parts)

"""Which measures there are, and how they are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from importlib import import_module

from spolia.evaluation.measures.measure import SetMeasure

HOME = "spolia.evaluation.measures"
MODULES: Mapping[str, tuple[str, ...]] = {
    "recall": ("Recall",),
    "full_recall": ("FullRecall",),
    "precision": ("Precision",),
    "hit": ("AnyHit",),
    "reciprocal_rank": ("ReciprocalRank",),
    "average_precision": ("AveragePrecision",),
    "ndcg": ("NDCG",),
    "r_precision": ("RPrecision",),
    "sets": ("SetPrecision", "SetRecall", "SetF1"),
    "answer_hit": ("AnswerHit",),
    "answers.exact_match": ("ExactMatch",),
    "answers.f1": ("F1",),
    "answers.accuracy": ("Accuracy",),
    "answers.prefrag_average": ("PrefRAGAverage",),
    "answers.rouge": ("Rouge1", "Rouge2", "RougeL"),
    "answers.bleu": ("BLEU",),
    "answers.meteor": ("Meteor",),
    "answers.sem_score": ("SemScore",),
    "answers.bert_score": ("BERTScore",),
    "citations": ("CitationPrecision", "CitationRecall"),
    "abstention.coverage": ("Coverage", "SelectiveRisk"),
    "abstention.abstention_f1": ("AbstentionF1",),
    "abstention.top_score": ("TopScore",),
    "abstention.aurc": ("AURC",),
    "costs.tokens": ("AverageTokens",),
    "costs.retrievals": ("RetrievalCalls", "UsedCalls", "DocumentsShown"),
    "judged.context_precision": ("ContextPrecision",),
    "judged.faithfulness": ("Faithfulness",),
    "judged.relevancy": ("AnswerRelevancy",),
    "judged.correctness": ("Correctness",),
    "judged.g_eval": ("GEval",),
    "judged.support": ("SupportRecall", "SupportPrecision"),
}
"""Classes by module, in the order in which they are named to people."""


@lru_cache(maxsize=1)
def by_name() -> Mapping[str, type[SetMeasure]]:
    """Every measure by its name in lower case."""
    found: list[type[SetMeasure]] = []
    for module, names in MODULES.items():
        found += [getattr(import_module(f"{HOME}.{module}"), name) for name in names]
    return {cls.called.lower(): cls for cls in found}


def known() -> str:
    """How all measures are written."""
    return ", ".join(cls.called + ("@k" if needs_k(cls) else "") for cls in by_name().values())


def needs_k(cls: type[SetMeasure]) -> bool:
    """Whether one has to say how many places to look at."""
    return any(f.name == "k" and f.default is not None for f in fields(cls))  # type: ignore[arg-type]

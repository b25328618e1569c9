"""Which measures there are, and how they are written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module

from spolia.evaluation.measures.measure import SetMeasure

HOME = "spolia.evaluation.measures"
WRITTEN: Mapping[str, str] = {
    "R@k": "recall.Recall",
    "full@k": "full_recall.FullRecall",
    "P@k": "precision.Precision",
    "Hit@k": "hit.AnyHit",
    "MRR": "reciprocal_rank.ReciprocalRank",
    "MAP": "average_precision.AveragePrecision",
    "nDCG@k": "ndcg.NDCG",
    "Rprec": "r_precision.RPrecision",
    "SetP": "sets.SetPrecision",
    "SetR": "sets.SetRecall",
    "SetF1": "sets.SetF1",
    "AnswerHit@k": "answer_hit.AnswerHit",
    "EM": "answers.exact_match.ExactMatch",
    "F1": "answers.f1.F1",
    "Acc": "answers.accuracy.Accuracy",
    "PrefRAG-Avg": "answers.prefrag_average.PrefRAGAverage",
    "ROUGE-1": "answers.rouge.Rouge1",
    "ROUGE-2": "answers.rouge.Rouge2",
    "ROUGE-L": "answers.rouge.RougeL",
    "BLEU": "answers.bleu.BLEU",
    "METEOR-no-synonyms": "answers.meteor.Meteor",
    "SemScore": "answers.sem_score.SemScore",
    "BERTScore": "answers.bert_score.BERTScore",
    "CiteP": "citations.CitationPrecision",
    "CiteR": "citations.CitationRecall",
    "Coverage": "abstention.coverage.Coverage",
    "Risk": "abstention.coverage.SelectiveRisk",
    "AbstentionF1": "abstention.abstention_f1.AbstentionF1",
    "TopScore": "abstention.top_score.TopScore",
    "AURC": "abstention.aurc.AURC",
    "ATC": "costs.tokens.AverageTokens",
    "Calls": "costs.retrievals.RetrievalCalls",
    "UsedCalls": "costs.retrievals.UsedCalls",
    "DocsShown": "costs.retrievals.DocumentsShown",
    "ContextPrecision": "judged.context_precision.ContextPrecision",
    "Faithfulness": "judged.faithfulness.Faithfulness",
    "AnswerRelevancy": "judged.relevancy.AnswerRelevancy",
    "Correctness": "judged.correctness.Correctness",
    "GEval": "judged.g_eval.GEval",
    "ALCE-R": "judged.support.SupportRecall",
    "ALCE-P": "judged.support.SupportPrecision",
}
"""The class of each, in the order in which they are named to people. Only what is asked for is imported."""

ALSO: Mapping[str, str] = {
    "precision": "p",
    "recall": "r",
    "accuracy": "acc",
    "exact-match": "em",
    "exactmatch": "em",
    "success": "hit",
    "rouge": "rouge-l",
    "meteor": "meteor-no-synonyms",
}
"""Other names of some."""
_PLACES = {written.removesuffix("@k").lower(): place for written, place in WRITTEN.items()}
_NEED_K = {written.removesuffix("@k").lower() for written in WRITTEN if written.endswith("@k")}


def class_of(name: str) -> type[SetMeasure] | None:
    """The measure that is called so, in whatever case; None when there is none.

    >>> class_of("ndcg").called
    'nDCG'
    """
    place = _PLACES.get(name.lower())
    if place is None:
        return None
    module, _, cls = place.rpartition(".")
    found: type[SetMeasure] = getattr(import_module(f"{HOME}.{module}"), cls)
    return found


def needs_k(name: str) -> bool:
    """Whether one has to say how many places to look at."""
    return name.lower() in _NEED_K


def nearest(text: str) -> str:
    """The measure that somebody may have meant; empty where nothing is near.

    >>> nearest("nDGC@10"), nearest("R10"), nearest("precision@5"), nearest("colour")
    ('nDCG@10', 'R@10', 'P@5', '')
    """
    found = re.match(r"\s*([A-Za-z][A-Za-z-]*?(?:-[0-9L])?)[@_ ]?([1-9][0-9]*|)\s*(?:\(|$)", text)
    name, k = (found[1].lower(), found[2]) if found else ("", "")
    if f"{name}@" in text.lower() and name in _PLACES:  # the name is none of what is wrong
        return ""
    near = ALSO.get(name) or next(iter(get_close_matches(name, _PLACES, 1, 0.7)), "")
    written = next((one for one in WRITTEN if one.removesuffix("@k").lower() == near), "")
    return written.replace("@k", f"@{k or 5}")


def known() -> str:
    """How all measures are written."""
    return ", ".join(WRITTEN)

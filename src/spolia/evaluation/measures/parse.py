"""Measures from how they are written."""

from __future__ import annotations

import re
from collections.abc import Callable

from spolia.errors import MeasureError
from spolia.evaluation.measures.full_recall import FullRecall
from spolia.evaluation.measures.measure import Measure
from spolia.evaluation.measures.ndcg import NDCG
from spolia.evaluation.measures.recall import Recall
from spolia.evaluation.measures.reciprocal_rank import ReciprocalRank

WRITTEN = re.compile(r"([A-Za-z]+)(?:@([1-9][0-9]{0,5}))?", re.ASCII)
CUT: dict[str, Callable[[int], Measure]] = {"r": Recall, "recall": Recall, "full": FullRecall, "ndcg": NDCG}
KNOWN = "R@k, full@k, MRR, MRR@k, nDCG@k"


def parse_measure(text: str) -> Measure:
    """The measure that is written like this; upper and lower case are the same.

    Raises:
        MeasureError: there is no such measure, or a k is missing.

    >>> parse_measure("nDCG@10"), str(parse_measure("mrr"))
    (NDCG(k=10), 'MRR')
    """
    written = WRITTEN.fullmatch(text.strip())
    name, k = written.groups() if written else ("", None)
    if name.lower() == "mrr":
        return ReciprocalRank(int(k) if k else None)
    if name.lower() not in CUT:
        raise MeasureError(f"No measure is written {text!r}. Write one of: {KNOWN}, with k from 1, for example R@5.")
    if not k:
        raise MeasureError(f"{text!r} does not say how many places to look at. Write {name}@5, for example.")
    return CUT[name.lower()](int(k))


def parse_measures(text: str) -> tuple[Measure, ...]:
    """Measures separated by commas, each once, in order.

    >>> [str(measure) for measure in parse_measures("R@5, MRR, R@5")]
    ['R@5', 'MRR']
    """
    found = dict.fromkeys(parse_measure(part) for part in text.split(",") if part.strip())
    if not found:
        raise MeasureError(f"{text!r} names no measure. Write some of: {KNOWN}, separated by commas.")
    return tuple(found)

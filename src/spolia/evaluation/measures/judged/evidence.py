"""The passages that a judge is shown."""

from __future__ import annotations

from spolia.errors import MeasureError
from spolia.evaluation.measures.measure import Result
from spolia.types import Answer


def passages(result: Result) -> tuple[str, ...]:
    """The texts of a ranking, or those that the reader of an answer was shown, best first."""
    ranking = result.evidence if isinstance(result, Answer) else result
    if ranking is None:
        raise MeasureError("An Answer without evidence holds no passages to judge. Give the answer its evidence.")
    return tuple(node.shown_text for node in ranking.nodes)

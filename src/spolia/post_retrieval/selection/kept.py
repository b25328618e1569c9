"""Which hits a bound leaves, by scores of theirs or others; of some hits at least one stays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from spolia.errors import WiringError
from spolia.models.embedded import embedded
from spolia.models.protocols import Embedder
from spolia.operator import Operator
from spolia.types import Hit, Ranking

ALMOST = 1e-9
"""What a product of a count and a share may be off: 0.29 of 100 are 29."""


def reaching(hits: Sequence[Hit], scores: Sequence[float], bound: float) -> tuple[Hit, ...]:
    """The hits with scores of at least a bound; the best one where none has.

    >>> from spolia.types import Node
    >>> hits = [Hit(Node(id, ""), 0.0) for id in "abc"]
    >>> [[hit.node.id for hit in reaching(hits, (0.2, math.nan, 0.5), bound)] for bound in (0.2, 0.9)]
    [['a', 'c'], ['c']]
    """
    kept = tuple(hit for hit, score in zip(hits, scores, strict=True) if score >= bound)
    return kept or best_share(hits, scores, 0.0)


def best_share(hits: Sequence[Hit], scores: Sequence[float], share: float) -> tuple[Hit, ...]:
    """The best max(1, ⌊n · share⌋) of n hits, in their order; of equal scores the first. NaN is the worst.

    >>> from spolia.types import Node
    >>> hits = [Hit(Node(id, ""), 0.0) for id in "abcde"]
    >>> [hit.node.id for hit in best_share(hits, (1.0, 5.0, math.nan, 2.0, 2.0), 0.5)]
    ['b', 'd']
    """
    count = max(1, math.floor(len(hits) * share + ALMOST))
    order = sorted(
        range(len(hits)), key=lambda at: (math.isnan(scores[at]), -scores[at] if scores[at] == scores[at] else 0)
    )
    return tuple(hits[at] for at in sorted(order[:count]))


def cosines(ranking: Ranking, embedder: Embedder) -> list[float]:
    """cos(query, hit) of each hit, by what is indexed of it.

    Raises:
        ModelError: what the embedder gives are no vectors.
    """
    if not ranking.hits:
        return []
    (query,) = embedded(embedder, [ranking.query.text], "query")
    vectors = embedded(embedder, [node.indexed_text for node in ranking.nodes], "passage")
    return [float(vector @ query) for vector in vectors]


def refuse_no_share(op: Operator[Any, Any], name: str) -> None:
    """Refuse a field that is no number above 0, up to 1."""
    value = getattr(op, name)
    if not 0 < value <= 1:
        raise WiringError(f"{op.short}: {name} is {value}. Write a number above 0, up to 1.")


def refuse_nan(op: Operator[Any, Any], name: str) -> None:
    """Refuse a bound that nothing can reach or miss."""
    if math.isnan(getattr(op, name)):
        raise WiringError(f"{op.short}: {name} is NaN. Write a number.")

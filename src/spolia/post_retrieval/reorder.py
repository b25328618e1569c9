"""Hits in another order, for whoever reads them one after the other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from spolia.errors import WiringError
from spolia.operator import Operator
from spolia.types import Hit, Ranking

Order: TypeAlias = Literal["sides", "reverse", "ascending", "shuffle", "best again"]


@dataclass(frozen=True)
class Reorder(Operator[Ranking, Ranking]):
    """The same hits with the same scores in the order in which a prompt is to show them; the last step before a reader.

    | order | five hits, best first 1 2 3 4 5 | for |
    |---|---|---|
    | `sides` | 1 3 5 4 2 | models that overlook what stands in the middle |
    | `reverse` | 5 4 3 2 1 | the best next to the question that follows |
    | `ascending` | by score, lowest first; equal ones as they were | the same, of hits in any order |
    | `shuffle` | by chance, the same for the same question, ids and seed | to measure what the order does |
    | `best again` | 1 2 3 4 5 1 | the best at both ends |

    Whatever looks at ranks afterwards (`Cut`, fusions, measures) looks at the new ones.

    Args:
        order: of the table.
        seed: of `shuffle`.

    Raises:
        WiringError: there is no such order.

    Source: Liu et al., "Lost in the middle: how language models use long contexts", TACL 2024; `best again` is the
    `long_context_reorder` of AutoRAG.

    >>> from spolia.types import Node, Query
    >>> found = Ranking(Query("?"), tuple(Hit(Node(str(n), ""), 1 / n) for n in range(1, 6)))
    >>> [[hit.node.id for hit in Reorder(order)(found)] for order in ("sides", "reverse")]
    [['1', '3', '5', '4', '2'], ['5', '4', '3', '2', '1']]
    """

    order: Order = "sides"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise WiringError(f"There is no order {self.order!r}. Write one of: {', '.join(get_args(Order))}.")

    def apply(self, value: Ranking, /) -> Ranking:
        return value.but(hits=tuple(self._reordered(value)))

    def _reordered(self, ranking: Ranking) -> Sequence[Hit]:
        hits = ranking.hits
        if self.order == "sides":
            return hits[::2] + hits[1::2][::-1]
        if self.order == "reverse":
            return hits[::-1]
        if self.order == "ascending":
            return sorted(hits, key=lambda hit: (hit.score == hit.score, hit.score))  # NaN is the lowest
        if self.order == "best again":
            return hits + hits[: len(hits) > 1]
        shuffled = list(hits)
        random.Random("\0".join((str(self.seed), ranking.query.question, *(hit.node.id for hit in hits)))).shuffle(
            shuffled
        )
        return shuffled

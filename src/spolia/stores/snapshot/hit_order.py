"""Order of the best hits; that of equal scores does not depend on when nodes came into the store."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

Ids = Callable[[Sequence[int]], Mapping[int, str]]
"""Gives the ids of nodes by their keys."""


def best_hits(
    hits: Iterable[tuple[int, float]], top_k: int, ids: Ids | None = None, *, defer_ties: bool = False
) -> list[tuple[int, float]]:
    """Return the best hits, best first; `hits` are all that score at least as the last of these.

    `ids` is asked where scores are equal: these go by id, which is made of what a node is; by key without it.
    `defer_ties`: only where ids decide which hits are wanted, for `LateHits`, which puts the others in order with their
    nodes.

    >>> best_hits([(1, 0.5), (2, 0.7), (3, 0.5)], 2)
    [(2, 0.7), (1, 0.5)]
    >>> best_hits([(1, 0.5), (2, 0.7), (3, 0.5)], 2, lambda keys: {1: "later", 3: "earlier"})
    [(2, 0.7), (3, 0.5)]
    """
    best = list(hits) if defer_ties else sorted(hits, key=_key)
    best.sort(key=_score, reverse=True)  # keeps the order of equals, and takes a third of the time of pairs as keys
    if ids is None:
        return best[:top_k]
    end = top_k
    while end < len(best) and best[end][1] == best[top_k - 1][1]:
        end += 1
    best = best[:end]
    if defer_ties:
        tied = {best[-1][1]} if len(best) > top_k else set()
    else:
        tied = {score for (_, score), (_, next_score) in pairwise(best) if score == next_score}
    if tied:
        ids_by_key = ids([key for key, score in best if score in tied])
        best.sort(key=lambda pair: ids_by_key.get(pair[0], ""))
        best.sort(key=_score, reverse=True)
    return best[:top_k]


_key, _score = itemgetter(0), itemgetter(1)

"""The best hits; the order of equal scores does not depend on when nodes came into the store."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

Ids = Callable[[Sequence[int]], Mapping[int, str]]
"""Gives the ids of nodes by their keys."""


def best_hits(
    found: Iterable[tuple[int, float]], top_k: int, ids: Ids | None = None, *, late: bool = False
) -> list[tuple[int, float]]:
    """The best keys and scores, best first, of all that score at least as the last which is wanted.

    `ids` is asked where scores are equal: these go by id, which is made of what a node is; by key without it. `late`:
    only where ids decide which hits are wanted, for `LateHits`, which puts the others in order with their nodes.

    >>> best_hits([(1, 0.5), (2, 0.7), (3, 0.5)], 2)
    [(2, 0.7), (1, 0.5)]
    >>> best_hits([(1, 0.5), (2, 0.7), (3, 0.5)], 2, lambda keys: {1: "later", 3: "earlier"})
    [(2, 0.7), (3, 0.5)]
    """
    best = list(found) if late else sorted(found, key=_key)
    best.sort(key=_score, reverse=True)  # keeps the order of equals, and takes a third of the time of pairs as keys
    if ids is None:
        return best[:top_k]
    end = top_k
    while end < len(best) and best[end][1] == best[top_k - 1][1]:
        end += 1
    best = best[:end]
    if late:
        tied = {best[-1][1]} if len(best) > top_k else set()
    else:
        tied = {score for (_, score), (_, after) in pairwise(best) if score == after}
    if tied:
        known = ids([key for key, score in best if score in tied])
        best.sort(key=lambda pair: known.get(pair[0], ""))
        best.sort(key=_score, reverse=True)
    return best[:top_k]


_key, _score = itemgetter(0), itemgetter(1)

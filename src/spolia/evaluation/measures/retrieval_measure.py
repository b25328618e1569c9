"""Base classes of measures of retrieval: ids in the order found, against groups of gold."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, TypeVar

from spolia.errors import MeasureError
from spolia.evaluation.measures.measure import Measure, Result, check_item
from spolia.evaluation.measures.quote_places import ELSEWHERE, GoldPlace, GoldPlaces, locate_gold
from spolia.types import Answer, Gold, Item, Node, Ranking

T = TypeVar("T")


@dataclass(frozen=True)
class GoldMeasure(Measure):
    """A measure that takes gold passages, of which a quote must be found to a `share`."""

    share: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.share <= 1:
            raise MeasureError(f"A share of {self.share} of a quote cannot be found. Write a number from 0 to 1.")
        check_k(getattr(self, "k", None))

    def applies(self, item: Item) -> bool:
        return bool(item.gold)


@dataclass(frozen=True)
class RetrievalMeasure(GoldMeasure):
    """A measure of which passages were found, in which order.

    The gold is an AND of ORs: all groups are needed, and any member satisfies its group. With one passage in each group
    every measure here is the usual one; a further member of a satisfied group neither helps nor is missed.

    Passages without gold count by their places alone: rankings with their gold at the same places score the same.

    Args:
        share: of gold that is a quote, how much must be found: all of it by default, 0.5 for half, 0 for any
            character. Several nodes may hold it together (`spolia.evaluation.measures.quote_places`).
    """

    def score(self, result: Result, item: Item) -> float:
        check_item(self, item)
        if not item.quotes:
            return self.score_ids(found_ids(result, item), item)
        return self.score_shown(
            *_cached_cut(IdentityKey(result), IdentityKey(item), self.share, getattr(self, "k", None))
        )

    @abstractmethod
    def score_ids(self, ids: Sequence[str], item: Item) -> float:
        """Score ids in the order found. A repeated id keeps its place and counts nothing."""

    def score_shown(self, ids: Sequence[str], item: Item) -> float:
        """Score what the first k nodes hold, each quote at a place of its own; the ids may be more than k."""
        return self.score_ids(ids, item)


@dataclass(frozen=True)
class CutMeasure(RetrievalMeasure):
    """A measure of the first `k` places.

    Args:
        k: how many places to look at.
    """

    k: int = 10


@dataclass(frozen=True)
class ShownMeasure(CutMeasure):
    """A measure of all that the first `k` places show, whatever its order."""

    def score_ids(self, ids: Sequence[str], item: Item) -> float:
        return self.score_shown(ids[: self.k], item)

    @abstractmethod
    def score_shown(self, ids: Sequence[str], item: Item) -> float: ...


class IdentityKey(Generic[T]):
    """Cache key that equals itself alone, so that hashing a ranking of a hundred hits costs nothing."""

    def __init__(self, value: T) -> None:
        self.value = value

    def __eq__(self, key: object) -> bool:
        return isinstance(key, IdentityKey) and self.value is key.value

    def __hash__(self) -> int:
        return id(self.value)


# Measures of one result are computed one after the other, so a few results in memory are enough.
@lru_cache(maxsize=16)
def _cached_places(result: IdentityKey[Result], item: IdentityKey[Item], share: float) -> GoldPlaces:
    """Locate the gold of an item in a result, once for all measures of the result."""
    return locate_gold(found_places(result.value, item.value), item.value, share)


# Larger than the cache above: one result is cut at several k.
@lru_cache(maxsize=64)
def _cached_cut(
    result: IdentityKey[Result], item: IdentityKey[Item], share: float, k: int | None
) -> tuple[tuple[str, ...], Item]:
    return _cached_places(result, item, share).first(k)


def check_k(k: int | None) -> None:
    if k is not None and k < 1:
        raise MeasureError(f"A measure of the first {k} places measures nothing. Write k = 1 or more.")


def is_own_passage(item: Item, id: str, text: str) -> bool:
    """Return whether a passage is the question itself, which rankings are measured without.

    Queries of ArguAna are passages of its corpus. BEIR leaves out what has the query's id (`ignore_identical_ids`); ids
    may also be equal by chance, where both are numbered, so the question must hold the text, too.

    Source: Thakur et al., NeurIPS 2021 Datasets and Benchmarks.

    >>> item = Item("q1", "Salt is dear.")
    >>> is_own_passage(item, "q1", "Salt is\\ndear."), is_own_passage(item, "q1", "Pepper.")
    (True, False)
    """
    if id != item.id or id in gold_ids(item):
        return False
    return " ".join(text.split()) in " ".join(item.question.split())


def found_ids(result: Result, item: Item | None = None) -> tuple[str, ...]:
    """Return the ids of the passages behind a result, best first: each node stands for its document.

    The passage that is the item's question itself is left out.

    Several nodes of one document keep their places, but only the first of them can count. For an answer, its evidence
    is measured; without evidence, its citations.

    >>> from spolia.types import Hit, Node, Query
    >>> found_ids(Ranking(Query("q"), (Hit(Node("n1", "", document="p1"), 2.0), Hit(Node("p2", ""), 1.0))))
    ('p1', 'p2')
    """
    if isinstance(result, Answer) and result.evidence is None:
        passages = [(citation.document or citation.node, citation.quote) for citation in result.citations]
    else:
        passages = [(hit.node.document or hit.node.id, hit.node.text) for hit in _ranking(result).hits]
    return tuple([id for id, text in passages if item is None or not is_own_passage(item, id, text)])


def found_places(result: Result, item: Item) -> list[GoldPlace]:
    """Return the places of a ranking, without the question's own passage; a document without gold is `ELSEWHERE`."""
    if isinstance(result, Answer) and result.evidence is None:
        places = map(GoldPlace.from_citation, result.citations)
        return [place for place in places if not is_own_passage(item, place.document, place.text)]
    gold = item.documents
    passages = [(hit.node.document or hit.node.id, hit) for hit in _ranking(result).hits]
    return [
        GoldPlace.from_hit(hit) if id in gold else ELSEWHERE
        for id, hit in passages
        if id in gold or not is_own_passage(item, id, hit.node.text)
    ]


def _ranking(result: Result) -> Ranking:
    ranking = result.evidence if isinstance(result, Answer) else result
    if not isinstance(ranking, Ranking):
        raise MeasureError(f"A {type(result).__name__} holds no passages to measure. Measure a Ranking or an Answer.")
    return ranking


def gold_ids(item: Item) -> set[Gold]:
    return {passage for group in item.gold for passage in group}


def gold_shape(item: Item) -> object:
    """Return the part of an item's gold that scores depend on, whatever its ids; only for items without quotes.

    >>> gold_shape(Item("q", "?", gold=(("a",), ("b", "c")))) == gold_shape(Item("r", "??", gold=(("x",), ("y", "z"))))
    True
    """
    number = _number_gold(item)
    groups = tuple(tuple(number[passage] for passage in group) for group in item.gold)
    return groups, tuple((number[passage], grade) for passage, grade in item.grades if passage in number)


OWN = -1


def gold_marks(item: Item, nodes: Sequence[Node]) -> list[int]:
    """Return by node the number of its gold passage, from 1; 0 without gold, `OWN` for the item's own passage."""
    number = _number_gold(item)
    ids = [node.document or node.id for node in nodes]
    marks = [number.get(id, 0) for id in ids]
    # Texts are compared only where an id says that they may be the same.
    if item.id in ids:
        marks = [
            OWN if is_own_passage(item, id, node.text) else mark
            for mark, id, node in zip(marks, ids, nodes, strict=True)
        ]
    return marks


def _number_gold(item: Item) -> dict[Gold, int]:
    return {
        passage: number
        for number, passage in enumerate(dict.fromkeys(passage for group in item.gold for passage in group), 1)
    }


def count_satisfied(ids: Sequence[str], item: Item) -> int:
    """Count the groups of the gold that have a member among `ids`."""
    distinct = set(ids)
    return sum(not distinct.isdisjoint(group) for group in item.gold)


def first_ranks(ids: Sequence[str], item: Item) -> dict[Gold, int]:
    """Map each gold passage that was found to its first rank, from 1, best first.

    >>> first_ranks(["x", "b", "a", "b"], Item("q", "?", gold=(("a",), ("b", "c"))))
    {'b': 2, 'a': 3}
    """
    gold, ranks = gold_ids(item), dict[Gold, int]()
    for rank, id in enumerate(ids, start=1):
        if id in gold and id not in ranks:
            ranks[id] = rank
    return ranks


def group_firsts(ids: Sequence[str], item: Item) -> list[tuple[Gold, int]]:
    """Return the passage that first satisfies each group, and its rank; groups that nothing satisfies are left out.

    >>> group_firsts(["x", "b", "a"], Item("q", "?", gold=(("a", "b"), ("a",), ("c",))))
    [('b', 2), ('a', 3)]
    """
    ranks = first_ranks(ids, item)
    firsts = (next((passage for passage in ranks if passage in group), None) for group in item.gold) if ranks else ()
    return [(passage, ranks[passage]) for passage in firsts if passage is not None]

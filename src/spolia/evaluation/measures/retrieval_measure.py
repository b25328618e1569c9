"""What a measure of retrieval sees: ids in the order found, against groups of gold."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, TypeVar

from spolia.errors import MeasureError
from spolia.evaluation.measures.measure import Measure, Result, checked_item
from spolia.evaluation.measures.quote_places import ELSEWHERE, GoldPlace, GoldPlaces, placed
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
        checked_k(getattr(self, "k", None))

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
        checked_item(self, item)
        if not item.quotes:
            return self.of(found_ids(result, item), item)
        return self.of_shown(*_first(Same(result), Same(item), self.share, getattr(self, "k", None)))

    @abstractmethod
    def of(self, found: Sequence[str], item: Item) -> float:
        """The number for ids in the order found. An id that comes again keeps its place and counts nothing."""

    def of_shown(self, found: Sequence[str], item: Item) -> float:
        """The number for what the first k nodes hold, each quote at a place of its own: they may be more than k."""
        return self.of(found, item)


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

    def of(self, found: Sequence[str], item: Item) -> float:
        return self.of_shown(found[: self.k], item)

    @abstractmethod
    def of_shown(self, found: Sequence[str], item: Item) -> float: ...


class Same(Generic[T]):
    """A value that is equal to itself alone, so that one of a hundred hits is a key that costs nothing."""

    def __init__(self, value: T) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@lru_cache(maxsize=16)
def _placed(result: Same[Result], item: Same[Item], share: float) -> GoldPlaces:
    """Where the gold of an item is found: measures of the same result ask one after the other."""
    return placed(found_places(result.value, item.value), item.value, share)


@lru_cache(maxsize=64)
def _first(result: Same[Result], item: Same[Item], share: float, k: int | None) -> tuple[tuple[str, ...], Item]:
    return _placed(result, item, share).first(k)


def checked_k(k: int | None) -> None:
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
    """Ids of the passages behind a result, best first: each node stands for its document.

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
    """Each place of a ranking, as far as it is of a document with gold."""
    if isinstance(result, Answer) and result.evidence is None:
        cited = map(GoldPlace.cited, result.citations)
        return [place for place in cited if not is_own_passage(item, place.document, place.text)]
    gold = item.documents
    passages = [(hit.node.document or hit.node.id, hit) for hit in _ranking(result).hits]
    return [
        GoldPlace.of(hit) if id in gold else ELSEWHERE
        for id, hit in passages
        if id in gold or not is_own_passage(item, id, hit.node.text)
    ]


def _ranking(result: Result) -> Ranking:
    ranking = result.evidence if isinstance(result, Answer) else result
    if not isinstance(ranking, Ranking):
        raise MeasureError(f"A {type(result).__name__} holds no passages to measure. Measure a Ranking or an Answer.")
    return ranking


def gold_ids(item: Item) -> set[Gold]:
    return {one for group in item.gold for one in group}


def gold_shape(item: Item) -> object:
    """What scores depend on of the gold of an item without quotes, whatever its ids.

    >>> gold_shape(Item("q", "?", gold=(("a",), ("b", "c")))) == gold_shape(Item("r", "??", gold=(("x",), ("y", "z"))))
    True
    """
    number = _numbers(item)
    groups = tuple(tuple(number[one] for one in group) for group in item.gold)
    return groups, tuple((number[one], grade) for one, grade in item.grades if one in number)


OWN = -1


def gold_marks(item: Item, nodes: Sequence[Node]) -> list[int]:
    """By node the number of the gold passage that it stands for, from 1; 0 for those without gold, `OWN` for the item's
    own passage."""
    number = _numbers(item)
    ids = [node.document or node.id for node in nodes]
    marks = [number.get(id, 0) for id in ids]
    if item.id in ids:
        marks = [
            OWN if is_own_passage(item, id, node.text) else mark
            for mark, id, node in zip(marks, ids, nodes, strict=True)
        ]
    return marks


def _numbers(item: Item) -> dict[Gold, int]:
    return {one: at for at, one in enumerate(dict.fromkeys(one for group in item.gold for one in group), 1)}


def satisfied(found: Sequence[str], item: Item) -> int:
    """How many groups of the gold have a member among `found`."""
    seen = set(found)
    return sum(not seen.isdisjoint(group) for group in item.gold)


def first_ranks(found: Sequence[str], item: Item) -> dict[Gold, int]:
    """Where each gold passage that was found stands first, from 1, best first.

    >>> first_ranks(["x", "b", "a", "b"], Item("q", "?", gold=(("a",), ("b", "c"))))
    {'b': 2, 'a': 3}
    """
    gold, ranks = gold_ids(item), dict[Gold, int]()
    for rank, one in enumerate(found, start=1):
        if one in gold and one not in ranks:
            ranks[one] = rank
    return ranks


def group_firsts(found: Sequence[str], item: Item) -> list[tuple[Gold, int]]:
    """The passage that first satisfies each group, and its rank; groups that nothing satisfies are left out.

    >>> group_firsts(["x", "b", "a"], Item("q", "?", gold=(("a", "b"), ("a",), ("c",))))
    [('b', 2), ('a', 3)]
    """
    ranks = first_ranks(found, item)
    firsts = (next((one for one in ranks if one in group), None) for group in item.gold) if ranks else ()
    return [(one, ranks[one]) for one in firsts if one is not None]

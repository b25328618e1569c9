"""Counts of each term in each node of a group, made once per generation and kept in memory."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from spolia.stores.backends import sql

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.types.arrays import Mask

Keys = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int32]
T = TypeVar("T")

ALL: Final = "all"  # all that is indexed of a node
CONTEXT: Final = "context"  # what is put above its text: title and headings
TEXT: Final = "text"  # the text; for a node that is indexed by another text, that one
FIELDS: Final = (ALL, CONTEXT, TEXT)

# Keys of one SQL statement, so that a large group is read in bounded pieces.
_AT_ONCE = 2_000
# Two searches that need the same counts make them once.
_counting = threading.Lock()


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of the terms of one field of a group's nodes."""

    keys: Keys  # int64[n], ascending
    term_numbers: dict[str, int]  # of the terms, which ascend with them: nothing depends on which node came first
    starts: Keys  # int64[terms + 1], where the entries of each term begin
    nodes: Positions  # int32[entries], positions in `keys` of the nodes that hold the term, ascending
    frequencies: Numbers  # float64[entries], how often each does
    lengths: Numbers  # float64[n], terms in each node, repeated ones counted
    readable: Mask | None = None  # bool[n], the nodes that count, for somebody who may not read all; None for all

    @classmethod
    def from_terms(cls, keys: Keys, texts: Iterable[Sequence[str]]) -> Counts:
        """Count lists of terms, one for each key."""
        numbers: dict[str, int] = {}
        terms, nodes, counts = list[int](), list[int](), list[int]()
        lengths = np.zeros(len(keys))
        for position, text in enumerate(texts):
            lengths[position] = len(text)
            for term, count in Counter(text).items():
                terms.append(numbers.setdefault(term, len(numbers)))
                nodes.append(position)
                counts.append(count)
        sorted_terms = sorted(numbers)
        # Numbers follow the sorted terms: the same group gives the same arrays whichever node came first.
        ascending = np.empty(len(sorted_terms), dtype=np.int64)
        ascending[[numbers[term] for term in sorted_terms]] = np.arange(len(sorted_terms))
        numbers = {term: number for number, term in enumerate(sorted_terms)}
        ranks = ascending[np.array(terms, dtype=np.int64)]
        order = np.argsort(ranks, kind="stable")
        starts = np.searchsorted(ranks[order], np.arange(len(numbers) + 1))
        ordered = np.array(nodes, dtype=np.int32)[order], np.array(counts, dtype=np.float64)[order]
        return cls(keys, numbers, starts, *ordered, lengths)

    def find_term(self, term: str) -> tuple[Positions, Numbers]:
        """Return positions of the nodes that hold a term and how often each does; none for an unknown term."""
        number = self.term_numbers.get(term)
        entries = slice(0, 0) if number is None else slice(int(self.starts[number]), int(self.starts[number + 1]))
        nodes, counts = self.nodes[entries], self.frequencies[entries]
        if self.readable is None:
            return nodes, counts
        is_readable = self.readable[nodes]
        return nodes[is_readable], counts[is_readable]

    @property
    def entries(self) -> tuple[Positions, Positions, Numbers]:
        """Return for each term of each node the term's number, the node's position and the count."""
        terms = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))
        is_readable = slice(None) if self.readable is None else self.readable[self.nodes]
        return terms[is_readable], self.nodes[is_readable], self.frequencies[is_readable]

    @cached_property
    def count(self) -> int:
        """Return the number of nodes that count."""
        return len(self.keys) if self.readable is None else int(np.count_nonzero(self.readable))

    @cached_property
    def mean_length(self) -> float:
        """Return the mean length of the nodes; 1 without nodes."""
        lengths = self.lengths if self.readable is None else self.lengths[self.readable]
        # Lengths are divided by it, also in a group without any text.
        return (float(lengths.mean()) if len(lengths) else 0.0) or 1.0


def counts_of(snapshot: Snapshot, group: str, principals: frozenset[str], field: str = ALL) -> Counts:
    """Return the counts of one of `FIELDS` over the nodes that these principals may read, the same object for a
    generation."""
    key = ("counts", group, field)
    counts = derived(snapshot.derived, key, lambda: _count_terms(snapshot, group, field))
    readable, cache = snapshot.allowed(group, principals).mask, snapshot.derived_of(principals, group)
    # The arrays are shared by all askers; each audience adds a mask only.
    return counts if readable is None else derived(cache, key, lambda: replace(counts, readable=readable))


def derived(cache: dict[object, Any], key: object, compute: Callable[[], T]) -> T:
    """Return what `cache` holds for a key, computed once (`Snapshot.derived`, `Snapshot.derived_of`)."""
    value: T | None = cache.get(key)
    if value is None:
        # Asked again under the lock: another thread may have computed it meanwhile.
        with _counting:
            value = cache.get(key)
            if value is None:
                value = cache[key] = compute()
    return value


def _count_terms(snapshot: Snapshot, group: str, field: str) -> Counts:
    analyzer = snapshot.manifest(group).analyzer
    keys = snapshot.open.records(group).keys
    return Counts.from_terms(keys, (analyzer.terms(text) for text in texts_of(snapshot, keys, field)))


def texts_of(snapshot: Snapshot, keys: Keys, field: str = ALL) -> Iterator[str]:
    """Yield a field of nodes, in the order of their keys."""
    for start in range(0, len(keys), _AT_ONCE):
        batch = json.dumps(keys[start : start + _AT_ONCE].tolist())
        for _, context, text, search_text in snapshot.open_store.rows(sql.TEXTS_OF_KEYS, {"keys": batch}):
            yield _field(context, text, search_text, field)


def _field(context: str, text: str, search_text: str, field: str) -> str:
    if search_text:
        return "" if field == CONTEXT else search_text
    if field == ALL:
        return f"{context}\n{text}" if context else text
    return context if field == CONTEXT else text

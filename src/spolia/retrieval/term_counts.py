"""How often each term occurs in each node of a group, counted once per generation and kept in memory."""

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

_AT_ONCE = 2_000
_counting = threading.Lock()


@dataclass(frozen=True, eq=False)
class Counts:
    """The terms of one field of the nodes of a group."""

    keys: Keys  # int64[n], ascending
    numbers: dict[str, int]  # of the terms, which ascend with them: nothing depends on which node came first
    starts: Keys  # int64[terms + 1], where the entries of each term begin
    nodes: Positions  # int32[entries], positions in `keys` of the nodes that hold the term, ascending
    counts: Numbers  # float64[entries], how often each does
    lengths: Numbers  # float64[n], terms in each node
    readable: Mask | None = None  # bool[n], the nodes that count, for somebody who may not read all; None for all

    @classmethod
    def of(cls, keys: Keys, texts: Iterable[Sequence[str]]) -> Counts:
        """Counts of lists of terms, one for each key."""
        numbers: dict[str, int] = {}
        terms, nodes, counts = list[int](), list[int](), list[int]()
        lengths = np.zeros(len(keys))
        for at, text in enumerate(texts):
            lengths[at] = len(text)
            for term, count in Counter(text).items():
                terms.append(numbers.setdefault(term, len(numbers)))
                nodes.append(at)
                counts.append(count)
        known = sorted(numbers)
        ascending = np.empty(len(known), dtype=np.int64)
        ascending[[numbers[term] for term in known]] = np.arange(len(known))
        numbers = {term: number for number, term in enumerate(known)}
        every = ascending[np.array(terms, dtype=np.int64)]
        order = np.argsort(every, kind="stable")
        starts = np.searchsorted(every[order], np.arange(len(numbers) + 1))
        ordered = np.array(nodes, dtype=np.int32)[order], np.array(counts, dtype=np.float64)[order]
        return cls(keys, numbers, starts, *ordered, lengths)

    def holding(self, term: str) -> tuple[Positions, Numbers]:
        """Positions of the nodes that hold a term, and how often each does; none for a term that nobody holds."""
        number = self.numbers.get(term)
        entries = slice(0, 0) if number is None else slice(int(self.starts[number]), int(self.starts[number + 1]))
        nodes, counts = self.nodes[entries], self.counts[entries]
        if self.readable is None:
            return nodes, counts
        counted = self.readable[nodes]
        return nodes[counted], counts[counted]

    @property
    def entries(self) -> tuple[Positions, Positions, Numbers]:
        """For each term of each node, the term's number, the node's position, and how often it occurs there."""
        terms = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))
        counted = slice(None) if self.readable is None else self.readable[self.nodes]
        return terms[counted], self.nodes[counted], self.counts[counted]

    @cached_property
    def count(self) -> int:
        """Of the nodes."""
        return len(self.keys) if self.readable is None else int(np.count_nonzero(self.readable))

    @cached_property
    def mean_length(self) -> float:
        """The mean length of the nodes; 1 without nodes."""
        lengths = self.lengths if self.readable is None else self.lengths[self.readable]
        return (float(lengths.mean()) if len(lengths) else 0.0) or 1.0


def counts_of(snapshot: Snapshot, group: str, who: frozenset[str], field: str = ALL) -> Counts:
    """The counts of one of `FIELDS` over the nodes that somebody may read; the same object for a generation."""
    key = ("counts", group, field)
    counts = derived(snapshot.derived, key, lambda: _counted(snapshot, group, field))
    readable, kept = snapshot.allowed(group, who).mask, snapshot.derived_of(who, group)
    return counts if readable is None else derived(kept, key, lambda: replace(counts, readable=readable))


def derived(kept: dict[object, Any], key: object, compute: Callable[[], T]) -> T:
    """What was computed once, and is kept there: `Snapshot.derived`, `Snapshot.derived_of`."""
    found: T | None = kept.get(key)
    if found is None:
        with _counting:
            found = kept.get(key)
            if found is None:
                found = kept[key] = compute()
    return found


def _counted(snapshot: Snapshot, group: str, field: str) -> Counts:
    analyzer = snapshot.manifest(group).analyzer
    keys = snapshot.open.records(group).keys
    return Counts.of(keys, (analyzer.terms(text) for text in texts_of(snapshot, keys, field)))


def texts_of(snapshot: Snapshot, keys: Keys, field: str = ALL) -> Iterator[str]:
    """A field of nodes, in the order of their keys."""
    for start in range(0, len(keys), _AT_ONCE):
        some = json.dumps(keys[start : start + _AT_ONCE].tolist())
        for _, context, text, search_text in snapshot.opened.rows(sql.TEXTS_OF_KEYS, {"keys": some}):
            yield _field(context, text, search_text, field)


def _field(context: str, text: str, search_text: str, field: str) -> str:
    if search_text:
        return "" if field == CONTEXT else search_text
    if field == ALL:
        return f"{context}\n{text}" if context else text
    return context if field == CONTEXT else text

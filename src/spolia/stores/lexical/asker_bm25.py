"""BM25 for somebody who may not read every node of an index: the scores of an index of those nodes that they may read.

N, n and the mean length are of these nodes alone, so that no score tells of the others. tantivy cannot be given other
numbers than its own; what it knows of a term is read out of it once, and kept. Scores are made as it makes them, in
float32 and in the order of the question's terms, so that they are equal to the last bit.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import log
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import tantivy

from spolia.stores.access.allowed_nodes import Allowed, Keys, Mask
from spolia.stores.lexical.index import BODY, KEY, LENGTH

Places = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Lengths = npt.NDArray[np.int64]

_K1, _B, _HALF, _ONE = np.float32(1.2), np.float32(0.75), np.float32(0.5), np.float32(1)
_CODED = np.array([code if code < 32 else 24 + (8 + code % 8 << (code - 32) // 8) for code in range(256)])
"""The lengths that Lucene's one-byte code tells apart (SmallFloat.byte4ToInt)."""
_ENTRIES = 8_000_000
"""Nodes in the lists of terms that are kept, of 8 bytes each."""
_WEIGHTS = 10_000
"""Terms whose weights are kept of an asker."""
_SLACK = 1e-5
"""Of the highest score there could be: more than float32 is off by in any sum."""


class TermList(NamedTuple):
    """The nodes that hold a term: their places among the keys of the index, ascending, and how often each does."""

    places: Places
    counts: Floats


@dataclass(frozen=True, eq=False)
class Readable:
    """What is counted over the nodes that somebody may read.

    Args:
        mask: bool[n], which of the index they are.
        count: how many.
        norms: float32[256], k1 · (1 - b + b · length / mean length) by the code of the length.
        weights: of terms, (k1 + 1) · idf; 0 where no such node holds the term.
    """

    mask: Mask
    count: int
    norms: Floats
    weights: dict[str, np.float32] = field(default_factory=dict)

    @classmethod
    def of(cls, mask: Mask, lengths: Lengths) -> "Readable":
        count = int(np.count_nonzero(mask))
        mean = np.float32(lengths[mask].sum()) / np.float32(max(1, count))
        return cls(mask, count, _norms(mean or _ONE))

    def weight(self, term: str, found: TermList) -> np.float32:
        weight = self.weights.get(term)
        if weight is None:
            if len(self.weights) >= _WEIGHTS:
                self.weights.clear()
            holding = int(np.count_nonzero(self.mask[found.places]))
            weight = self.weights[term] = _weight(self.count, holding) if holding else np.float32(0)
        return weight


class Asked(NamedTuple):
    """A term of a question: its weight times how often it is asked for, that number, and its list."""

    weight: np.float32
    often: int
    places: Places
    counts: Floats


class AskerBM25:
    """Searches an index as if it held what the asker may read and nothing else.

    Args:
        searcher, schema: of the index, as tantivy opened it.
        gone: deleted nodes that it still counts.
        lengths: gives the numbers of terms of nodes by their keys, where the index does not hold them.
    """

    def __init__(
        self, searcher: Any, schema: Any, gone: int, lengths: Callable[[Sequence[int]], Sequence[int]] | None
    ) -> None:
        self._searcher, self._schema, self._all = searcher, schema, searcher.num_docs + gone
        self._lists: dict[str, TermList] = {}
        self._entries, self._mean = 0, np.float32(0)
        self._lock = threading.Lock()
        self._askers: WeakKeyDictionary[Allowed, Readable] = WeakKeyDictionary()
        hits = searcher.search(tantivy.Query.all_query(), max(1, searcher.num_docs), count=False).hits
        addresses = [address for _, address in hits]
        keys = np.array(searcher.fast_field_values(KEY, addresses), dtype=np.int64)
        found = lengths(keys.tolist()) if lengths else searcher.fast_field_values(LENGTH, addresses)
        order = np.argsort(keys)
        self.keys: Keys = keys[order]
        self._lengths: Lengths = np.array(found, dtype=np.int64)[order]
        self._codes = (np.searchsorted(_CODED, self._lengths, side="right") - 1).astype(np.uint8)

    def search(
        self, terms: Sequence[str], top_k: int, readable: Allowed, wanted: Allowed | None = None, *, every: bool = False
    ) -> list[tuple[int, float]]:
        """Keys and scores of the best nodes, and of some more: all that score as the last one that is wanted.

        Args:
            readable: what the asker may read, over which everything is counted.
            wanted: only these of them; None for all.
            every: only nodes that hold every term.
        """
        who = self._of(readable)
        asked = [self._asked(who, term, often) for term, often in Counter(terms).items()]
        may = who.mask if wanted is None else self._mask(wanted)
        if every:
            asked.sort(key=lambda one: -one.weight / one.often)
            places = reduce(np.intersect1d, (one.places for one in asked))
            places = places[may[places]]
        else:
            places = self._candidates([one for one in asked if one.weight], who.norms, may, top_k)
        parts = [self._part(one, who.norms, places) for one in asked if one.weight]
        if every and len(parts) > 2:  # tantivy adds up the rarest two, then the others, then both
            parts = [parts[0] + parts[1], reduce(np.add, parts[2:])]
        scores: Floats = reduce(np.add, parts, np.zeros(len(places), dtype=np.float32))
        return list(zip(self.keys[places].tolist(), scores.tolist(), strict=True))

    def _asked(self, who: Readable, term: str, often: int) -> Asked:
        held = self._held(term)
        return Asked(who.weight(term, held) * np.float32(often), often, *held)

    def _candidates(self, asked: Sequence[Asked], norms: Floats, may: Mask, top_k: int) -> Places:
        """The nodes that may be among the best. Rare terms come first: as soon as the others could not lift a node
        without any of these among the best, no more nodes are met, which spares the long lists of common terms."""
        sums, is_met = np.zeros(len(self.keys), dtype=np.float32), np.zeros(len(self.keys), dtype=np.bool_)
        met = np.zeros(0, dtype=np.int32)
        total = rest = sum(float(one.weight) for one in asked)
        least, slack = -np.inf, _SLACK * total
        for weight, _, held, often in sorted(asked, key=lambda one: -one.weight):
            if rest + slack < least:
                break
            here = may[held]
            places, counts = held[here], often[here]
            sums[places] += weight * (counts / (counts + norms[self._codes[places]]))
            met = np.concatenate([met, places[~is_met[places]]])
            is_met[places] = True
            rest -= float(weight)
            if rest < total / 2 and len(met) > top_k:  # else the best sum is below the rest
                least = float(np.partition(sums[met], len(met) - top_k)[len(met) - top_k])
        return np.sort(met[sums[met] + max(0.0, rest) >= least - slack])

    def _part(self, asked: Asked, norms: Floats, places: Places) -> Floats:
        """What a term adds to the scores of some nodes."""
        at = np.minimum(np.searchsorted(asked.places, places), len(asked.places) - 1)
        counts: Floats = np.where(asked.places[at] == places, asked.counts[at], np.float32(0)).astype(np.float32)
        part: Floats = asked.weight * (counts / (counts + norms[self._codes[places]]))
        return part

    def _of(self, readable: Allowed) -> Readable:
        found = self._askers.get(readable)
        if found is None:
            found = self._askers[readable] = Readable.of(self._mask(readable), self._lengths)
        return found

    def _mask(self, allowed: Allowed) -> Mask:
        if allowed.mask is not None and np.array_equal(allowed.keys, self.keys):
            return allowed.mask
        return allowed.holds(self.keys)

    # What tantivy knows of a term.

    def _held(self, term: str) -> TermList:
        found = self._lists.get(term)
        if found is None:
            found = self._read(term)
            with self._lock:
                for old in list(self._lists) if self._entries + len(found.places) > _ENTRIES else ():
                    self._entries -= len(self._lists.pop(old).places)
                if self._lists.setdefault(term, found) is found:
                    self._entries += len(found.places)
        return found

    def _read(self, term: str) -> TermList:
        """Its list. How often a node holds the term follows from tantivy's score of it, which rises with that."""
        holding = self._searcher.doc_freq(BODY, term)
        query = tantivy.Query.term_query(self._schema, BODY, term, "freq")
        hits = self._searcher.search(query, max(1, holding), count=False).hits
        addresses = [address for _, address in hits]
        places = np.searchsorted(self.keys, np.array(self._searcher.fast_field_values(KEY, addresses), dtype=np.int64))
        if len(hits) and not self._mean:
            self._mean = _mean_length(query.explain(self._searcher, addresses[0]))
        norms = _norms(self._mean or _ONE)[self._codes[places]].astype(np.float64)
        shares = np.array([score for score, _ in hits], dtype=np.float64) / _weight(self._all, max(1, holding))
        counts = np.maximum(1, np.rint(norms * shares / np.maximum(1 - shares, 2.0**-24)))
        order = np.argsort(places)
        return TermList(places[order].astype(np.int32), counts[order].astype(np.float32))


def _weight(count: int, holding: int) -> np.float32:
    odds = (np.float32(count - holding) + _HALF) / (np.float32(holding) + _HALF)
    return np.float32(np.float32(log(float(_ONE + odds))) * (_ONE + _K1))


def _norms(mean: np.float32) -> Floats:
    norms: Floats = _K1 * (_ONE - _B + _B * _CODED.astype(np.float32) / mean)
    return norms


def _mean_length(explanation: Any) -> np.float32:
    """Of all nodes that tantivy counts: it says so only where it explains a score."""
    parts = json.loads(explanation.to_json())["details"]
    return np.float32(
        next(one["value"] for part in parts for one in part.get("details", ()) if one["description"][:5] == "avgdl")
    )

"""BM25 for somebody who may not read every node of an index: the scores of an index of those nodes that they may read.

N, n and the mean length are of these nodes alone, so that no score reveals the others. tantivy cannot be given other
numbers than its own; what it knows of a term is read out of it once, and kept. Scores are made as it makes them, in
float32 and in the order of the question's terms, so that they are equal to the last bit.
"""

import ctypes
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
LengthArray = npt.NDArray[np.int64]

_K1, _B, _HALF, _ONE = np.float32(1.2), np.float32(0.75), np.float32(0.5), np.float32(1)
_CODED = np.array([code if code < 32 else 24 + (8 + code % 8 << (code - 32) // 8) for code in range(256)])
"""The lengths that Lucene's one-byte code distinguishes (SmallFloat.byte4ToInt)."""
_ENTRIES = 8_000_000
"""Nodes in the lists of terms that are kept, of 8 bytes each; a term itself counts as `_OVERHEAD`."""
_OVERHEAD = 100
_AT_ONCE = 100_000
"""Nodes of an index and of the lists of a question's terms up to which all of them are scored."""
_LOOKED_UP = 16
"""Entries of a list that are scored in the time in which one node is looked up in it."""
_SLACK = 1e-5
"""Of the highest score there could be: more than float32 is off by in any sum."""

TermList = tuple[Places, Floats]
"""The nodes that hold a term: their places among the keys of the index, ascending, and how often each does."""


class ReadableTerm(NamedTuple):
    """A term for an asker: (k1 + 1) · idf, the nodes that hold it, tf / (tf + norm) in each, and the most of these."""

    weight: np.float32
    places: Places
    saturated: Floats
    most: np.float32

    def of(self, places: Places) -> Floats:
        at = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        found: Floats = np.where(self.places[at] == places, self.saturated[at], np.float32(0))
        return found


Asked = tuple[np.float32, ReadableTerm]
"""A term of a question, and its weight times how often it is asked for."""


@dataclass(frozen=True, eq=False)
class Readable:
    """The nodes that somebody may read, and k1 · (1 - b + b · length / mean length) by the code of the length."""

    mask: Mask
    count: int
    norms: Floats
    terms: dict[str, ReadableTerm] = field(default_factory=dict)


class AskerBM25:
    """Searches an index as if it held only what the asker may read. tantivy still counts `gone` deleted nodes."""

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
        self._lengths: LengthArray = np.array(found, dtype=np.int64)[order]
        self._codes = (np.searchsorted(_CODED, self._lengths, side="right") - 1).astype(np.uint8)

    def search(
        self, terms: Sequence[str], top_k: int, readable: Allowed, wanted: Allowed | None = None, *, every: bool = False
    ) -> list[tuple[int, float]]:
        """The best of the `wanted` nodes and all that score as the last of them; terms are counted over `readable`."""
        who = self._of(readable)
        asked: list[Asked] = []
        for term, often in Counter(terms).items():
            found = who.terms.get(term) or self._term(who, term)
            if len(found.places):
                asked.append((found.weight * np.float32(often), found))
            elif every:
                return []
        if not asked:
            return []
        may = None if wanted is None else self._mask(wanted)
        if every:
            places, scores = _holding_all(asked)
        elif len(self.keys) + sum(len(one.places) for _, one in asked) <= _AT_ONCE:
            places, scores = self._scored(asked, may, top_k)
        else:
            places = self._candidates(asked, may, top_k)
            scores = reduce(np.add, (weight * one.of(places) for weight, one in asked))
        if may is not None:
            held = may[places]
            places, scores = places[held], scores[held]
        if len(places) > top_k:
            best = scores >= _lowest(scores, top_k)
            places, scores = places[best], scores[best]
        return list(zip(self.keys[places].tolist(), scores.tolist(), strict=True))

    def _scored(self, asked: Sequence[Asked], may: Mask | None, top_k: int) -> tuple[Places, Floats]:
        """The nodes of more than half the best score, or all that hold a term if these are too few, with scores."""
        sums = np.zeros(len(self.keys), dtype=np.float32)
        for weight, one in asked:
            sums[one.places] += weight * one.saturated
        if may is not None:
            sums *= may
        places = np.flatnonzero(sums > sums.max() / 2)
        if len(places) < top_k:
            places = np.flatnonzero(sums)
        return places.astype(np.int32), sums[places]

    def _candidates(self, asked: Sequence[Asked], may: Mask | None, top_k: int) -> Places:
        """The nodes that may be among the best. Rare terms come first. Once the others cannot lift a further node among
        the best, they are looked up for the nodes that were met.
        """
        sums, met = np.zeros(len(self.keys), dtype=np.float32), np.zeros(0, dtype=np.int32)
        ordered = sorted(
            ((float(weight * one.most), weight, one) for weight, one in asked), key=lambda found: -found[0]
        )
        rest = sum(most for most, _, _ in ordered)
        least, slack = -np.inf, _SLACK * rest
        for most, weight, one in ordered:
            if rest + slack >= least:
                places, saturated = one.places, one.saturated
                if may is not None:
                    here = may[places]
                    places, saturated = places[here], saturated[here]
                before = sums[places]
                sums[places] = before + weight * saturated
                met = np.concatenate([met, places[before == 0]])
            elif len(met) * _LOOKED_UP < len(one.places):
                sums[met] += weight * one.of(met)
            else:
                sums[one.places] += weight * one.saturated
            rest -= most
            if len(met) > top_k and rest < (found := sums[met]).max():  # else it is too early
                least = _lowest(found, top_k)
                if rest + slack < least:
                    met = met[found + max(0.0, rest) >= least - slack]
        return np.sort(met)

    def _of(self, readable: Allowed) -> Readable:
        found = self._askers.get(readable)
        if found is None:
            mask = self._mask(readable)
            count, total = int(np.count_nonzero(mask)), np.float32(self._lengths[mask].sum())
            found = Readable(mask, count, _norms(total / np.float32(max(1, count)) or _ONE))
            with self._lock:
                self._askers[readable] = found
        return found

    def _mask(self, allowed: Allowed) -> Mask:
        if allowed.mask is not None and np.array_equal(allowed.keys, self.keys):
            return allowed.mask
        return allowed.holds(self.keys)

    # What tantivy knows of a term.

    def _term(self, who: Readable, term: str) -> ReadableTerm:
        all_places, all_counts = found = self._lists.get(term) or self._read(term)
        here = who.mask[all_places]
        places, counts = all_places[here], all_counts[here]
        saturated: Floats = counts / (counts + who.norms[self._codes[places]])
        made = ReadableTerm(_weight(who.count, len(places)), places, saturated, saturated.max(initial=0))
        with self._lock:
            self._entries += len(places) + len(all_places) + _OVERHEAD
            if self._entries > _ENTRIES:
                self._entries = 0
                self._lists.clear()
                for one in self._askers.values():
                    one.terms.clear()
            self._lists[term], who.terms[term] = found, made
        return made

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
        return places[order].astype(np.int32), counts[order].astype(np.float32)


def _holding_all(asked: list[Asked]) -> tuple[Places, Floats]:
    """The nodes that hold every term. As in tantivy, the scores of the rarest two add up first, and of the others."""
    asked.sort(key=lambda found: len(found[1].places))
    places = reduce(np.intersect1d, (one.places for _, one in asked))
    parts = [weight * one.of(places) for weight, one in asked]
    if len(parts) > 2:
        parts = [parts[0] + parts[1], reduce(np.add, parts[2:])]
    return places, reduce(np.add, parts)


def _lowest(scores: Floats, top_k: int) -> float:
    """The lowest of the `top_k` best, which are fewer than all; most of them are more than half the best as a rule."""
    high = scores[scores > scores.max() / 2]
    some = high if len(high) > top_k else scores
    return float(np.partition(some, len(some) - top_k)[len(some) - top_k])


def _weight(count: int, holding: int) -> np.float32:
    odds = (np.float32(count - holding) + _HALF) / (np.float32(holding) + _HALF)
    return np.float32(np.float32(_log(float(_ONE + odds))) * (_ONE + _K1))


def _float32_log() -> Callable[[float], float]:
    """The logarithm that tantivy takes, the C library's for float32: its last bit is not always that of the nearest."""
    try:
        found = ctypes.CDLL(None).logf
    except (AttributeError, OSError, TypeError):  # without the library, as on Windows, the last bit may differ
        return log
    found.restype, found.argtypes = ctypes.c_float, (ctypes.c_float,)
    exact: Callable[[float], float] = found
    return exact


_log = _float32_log()


def _norms(mean: np.float32) -> Floats:
    norms: Floats = _K1 * (_ONE - _B + _B * _CODED.astype(np.float32) / mean)
    return norms


def _mean_length(explanation: Any) -> np.float32:
    """Of all nodes that tantivy counts: it says so only where it explains a score."""
    parts = json.loads(explanation.to_json())["details"]
    return np.float32(
        next(one["value"] for part in parts for one in part.get("details", ()) if one["description"][:5] == "avgdl")
    )

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
from spolia.stores.lexical.field_terms import BODY, KEY, LENGTH

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
_LOOKUP_COST = 16
"""Entries of a list that are scored in the time in which one node is looked up in it."""
_SLACK = 1e-5
"""Of the highest score there could be: more than float32 is off by in any sum."""

TermList = tuple[Places, Floats]
"""The nodes that hold a term: their places among the keys of the index, ascending, and how often each does."""


class ReadableTerm(NamedTuple):
    """Term for an asker: (k1 + 1) · idf, the nodes that hold it, tf / (tf + norm) in each, and the maximum of these."""

    weight: np.float32
    places: Places
    saturated: Floats
    maximum: np.float32

    def saturation_in(self, places: Places) -> Floats:
        positions = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        saturation: Floats = np.where(self.places[positions] == places, self.saturated[positions], np.float32(0))
        return saturation


WeightedTerm = tuple[np.float32, ReadableTerm]
"""A term of a question, and its weight times how often it is asked for."""


@dataclass(frozen=True, eq=False)
class ReadableNodes:
    """Nodes that somebody may read, and k1 · (1 - b + b · length / mean length) by the code of the length."""

    mask: Mask
    count: int
    norms: Floats
    terms: dict[str, ReadableTerm] = field(default_factory=dict)


class AskerBM25:
    """BM25 search of an index as if it held only what the asker may read. tantivy still counts the `deleted` nodes."""

    def __init__(
        self, searcher: Any, schema: Any, deleted: int, lengths: Callable[[Sequence[int]], Sequence[int]] | None
    ) -> None:
        self._searcher, self._schema, self._all = searcher, schema, searcher.num_docs + deleted
        self._lists: dict[str, TermList] = {}
        self._entries, self._mean = 0, np.float32(0)
        self._lock = threading.Lock()
        self._askers: WeakKeyDictionary[Allowed, ReadableNodes] = WeakKeyDictionary()
        hits = searcher.search(tantivy.Query.all_query(), max(1, searcher.num_docs), count=False).hits
        addresses = [address for _, address in hits]
        keys = np.array(searcher.fast_field_values(KEY, addresses), dtype=np.int64)
        term_counts = lengths(keys.tolist()) if lengths else searcher.fast_field_values(LENGTH, addresses)
        order = np.argsort(keys)
        self.keys: Keys = keys[order]
        self._lengths: LengthArray = np.array(term_counts, dtype=np.int64)[order]
        self._codes = (np.searchsorted(_CODED, self._lengths, side="right") - 1).astype(np.uint8)

    def search(
        self,
        terms: Sequence[str],
        top_k: int,
        readable: Allowed,
        allowed: Allowed | None = None,
        *,
        require_all: bool = False,
    ) -> list[tuple[int, float]]:
        """Return the best of the `allowed` nodes and all that score as the last of them; terms are counted over
        `readable`."""
        view = self._view_of(readable)
        query_terms: list[WeightedTerm] = []
        for term, count in Counter(terms).items():
            readable_term = view.terms.get(term) or self._build_term(view, term)
            if len(readable_term.places):
                query_terms.append((readable_term.weight * np.float32(count), readable_term))
            elif require_all:
                return []
        if not query_terms:
            return []
        mask = None if allowed is None else self._mask(allowed)
        if require_all:
            places, scores = _holding_all(query_terms)
        # Fast path of small indexes: scoring all nodes costs less than choosing candidates.
        elif len(self.keys) + sum(len(readable_term.places) for _, readable_term in query_terms) <= _AT_ONCE:
            places, scores = self._score_all(query_terms, mask, top_k)
        else:
            places = self._find_candidates(query_terms, mask, top_k)
            scores = reduce(
                np.add, (weight * readable_term.saturation_in(places) for weight, readable_term in query_terms)
            )
        if mask is not None:
            is_allowed = mask[places]
            places, scores = places[is_allowed], scores[is_allowed]
        if len(places) > top_k:
            best = scores >= _lowest_of_best(scores, top_k)
            places, scores = places[best], scores[best]
        return list(zip(self.keys[places].tolist(), scores.tolist(), strict=True))

    def _score_all(self, query_terms: Sequence[WeightedTerm], mask: Mask | None, top_k: int) -> tuple[Places, Floats]:
        """Return nodes of more than half the best score, or all that hold a term if these are too few, with scores."""
        sums = np.zeros(len(self.keys), dtype=np.float32)
        for weight, term in query_terms:
            sums[term.places] += weight * term.saturated
        if mask is not None:
            sums *= mask
        places = np.flatnonzero(sums > sums.max() / 2)
        if len(places) < top_k:
            places = np.flatnonzero(sums)
        return places.astype(np.int32), sums[places]

    def _find_candidates(self, query_terms: Sequence[WeightedTerm], mask: Mask | None, top_k: int) -> Places:
        """Return the nodes that may be among the best. Rare terms come first. Once the others cannot lift a further
        node among the best, they are looked up for the nodes found so far."""
        sums, candidates = np.zeros(len(self.keys), dtype=np.float32), np.zeros(0, dtype=np.int32)
        ordered = sorted(
            ((float(weight * term.maximum), weight, term) for weight, term in query_terms), key=lambda entry: -entry[0]
        )
        remaining = sum(maximum for maximum, _, _ in ordered)
        threshold, slack = -np.inf, _SLACK * remaining
        for maximum, weight, term in ordered:
            if remaining + slack >= threshold:
                places, saturated = term.places, term.saturated
                if mask is not None:
                    is_allowed = mask[places]
                    places, saturated = places[is_allowed], saturated[is_allowed]
                previous = sums[places]
                sums[places] = previous + weight * saturated
                candidates = np.concatenate([candidates, places[previous == 0]])
            elif len(candidates) * _LOOKUP_COST < len(term.places):
                sums[candidates] += weight * term.saturation_in(candidates)
            else:
                sums[term.places] += weight * term.saturated
            remaining -= maximum
            if len(candidates) > top_k and remaining < (scores := sums[candidates]).max():  # else it is too early
                threshold = _lowest_of_best(scores, top_k)
                if remaining + slack < threshold:
                    candidates = candidates[scores + max(0.0, remaining) >= threshold - slack]
        return np.sort(candidates)

    def _view_of(self, readable: Allowed) -> ReadableNodes:
        view = self._askers.get(readable)
        if view is None:
            mask = self._mask(readable)
            count, total = int(np.count_nonzero(mask)), np.float32(self._lengths[mask].sum())
            view = ReadableNodes(mask, count, _norms(total / np.float32(max(1, count)) or _ONE))
            with self._lock:
                self._askers[readable] = view  # `_build_term` walks over them
        return view

    def _mask(self, allowed: Allowed) -> Mask:
        # Usually the snapshot and the index have the same nodes: then its mask fits.
        if allowed.mask is not None and np.array_equal(allowed.keys, self.keys):
            return allowed.mask
        return allowed.holds(self.keys)

    # What tantivy knows of a term.

    def _build_term(self, view: ReadableNodes, term: str) -> ReadableTerm:
        all_places, all_counts = term_list = self._lists.get(term) or self._read_list(term)
        is_readable = view.mask[all_places]
        places, counts = all_places[is_readable], all_counts[is_readable]
        saturated: Floats = counts / (counts + view.norms[self._codes[places]])
        readable_term = ReadableTerm(_weight(view.count, len(places)), places, saturated, saturated.max(initial=0))
        with self._lock:
            self._entries += len(places) + len(all_places) + _OVERHEAD
            if self._entries > _ENTRIES:
                # Memory is bounded: all lists are dropped together, as nothing says which terms come again.
                self._entries = 0
                self._lists.clear()
                for cached in self._askers.values():
                    cached.terms.clear()
            self._lists[term], view.terms[term] = term_list, readable_term
        return readable_term

    def _read_list(self, term: str) -> TermList:
        """Read the list of a term. How often a node holds the term follows from tantivy's score of it, which rises with
        that."""
        holding = self._searcher.doc_freq(BODY, term)
        query = tantivy.Query.term_query(self._schema, BODY, term, "freq")
        hits = self._searcher.search(query, max(1, holding), count=False).hits  # tantivy refuses a limit of 0
        addresses = [address for _, address in hits]
        places = np.searchsorted(self.keys, np.array(self._searcher.fast_field_values(KEY, addresses), dtype=np.int64))
        if len(hits) and not self._mean:
            self._mean = _mean_length(query.explain(self._searcher, addresses[0]))
        norms = _norms(self._mean or _ONE)[self._codes[places]].astype(np.float64)
        shares = np.array([score for score, _ in hits], dtype=np.float64) / _weight(self._all, max(1, holding))
        # A share may be rounded to 1.
        counts = np.maximum(1, np.rint(norms * shares / np.maximum(1 - shares, 2.0**-24)))
        order = np.argsort(places)
        return places[order].astype(np.int32), counts[order].astype(np.float32)


def _holding_all(query_terms: list[WeightedTerm]) -> tuple[Places, Floats]:
    """Return the nodes that hold every term. As in tantivy, the scores of the rarest two add up first, and of the
    others."""
    query_terms.sort(key=lambda entry: len(entry[1].places))
    places = reduce(np.intersect1d, (term.places for _, term in query_terms))
    parts = [weight * term.saturation_in(places) for weight, term in query_terms]
    if len(parts) > 2:
        parts = [parts[0] + parts[1], reduce(np.add, parts[2:])]
    return places, reduce(np.add, parts)


def _lowest_of_best(scores: Floats, top_k: int) -> float:
    """Return the lowest of the `top_k` best scores, of more scores than that; most of them are more than half the best
    as a rule."""
    high = scores[scores > scores.max() / 2]
    candidates = high if len(high) > top_k else scores
    return float(np.partition(candidates, len(candidates) - top_k)[len(candidates) - top_k])


def _weight(count: int, holding: int) -> np.float32:
    odds = (np.float32(count - holding) + _HALF) / (np.float32(holding) + _HALF)
    return np.float32(np.float32(_log(float(_ONE + odds))) * (_ONE + _K1))


def _float32_log() -> Callable[[float], float]:
    """Return the logarithm that tantivy takes, the C library's for float32: its last bit is not always that of the
    nearest."""
    try:
        function = ctypes.CDLL(None).logf
    except (AttributeError, OSError, TypeError):  # without the library, as on Windows, the last bit may differ
        return log
    function.restype, function.argtypes = ctypes.c_float, (ctypes.c_float,)
    exact: Callable[[float], float] = function
    return exact


_log = _float32_log()


def _norms(mean: np.float32) -> Floats:
    norms: Floats = _K1 * (_ONE - _B + _B * _CODED.astype(np.float32) / mean)
    return norms


def _mean_length(explanation: Any) -> np.float32:
    """Return the mean length of all nodes that tantivy counts: it tells it only where it explains a score."""
    parts = json.loads(explanation.to_json())["details"]
    return np.float32(
        next(
            detail["value"]
            for part in parts
            for detail in part.get("details", ())
            if detail["description"][:5] == "avgdl"
        )
    )

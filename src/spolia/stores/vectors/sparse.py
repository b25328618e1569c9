"""Sparse vectors in segment files, searched exactly by inverted lists.

A segment is laid out like one of dense vectors (`spolia.stores.vectors.dense`), with this body: the rows (`count + 1`
offsets int64, `entries` terms int32, their weights float32), and the same entries by term (`terms` distinct terms int32
padded to 8 bytes, `terms + 1` offsets int64, rows int32, weights float32). Both are mapped into memory: a query reads
the lists of its own terms and nothing else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spolia.models.vectors import SparseRows, Terms, TermWeights
from spolia.stores.access.allowed_nodes import Allowed, Keys
from spolia.stores.backends.searches import Rankings
from spolia.stores.snapshot.hit_order import Ids
from spolia.stores.vectors.dense import open_checked, segment_head, write_checked
from spolia.stores.vectors.placement import Rows
from spolia.stores.vectors.search import Scores, rank_scores

MAGIC = b"SPLSPR01"
ENTRY_BYTES = 8
"""Of a term and its weight."""
# The offsets that follow are mapped as int64, so that they begin at a multiple of 8.
_WIDE = 8


@dataclass(frozen=True, eq=False)
class Lists:
    """Entries of a segment by term: those of `terms[i]` are at `offsets[i] : offsets[i + 1]`."""

    terms: Terms
    offsets: Rows
    rows: npt.NDArray[np.int32]
    weights: TermWeights


@dataclass(frozen=True, eq=False)
class SparseSegment:
    """Opened segment: `hashes[i]` is the content hash of the text whose vector is row `i` of `rows`."""

    embedder: str
    hashes: Sequence[bytes]
    entries: tuple[Rows, Terms, TermWeights]
    lists: Lists

    @property
    def rows(self) -> SparseRows:
        return SparseRows(*self.entries)

    def row(self, index: int) -> SparseRows:
        offsets, terms, weights = self.entries
        entries = slice(int(offsets[index]), int(offsets[index + 1]))
        return SparseRows(np.array([0, entries.stop - entries.start]), terms[entries], weights[entries])

    def scores(self, terms: Terms, weights: TermWeights) -> Scores:
        """Return the products of a query with every row, in float64, added up in the order of the terms."""
        lists, sums = self.lists, np.zeros(len(self.hashes), dtype=np.float64)
        if not len(lists.terms):
            return sums
        # A term behind the last one would get the length, which is no index.
        list_numbers = np.minimum(np.searchsorted(lists.terms, terms), len(lists.terms) - 1)
        for list_, term, weight in zip(list_numbers, terms, weights.astype(np.float64), strict=True):
            if lists.terms[list_] == term:
                entries = slice(int(lists.offsets[list_]), int(lists.offsets[list_ + 1]))
                sums[lists.rows[entries]] += lists.weights[entries] * weight  # a row is in a list once
        return sums


def pack_row(row: SparseRows) -> bytes:
    """Pack one row as bytes: its terms, int32, and their weights, float32."""
    return _bytes(row.terms, "<i4") + _bytes(row.weights, "<f4")


def unpack_row(entries: bytes) -> SparseRows:
    """Unpack a row.

    >>> unpack_row(pack_row(SparseRows.from_weights([{7: 1.5, 2: 0.5}]))).weights_of(0)
    {2: 0.5, 7: 1.5}
    """
    count = len(entries) // ENTRY_BYTES
    terms, weights = np.frombuffer(entries, "<i4", count), np.frombuffer(entries, "<f4", count, offset=4 * count)
    return SparseRows(np.array([0, count]), terms, weights)


def write_sparse(path: Path, embedder: str, hashes: Sequence[bytes], rows: SparseRows) -> int:
    return write_checked(path, _content(embedder, hashes, rows))


def lists_of(rows: SparseRows) -> Lists:
    order = np.argsort(rows.terms, kind="stable")
    terms, begins = np.unique(rows.terms[order], return_index=True)
    numbers = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(rows.offsets))
    return Lists(terms, np.append(begins, len(order)), numbers[order], rows.weights[order])


def _content(embedder: str, hashes: Sequence[bytes], rows: SparseRows) -> Iterator[bytes]:
    lists = lists_of(rows)
    terms = lists.terms
    header = {"embedder": embedder, "count": len(rows), "entries": len(rows.terms), "terms": len(terms)}
    yield segment_head(MAGIC, header, hashes)
    yield _bytes(rows.offsets, "<i8") + _bytes(rows.terms, "<i4") + _bytes(rows.weights, "<f4")
    yield _bytes(terms, "<i4").ljust(_padded(len(terms)), b"\0")
    yield _bytes(lists.offsets, "<i8") + _bytes(lists.rows, "<i4") + _bytes(lists.weights, "<f4")


def _bytes(values: npt.NDArray[Any], dtype: str) -> bytes:
    return np.ascontiguousarray(values, dtype=dtype).tobytes()


def _padded(terms: int) -> int:
    return -(-terms * 4 // _WIDE) * _WIDE


def _sizes(header: dict[str, Any]) -> list[int]:
    count, entries, terms = header["count"], header["entries"], header["terms"]
    return [8 * (count + 1), 4 * entries, 4 * entries, _padded(terms), 8 * (terms + 1), 4 * entries, 4 * entries]


def open_sparse(path: Path) -> SparseSegment:
    header, hashes, body = open_checked(path, MAGIC, lambda header: sum(_sizes(header)))
    ends = np.cumsum(_sizes(header))[:-1]
    offsets, terms, weights, list_terms, list_offsets, list_rows, list_weights = np.split(body, ends)
    entries = offsets.view("<i8"), terms.view("<i4"), weights.view("<f4")
    lists = Lists(
        list_terms.view("<i4")[: header["terms"]],
        list_offsets.view("<i8"),
        list_rows.view("<i4"),
        list_weights.view("<f4"),
    )
    return SparseSegment(header["embedder"], hashes, entries, lists)


class SparseSearch:
    """Exact search for the nodes of a group whose sparse vectors have the largest products with a query's."""

    def __init__(self, keys: Keys, segments: Sequence[SparseSegment], places: Rows) -> None:
        self.keys, self.segments, self.places = keys, segments, places

    def search(self, queries: SparseRows, top_k: int, allowed: Allowed, ids: Ids | None = None) -> Rankings:
        """Search as `Search` does; a node that shares no term with the query has the score 0, and these are ordered by
        key."""
        limit = min(top_k, allowed.count)
        if limit <= 0:
            return [[] for _ in range(len(queries))]
        places, keys = self.places, self.keys
        if allowed.mask is not None:
            places, keys = places[allowed.mask], keys[allowed.mask]
        rankings = []
        for row in range(len(queries)):
            scores = np.concatenate([segment.scores(*queries.row(row)) for segment in self.segments])
            rankings.append(_rank(keys, scores[places], limit, ids))
        return rankings

    def row(self, position: int) -> SparseRows:
        row = int(self.places[position])
        for segment in self.segments:
            if row < len(segment.hashes):
                return segment.row(row)
            row -= len(segment.hashes)
        raise IndexError(position)


def _rank(keys: Keys, scores: Scores, limit: int, ids: Ids | None) -> list[tuple[int, float]]:
    matching = np.flatnonzero(scores > 0)
    hits = rank_scores(keys[matching], scores[matching], limit, ids)
    if len(hits) < limit:
        rest = np.flatnonzero(scores <= 0)
        hits += _rank_by_key(keys[rest], scores[rest], limit - len(hits))
    return hits


def _rank_by_key(keys: Keys, scores: Scores, limit: int) -> list[tuple[int, float]]:
    lowest = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    better = np.flatnonzero(scores > lowest)
    equal = np.flatnonzero(scores == lowest)[: limit - len(better)]  # by key, as the keys ascend
    order = np.concatenate([better[np.lexsort((better, -scores[better]))], equal])
    return [(int(keys[index]), float(scores[index])) for index in order]

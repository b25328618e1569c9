"""Reading a frozen lexical index: BM25 over the terms of an analyser, by tantivy.

score(query, node) = Σ over terms t of idf(t) · tf · (k1 + 1) / (tf + k1 · (1 - b + b · length / mean length)), with
k1 = 1.2 and b = 0.75, lengths in Lucene's one-byte code (Robertson, Zaragoza, "The probabilistic relevance framework:
BM25 and beyond", 2009). N and n, of idf, count live nodes; the mean length also counts deleted ones that are still in
the index (`spolia.stores.integrity`). For somebody who may not read all of them, everything is counted over the nodes
that they may read (`spolia.stores.lexical.asker_bm25`).
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from math import log1p
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import tantivy

from spolia.errors import StoreCorrupt
from spolia.filters import Condition, Field, Leaf, Schema
from spolia.stores import lexical
from spolia.stores.files import columns_in, count_deleted, holds_lengths, quick_index_damage, tantivy_errors
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.lexical.field_terms import BODY, KEY, FieldTerms, terms_of
from spolia.stores.snapshot.hit_order import Ids, best_hits

if TYPE_CHECKING:
    from spolia.stores.access.allowed_nodes import Allowed
    from spolia.stores.lexical.asker_bm25 import AskerBM25

COPIED = ("meta.json", ".managed.json")
"""Files of tantivy that it replaces; all others are never written again once they are there."""
_SPARE = 8  # hits beyond the wanted ones, to see whether the last one has equals
_FIRST, _GROWTH = 1_000, 6
"""Hits that are looked through at first where only some nodes are allowed, at least, and how many times more each time
that they are too few: asking again costs as much as a thousand hits more."""
RUNS = 8
"""Runs of allowed nodes up to which the index is asked for these ranges of keys, which costs next to nothing."""
FEW = 1_200
"""Allowed nodes up to which the index is asked for these only; with more, its own results are filtered first.
Of 100,000 sentences, asking for 100 of them takes 0.5 CPU-ms, for 1,000 2 to 3, for 10,000 10; looking through the best
2,000 takes 1.2, 5,000 1.8, and finds nothing where questions and filter have nothing to do with each other
(benchmarks/filters.py)."""
_CORRECTIONS_KEPT = 10_000
"""Terms whose weights are kept."""
LISTED = 2_500
"""Allowed nodes up to which the index walks their own lists of one entry; above, it gathers them in a set first."""


class Lexical:
    """Opened index for any thread. `lengths` counts the terms of nodes, which earlier versions did not store."""

    def __init__(
        self, folder: Path, analyzer: Analyzer, lengths: Callable[[Sequence[int]], Sequence[int]] | None = None
    ) -> None:
        self.folder, self.analyzer, self._lengths = folder, analyzer, lengths
        self._node_queries: WeakKeyDictionary[Allowed, Any] = WeakKeyDictionary()  # a filter is asked many questions
        self._corrections: dict[str, float] = {}
        if not folder.is_dir():
            raise damaged_error(folder, "not there")
        if quick_index_damage(folder):
            raise damaged_error(folder, "not as it was written")
        with _reading_errors(folder):
            self._schema, self._searcher = _open_searcher(folder)
            self._gone = count_deleted(folder)
            self._columns = columns_in(folder)

    def search(
        self,
        text: str,
        top_k: int,
        readable: "Allowed | None" = None,
        allowed: "Allowed | None" = None,
        *,
        filter: Any = None,
        require_all: bool = False,
        ids: Ids | None = None,
        defer_ties: bool = False,
    ) -> list[tuple[int, float]]:
        """Return keys and scores of the best nodes that share a term with the text.

        Args:
            readable: the nodes that the asker may read, over which everything is counted; None for all.
            allowed: only these of them; None for all.
            filter: only what fulfils this query of `fields`, where neither of the others is given.
            require_all: only nodes that hold every term, not just one of them.
            ids: gives the ids of nodes, by which equal scores are ordered; by key without it.
            defer_ties: as for `best_hits`.
        """
        terms = self.analyzer.words(text) if require_all else self.analyzer.terms(text)
        if not terms or top_k <= 0 or (allowed is not None and not allowed.count):
            return []
        with _reading_errors(self.folder):
            if readable is not None and (readable.mask is not None or self._gone):
                hits = self._asker.search(terms, top_k, readable, allowed, require_all=require_all)
            else:
                query = self._build_query(terms, require_all)
                query = query if filter is None else self._require_both(query, filter)
                hits = self._find_best(query, min(top_k, self._searcher.num_docs), allowed)
        return best_hits(hits, top_k, ids, defer_ties=defer_ties)

    @cached_property
    def _fields(self) -> FieldTerms:
        return FieldTerms(self._searcher, self._schema, self._columns)

    def filter_query(self, filter: Condition, schema: Schema) -> Any | None:
        """Return what `search` takes as a filter; None where the index cannot say which nodes fulfil it.

        Raises `FilterError` as `Schema.check` does.
        """
        schema.check(filter)
        with _reading_errors(self.folder):
            return self._fields.query(filter, schema)

    def holders(self, leaf: Leaf, field: Field) -> list[int] | None:
        """Return the keys of the nodes that fulfil a condition on a field; None where the index cannot say."""
        with _reading_errors(self.folder):
            return self._fields.keys(leaf, field, KEY)

    @cached_property
    def _asker(self) -> "AskerBM25":
        lengths = None if holds_lengths(self.folder) else self._lengths
        return lexical.asker_bm25.AskerBM25(self._searcher, self._schema, self._gone, lengths)

    def _find_best(self, query: Any, top_k: int, allowed: "Allowed | None") -> list[tuple[int, float]]:
        """Return the best hits, and all that score as the last of them."""
        if allowed is not None and (restricted := self._restrict(query, allowed)) is not None:
            query, allowed = restricted, None
        limit = top_k + _SPARE if allowed is None else _first_limit(top_k, allowed)
        while True:
            # Filtering more hits would take longer than asking for the allowed nodes alone.
            if allowed is not None and limit > _bearable(allowed.count):
                query, allowed, limit = self._query_of_nodes(query, allowed), None, top_k + _SPARE
            hits, is_complete = self._search_hits(query, limit)
            keys = self._searcher.fast_field_values(KEY, [address for _, address in hits])
            places = range(len(keys)) if allowed is None else allowed.holds(keys).nonzero()[0].tolist()
            results = [(keys[place], hits[place][0]) for place in places]
            # tantivy breaks ties by its own document numbers: only a complete tie can be put in order.
            if is_complete or (len(results) >= top_k and hits[-1][0] < results[top_k - 1][1]):
                return results
            limit *= _GROWTH

    def _search_hits(self, query: Any, limit: int) -> tuple[list[Any], bool]:
        """Return the best hits, and whether these are all: what does not match at all has the score 0."""
        hits: list[Any] = self._searcher.search(query, limit, count=False).hits
        if hits and hits[-1][0] <= 0:
            return [hit for hit in hits if hit[0] > 0], True
        return hits, len(hits) < limit

    def _restrict(self, query: Any, allowed: "Allowed") -> Any:
        """Return a query that only these nodes fulfil; None where filtering the hits is faster."""
        if allowed.count <= FEW:
            return self._query_of_nodes(query, allowed)
        if (runs := allowed.runs(RUNS)) is None:
            return None
        kind = tantivy.FieldType.Unsigned
        return self._require_both(
            query, _any(tantivy.Query.range_query(self._schema, KEY, kind, first, last) for first, last in runs)
        )

    def _query_of_nodes(self, query: Any, allowed: "Allowed") -> Any:
        """Return a query of these nodes, those that do not match with the score 0: tantivy goes through them and not
        through matches."""
        if allowed.count > LISTED:
            return self._require_both(query, tantivy.Query.term_set_query(self._schema, KEY, _allowed_keys(allowed)))
        nodes_query = self._node_queries.get(allowed)
        if nodes_query is None:
            key_queries = (tantivy.Query.term_query(self._schema, KEY, key, "basic") for key in _allowed_keys(allowed))
            nodes_query = self._node_queries[allowed] = tantivy.Query.const_score_query(_any(key_queries), 0.0)
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, nodes_query), (tantivy.Occur.Should, query)])

    def _build_query(self, terms: Sequence[str], require_all: bool) -> Any:
        query, occur = tantivy.Query, tantivy.Occur
        occurrence, clauses = occur.Must if require_all else occur.Should, []
        counts: dict[str, int] = {}
        for term in terms:  # a Counter takes longer than the rest
            counts[term] = counts.get(term, 0) + 1
        for term, count in counts.items():
            clause, weight = query.term_query(self._schema, BODY, term, "freq"), count * self._idf_correction(term)
            clauses.append((occurrence, clause if weight == 1 else query.boost_query(clause, weight)))
        return query.boolean_query(clauses)

    def _idf_correction(self, term: str) -> float:
        """Return the factor that corrects tantivy's idf of a term, which counts nodes that are deleted."""
        if not self._gone:
            return 1.0
        if (correction := self._corrections.get(term)) is None:
            if len(self._corrections) >= _CORRECTIONS_KEPT:
                self._corrections = {}
            query, nodes = tantivy.Query.term_query(self._schema, BODY, term, "freq"), self._searcher.num_docs
            live, indexed = self._searcher.search(query, 1).count or 0, self._searcher.doc_freq(BODY, term)
            correction = self._corrections[term] = _idf(nodes, live) / _idf(nodes + self._gone, indexed)
        return correction

    def _require_both(self, matching: Any, condition: Any) -> Any:
        """Return a query of what fulfils both, with the scores of `matching`."""
        occur = tantivy.Occur
        unscored = tantivy.Query.const_score_query(condition, 0.0)
        return tantivy.Query.boolean_query([(occur.Must, matching), (occur.Must, unscored)])

    def find_differing(self, nodes: Iterable[tuple[int, str, *tuple[str, ...]]]) -> list[int]:
        """Return the keys of nodes, as they are given to `freeze`, that lack a term of their text or metadata."""
        occur, differing = tantivy.Occur, []
        with _reading_errors(self.folder):
            for key, text, *metadata in nodes:
                terms = dict.fromkeys(self.analyzer.terms(text))
                expected: list[tuple[str, str | int]] = [(BODY, term) for term in terms] + [(KEY, key)]
                expected += terms_of(metadata, self._columns)
                clauses = [
                    (occur.Must, tantivy.Query.term_query(self._schema, field, value, "basic"))
                    for field, value in expected
                ]
                if not self._searcher.search(tantivy.Query.boolean_query(clauses), 1).count:
                    differing.append(key)
        return differing

    def keys(self) -> list[int]:
        with _reading_errors(self.folder):
            count = self._searcher.num_docs
            if not count:
                return []
            hits = self._searcher.search(tantivy.Query.all_query(), count, count=False).hits
            return sorted(self._searcher.fast_field_values(KEY, [address for _, address in hits]))


def _idf(nodes: int, holding: int) -> float:
    return log1p((nodes - holding + 0.5) / (holding + 0.5))


def _allowed_keys(allowed: "Allowed") -> list[int]:
    keys: list[int] = allowed.keys[allowed.positions()].tolist()
    return keys


def _any(queries: Iterable[Any]) -> Any:
    return tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in queries])


def _first_limit(top_k: int, allowed: "Allowed") -> int:
    """Return how many hits hold enough of the allowed nodes if those are spread evenly."""
    return max(top_k + _SPARE + 2 * top_k * len(allowed.keys) // allowed.count, _FIRST)


def _bearable(count: int) -> int:
    """Return how many hits can be filtered in the time that a query for this many nodes alone would take."""
    return 3_000 + 2 * count


def _open_searcher(folder: Path) -> tuple[Any, Any]:
    """Return schema and searcher; by way of links in a temporary folder where tantivy may not make its lock file."""
    if os.access(folder, os.W_OK):
        return _open_index(str(folder))
    with tempfile.TemporaryDirectory(prefix="spolia-") as linked:
        for name in os.listdir(folder):
            if name in COPIED:
                shutil.copyfile(folder / name, os.path.join(linked, name))
            elif not name.endswith(".lock"):
                os.symlink((folder / name).absolute(), os.path.join(linked, name))
        return _open_index(linked)


def _open_index(folder: str) -> tuple[Any, Any]:
    index = tantivy.Index.open(folder)
    index.config_reader("manual")  # it never changes: no thread has to watch the folder
    return index.schema, index.searcher()


def _reading_errors(folder: Path) -> AbstractContextManager[None]:
    """Raise StoreCorrupt when tantivy cannot read an index."""
    return tantivy_errors(lambda error: damaged_error(folder, f"damaged: {error}"))


def damaged_error(folder: Path, damage: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"The lexical index {folder} is {damage}. It is derived: write spolia repair --store STORE, or "
        "writer.repair(), to have it built again from corpus.db."
    )

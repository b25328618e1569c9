"""Reading a frozen lexical index: BM25 over the terms of an analyser, by tantivy.

score(query, node) = Σ over terms t of idf(t) · tf · (k1 + 1) / (tf + k1 · (1 - b + b · length / mean length)), with
k1 = 1.2 and b = 0.75, lengths in Lucene's one-byte code (Robertson, Zaragoza, "The probabilistic relevance framework:
BM25 and beyond", 2009).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tantivy

from spolia.errors import StoreCorrupt
from spolia.stores.analysis import Analyzer

KEY, BODY, READER = "key", "body", "reader"
RESTRICTED = "restricted"
PUBLIC = "public"
COPIED = ("meta.json", ".managed.json")
"""Files of tantivy that it replaces; all others are never written again once they are there."""
_SPARE = 8


def reader_terms(readers: Sequence[str]) -> list[str]:
    """Who may read a node, as terms: a restricted node has one for each principal, no principal looks like `public`."""
    return [RESTRICTED, *(f"={reader}" for reader in readers)] if readers else [PUBLIC]


class Lexical:
    """An opened index. It is never written again, so that any thread may search it at any time."""

    def __init__(self, folder: Path, analyzer: Analyzer) -> None:
        self.folder, self.analyzer = folder, analyzer
        with _readable(folder), _legible(folder):
            self._schema, self._searcher = _searchable(folder)
            self._restricted = self._searcher.doc_freq(READER, RESTRICTED) > 0

    def search(self, text: str, top_k: int, access: frozenset[str]) -> list[tuple[int, float]]:
        """Keys and scores of the best readable nodes that share a term with the text; equal scores by key."""
        query = self._query(self.analyzer.terms(text), access)
        if query is None or top_k <= 0:
            return []
        limit = top_k + _SPARE
        with _legible(self.folder):
            while True:
                hits = self._searcher.search(query, limit, count=False).hits
                # tantivy breaks ties by its own document numbers: only a complete tie can be put in order.
                if len(hits) < limit or hits[-1][0] < hits[top_k - 1][0]:
                    break
                limit *= 4
            keys = self._searcher.fast_field_values(KEY, [address for _, address in hits])
        found = sorted(zip(keys, (score for score, _ in hits), strict=True), key=_best_first)
        return found[:top_k]

    def _query(self, terms: Sequence[str], access: frozenset[str]) -> Any:
        query, occur = tantivy.Query, tantivy.Occur
        clauses = []
        for term, count in Counter(terms).items():
            clause = query.term_query(self._schema, BODY, term, "freq")
            clauses.append((occur.Should, clause if count == 1 else query.boost_query(clause, float(count))))
        if not clauses:
            return None
        matching = query.boolean_query(clauses)
        if not self._restricted:
            return matching
        readable = query.term_set_query(self._schema, READER, [PUBLIC, *(f"={who}" for who in sorted(access))])
        allowed = query.const_score_query(readable, 0.0)
        return query.boolean_query([(occur.Must, matching), (occur.Must, allowed)])

    def keys(self) -> list[int]:
        """Keys of all nodes in the index, with repetitions if it is damaged."""
        with _legible(self.folder):
            count = self._searcher.num_docs
            if not count:
                return []
            hits = self._searcher.search(tantivy.Query.all_query(), count, count=False).hits
            return sorted(self._searcher.fast_field_values(KEY, [address for _, address in hits]))


def _best_first(found: tuple[int, float]) -> tuple[float, int]:
    return -found[1], found[0]


def _searchable(folder: Path) -> tuple[Any, Any]:
    """Schema and searcher; by way of links in a temporary folder where tantivy may not make its lock file."""
    if os.access(folder, os.W_OK):
        return _opened(str(folder))
    with tempfile.TemporaryDirectory(prefix="spolia-") as linked:
        for name in os.listdir(folder):
            if name in COPIED:
                shutil.copyfile(folder / name, os.path.join(linked, name))
            elif not name.endswith(".lock"):
                os.symlink((folder / name).absolute(), os.path.join(linked, name))
        return _opened(linked)


def _opened(folder: str) -> tuple[Any, Any]:
    index = tantivy.Index.open(folder)
    index.config_reader("manual")
    return index.schema, index.searcher()


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    if not folder.is_dir():
        raise StoreCorrupt(
            f"The lexical index {folder} is not there. It is derived: write writer.repair(), or "
            "spolia index FOLDER --store PATH, to have it built again from corpus.db."
        )
    yield


@contextmanager
def _legible(folder: Path) -> Iterator[None]:
    """Say that an index is damaged when tantivy cannot read it: it raises `ValueError`, or panics past `Exception`."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise damaged(folder, error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise damaged(folder, error) from error


def damaged(folder: Path, error: BaseException) -> StoreCorrupt:
    return StoreCorrupt(
        f"The lexical index {folder} is damaged: {error}. It is derived: write writer.repair(), or "
        "spolia index FOLDER --store PATH, to have it built again from corpus.db."
    )

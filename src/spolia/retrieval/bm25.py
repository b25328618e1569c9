"""Search by words, and for phrases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia.core.run_context import may_be_late
from spolia.retrieval.group_search import GroupSearch, search_text
from spolia.stores.corpus import NodeGroup
from spolia.stores.lexical.analysis import contains_phrase
from spolia.types import Filter, Hit, LateHits, Query

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class BM25(GroupSearch):
    """Lexical search by Okapi BM25, with Lucene's formula.

    score(q, d) = Σ_t qtf · idf · tf · (k1 + 1) / (tf + k1 · (1 - b + b · |d| / mean |d|)),
    idf = ln(1 + (N - n + ½) / (n + ½)), with k1 = 1.2 and b = 0.75. qtf and tf: how often query and node hold the
    term t; n of N nodes hold it; |d| is the node's length in terms, in Lucene's one-byte code. The terms are those of
    the group's analyser. In a store with access lists, N, n and the mean length are of the nodes that the asker may
    read: the scores tell nothing of the others.

    Equal scores go by the nodes' ids, which are made of what they are. Nodes that were removed count in the mean length
    until they are one in twenty, when the index is rebuilt; among up to 1,000 nodes they never do.

    A node without any term of the query is never found, so that there may be fewer than `top_k` hits, or none: a query
    of stop words finds where they stand, one without any word finds nothing.

    Args:
        group, top_k, source, filter: as for every `GroupSearch`, which names the errors too.

    Source: Robertson, Zaragoza, "The probabilistic relevance framework: BM25 and beyond", 2009.

    >>> from spolia.stores.corpus import Corpus
    >>> BM25(Corpus("notes.spolia").group(), top_k=5).short
    "BM25(top_k=5, source='bm25')"
    """

    group: NodeGroup
    top_k: int = 10
    source: str = "bm25"
    filter: Filter | None = None

    version: ClassVar[int] = 3  # 2: counts only what the asker may read; 3: ties of late hits are left to the fetching

    def is_nested(self) -> bool:
        return True

    def late_searches(self) -> tuple[BM25, ...]:
        # A subclass with its own `hits` may do anything, so only the plain search is deferred.
        return (self,) if type(self).hits is BM25.hits else ()

    def hits(
        self, query: Query, snapshot: Snapshot, principals: frozenset[str], filter: Filter | None, /
    ) -> tuple[Hit, ...] | LateHits:
        is_deferred = may_be_late(self)
        ranking = snapshot.search(
            self.group.name, search_text(query), self.top_k, principals, filter, defer_ties=is_deferred
        )
        return snapshot.late_hits(ranking, principals) if is_deferred else snapshot.hits(ranking, principals)


# Each further round of a phrase search fetches four times as many nodes, so that few rounds suffice.
_GROWTH = 4


@dataclass(frozen=True)
class Phrase(GroupSearch):
    """Lexical search for the words of the query one after the other, best first by BM25.

    Nodes that hold all terms are looked up in the lexical index, then their texts are read: whole words, in any case,
    with accents or without, not stemmed. The search covers titles and headings too. A phrase that occurs in
    `top_k` nodes or more finds `top_k`; of a script without spaces between words it needs two characters at least,
    since pairs of them are indexed.

    Args:
        group, top_k, source, filter: as for every `GroupSearch`, which names the errors too.

    >>> from spolia.stores.corpus import Corpus
    >>> Phrase(Corpus("notes.spolia").group(), top_k=5).short
    "Phrase(top_k=5, source='phrase')"
    """

    group: NodeGroup
    top_k: int = 10
    source: str = "phrase"
    filter: Filter | None = None

    version: ClassVar[int] = 2  # 2: counts only what the asker may read

    def hits(
        self, query: Query, snapshot: Snapshot, principals: frozenset[str], filter: Filter | None, /
    ) -> tuple[Hit, ...]:
        text, fetched = search_text(query), self.top_k * _GROWTH
        while True:
            candidates = snapshot.search(self.group.name, text, fetched, principals, filter, require_all=True)
            hits = tuple(
                hit for hit in snapshot.hits(candidates, principals) if contains_phrase(hit.node.indexed_text, text)
            )
            if len(hits) >= self.top_k or len(candidates) < fetched:
                return hits[: self.top_k]
            fetched *= _GROWTH

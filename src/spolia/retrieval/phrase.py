"""Search for words in a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spolia.retrieval.group_search import GroupSearch
from spolia.retrieval.searched import searched
from spolia.stores.corpus import NodeGroup
from spolia.stores.lexical.phrases import holds
from spolia.types import Filter, Hit, Query

if TYPE_CHECKING:
    from spolia.stores.snapshot import Snapshot

_GROWTH = 4


@dataclass(frozen=True)
class Phrase(GroupSearch):
    """The nodes that hold the words of the query one after the other, best first by BM25.

    Nodes that hold all terms are looked up in the lexical index, then their texts are read: whole words, in any case,
    with accents or without, not stemmed. What is indexed is searched, title and headings too. A phrase that stands in
    `top_k` nodes or more finds `top_k`; of a script without spaces between words it needs two characters at least,
    since pairs of them are indexed.

    Args:
        group: the node group to search.
        top_k: hits to return, at most.
        source: name of the ranking, for weights when it is fused.
        filter: what may be found at all; the query's filter and the run's narrow it further.

    Raises:
        QueryError: for an empty query.
        FilterError: for a filter on a field that the store does not declare.
        StoreError: when the store cannot be read, or has no such group.

    >>> from spolia.stores.corpus import Corpus
    >>> Phrase(Corpus("notes.spolia").group(), top_k=5).short
    "Phrase(top_k=5, source='phrase')"
    """

    group: NodeGroup
    top_k: int = 10
    source: str = "phrase"
    filter: Filter | None = None

    def hits(self, query: Query, snapshot: Snapshot, who: frozenset[str], wanted: Filter | None, /) -> tuple[Hit, ...]:
        text, fetched = searched(query), self.top_k * _GROWTH
        while True:
            found = snapshot.search(self.group.name, text, fetched, who, wanted, every=True)
            hits = tuple(hit for hit in snapshot.hits(found, who) if holds(hit.node.indexed_text, text))
            if len(hits) >= self.top_k or len(found) < fetched:
                return hits[: self.top_k]
            fetched *= _GROWTH

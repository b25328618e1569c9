"""Search for words in a row."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.filters import narrowed
from spolia.operator import Operator
from spolia.retrieval.searched import searched
from spolia.stores.corpus import NodeGroup
from spolia.stores.lexical.phrases import holds
from spolia.surrounding import access, narrowing
from spolia.types import Filter, Query, Ranking

_GROWTH = 4


@dataclass(frozen=True)
class Phrase(Operator[Query, Ranking]):
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

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise WiringError(f"{self.short}: top_k counts from 1.")

    def apply(self, value: Query, /) -> Ranking:
        who = access()
        snapshot, text = self.group.snapshot(), searched(value)
        wanted = narrowed(self.filter, value.filter, narrowing())
        fetched = self.top_k * _GROWTH
        while True:
            found = snapshot.search(self.group.name, text, fetched, who, wanted, every=True)
            hits = tuple(hit for hit in snapshot.hits(found, who) if holds(hit.node.indexed_text, text))
            if len(hits) >= self.top_k or len(found) < fetched:
                return Ranking(value, hits[: self.top_k], self.source)
            fetched *= _GROWTH

    def reads(self, value: Query, /) -> object:
        return value.text, value.filter

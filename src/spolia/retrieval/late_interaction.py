"""Search by the vectors of single tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia.models.protocols import TokenEmbedder, refuse_no_embedder
from spolia.retrieval.group_search import GroupSearch, searched
from spolia.stores.corpus import NodeGroup
from spolia.types import Filter, Hit, Query

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class LateInteraction(GroupSearch):
    """The nodes of which some token is near to each token of the query.

    score(q, d) = Σ_i max_j q_i · d_j over the vectors of length 1 of the query's and the node's tokens; exact, over all
    nodes that may be found. For a large group write `BM25(group, top_k=100) >> ColBERT(embedder)`.

    The token vectors of the group's nodes are made at the first search, and kept in the store's folder by what the text
    is, so that no text is embedded twice: some 50 kB for a passage of 100 tokens with 128 numbers each. A folder that
    is lost costs nothing but the embedding.

    Args:
        embedder: gives a vector for each token.
        group, top_k, source, filter: as for every `GroupSearch`, which names the errors too.

    Raises:
        ModelError: the embedder does not give token vectors.
        WiringError: `embedder` is not one.

    Source: Khattab, Zaharia, "ColBERT: efficient and effective passage search via contextualized late interaction over
    BERT", SIGIR 2020.

    >>> from spolia.stores.corpus import Corpus
    >>> from spolia.testing.hash_embedder import HashingTokens
    >>> LateInteraction(Corpus("notes.spolia").group(), HashingTokens(), top_k=5).short
    "LateInteraction(top_k=5, source='tokens')"
    """

    group: NodeGroup
    embedder: TokenEmbedder
    top_k: int = 10
    source: str = "tokens"
    filter: Filter | None = None

    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_embedder(self.embedder, "LateInteraction", TokenEmbedder)

    def hits(self, query: Query, snapshot: Snapshot, who: frozenset[str], wanted: Filter | None, /) -> tuple[Hit, ...]:
        from spolia.retrieval.token_index import embedded, token_index
        from spolia.stores.vectors.search import ordered_scores

        text, allowed = searched(query), snapshot.allowed(self.group.name, who, wanted)
        index = token_index(snapshot, self.group.name, self.embedder)
        asked = embedded(self.embedder, [text], is_query=True).row(0)
        if not len(asked):
            return ()
        positions = allowed.positions()
        scores = index.scores(asked, positions)
        return snapshot.hits(ordered_scores(allowed.keys[positions], scores, self.top_k, snapshot.ids), who)

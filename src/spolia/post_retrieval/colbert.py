"""Reranking by late interaction: the question's tokens each look for the nearest token of a passage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spolia.models.protocols import TokenEmbedder
from spolia.post_retrieval.judging import Judging


@dataclass(frozen=True)
class ColBERT(Judging):
    """Score each hit by late interaction of token vectors, made when it is asked.

    score(q, d) = Σ_i max_j q_i · d_j over the vectors of length 1 of the question's and the hit's tokens. There is no
    padding in it, so that a score does not depend on what else is judged.

    Args:
        embedder: gives a vector for each token.
        top_k: hits to return, at most.
        judged: hits that are judged, at most; the others are left out.
        strict: a model that fails is an error; else the hits keep their order, and that is recorded (`Judging`).

    Source: Khattab, Zaharia, "ColBERT: efficient and effective passage search via contextualized late interaction over
    BERT", SIGIR 2020.

    >>> from spolia.testing.hashing import HashingTokens
    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> found = Ranking(Query("red stones"), (Hit(Node("a", "a red sea"), 2.0), Hit(Node("b", "red stones"), 1.0)))
    >>> [(hit.node.id, round(hit.score, 6)) for hit in ColBERT(HashingTokens(256))(found)][0]
    ('b', 2.0)
    """

    embedder: TokenEmbedder
    top_k: int = 10
    judged: int = 100
    strict: bool = False

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        from spolia.models.token_vectors import max_sims

        asked = self.embedder.embed_tokens([question], kind="query").row(0)
        found: list[float] = max_sims(asked, self.embedder.embed_tokens(texts, kind="passage")).tolist()
        return found

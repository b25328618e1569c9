"""Reranking by a model that reads question and passage together."""

from collections.abc import Sequence
from dataclasses import dataclass

from spolia.models.protocols import Scorer, TokenEmbedder
from spolia.post_retrieval.model_reranker import Judging


@dataclass(frozen=True)
class CrossEncoder(Judging):
    """Score each hit by a `Scorer`: a cross-encoder on this machine, or a hosted reranker (`RerankModel`).

    score(q, d) = scorer(q, d), whatever its scale.

    Args:
        scorer: the model. All texts are given to it in one call.
        top_k, judged, strict: as for every `Judging`.

    Source: Nogueira, Cho, "Passage re-ranking with BERT", 2019.

    >>> from spolia import Hit, Node, Query, Ranking, RerankModel
    >>> from spolia.testing import OpenAIServer
    >>> found = Ranking(Query("red stones"), (Hit(Node("a", "a blue sea"), 2.0), Hit(Node("b", "red stones"), 1.0)))
    >>> with OpenAIServer() as server:
    ...     [(hit.node.id, hit.score) for hit in CrossEncoder(RerankModel("any", server.url))(found)]
    [('b', 1.0), ('a', 0.0)]
    """

    scorer: Scorer
    top_k: int = 10
    judged: int = 100
    strict: bool = False

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        return self.scorer.scores(question, texts)


SEPARATOR = " [SEP] "
"""Between instruction and question, as TART was trained."""


@dataclass(frozen=True)
class TART(Judging):
    """Score each hit by a cross-encoder that was trained to be told what is looked for.

    score(q, d) = scorer(instruction [SEP] q, d).

    Args:
        scorer: the model, as `facebook/tart-full-flan-t5-xl`. All texts are given to it in one call.
        instruction: what a passage is wanted for.
        top_k, judged, strict: as for every `Judging`.

    Source: Asai et al., "Task-aware retrieval with instructions", ACL Findings 2023.

    >>> from spolia import Hit, Node, Query, Ranking, RerankModel
    >>> from spolia.testing import OpenAIServer
    >>> found = Ranking(Query("stones"), (Hit(Node("a", "stones"), 2.0), Hit(Node("b", "red stones"), 1.0)))
    >>> with OpenAIServer() as server:
    ...     reranked = TART(RerankModel("any", server.url), instruction="Find red things.")(found)
    ...     server.requests[0].body["query"], [hit.node.id for hit in reranked]
    ('Find red things. [SEP] stones', ['b', 'a'])
    """

    scorer: Scorer
    instruction: str = "Find passages to answer the question."
    top_k: int = 10
    judged: int = 100
    strict: bool = False

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        return self.scorer.scores(f"{self.instruction}{SEPARATOR}{question}", texts)


@dataclass(frozen=True)
class ColBERT(Judging):
    """Score each hit by late interaction of token vectors, made when it is asked.

    score(q, d) = Σ_i max_j q_i · d_j over the vectors of length 1 of the question's and the hit's tokens. There is no
    padding in it, so that a score does not depend on what else is judged.

    Args:
        embedder: gives a vector for each token.
        top_k, judged, strict: as for every `Judging`.

    Source: Khattab, Zaharia, "ColBERT: efficient and effective passage search via contextualized late interaction over
    BERT", SIGIR 2020.

    >>> from spolia.testing.hash_embedder import HashingTokens
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
        from spolia.models.vectors import max_sims

        asked = self.embedder.embed_tokens([question], kind="query").row(0)
        found: list[float] = max_sims(asked, self.embedder.embed_tokens(texts, kind="passage")).tolist()
        return found

"""Advanced RAG: one step before retrieval and one after it."""

from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.generation.reader import Reader
from spolia.models.protocols import LanguageModel
from spolia.post_retrieval.rerankers import RankGPT
from spolia.pre_retrieval.rewrite import Rewrite
from spolia.types import Answer, Query


@published('Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), advanced RAG', "answered", "abstained", "cap", top_k=20)
def advanced(llm: LanguageModel, search: Retriever, top_k: int = 5) -> Operator[Query, Answer]:
    """Rewrite, retrieve, rerank, read."""
    return Rewrite(llm) >> search >> RankGPT(llm, top_k=top_k) >> Reader(llm, max_passages=top_k)

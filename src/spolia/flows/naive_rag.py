"""Baselines: read without retrieval, or retrieve once and read, from the first source, the second, or both."""

from spolia.core.combinators import Branch
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.generation.reader import ClosedBook, Reader
from spolia.models.protocols import LanguageModel
from spolia.orchestration.rank_fusion import EvenSplit
from spolia.types import Answer, Query

SOURCE = 'Zhao et al., "PrefRAG", 2025, baselines'


@published('Jeong et al., "Adaptive-RAG", NAACL 2024, strategy A', "answered", "abstained")
def closed_book(llm: LanguageModel) -> Operator[Query, Answer]:
    """Answer without retrieval, from the model's own knowledge."""
    return ClosedBook(llm)


@published('Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), naive RAG', "answered", "abstained", "cap")
def naive(llm: LanguageModel, search: Retriever, top_k: int = 5) -> Operator[Query, Answer]:
    """Read the passages of the first source."""
    return search >> Reader(llm, max_passages=top_k)


@published(SOURCE, "answered", "abstained", "cap")
def naive_web(llm: LanguageModel, web: Retriever, top_k: int = 5) -> Operator[Query, Answer]:
    """Read the passages of the second source."""
    return web >> Reader(llm, max_passages=top_k)


@published(SOURCE, "answered", "abstained", "cap")
def naive_both(llm: LanguageModel, search: Retriever, web: Retriever, top_k: int = 5) -> Operator[Query, Answer]:
    """Read the passages of both sources, as many of each."""
    return Branch(search, web, min_arms=1) >> EvenSplit(2 * top_k) >> Reader(llm, max_passages=2 * top_k)

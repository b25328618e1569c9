"""Read without retrieval, or retrieve once, then read: of one source, of the other, of both."""

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
    """Answer without retrieval: what a model knows by itself."""
    return ClosedBook(llm)


@published('Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), naive RAG', "answered", "abstained", "cap")
def naive(llm: LanguageModel, search: Retriever, top_k: int = 5) -> Operator[Query, Answer]:
    """Read what the first source finds."""
    return search >> Reader(llm, max_passages=top_k)


@published(SOURCE, "answered", "abstained", "cap")
def naive_web(llm: LanguageModel, web: Retriever, top_k: int = 5) -> Operator[Query, Answer]:
    """Read what the second source finds."""
    return web >> Reader(llm, max_passages=top_k)


@published(SOURCE, "answered", "abstained", "cap")
def naive_both(llm: LanguageModel, search: Retriever, web: Retriever, top_k: int = 5) -> Operator[Query, Answer]:
    """Read what both sources find, as much of each."""
    return Branch(search, web, min_arms=1) >> EvenSplit(2 * top_k) >> Reader(llm, max_passages=2 * top_k)

"""Rewrite, retrieve, read.

The rewriter is a prompt, the paper's variant with a frozen model; `spolia train rewriter` trains weights of words.
"""

from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.generation.reader import Reader
from spolia.models.protocols import LanguageModel
from spolia.pre_retrieval.rewrite import Rewrite
from spolia.types import Answer, Query


@published('Ma et al., "Query rewriting for retrieval-augmented LLMs", EMNLP 2023', "answered", "abstained", "cap")
def rrr(llm: LanguageModel, search: Retriever) -> Operator[Query, Answer]:
    return Rewrite(llm) >> search >> Reader(llm)

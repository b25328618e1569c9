"""Answer without retrieval: the baseline of what a model knows by itself."""

from spolia.core.operator import Operator
from spolia.flows.catalogue import published
from spolia.generation.reader import ClosedBook
from spolia.models.protocols import LanguageModel
from spolia.types import Answer, Query


@published('Jeong et al., "Adaptive-RAG", NAACL 2024, strategy A', "answered", "abstained")
def closed_book(llm: LanguageModel) -> Operator[Query, Answer]:
    return ClosedBook(llm)

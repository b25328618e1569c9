"""HyDE: search for an imagined answer instead of the question."""

from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.generation.reader import Reader
from spolia.models.protocols import LanguageModel
from spolia.pre_retrieval.hyde import HyDE
from spolia.types import Answer, Query


@published('Gao, Ma, Lin, Callan, "Precise zero-shot dense retrieval", ACL 2023', "answered", "abstained", "cap")
def hyde(llm: LanguageModel, search: Retriever) -> Operator[Query, Answer]:
    return HyDE(llm) >> search >> Reader(llm)

"""WikiChat: one answer from passages and from the model's own claims, of which only supported ones are kept.

Other than the paper: passages are read as they are, not summarised first, and the answer is not refined.
"""

from spolia.core.combinators import Branch
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.evidence import empty_ranking
from spolia.generation.reader import ClosedBook, Reader
from spolia.generation.verification import VerifyClaims
from spolia.models.protocols import LanguageModel
from spolia.orchestration.answer_fusion import LLMFusion
from spolia.types import Answer, Query


@step(calls={"answer": 1})
def drafted(query: Query, *, answer: Operator[Query, Answer]) -> Answer:
    """Draft an answer from the model alone, with the query kept for verification."""
    return answer(query).but(evidence=empty_ranking(query))


@published(
    'Semnani et al., "WikiChat: Stopping the hallucination of chatbots", Findings of EMNLP 2023',
    "answered",
    "abstained",
    "cap",
)
def wikichat(llm: LanguageModel, search: Retriever) -> Operator[Query, Answer]:
    """Fuse two arms: an answer from passages, and a verified draft."""
    verified = drafted.but(answer=ClosedBook(llm)) >> VerifyClaims(llm, search)
    return Branch(search >> Reader(llm), verified) >> LLMFusion(llm)

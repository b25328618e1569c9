"""REPLUG: one prompt for each passage; the answers are weighted by the scores of the passages."""

from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.generation.ensemble import AnswerEnsemble, TokenEnsemble
from spolia.models.protocols import ForetellsTokens, StatesLogprobs
from spolia.types import Answer, Query

SOURCE = 'Shi et al., "REPLUG: Retrieval-augmented black-box language models", NAACL 2024'


@published(SOURCE, "answered", "abstained", "cap", top_k=10)
def replug(llm: StatesLogprobs, search: Retriever) -> Operator[Query, Answer]:
    """Weigh whole answers: λ_d · exp(mean log-probability)."""
    return search >> AnswerEnsemble(llm)


@published(SOURCE, "answered", "abstained", "cap", top_k=10)
def replug_token(llm: ForetellsTokens, search: Retriever) -> Operator[Query, Answer]:
    """Weigh each next token: p(y_t) = Σ_d λ_d · p(y_t | d, q, y_<t)."""
    return search >> TokenEnsemble(llm)

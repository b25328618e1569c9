"""Adaptive-RAG: no retrieval, one retrieval, or several, by how complex the question is judged.

The model itself judges, where the paper trains a T5-large on which strategy answers; `spolia train router` trains a
classifier for `routed`.
"""

from spolia.core.combinators import Route
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.ircot import ircot
from spolia.generation.reader import ClosedBook, Reader
from spolia.models.protocols import LanguageModel
from spolia.orchestration.llm_router import ByLabel
from spolia.post_retrieval.selection import Cut
from spolia.types import Answer, Query

ARMS = (
    ("none", "a question that needs no document"),
    ("one", "a question that one document answers"),
    ("several", "a question whose answer is put together from several documents"),
)


def strategies(llm: LanguageModel, search: Retriever) -> dict[str, Operator[Query, Answer]]:
    """Build the ways to answer, the cheapest first."""
    return {
        "none": ClosedBook(llm),
        "one": search >> Reader(llm, max_passages=15),  # as many as `top_k` of the flow fetches
        "several": ircot(llm, search >> Cut(6)),  # IRCoT searches for 6 at a time (`ircot`); `search` gives 15
    }


def route_questions(llm: LanguageModel, search: Retriever, router: Operator[Query, str]) -> Operator[Query, Answer]:
    """Send each question to the strategy that a router names."""
    return Route(router, strategies(llm, search), "one")


@published(
    'Jeong et al., "Adaptive-RAG: Learning to adapt through question complexity", NAACL 2024',
    "answered",
    "abstained",
    "empty",
    "cap",
    top_k=15,
)
def adaptive_rag(llm: LanguageModel, search: Retriever) -> Operator[Query, Answer]:
    """Route by the model's own judgement; a question without a clear judgement is searched once."""
    return route_questions(llm, search, ByLabel(llm, ARMS, otherwise="one"))

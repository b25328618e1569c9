"""Adaptive-RAG: no retrieval, one, or several, as the question is judged to need.

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
    """Ways to answer, the cheapest first."""
    return {
        "none": ClosedBook(llm),
        "one": search >> Reader(llm, max_passages=15),
        "several": ircot(llm, search >> Cut(6)),
    }


def routed(llm: LanguageModel, search: Retriever, router: Operator[Query, str]) -> Operator[Query, Answer]:
    """Each question goes where a router sends it."""
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
    """A question that the model does not judge clearly is searched once."""
    return routed(llm, search, ByLabel(llm, ARMS, otherwise="one"))

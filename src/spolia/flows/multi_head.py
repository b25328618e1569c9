"""Multi-head RAG: the heads of a vector vote for passages, so that each aspect of a question finds its own."""

from spolia.core.operator import Operator
from spolia.flows.catalogue import published
from spolia.generation.reader import Reader
from spolia.models.protocols import Embedder, LanguageModel
from spolia.retrieval.multi_head import MultiHead
from spolia.stores.corpus import NodeGroup
from spolia.types import Answer, Query


@published('Besta et al., "Multi-head RAG", 2024', "answered", "abstained", "cap")
def multi_head(
    llm: LanguageModel, group: NodeGroup, embedder: Embedder, heads: int = 32, top_k: int = 5
) -> Operator[Query, Answer]:
    return MultiHead(group, embedder, heads, top_k=top_k) >> Reader(llm, max_passages=top_k)

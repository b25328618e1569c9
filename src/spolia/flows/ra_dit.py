"""RA-DIT at query time: a tuned reader answers from each passage alone, weighted by a tuned retriever.

What is trained, the reader's weights and the encoder of queries, is given as `llm` and in `search`.
"""

from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.generation.ensemble import AnswerEnsemble
from spolia.models.protocols import StatesLogprobs
from spolia.types import Answer, Query


@published('Lin et al., "RA-DIT", ICLR 2024', "answered", "abstained", "cap", top_k=10)
def ra_dit(llm: StatesLogprobs, search: Retriever) -> Operator[Query, Answer]:
    return search >> AnswerEnsemble(llm)

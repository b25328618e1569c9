"""Step-back prompting: search for the question and for the principle behind it."""

from spolia.core.combinators import Each
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.generation.reader import Reader
from spolia.models.protocols import LanguageModel
from spolia.orchestration.rank_fusion import ReciprocalRankFusion
from spolia.pre_retrieval.rewrite import StepBack
from spolia.types import Answer, Query


@published('Zheng et al., "Take a step back", ICLR 2024', "answered", "abstained", "cap")
def step_back(llm: LanguageModel, search: Retriever, top_k: int = 5) -> Operator[Query, Answer]:
    return StepBack(llm) >> Each(search) >> ReciprocalRankFusion(top_k=top_k) >> Reader(llm, max_passages=top_k)

"""ITER-RETGEN: search with the question and the last answer, then answer again.

The prompt has no examples. At most 1,000 characters of the last answer are searched for, none after an abstention.
"""

from dataclasses import dataclass

from spolia.core.combinators import Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.core.run_context import degrade
from spolia.errors import ModelRejected
from spolia.flows.catalogue import published
from spolia.generation.reader import Reader
from spolia.models.protocols import LanguageModel
from spolia.types import Answer, Query, Ranking, State

UNKNOWN = "I do not know."


@dataclass(frozen=True)
class LastAnswer(State):
    """A question with its last answer, and whether the model has replied at all."""

    query: Query
    answer: Answer | None = None
    has_replied: bool = False


@step
def begin(query: Query) -> LastAnswer:
    return LastAnswer(query, sample=query.sample)


@step(calls={"search": 1, "read": 1})
def iteration(
    state: LastAnswer, *, search: Retriever, read: Operator[Ranking, Answer], characters: int = 1000
) -> LastAnswer:
    """Search for the question joined with the last answer, and answer from these passages alone."""
    last_answer = state.answer.text[:characters] if state.answer and not state.answer.abstained else ""
    ranking = search(state.query.rewritten(f"{state.query.question} {last_answer}".strip()))
    try:
        return state.but(answer=read(ranking), has_replied=True)
    except ModelRejected as error:  # an empty reply: the question alone is searched for next
        degrade(str(error))
        return state.but(answer=Answer(UNKNOWN, stop_reason="abstained", evidence=ranking))


@step(calls={"search": 1, "read": 1})
def finish(state: LastAnswer, *, search: Retriever, read: Operator[Ranking, Answer]) -> Answer:
    """Return the last answer; without one, answer the question alone, or raise why the model gives no answer."""
    return state.answer if state.answer and state.has_replied else read(search(state.query))


@published('Shao et al., "Iterative retrieval-generation synergy", Findings of EMNLP 2023', "cap", "abstained")
def iter_retgen(llm: LanguageModel, search: Retriever, iterations: int = 3, top_k: int = 5) -> Operator[Query, Answer]:
    read = Reader(llm, prompt="brief", max_passages=top_k)
    loop = Loop(iteration.but(search=search, read=read), max_steps=iterations, answers=True)
    return begin >> loop >> finish.but(search=search, read=read)

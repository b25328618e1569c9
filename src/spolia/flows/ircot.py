"""IRCoT: each sentence of a chain of thought is the next query.

Other than the published code: the prompts have no examples; the reader states a short answer, where the code reads it
off a second chain of thought; passages are neither left out for their length nor as near-duplicates.
"""

import re
from dataclasses import dataclass

from spolia.core.combinators import Get, Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.core.sentences import sentences
from spolia.flows.catalogue import published
from spolia.flows.evidence import show_hits
from spolia.generation.reader import Reader
from spolia.models.prompting.role import Ask, Role
from spolia.models.protocols import LanguageModel
from spolia.pre_retrieval.query_llm import OneText
from spolia.types import Answer, Query, Ranking, State

THOUGHT = Role("spolia:flows/prompts/ircot_thought.txt", OneText(), default="none")
# the words that the published code removes (`remove_wh_words`)
_ASKING = re.compile(r"\b(?:who|what|when|where|why|which|how|does|is)\b", re.IGNORECASE)
_REASONING = re.compile(  # Conclusions and sums, which the published code does not search with either.
    r"(?:thus|so|therefore|hence)\b|that is,|(?>.*?\d\s*[-+*/]\s*\d)[^=]*=|因此|所以|따라서|그러므로", re.IGNORECASE
)
_ANSWERED = re.compile(r"answer is|答案[是为為]|정답은|답은", re.IGNORECASE)


@dataclass(frozen=True)
class Thoughts(State):
    """Retrieved passages, and the sentences of the chain of thought."""

    found: Ranking
    sentences: tuple[str, ...] = ()


@step
def words_to_find(query: Query) -> Query:
    """Remove the question words from the query."""
    return query.rewritten(" ".join(_ASKING.sub(" ", query.text).split()) or query.text)


@step
def begin(ranking: Ranking) -> Thoughts:
    return Thoughts(ranking, sample=ranking.query.sample)


@step(calls={"think": 1, "search": 1})
def think_on(state: Thoughts, *, think: Ask, search: Retriever, last: int = 10, max_passages: int = 15) -> Thoughts:
    """Write the next sentence; search with the last one that states a fact, unless it is the answer or the last."""
    query, so_far = state.found.query, " ".join(state.sentences)
    reply = think.reply(state.sample, question=query.question, thoughts=so_far, passages=show_hits(state.found))
    if not reply:
        return state.but(stop="empty")
    start, end = sentences(reply)[0]  # a model may write on, and one sentence is the next query
    state = state.but(sentences=(*state.sentences, reply[start:end]))
    if _ANSWERED.search(state.sentences[-1]):
        return state.but(stop="answered")
    if len(state.sentences) >= last:
        return state.but(stop="cap")
    # earlier ones too: the last may be a conclusion
    facts = [sentence for sentence in state.sentences if not _REASONING.match(sentence)]
    more = search(query.rewritten(facts[-1]) if facts else query)
    return state.but(found=state.found.extended(more).cut(max_passages))


@published(
    'Trivedi et al., "Interleaving retrieval with chain-of-thought reasoning", ACL 2023',
    "answered",
    "abstained",
    "empty",
    "cap",
    top_k=6,
)
def ircot(
    llm: LanguageModel, search: Retriever, max_sentences: int = 10, max_passages: int = 15
) -> Operator[Query, Answer]:
    think = Ask(llm, THOUGHT, max_tokens=100)
    body = think_on.but(think=think, search=search, last=max_sentences, max_passages=max_passages)
    read = Reader(llm, prompt="brief", max_passages=max_passages)
    return words_to_find >> search >> begin >> Loop(body, max_steps=max_sentences) >> Get("found") >> read

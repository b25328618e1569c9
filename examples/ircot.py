"""IRCoT: search with each sentence of a chain of thought, then read all that was found (Trivedi et al., ACL 2023)."""

import re
from dataclasses import dataclass

from spolia import Answer, Loop, Operator, Query, Ranking, Reader, Retriever, State, step
from spolia.core import Get
from spolia.models import Ask, LanguageModel, Role, Text

PROMPT = """Answer the question step by step, from the passages. You are shown your thoughts so far.
Write the next sentence of your thoughts, and nothing else. Once you know the answer, write: So the answer is: ...
{{passages}}
<question>{{question}}</question>
<thoughts>{{thoughts}}</thoughts>"""
THINK = Role(PROMPT, Text(), default="So the answer is not known.")
REASONING = re.compile(r"(thus|so|therefore|hence|that is,)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Thoughts(State):
    found: Ranking
    sentences: tuple[str, ...] = ()


@step
def write(state: Thoughts, *, think: Ask, search: Retriever) -> Thoughts:
    """Write the next sentence; search with the last one that states a fact, unless it is the answer."""
    query, thoughts = state.found.query, " ".join(state.sentences)
    said = think.reply(state.sample, question=query.question, thoughts=thoughts, passages=state.found.texts)
    state = state.but(sentences=(*state.sentences, re.split(r"(?<=[.!?])\s", said)[0]))
    if "answer is" in state.sentences[-1].lower():
        return state.but(stop="answered")
    facts = [sentence for sentence in state.sentences if not REASONING.match(sentence)]
    more = search(query.rewritten(facts[-1]) if facts else query)
    return state.but(found=state.found.extended(more).cut(15))


@step
def begin(found: Ranking) -> Thoughts:
    return Thoughts(found, sample=found.query.sample)


def ircot(llm: LanguageModel, search: Retriever, max_sentences: int = 10) -> Operator[Query, Answer]:
    body = write.but(think=Ask(llm, THINK, max_tokens=100), search=search)
    return search >> begin >> Loop(body, max_steps=max_sentences) >> Get("found") >> Reader(llm, max_passages=15)

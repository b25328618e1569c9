"""FLARE: write ahead, and search when a token is not certain.

As in the published code, the passages of the last search are read while writing ahead, where the paper reads none.
Other than the code: the prompt has no examples; a certain sentence is kept as it was written ahead, where the code
writes it again; if no token is certain enough to search with, the question itself is searched for, where the code does
not search.
"""

import re
from dataclasses import dataclass
from math import exp

from spolia.core.combinators import Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.core.sentences import sentences
from spolia.flows.catalogue import published
from spolia.flows.evidence import cite_reply, show_hits
from spolia.generation.prompt import Generate
from spolia.models.parsers import Text
from spolia.models.prompting.role import Role
from spolia.models.protocols import StatesLogprobs
from spolia.types import Answer, Generation, Prompt, Query, Ranking, State, Token

GO_ON = Role("spolia:flows/prompts/flare_go_on.txt", Text())


@dataclass(frozen=True)
class Writing(State):
    """The answer so far, and the passages of the last search."""

    found: Ranking
    text: str = ""
    tokens: int = 0


@step
def begin(ranking: Ranking) -> Writing:
    return Writing(ranking, sample=ranking.query.sample)


@step(calls={"generate": 2, "search": 1})
def write(
    state: Writing,
    *,
    generate: Operator[Prompt, Generation],
    search: Retriever,
    role: Role[str] = GO_ON,
    certain: float = 0.8,
    shown_from: float = 0.4,
    max_tokens: int = 128,
) -> Writing:
    """Write a sentence; if a token has p ≤ `certain`, search with those above `shown_from` and write it again."""
    ahead = first_sentence(generate(build_prompt(state, role)))
    if ahead and any(exp(token.logprob) <= certain for token in ahead):
        query = state.found.query
        certain_text = "".join(token.text for token in ahead if exp(token.logprob) > shown_from).strip()
        state = state.but(found=search(query.rewritten(certain_text or query.question)))
        ahead = first_sentence(generate(build_prompt(state, role)))
    text = "".join(token.text for token in ahead)
    if not text.strip() or text.strip() in state.text:  # a model that repeats itself has nothing more to say
        return state.but(stop="answered" if state.text else "empty")
    state = state.but(text=f"{state.text} {text.strip()}".strip(), tokens=state.tokens + len(ahead))
    return state.but(stop="cap") if state.tokens >= max_tokens else state


def build_prompt(state: Writing, role: Role[str]) -> Prompt:
    places = {"question": state.found.query.question, "text": state.text, "passages": show_hits(state.found)}
    return role.prompt_for(places, sample=state.sample)


def first_sentence(generation: Generation) -> tuple[Token, ...]:
    """Return the tokens of the first sentence with a word; none if the reply says that the answer is complete."""
    text = "".join(token.text for token in generation.tokens)
    if not text.strip() or text.strip().upper().startswith("[END]"):
        return ()
    start, end = next(((start, end) for start, end in sentences(text) if _WORD.search(text, start, end)), (0, 0))
    offset, tokens = 0, list[Token]()
    for token in generation.tokens:
        if start < offset + len(token.text) and offset < end:
            tokens.append(token)
        offset += len(token.text)
    return tuple(tokens)


_WORD = re.compile(r"\w")
_CONCLUDED = re.compile(r"(?:answer is|答案[是为為]|정답은|답은)\s*[:：]?\s*(.+?)[.。]?\s*$", re.IGNORECASE)


@step
def finish(state: Writing) -> Answer:
    """Return the text, or the answer alone where the text states it."""
    concluded = _CONCLUDED.search(state.text)
    return cite_reply(concluded[1] if concluded else state.text or "I do not know.", state.found)


@published(
    'Jiang et al., "Active retrieval augmented generation", EMNLP 2023, FLARE direct',
    "answered",
    "abstained",
    "cap",
    top_k=2,
)
def flare(
    llm: StatesLogprobs, search: Retriever, certain: float = 0.8, max_tokens: int = 128
) -> Operator[Query, Answer]:
    generate = Generate(llm, max_tokens=64, logprobs=True)
    body = write.but(generate=generate, search=search, certain=certain, max_tokens=max_tokens)
    # A turn writes a token at least, so that `write` ends it first.
    return search >> begin >> Loop(body, max_steps=max_tokens) >> finish

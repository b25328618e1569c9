"""Self-RAG, short form: retrieve where the model wants to, answer from each passage, keep the answer it judges best.

A model that was trained to writes its judgements as tokens (`[Relevant]`, `[Fully supported]`, `[Utility:5]`). Servers
state the probabilities of the next token only, so each judgement is a call of its own.
"""

from collections.abc import Mapping
from math import exp, fsum
from typing import Any, Protocol

from spolia.core.combinators import Route
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.core.validation import capable
from spolia.flows.catalogue import published
from spolia.flows.evidence import citing, nothing
from spolia.generation.prompt import Generate, number_passages
from spolia.models.parsers import Text, strip_tokens
from spolia.models.prompting.likelihood import FirstTokens
from spolia.models.prompting.role import Role, continue_prompt
from spolia.models.prompting.template import Setting
from spolia.models.protocols import CHAT, LOGPROBS, NEXT_TOKENS, ForetellsTokens, StatesLogprobs
from spolia.orchestration.arm_choice import Exceeds
from spolia.orchestration.llm_router import ByNextToken
from spolia.types import Answer, Generation, Prompt, Query, Ranking, Token

READ = Role("spolia:flows/prompts/self_rag_read.txt", Text())
RECALL = Role("spolia:flows/prompts/self_rag_recall.txt", Text())
RIGHT = Setting("[Relevant]")
RELEVANT = {"[Relevant]": 1.0, "[Irrelevant]": 0.0}
SUPPORTED = {"[Fully supported]": 1.0, "[Partially supported]": 0.5, "[No support / Contradictory]": 0.0}
USEFUL = {"[Utility:1]": -1.0, "[Utility:2]": -0.5, "[Utility:3]": 0.0, "[Utility:4]": 0.5, "[Utility:5]": 1.0}
WORTH = (("retrieve", ("[Retrieval]",)), ("recall", ("[No Retrieval]",)))
TOKENS = tuple(token.strip("[]") for token in (*RELEVANT, *SUPPORTED, *USEFUL, "[Retrieval]", "[No Retrieval]"))
Judge = Operator[Prompt, tuple[Token, ...]]


PASSAGES = 10


@step(calls={"generate": PASSAGES, "judge": 3 * PASSAGES})
def read_each(
    found: Ranking,
    *,
    generate: Operator[Prompt, Generation],
    judge: Judge,
    weights: tuple[float, float, float] = (1.0, 1.0, 0.5),
) -> Answer:
    """The answer whose passage, text and judgements score best: exp(mean ln p) + Σ_j w_j · Σ_t value(t) · P_j(t)."""
    if not found.hits:
        return recalled(found.query, generate)
    best, score = Answer("I do not know.", stop_reason="abstained", evidence=found), float("-inf")
    for number, passage in enumerate(number_passages(found.cut(PASSAGES), 8000)):
        asked = READ.prompt_for({"question": found.query.question, "passages": (passage,)}, sample=found.query.sample)
        relevant = expected(judge(asked), RELEVANT)
        reply = generate(continue_prompt(asked, RIGHT))
        said = strip_tokens(reply.text, TOKENS)
        supported = expected(judge(continue_prompt(asked, RIGHT, said)), SUPPORTED)
        useful = expected(judge(continue_prompt(asked, RIGHT, said, Setting("[Fully supported]"))), USEFUL)
        sure = exp(fsum(token.logprob for token in reply.tokens) / max(1, len(reply.tokens)))
        worth = sure + fsum(w * j for w, j in zip(weights, (relevant, supported, useful), strict=True))
        if said and worth > score:
            best, score = citing(f"{said} [{number + 1}]", found), worth
    return best


@step(calls={"generate": 1})
def recall(query: Query, *, generate: Operator[Prompt, Generation]) -> Answer:
    """The answer without any passage."""
    return recalled(query, generate)


def recalled(query: Query, generate: Operator[Prompt, Generation]) -> Answer:
    reply = generate(RECALL.prompt_for({"question": query.question}, sample=query.sample))
    return citing(strip_tokens(reply.text, TOKENS) or "I do not know.", nothing(query))


def expected(tokens: tuple[Token, ...], values: Mapping[str, float]) -> float:
    """Σ value(t) · P(t) over the tokens of one group, whose probabilities sum to 1; 0 where none of them is likely."""
    known = {_plain(token): value for token, value in values.items()}
    mass: dict[str, float] = {}
    for token in tokens:
        plain = _plain(token.text)
        named = [one for one in known if plain and one.startswith(plain)]
        if len(named) == 1:
            mass[named[0]] = mass.get(named[0], 0.0) + exp(token.logprob)
    whole = fsum(mass.values())
    return fsum(known[one] * found for one, found in mass.items()) / whole if whole else 0.0


def _plain(token: str) -> str:
    return "".join(letter for letter in token.casefold() if letter.isalnum())


@capable(CHAT, LOGPROBS, NEXT_TOKENS)
class StatesProbabilities(StatesLogprobs, ForetellsTokens, Protocol):
    """A model that states the probabilities of its reply, to weigh answers, and of next tokens, to judge them."""


@published('Asai et al., "Self-RAG", ICLR 2024, short form', "answered", "abstained")
def self_rag(llm: StatesProbabilities, search: Retriever, threshold: float = 0.2) -> Operator[Query, Answer]:
    """Retrieve where P(Retrieval) among the two tokens exceeds a threshold."""
    generate: Any = Generate(llm, max_tokens=100, logprobs=True)
    reading = search >> read_each.but(generate=generate, judge=FirstTokens(llm))
    arms = {"retrieve": reading, "recall": recall.but(generate=generate)}
    return Route(ByNextToken(llm, WORTH) >> Exceeds("retrieve", "recall", threshold), arms, "recall")

"""Self-RAG, short form: retrieve if the model wants to, answer from each passage, keep the answer it judges best.

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
from spolia.flows.evidence import cite_reply, empty_ranking
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
    ranking: Ranking,
    *,
    generate: Operator[Prompt, Generation],
    judge: Judge,
    weights: tuple[float, float, float] = (1.0, 1.0, 0.5),
) -> Answer:
    """Return the answer that scores best with its passage: exp(mean ln p) + Σ_j w_j · Σ_t value(t) · P_j(t)."""
    if not ranking.hits:
        return answer_without_passages(ranking.query, generate)
    best, score = Answer("I do not know.", stop_reason="abstained", evidence=ranking), float("-inf")
    # each costs four calls, as declared above
    for number, passage in enumerate(number_passages(ranking.cut(PASSAGES), 8000)):
        prompt = READ.prompt_for(
            {"question": ranking.query.question, "passages": (passage,)}, sample=ranking.query.sample
        )
        relevant = expected_value(judge(prompt), RELEVANT)
        reply = generate(continue_prompt(prompt, RIGHT))
        text = strip_tokens(reply.text, TOKENS)
        supported = expected_value(judge(continue_prompt(prompt, RIGHT, text)), SUPPORTED)
        useful = expected_value(judge(continue_prompt(prompt, RIGHT, text, Setting("[Fully supported]"))), USEFUL)
        confidence = exp(fsum(token.logprob for token in reply.tokens) / max(1, len(reply.tokens)))
        worth = confidence + fsum(w * j for w, j in zip(weights, (relevant, supported, useful), strict=True))
        if text and worth > score:
            best, score = cite_reply(f"{text} [{number + 1}]", ranking), worth
    return best


@step(calls={"generate": 1})
def recall(query: Query, *, generate: Operator[Prompt, Generation]) -> Answer:
    """Answer without a passage."""
    return answer_without_passages(query, generate)


def answer_without_passages(query: Query, generate: Operator[Prompt, Generation]) -> Answer:
    reply = generate(RECALL.prompt_for({"question": query.question}, sample=query.sample))
    return cite_reply(strip_tokens(reply.text, TOKENS) or "I do not know.", empty_ranking(query))


def expected_value(tokens: tuple[Token, ...], values: Mapping[str, float]) -> float:
    """Return Σ value(t) · P(t) over the tokens of a group, whose probabilities sum to 1; 0 if none is likely."""
    plain_values = {_normalize_token(token): value for token, value in values.items()}
    mass: dict[str, float] = {}
    for token in tokens:
        plain = _normalize_token(token.text)
        # Models cut a label into several tokens, of which this is the first.
        matches = [label for label in plain_values if plain and label.startswith(plain)]
        if len(matches) == 1:  # a token that begins several labels speaks for none
            mass[matches[0]] = mass.get(matches[0], 0.0) + exp(token.logprob)
    total = fsum(mass.values())
    return fsum(plain_values[label] * probability for label, probability in mass.items()) / total if total else 0.0


def _normalize_token(token: str) -> str:
    return "".join(letter for letter in token.casefold() if letter.isalnum())


@capable(CHAT, LOGPROBS, NEXT_TOKENS)
class StatesProbabilities(StatesLogprobs, ForetellsTokens, Protocol):
    """A model that states the probabilities of its reply, to weigh answers, and of next tokens, to judge them."""


@published('Asai et al., "Self-RAG", ICLR 2024, short form', "answered", "abstained")
def self_rag(llm: StatesProbabilities, search: Retriever, threshold: float = 0.2) -> Operator[Query, Answer]:
    """Retrieve if P(Retrieval) among the two tokens exceeds a threshold."""
    generate: Any = Generate(llm, max_tokens=100, logprobs=True)
    reading = search >> read_each.but(generate=generate, judge=FirstTokens(llm))
    arms = {"retrieve": reading, "recall": recall.but(generate=generate)}
    return Route(ByNextToken(llm, WORTH) >> Exceeds("retrieve", "recall", threshold), arms, "recall")

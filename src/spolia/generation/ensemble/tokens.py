"""REPLUG at the level of tokens: all passages together choose each next word."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from spolia.errors import ModelRejected, ModelUnavailable
from spolia.generation.ensemble.answers import refuse_no_temperature
from spolia.generation.ensemble.weights import weights
from spolia.generation.passages import cited
from spolia.generation.reader import Reader
from spolia.models.delimiters import without_marks
from spolia.models.parsers.markers import Markers
from spolia.models.prompted import Prompted
from spolia.models.protocols import NEXT_TOKENS, ForetellsTokens, LanguageModel
from spolia.operator import Operator
from spolia.surrounding import degrade, emit, gather
from spolia.types import Answer, Failure, Message, Prompt, Ranking, Token
from spolia.wiring import refuse_counts

ENDS = ("\n", "</s>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<eos>", "<|end_of_text|>")
"""Tokens that end a reply, as models write them."""


@dataclass(frozen=True)
class TokenEnsemble(Prompted, Operator[Ranking, Answer]):
    """Write an answer token by token, each the likeliest of a mixture: p(y_t) = Σ_d λ_d · p(y_t | d, q, y_<t).

    λ = softmax(s / τ) over the scores of the passages, each of which has a prompt of its own. Of each, the `top` most
    probable next tokens are known; what is not among them counts 0. Of equal tokens the first in the order of the
    alphabet. A passage whose call fails is left out from there on, and the weights of the others sum to 1 again; one
    has to be left, and the result is degraded. The answer cites all passages, since each word rests on all.

    What is written so far stands as the assistant's message at the end of the prompt, so the model has to continue
    that: `CompletionModel` does, and local models; most chat servers begin anew.

    Args:
        llm: a model with the capability `next_tokens`.
        prompt: name of a shipped prompt file, or path of one, as for `Reader`.
        max_passages: the best so many are read; each costs a call for every token.
        temperature: τ of the softmax over scores.
        top: next tokens that are asked for.
        max_tokens: longest reply.
        stop: tokens that end the reply, or begin with its end.
        max_characters: of a passage.
        abstention: as for `Reader`.

    Raises:
        ModelUnavailable: when no passage could be asked about, as the first error.
        ModelRejected: likewise; also where the model foretells nothing.

    Source: Shi et al., "REPLUG: Retrieval-augmented black-box language models", NAACL 2024.

    >>> from spolia.models.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, Served
    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("Who?"), tuple(Hit(Node(id, f"It was {id}."), 1.0) for id in ("Nokia", "Sony")))
    >>> with OpenAIServer(Served("Nokia Sony", logprob=-0.5)) as server:  # the likeliest next token is the first
    ...     TokenEnsemble(CompletionModel("any", server.url), max_tokens=1)(found).text
    'Nokia'
    """

    llm: LanguageModel
    prompt: str = "brief"
    max_passages: int = 10
    temperature: float = 1.0
    top: int = 20
    max_tokens: int = 64
    stop: tuple[str, ...] = ENDS
    max_characters: int = 20_000
    abstention: str = "I do not know."

    version: ClassVar[int] = 2
    cached: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((NEXT_TOKENS,))}

    prompt_file = Reader.prompt_file

    def __post_init__(self) -> None:
        refuse_counts(self, "max_passages", "top", "max_tokens", "max_characters")
        refuse_no_temperature(self, self.temperature)

    def apply(self, value: Ranking, /) -> Answer:
        best = value.cut(self.max_passages)
        text, whole = self._written(best) if best.hits else ("", True)
        markers = Markers(0)  # in each prompt its passage is number 1, so numbers mean nothing
        said = markers.feed(text) + markers.end()
        emit(said or self.abstention)
        if not said or said.startswith(self.abstention):
            return Answer(said or self.abstention, (), "abstained", best)
        citations = tuple(
            cited(number, node) for number, hit in enumerate(best.hits, 1) for node in hit.found or (hit.node,)
        )
        return Answer(said, citations, "answered" if whole else "cap", best)

    def reads(self, value: Ranking, /) -> object:
        best = value.cut(self.max_passages)
        return (best.hits, [prompt.messages for prompt in self._prompts(best)])

    def attach(self, out: Any, value: Any, /) -> Any:
        return out.but(evidence=value.cut(self.max_passages))

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.max_passages * self.max_tokens

    def _prompts(self, best: Ranking) -> list[Prompt]:
        reader = Reader(self.llm, self.prompt, 1, self.max_characters, abstention=self.abstention)
        return [reader.prompted(best.but(hits=(hit,))) for hit in best.hits]

    def _written(self, best: Ranking) -> tuple[str, bool]:
        """The reply, and whether it came to its end."""
        prompts = [(hit.score, prompt) for hit, prompt in zip(best.hits, self._prompts(best), strict=True)]
        text = ""
        for _ in range(self.max_tokens):
            told = self._told([prompt for _, prompt in prompts], text)
            prompts = [one for one, foretold in zip(prompts, told, strict=True) if foretold is not None]
            known = [foretold for foretold in told if foretold is not None]
            token = likeliest(known, weights([score for score, _ in prompts], self.temperature))
            if not token or token.lstrip(" ").startswith(self.stop):
                return text, True
            text += token
        return text, False

    def _told(self, prompts: Sequence[Prompt], text: str) -> list[tuple[Token, ...] | None]:
        """The next tokens after each prompt; None for one that is left out."""
        found = gather([partial(self._next, prompt, text) for prompt in prompts])
        failures = [one for one in found if isinstance(one, Failure)]
        for one in failures:
            if len(failures) == len(found) or not isinstance(one.error, (ModelUnavailable, ModelRejected)):
                raise one.raised()
            degrade(f"A passage could not be asked about and is left out: {one.message}")
        return [None if isinstance(one, Failure) else one for one in found]

    def _next(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        if not isinstance(self.llm, ForetellsTokens) or NEXT_TOKENS not in self.llm.capabilities:
            raise ModelRejected(f"{self.llm.name} has no {NEXT_TOKENS!r}. Write a model that has, as CompletionModel.")
        written = Message("assistant", without_marks(text))
        told = self.llm.next_tokens(prompt.but(messages=(*prompt.messages, written)), top=self.top)
        known = tuple(token for token in told if token.logprob <= 0)  # NaN is not
        if not known:
            raise ModelRejected(f"{self.llm.name} foretells no token with a log-probability. Ask another model.")
        return known


def likeliest(told: Sequence[Sequence[Token]], shares: Sequence[float]) -> str:
    """The token with the highest mixed probability.

    >>> one = (Token("a", math.log(0.6)), Token("b", math.log(0.4)))
    >>> other = (Token("b", math.log(0.9)), Token("a", math.log(0.1)))
    >>> likeliest([one, other], [0.5, 0.5]), likeliest([one, other], [0.9, 0.1])
    ('b', 'a')
    """
    mixed: dict[str, float] = {}
    for tokens, share in zip(told, shares, strict=True):
        for token in tokens:
            mixed[token.text] = mixed.get(token.text, 0.0) + share * math.exp(token.logprob)
    return min(mixed, key=lambda text: (-mixed[text], text))

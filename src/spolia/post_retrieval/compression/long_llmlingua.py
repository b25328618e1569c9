"""LongLLMLingua: what tells little about the question is left out, hit by hit and token by token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.errors import WiringError
from spolia.models.likelihood import Continuation, surprises
from spolia.models.protocols import SCORES, LanguageModel
from spolia.operator import Operator
from spolia.post_retrieval.compression.budget import telling
from spolia.post_retrieval.selection.kept import ALMOST
from spolia.post_retrieval.shown import showing
from spolia.types import Hit, Ranking
from spolia.wiring import refuse_counts

RESTRICTED = "We can get the answer to this question in the given text."
"""What is put after the question when it is scored: without it, a text that merely resembles it would score as high."""


@dataclass(frozen=True)
class LongLLMLingua(Operator[Ranking, Ranking]):
    """Keep the tokens that tell most about the question, more of the better hits, within one budget for all of them.

    Three steps, with a small language model:

    1. r_k = mean_t ln p(q_t | hit k, q_<t) over the question and a fixed sentence after it. The hits are put in the
       order of r, best first, which is their new score.
    2. Hit k of K gets the rate τ_k = τ + δ (1 - 2 (k - 1) / K), within 0 and 1, τ = `target_tokens` / all tokens; best
       first, as long as the budget lasts.
    3. A token weighs ln p(x_t | q, x_<t) - ln p(x_t | x_<t): how much more likely the question makes it. The heaviest
       ⌊τ_k n_k⌋ stay, in their order, of equal ones the first.

    At least one token is left of some hits. Citations point to the hits as they were, so that nothing has to be
    recovered from the reply.

    Args:
        llm: a model with the capability `scores`.
        target_tokens: of that model, for all hits together.
        spread: δ, how much more the best hit keeps than the middle one.
        characters: of a hit that are read, at most; the rest of it is left out.

    Raises:
        ModelRejected: the model states no log-probabilities of given texts.
        ModelUnavailable: the server cannot be reached.

    Source: Jiang et al., "LongLLMLingua: Accelerating and enhancing LLMs in long context scenarios via prompt
    compression", ACL 2024. The weight there is a difference of perplexities; that of their logarithms has no overflow.

    >>> from spolia.models.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, Served
    >>> from spolia.types import Node, Query
    >>> found = Ranking(Query("Who?"), (Hit(Node("a", "Nokia employed Olsen in Salo"), 1.0),))
    >>> with OpenAIServer(Served(logprob=-0.5)) as server:  # which finds nothing more likely after the question
    ...     LongLLMLingua(CompletionModel("any", server.url), target_tokens=3)(found).nodes[0].text
    'Nokia employed Olsen'
    """

    llm: LanguageModel
    target_tokens: int = 300
    spread: float = 0.3
    characters: int = 4_000

    version: ClassVar[int] = 2
    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((SCORES,))}

    def __post_init__(self) -> None:
        refuse_counts(self, "target_tokens", "characters")
        if not 0 <= self.spread <= 1:
            raise WiringError(f"{self.short}: spread is {self.spread}. Write a number from 0 to 1.")

    def apply(self, value: Ranking, /) -> Ranking:
        legible = [hit for hit in value.hits if hit.node.text[: self.characters].strip()]
        hits = self._ordered(legible, value.query.question)
        if not hits:
            return value
        texts = [hit.node.text[: self.characters] for hit in hits]
        alone = surprises(self.llm, [Continuation.of(text) for text in texts])
        asked = surprises(self.llm, [Continuation.of(text, value.query.question) for text in texts])
        counts = shares([len(told) for told in alone], self.target_tokens, self.spread)
        found: list[Hit] = []
        for hit, text, before, after, count in zip(hits, texts, alone, asked, counts, strict=True):
            told = {one.start: one.nats for one in after}  # where a question changes how the first word is cut
            weights = [one.nats - told.get(one.start, one.nats) for one in before]
            if kept := telling(text, before, weights, count).strip():
                found.append(hit if kept == hit.node.text.strip() else showing(hit, kept))
        return value.but(hits=tuple(found))

    def calls(self, rows: int | None = None, /) -> int | None:
        return None

    def _ordered(self, hits: Sequence[Hit], question: str) -> list[Hit]:
        said = f"{question} {RESTRICTED}"
        found = surprises(self.llm, [Continuation.of(said, hit.node.text[: self.characters]) for hit in hits])
        scores = [-math.fsum(one.nats for one in told) / max(1, len(told)) for told in found]
        scored = [hit.but(score=score) for hit, score in zip(hits, scores, strict=True)]
        return sorted(scored, key=lambda hit: -hit.score)


def shares(lengths: Sequence[int], target: int, spread: float) -> list[int]:
    """How many tokens of each text stay, best text first: never more than `target` in all, one at least of the first.

    >>> shares([100, 100, 100], 150, 0.3)  # rates 0.5 + 0.3, 0.5 + 0.1, 0.5 - 0.1, until 150 are spent
    [80, 60, 10]
    """
    rate, room = target / max(1, sum(lengths)), target
    found: list[int] = []
    for place, length in enumerate(lengths):
        own = min(1.0, max(0.0, rate + spread * (1 - 2 * place / len(lengths)))) if rate < 1 else 1.0
        count = min(room, max(0 if found else 1, math.floor(own * length + ALMOST)))
        found.append(count)
        room -= count
    return found

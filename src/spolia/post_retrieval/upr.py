"""Reranking by how likely the question is after the passage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.models.protocols import SCORES, LanguageModel, ScoresContinuations
from spolia.post_retrieval.asked_of_each import AskedOfEach, able
from spolia.types import Prompt, Token


@dataclass(frozen=True)
class UPR(AskedOfEach):
    """Score each hit by the likelihood that a language model asks the question when it is shown the hit.

    score(q, d) = Σ_t ln p(q_t | q_<t, d, instruction) over the tokens of the question; at most 0. It needs no training.
    Where a token has a log-probability that is NaN or above 0, there is no score.

    Args:
        llm: a model with the capability `scores`.
        top_k: hits to return, at most.
        judged: hits that are judged, at most, each with a call; the others are left out.
        prompt: file with the place `{{passage}}`; the question is what follows it.
        characters: of a hit that the model is shown, at most.
        strict: a model that fails is an error; else the hits keep their order, and that is recorded (`Judging`).

    Source: Sachan et al., "Improving passage retrieval with zero-shot question generation", EMNLP 2022.

    >>> from spolia.models.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, Served
    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> found = Ranking(Query("Who employed Olsen?"), (Hit(Node("a", "Nokia employed Olsen."), 1.0),))
    >>> with OpenAIServer(Served(logprob=-0.1)) as server:
    ...     (hit,) = UPR(CompletionModel("any", server.url))(found).hits
    >>> round(hit.score, 6)  # here each character of the question costs 0.1, and so does the blank before it
    -2.0
    """

    llm: LanguageModel
    top_k: int = 10
    judged: int = 20
    prompt: str = "spolia:post_retrieval/prompts/question_likelihood.txt"
    characters: int = 4_000
    strict: bool = False

    version: ClassVar[int] = 2
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((SCORES,))}

    def score(self, prompt: Prompt, question: str, /) -> float:
        tokens: Sequence[Token] = able(self.llm, ScoresContinuations, SCORES).continuation(prompt, f" {question}")
        return math.fsum(token.logprob if token.logprob <= 0 else math.nan for token in tokens)

"""Reranking by the next word of a language model: is this passage relevant, true or false?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.models.prompting.likelihood import Continuation, FirstTokens, Likelihood
from spolia.models.protocols import ForetellsTokens, ScoresContinuations
from spolia.post_retrieval.model_reranker import AskedOfEach
from spolia.types import Failure, Prompt, Token


@dataclass(frozen=True)
class MonoT5(AskedOfEach):
    """Score each hit by the probability that a language model goes on with one word and not the other.

    score(q, d) = p(true) / (p(true) + p(false)), the softmax over the two words as first token of the reply. A word
    that is not among the `top` most probable tokens counts as the least of these; where both are not, there is no
    score, and neither where a word has a log-probability that is NaN or above 0. Case and blanks around a token do not
    matter.

    The shipped prompt is for models that follow instructions. Those that were trained as rerankers want what they were
    trained with: monoT5 `prompt="spolia:post_retrieval/prompts/mono_t5.txt"` and, since it reads 512 tokens,
    `characters=1500`; others `relevant="yes", irrelevant="no"`.

    Args:
        llm: a model with the capability `next_tokens`.
        prompt: file with the places `{{question}}` and `{{passage}}`.
        relevant: the word for relevant; its first token is looked for.
        irrelevant: the word for irrelevant.
        top: tokens that are asked for.
        characters: of a hit that the model is shown, at most.
        top_k, judged, strict: as for every `Judging`.

    Source: Nogueira, Jiang, Pradeep, Lin, "Document ranking with a pretrained sequence-to-sequence model", 2020.

    >>> from spolia.models.http.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, ServedReply
    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> found = Ranking(Query("Who employed Olsen?"), (Hit(Node("a", "Nokia employed Olsen."), 1.0),))
    >>> with OpenAIServer(ServedReply("true false", logprob=-0.5)) as server:
    ...     (hit,) = MonoT5(CompletionModel("any", server.url))(found).hits
    >>> round(hit.score, 3)  # of log-probabilities -0.5 and -1.0
    0.622
    """

    llm: ForetellsTokens
    top_k: int = 10
    judged: int = 20
    prompt: str = "spolia:post_retrieval/prompts/relevance.txt"
    relevant: str = "true"
    irrelevant: str = "false"
    top: int = 20
    characters: int = 4_000
    strict: bool = False

    version: ClassVar[int] = 2
    prompts: ClassVar[tuple[str, ...]] = ("post_retrieval/relevance", "post_retrieval/mono_t5")

    places: ClassVar[tuple[str, ...]] = ("question", "passage")

    def told(self, prompts: Sequence[Prompt], question: str, /) -> Sequence[tuple[Token, ...] | Failure]:
        return FirstTokens(self.llm, top=self.top).batch(prompts)

    def score(self, tokens: tuple[Token, ...], /) -> float:
        relevant, irrelevant = (_logprob(tokens, word) for word in (self.relevant, self.irrelevant))
        if relevant is None and irrelevant is None:
            return math.nan
        least = min(token.logprob for token in tokens)
        return _share(least if relevant is None else relevant, least if irrelevant is None else irrelevant)


def _logprob(tokens: Sequence[Token], word: str) -> float | None:
    """Log-probability of a word in all its spellings; None where it is not among the tokens, NaN where one has none.

    >>> tokens = (Token(" True", math.log(0.5)), Token("true", math.log(0.25)), Token("t", -3.0))
    >>> round(math.exp(_logprob(tokens, "true")), 6), _logprob(tokens, "false")
    (0.75, None)
    """
    found = [token.logprob for token in tokens if token.text.strip(" \t\n▁Ġ").lower() == word.lower()]
    if not all(logprob <= 0 for logprob in found):
        return math.nan
    return math.log(math.fsum(map(math.exp, found))) if found and max(found) > -700 else max(found, default=None)


def _share(one: float, other: float) -> float:
    """exp(one) / (exp(one) + exp(other)), however small both are."""
    apart = one - other
    return 0.0 if apart < -700 else 1 / (1 + math.exp(-apart))


@dataclass(frozen=True)
class UPR(AskedOfEach):
    """Score each hit by the likelihood that a language model asks the question when it is shown the hit.

    score(q, d) = Σ_t ln p(q_t | q_<t, d, instruction) over the tokens of the question; at most 0. It needs no training.
    Where a token has a log-probability that is NaN or above 0, there is no score.

    Args:
        llm: a model with the capability `scores`.
        prompt: file with the place `{{passage}}`; the question is what follows it.
        characters: of a hit that the model is shown, at most.
        top_k, judged, strict: as for every `Judging`.

    Source: Sachan et al., "Improving passage retrieval with zero-shot question generation", EMNLP 2022.

    >>> from spolia.models.http.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, ServedReply
    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> found = Ranking(Query("Who employed Olsen?"), (Hit(Node("a", "Nokia employed Olsen."), 1.0),))
    >>> with OpenAIServer(ServedReply(logprob=-0.1)) as server:
    ...     (hit,) = UPR(CompletionModel("any", server.url))(found).hits
    >>> round(hit.score, 6)  # here each character of the question costs 0.1, and so does the blank before it
    -2.0
    """

    llm: ScoresContinuations
    top_k: int = 10
    judged: int = 20
    prompt: str = "spolia:post_retrieval/prompts/question_likelihood.txt"
    characters: int = 4_000
    strict: bool = False

    version: ClassVar[int] = 2

    def told(self, prompts: Sequence[Prompt], question: str, /) -> Sequence[tuple[Token, ...] | Failure]:
        return Likelihood(self.llm).batch([Continuation(prompt, f" {question}") for prompt in prompts])

    def score(self, tokens: tuple[Token, ...], /) -> float:
        return math.fsum(token.logprob if token.logprob <= 0 else math.nan for token in tokens)

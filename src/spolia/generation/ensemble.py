"""Answers that rest on each passage by the weight of its score (REPLUG)."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from spolia.core.operator import Operator
from spolia.core.run_context import emit, gather, note
from spolia.core.type_compatibility import refuse_counts, refuse_numbers
from spolia.errors import ModelRejected
from spolia.generation.prompt import Generate, asks_for_marks, citations
from spolia.generation.reader import Reader, abstains
from spolia.models.parsers.parser import plain_words
from spolia.models.parsers.tags import Markers
from spolia.models.prompting.likelihood import FirstTokens
from spolia.models.prompting.role import Prompted, continue_prompt, record_failures
from spolia.models.protocols import ForetellsTokens, StatesLogprobs
from spolia.types import Answer, Failure, Prompt, Ranking, Token


def weights(scores: Sequence[float], temperature: float = 1.0) -> list[float]:
    """Return λ = softmax(s / τ); they sum to 1.

    An infinite score counts as the largest number of its sign. One that is NaN counts nothing, unless all are, which
    then count the same.

    >>> [round(weight, 3) for weight in weights([2.0, 1.0, float("nan")])]
    [0.731, 0.269, 0.0]
    """
    numbers = [score for score in scores if not math.isnan(score)]
    if not numbers:
        return [1 / len(scores) for _ in scores]
    # The highest score is subtracted so that exp cannot overflow.
    highest = _finite(max(numbers))
    exponentials = [
        0.0 if math.isnan(score) else math.exp((_finite(score) - highest) / temperature) for score in scores
    ]
    total = math.fsum(exponentials)
    return [exponential / total for exponential in exponentials]


def _finite(score: float) -> float:
    half = sys.float_info.max / 2  # so that the difference of two is finite
    return max(-half, min(half, score))


WeightedAnswer = tuple[Answer, float]


@dataclass(frozen=True)
class AnswerEnsemble(Prompted, Operator[Ranking, Answer]):
    """Answer from each passage alone, and give the answer that weighs most: p(y|q) = Σ_d λ_d · exp(mean_t ln p(y_t)).

    λ = softmax(s / τ) over the scores of the passages. Answers are the same where their words are, in any case and
    with any punctuation; of equal weights the one of the better passage. Replies that abstain count where all do. A
    passage that could not be answered from is left out, and the weights of the others sum to 1 again; one has to be
    left, and the result is degraded. The answer cites the passages that gave it first.

    Args:
        llm: a model with the capability `logprobs`.
        prompt: name of a shipped prompt file, or path of one, as for `Reader`.
        max_passages: how many of the best passages are answered from, each with a call.
        temperature: τ of the softmax over scores; the replies are the most probable ones.
        max_characters: of a passage.
        max_tokens: longest reply.
        abstention: as for `Reader`.

    Raises:
        ModelUnavailable: when no passage could be answered from, as the first error.
        ModelRejected: the same; also if the model states no log-probabilities.

    Source: Shi et al., "REPLUG: Retrieval-augmented black-box language models", NAACL 2024.

    >>> from spolia import Hit, Node, Query, ScriptedModel
    >>> found = Ranking(Query("Who?"), tuple(Hit(Node(id, f"It was {id}."), 1.0) for id in ("Nokia", "Sony", "nokia")))
    >>> rows = (("Sony", "Sony [1]"), ("Nokia", "Nokia [1]"), ("nokia", "NOKIA! [1]"))
    >>> AnswerEnsemble(ScriptedModel(rows, frozenset(("chat", "logprobs"))))(found).text
    'Nokia [1]'
    """

    llm: StatesLogprobs
    prompt: str = "brief"
    max_passages: int = 10
    temperature: float = 1.0
    max_characters: int = 20_000
    max_tokens: int = 128
    abstention: str = "I do not know."

    version: ClassVar[int] = 7  # 5: one rule for abstentions; 7: more forms of a model's thought are left out

    prompt_file = Reader.prompt_file

    def __post_init__(self) -> None:
        refuse_counts(self, "max_passages", "max_characters", "max_tokens")
        refuse_numbers(self, "a number above 0", "temperature")

    def apply(self, value: Ranking, /) -> Answer:
        best = value.cut(self.max_passages)
        if not best.hits:
            emit(self.abstention)
            return Answer(self.abstention, stop_reason="abstained", evidence=best)
        results = gather([partial(self._answer_passage, best.but(hits=(hit,))) for hit in best.hits])
        record_failures(results, "A passage could not be answered from and is left out", raise_if_all_failed=True)
        scored_replies = [
            (hit.score, result)
            for hit, result in zip(best.hits, results, strict=True)
            if not isinstance(result, Failure)
        ]
        shares = weights([score for score, _ in scored_replies], self.temperature)
        answer = heaviest([(*reply, share) for (_, reply), share in zip(scored_replies, shares, strict=True)])
        emit(answer.text)
        return answer.but(evidence=best)

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.max_passages

    def _answer_passage(self, passage: Ranking) -> WeightedAnswer:
        """Return the answer from one passage, and exp(mean ln p) of its tokens."""
        reader = Reader(self.llm, self.prompt, 1, self.max_characters, self.max_tokens, abstention=self.abstention)
        prompt = reader.build_prompt(passage)
        generation = Generate(self.llm, self.max_tokens, logprobs=True)(prompt)
        mean = math.fsum(token.logprob for token in generation.tokens) / max(1, len(generation.tokens))
        if generation.text and (not generation.tokens or not mean <= 0):
            raise ModelRejected(
                f"{self.llm.name} states no log-probabilities. Take 'logprobs' out of its capabilities."
            )
        return reader.resolve_reply(generation, passage, asks_for_marks(prompt)), math.exp(mean)


def heaviest(replies: list[tuple[Answer, float, float]]) -> Answer:
    """Return the answer with the highest sum of confidence times share over equal answers; the first of equal weights.

    >>> heaviest([(Answer("Oslo"), 0.9, 0.4), (Answer("Salo"), 0.5, 0.4), (Answer("salo."), 0.9, 0.2)]).text
    'Salo'
    """
    candidates = [reply for reply in replies if not reply[0].abstained] or replies
    totals: dict[str, float] = {}
    for answer, confidence, share in candidates:
        words = plain_words(answer.text)
        totals[words] = totals.get(words, 0.0) + share * confidence
    best = max(totals, key=lambda words: totals[words])
    return next(answer for answer, *_ in candidates if plain_words(answer.text) == best)


ENDS = ("\n", "</s>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<eos>", "<|end_of_text|>")
"""Tokens that end a reply, as models write them."""


@dataclass(frozen=True)
class TokenEnsemble(Prompted, Operator[Ranking, Answer]):
    """Write an answer token by token, each the likeliest of a mixture: p(y_t) = Σ_d λ_d · p(y_t | d, q, y_<t).

    λ = softmax(s / τ) over the scores of the passages, each of which has a prompt of its own. Of each, the `top` most
    probable next tokens are known; what is not among them counts 0. Of equal tokens the first in the order of the
    alphabet. A passage whose call fails is left out from there on, and the weights of the others sum to 1 again; one
    has to be left, and the result is degraded. The answer cites all passages, since each word rests on all.

    The text so far is the assistant's message at the end of the prompt, so the model has to continue
    that: `CompletionModel` does, and local models; most chat servers start again.

    Args:
        llm: a model with the capability `next_tokens`.
        prompt: name of a shipped prompt file, or path of one, as for `Reader`.
        max_passages: how many of the best passages are read; each costs a call for every token.
        temperature: τ of the softmax over scores.
        top: next tokens that are asked for.
        max_tokens: longest reply.
        stop: tokens that end the reply, or begin with its end.
        max_characters: of a passage.
        abstention: as for `Reader`.

    Raises:
        ModelUnavailable: when no passage could be asked about, as the first error.
        ModelRejected: the same; also if the model predicts no tokens.

    Source: Shi et al., "REPLUG: Retrieval-augmented black-box language models", NAACL 2024.

    >>> from spolia.models.http.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, ServedReply
    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("Who?"), tuple(Hit(Node(id, f"It was {id}."), 1.0) for id in ("Nokia", "Sony")))
    >>> with OpenAIServer(ServedReply("Nokia Sony", logprob=-0.5)) as server:  # the likeliest next token is the first
    ...     TokenEnsemble(CompletionModel("any", server.url), max_tokens=1)(found).text
    'Nokia'
    """

    llm: ForetellsTokens
    prompt: str = "brief"
    max_passages: int = 10
    temperature: float = 1.0
    top: int = 20
    max_tokens: int = 64
    stop: tuple[str, ...] = ENDS
    max_characters: int = 20_000
    abstention: str = "I do not know."

    version: ClassVar[int] = 5  # 2: NaN is no probability; 4: one rule for abstentions
    cached: ClassVar[bool] = True

    prompt_file = Reader.prompt_file

    def __post_init__(self) -> None:
        refuse_counts(self, "max_passages", "top", "max_tokens", "max_characters")
        refuse_numbers(self, "a number above 0", "temperature")

    def apply(self, value: Ranking, /) -> Answer:
        best = value.cut(self.max_passages)
        text, is_complete = self._write_reply(best) if best.hits else ("", True)
        markers = Markers(0)  # in each prompt its passage is number 1, so numbers mean nothing
        reply = markers.feed(text) + markers.end()
        emit(reply or self.abstention)
        if not reply or abstains(reply, False, self.abstention):
            return Answer(reply or self.abstention, (), "abstained", best)
        all_citations = citations(range(1, len(best) + 1), best.hits)
        return Answer(reply, all_citations, "answered" if is_complete else "cap", best)

    def reads(self, value: Ranking, /) -> object:
        best = value.cut(self.max_passages)
        return (best.hits, [prompt.messages for prompt in self._prompts(best)])

    def attach(self, out: Any, value: Any, /) -> Any:
        return out.but(evidence=value.cut(self.max_passages))

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.max_passages * self.max_tokens

    def _prompts(self, best: Ranking) -> list[Prompt]:
        reader = Reader(self.llm, self.prompt, 1, self.max_characters, abstention=self.abstention)
        return [reader.build_prompt(best.but(hits=(hit,))) for hit in best.hits]

    def _write_reply(self, best: Ranking) -> tuple[str, bool]:
        """Return the reply, and whether it came to its end."""
        prompts = [(hit.score, prompt) for hit, prompt in zip(best.hits, self._prompts(best), strict=True)]
        text = ""
        for _ in range(self.max_tokens):
            predictions = self._predict_all([prompt for _, prompt in prompts], text)
            prompts = [
                prompt_row for prompt_row, foretold in zip(prompts, predictions, strict=True) if foretold is not None
            ]
            usable = [foretold for foretold in predictions if foretold is not None]
            token = likeliest(usable, weights([score for score, _ in prompts], self.temperature))
            # Tokenizers put the blank before a word into its token.
            if not token or token.lstrip(" ").startswith(self.stop):
                return text, True
            text += token
        note(f"The answer was cut off at max_tokens={self.max_tokens}.", is_counted=True)
        return text, False

    def _predict_all(self, prompts: Sequence[Prompt], text: str) -> list[tuple[Token, ...] | None]:
        """Return the next tokens after each prompt; None for one that is left out."""
        results = gather([partial(self._predict, prompt, text) for prompt in prompts])
        record_failures(results, "A passage could not be asked about and is left out", raise_if_all_failed=True)
        return [None if isinstance(result, Failure) else result for result in results]

    def _predict(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        tokens = FirstTokens(self.llm, top=self.top)(continue_prompt(prompt, text))
        rated = tuple(token for token in tokens if token.logprob <= 0)  # NaN is not
        if not rated:
            raise ModelRejected(f"{self.llm.name} foretells no token with a log-probability. Ask another model.")
        return rated


def likeliest(predictions: Sequence[Sequence[Token]], shares: Sequence[float]) -> str:
    """Return the token with the highest mixed probability.

    >>> one = (Token("a", math.log(0.6)), Token("b", math.log(0.4)))
    >>> other = (Token("b", math.log(0.9)), Token("a", math.log(0.1)))
    >>> likeliest([one, other], [0.5, 0.5]), likeliest([one, other], [0.9, 0.1])
    ('b', 'a')
    """
    mixed: dict[str, float] = {}
    for tokens, share in zip(predictions, shares, strict=True):
        for token in tokens:
            mixed[token.text] = mixed.get(token.text, 0.0) + share * math.exp(token.logprob)
    return min(mixed, key=lambda text: (-mixed[text], text))

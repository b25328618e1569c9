"""Texts with only the tokens that tell most, within a budget."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from spolia.core.call_bounds import unknown
from spolia.core.operator import Operator
from spolia.core.run_context import gather
from spolia.core.sentences import sentences
from spolia.core.wiring import refuse_counts, refuse_numbers
from spolia.models.prompting.likelihood import Continuation, Surprise, surprises
from spolia.models.protocols import ScoresContinuations
from spolia.post_retrieval.group_map import showing
from spolia.post_retrieval.selection import ALMOST
from spolia.types import Hit, Ranking
from spolia.types.outcomes import successes


def most_telling(weights: Sequence[float], count: int) -> list[int]:
    """Places of the highest weights, in their order; of equal ones the first.

    >>> most_telling([0.5, 2.0, 0.5, 1.0], 3)
    [0, 1, 3]
    """
    order = sorted(range(len(weights)), key=lambda at: -weights[at])
    return sorted(order[: max(0, count)])


def telling(text: str, told: Sequence[Surprise], weights: Sequence[float], count: int) -> str:
    """What the heaviest tokens of a text make of it; of a text with a word, one of them is no blank.

    >>> told = [Surprise(0, 1, 9.0), Surprise(1, 6, 2.0), Surprise(6, 12, 1.0)]
    >>> telling("\\nParis, France", told, [one.nats for one in told], 1)
    'Paris'
    """
    kept = most_telling(weights, count)
    words = [at for at, one in enumerate(told) if not text[one.start : one.end].isspace()]
    if kept and words and not set(kept).intersection(words):
        kept = sorted([*kept[1:], max(words, key=lambda at: weights[at])])
    return of_spans(text, [(told[at].start, told[at].end) for at in kept])


def of_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text that some stretches of it make, in their order; words that a blank stood between stay apart.

    >>> of_spans("Paris is it", [(0, 5), (8, 11)]), of_spans("Paris\\nis\\nit", [(0, 5), (9, 11)])
    ('Paris it', 'Paris\\nit')
    """
    found, before = "", 0
    for start, end in spans:
        if found and not found[-1].isspace() and not text[start : start + 1].isspace():
            found += next((sign for sign in text[before:start] if sign.isspace()), "")
        found += text[start:end]
        before = end
    return found


def segments(text: str, characters: int) -> Iterator[str]:
    """Stretches of a text that are together all of it: whole sentences where they fit, else cut before a blank.

    >>> list(segments("One. Two three. Four.", 12))
    ['One.', ' Two three.', ' Four.']
    """
    ends = [*(end for _, end in sentences(text)[:-1]), len(text)]
    start = 0
    while start < len(text):
        fitting = [end for end in ends if start < end <= start + characters]
        end = fitting[-1] if fitting else _cut(text, start, characters)
        yield text[start:end]
        start = end


def _cut(text: str, start: int, characters: int) -> int:
    limit = min(len(text), start + characters)
    blank = text.rfind(" ", start + 1, limit) if limit < len(text) else -1
    return blank if blank > start else limit


@dataclass(frozen=True)
class LLMLingua(Operator[Ranking, Ranking]):
    """Keep of each hit's text the share of tokens that surprises a language model most; the question is not touched.

    A text is read in segments, one after the other. The tokens of a segment are weighed by -ln p(x_t | what is kept of
    the segments before, x_<t in its own), and the heaviest stay, in their order: max(1, ⌊rate · n⌋) of the n tokens of
    a text, of equal ones the first. What is left is for models to read more than for people. Scores and citations are
    as they were.

    Args:
        llm: a model with the capability `scores`; a small one will do.
        rate: share of the tokens that stay, above 0, up to 1.
        segment: characters that are read at once.

    Raises:
        ModelRejected: the model states no log-probabilities of given texts.
        ModelUnavailable: the server cannot be reached.

    Source: Jiang et al., "LLMLingua: Compressing prompts for accelerated inference of large language models", EMNLP
    2023. There the rate of a segment follows from a threshold; here it is the same for each, so that it is kept.

    >>> from spolia.models.http.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, ServedReply
    >>> from spolia.types import Node, Query
    >>> found = Ranking(Query("?"), (Hit(Node("a", "So it is that Nokia employed Olsen"), 1.0),))
    >>> with OpenAIServer(ServedReply(logprob=-0.5)) as server:  # each character costs 0.5, so long words tell more
    ...     LLMLingua(CompletionModel("any", server.url))(found).nodes[0].text
    'Nokia employed Olsen'
    """

    llm: ScoresContinuations
    rate: float = 0.5
    segment: int = 1_000

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_numbers(self, "a number above 0, up to 1", "rate")
        refuse_counts(self, "segment")

    def apply(self, value: Ranking, /) -> Ranking:
        found = gather([partial(self._short, hit) for hit in value.hits])
        return value.but(hits=tuple(successes(found)))

    calls = unknown

    def _short(self, hit: Hit) -> Hit:
        text = self._compressed(hit.node.text)
        return hit if text == hit.node.text.strip() else showing(hit, text)

    def _compressed(self, text: str) -> str:
        kept, seen, stayed = "", 0, 0
        for segment in segments(text.strip(), self.segment):
            (told,) = surprises(self.llm, [Continuation.of(segment, kept)])
            seen += len(told)
            count = max(1, math.floor(self.rate * seen + ALMOST)) - stayed  # what one rounds off, the next one has
            stayed += min(count, len(told))
            kept += telling(segment, told, [one.nats for one in told], count)
        return kept.strip()


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

    >>> from spolia.models.http.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, ServedReply
    >>> from spolia.types import Node, Query
    >>> found = Ranking(Query("Who?"), (Hit(Node("a", "Nokia employed Olsen in Salo"), 1.0),))
    >>> with OpenAIServer(ServedReply(logprob=-0.5)) as server:  # which finds nothing more likely after the question
    ...     LongLLMLingua(CompletionModel("any", server.url), target_tokens=3)(found).nodes[0].text
    'Nokia employed Olsen'
    """

    llm: ScoresContinuations
    target_tokens: int = 300
    spread: float = 0.3
    characters: int = 4_000

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_counts(self, "target_tokens", "characters")
        refuse_numbers(self, "a number from 0 to 1", "spread")

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

    calls = unknown

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

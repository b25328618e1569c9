"""Hits with less text in them; citations still point to the retrieved node."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import ClassVar, Literal, NamedTuple

from spolia.core.call_bounds import unknown
from spolia.core.operator import Operator
from spolia.core.run_context import gather
from spolia.core.sentences import sentences
from spolia.core.type_compatibility import refuse_counts, refuse_numbers
from spolia.errors import WiringError
from spolia.models.prompting.likelihood import Continuation, Surprise, surprises
from spolia.models.protocols import Embedder, Scorer, ScoresContinuations, embed_checked
from spolia.post_retrieval.context_window import is_cut, showing
from spolia.post_retrieval.selection import ALMOST, best_share, reaching
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Hit, Node, Ranking
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

    A text is read in segments, one after the other. The tokens of a segment are weighed by -ln p(x_t | kept tokens of
    the segments before, x_<t in its own), and the heaviest stay, in their order: max(1, ⌊rate · n⌋) of the n tokens of
    a text, of equal ones the first. Models can read the result better than people can. Scores and citations are
    as they were.

    Args:
        llm: a model with the capability `scores`; a small one will do.
        rate: share of the tokens that stay, above 0, up to 1.
        segment: characters that are read together.

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
            (told,) = surprises(self.llm, [Continuation.from_texts(segment, kept)])
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
        alone = surprises(self.llm, [Continuation.from_texts(text) for text in texts])
        asked = surprises(self.llm, [Continuation.from_texts(text, value.query.question) for text in texts])
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
        found = surprises(self.llm, [Continuation.from_texts(said, hit.node.text[: self.characters]) for hit in hits])
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


@dataclass(frozen=True)
class Extractive(Operator[Ranking, Ranking]):
    """Keep the sentences of the hits that are alike enough, sim(q, s) ≥ at_least, and of them the `most` nearest ones.

    sim is the cosine of the vectors, or what a scorer says, such as one that `spolia train context` trained; without
    either, the share of the question's terms that a sentence holds.
    Sentences stay in their order; of equal ones the first are kept, of some hits at least one sentence. A hit of which
    none is kept goes. Citations point to the stretches that are left, with their places in the document.

    Args:
        embedder: gives the vectors; each sentence costs one text.
        at_least: the least likeness, from -1 to 1.
        most: sentences of all hits together; None for all that are alike enough.
        analyzer: cuts into terms, where there is neither embedder nor scorer.
        scorer: judges the sentences in place of an embedder, from 0 to 1.

    Raises:
        WiringError: a bound that is not from -1 to 1; an embedder and a scorer.
        ModelError: the embedder does not give vectors.

    Source: extractive compression in Xu, Shi, Choi, "RECOMP: Improving retrieval-augmented LMs with compression and
    selective augmentation", ICLR 2024; with a trained scorer Yang et al., "PRCA", EMNLP 2023.

    >>> from spolia.types import Query, Span
    >>> text = "Ships wait for the tide. The tide is caused by the moon. Salt is dug."
    >>> hit = Hit(Node("n", text, "d", span=Span(100, 169)), 1.0)
    >>> (kept,) = Extractive(most=1)(Ranking(Query("What causes the tide?"), (hit,)))
    >>> kept.node.text, kept.found[0].span
    ('The tide is caused by the moon.', Span(start=125, end=156, pages=None, lines=None, seconds=None, page_starts=()))
    """

    embedder: Embedder | None = None
    at_least: float = 0.1
    most: int | None = None
    analyzer: Analyzer = field(default_factory=Analyzer)
    scorer: Scorer | None = None

    version: ClassVar[int] = 3
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_counts(self, "most", optional=True)
        refuse_numbers(self, "a number from -1 to 1", "at_least")
        if self.embedder is not None and self.scorer is not None:
            raise WiringError(f"{self.short}: sentences are judged by an embedder or by a scorer. Leave one out.")

    def apply(self, value: Ranking, /) -> Ranking:
        spans = sentence_spans(value)
        if not spans:
            return value
        scores = self._likeness(value.query.question, [one.of(value) for one in spans])
        kept = reaching(scores, self.at_least)
        if self.most is not None and len(kept) > self.most:
            kept = [kept[at] for at in best_share([scores[at] for at in kept], self.most / len(kept))]
        return extract(value, [spans[at] for at in kept])

    def _likeness(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        if self.scorer is not None:
            return self.scorer.scores(question, texts)
        if self.embedder is not None:
            (asked,) = embed_checked(self.embedder, [question], "query")
            return [float(vector @ asked) for vector in embed_checked(self.embedder, texts, "passage")]
        terms = frozenset(self.analyzer.terms(question))
        return [len(terms.intersection(self.analyzer.terms(text))) / (len(terms) or 1) for text in texts]


class SentenceSpan(NamedTuple):
    """A sentence of a hit: which hit, and where in its text."""

    hit: int
    start: int
    end: int

    def of(self, ranking: Ranking) -> str:
        return ranking.hits[self.hit].node.text[self.start : self.end]


def sentence_spans(ranking: Ranking) -> list[SentenceSpan]:
    """The sentences of all hits, in their order."""
    return [SentenceSpan(at, *span) for at, hit in enumerate(ranking.hits) for span in sentences(hit.node.text)]


def extract(ranking: Ranking, kept: Sequence[SentenceSpan]) -> Ranking:
    """The hits, each with its kept sentences alone; a hit without any goes."""
    of_hit = groupby(kept, lambda span: span.hit)
    return ranking.but(
        hits=tuple(_left(ranking.hits[at], [(span.start, span.end) for span in own]) for at, own in of_hit)
    )


def _left(hit: Hit, spans: Sequence[tuple[int, int]]) -> Hit:
    """The hit with some sentences of its text."""
    text = hit.node.text
    shown = " ".join(text[start:end] for start, end in spans)
    parts: tuple[Node, ...] = ()
    if is_cut(hit.node) and not hit.found:
        parts = tuple(
            hit.node.but(text=text[start:end], span=hit.node.span_of(start, end), search_text="")
            for start, end in spans
        )
    return hit if shown == text.strip() else showing(hit, shown, parts)


_PHRASE = re.compile(r"[^,;:()\n、，；：]*(?:[,;:()\n、，；：]+\s*|\Z)")


@dataclass(frozen=True)
class SelectiveContext(Operator[Ranking, Ranking]):
    """Leave out the stretches of the hits' texts that tell least, by a language model's self-information.

    I(u) = mean over the tokens of a stretch u of -ln p(x_t | x_<t), each sentence read on its own. Stretches of all
    hits with I below the percentile of `ratio` are removed (interpolated linearly between neighbours); the others stay,
    in their order. With ratio 0 all stay. A hit of which nothing but blanks is left goes too; of some words at least
    one stretch stays. Scores and citations are as they were.

    Args:
        llm: a model with the capability `scores`; a small one will do.
        ratio: share of the stretches to leave out, about, from 0 to below 1.
        unit: leave out or keep whole units: a `sentence`, a `phrase` between commas, or a `token`.

    Raises:
        ModelRejected: the model states no log-probabilities of given texts.
        ModelUnavailable: the server cannot be reached.

    Source: Li et al., "Compressing context to enhance inference efficiency of large language models", EMNLP 2023.

    >>> from spolia.models.http.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, ServedReply
    >>> from spolia.types import Node, Query
    >>> found = Ranking(Query("?"), (Hit(Node("a", "So it is. Nokia employed Olsen."), 1.0),))
    >>> with OpenAIServer(ServedReply(logprob=-0.5)) as server:  # each character costs 0.5, so long words tell more
    ...     SelectiveContext(CompletionModel("any", server.url), ratio=0.5)(found).nodes[0].text
    'Nokia employed Olsen.'
    """

    llm: ScoresContinuations
    ratio: float = 0.35
    unit: Literal["sentence", "phrase", "token"] = "sentence"

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_numbers(self, "a number from 0 to below 1", "ratio")

    def apply(self, value: Ranking, /) -> Ranking:
        spans = [[(at, *span) for span in _sentences(hit.node.text)] for at, hit in enumerate(value.hits)]
        asked = [place for places in spans for place in places]
        texts = [value.hits[at].node.text[start:end] for at, start, end in asked]
        found = surprises(self.llm, [Continuation.from_texts(text) for text in texts])
        units = [
            (at, start + first, start + last, nats)
            for (at, start, _), text, told in zip(asked, texts, found, strict=True)
            for first, last, nats in self._units(text, told)
        ]
        bound = percentile([nats for *_, nats in units], self.ratio)
        words = [unit for unit in units if value.hits[unit[0]].node.text[unit[1] : unit[2]].strip()]
        kept = [unit for unit in units if unit[3] >= bound]
        if not set(kept).intersection(words):
            kept = [max(words, key=lambda unit: unit[3])] if words else []
        left = [
            _left_of_phrases(value.hits[at], [(first, last) for _, first, last, _ in own])
            for at, own in groupby(kept, lambda unit: unit[0])
        ]
        return value.but(hits=tuple(hit for hit in left if hit is not None))

    def _units(self, text: str, told: Sequence[Surprise]) -> list[tuple[int, int, float]]:
        """Start, end and mean surprise of the stretches of a sentence."""
        if self.unit == "token":
            return [(one.start, one.end, one.nats) for one in told]
        spans = [(0, len(text))] if self.unit == "sentence" else [m.span() for m in _PHRASE.finditer(text) if m[0]]
        inside = [[one.nats for one in told if start <= one.start < end] for start, end in spans]
        return [(*span, sum(own) / len(own) if own else 0.0) for span, own in zip(spans, inside, strict=True)]

    calls = unknown


def percentile(numbers: Sequence[float], share: float) -> float:
    """The number below which a share of them lies, interpolated linearly; 0 for none.

    >>> percentile([4.0, 1.0, 2.0, 3.0, 5.0], 0.35)
    2.4
    """
    ordered = sorted(numbers) or [0.0]
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _sentences(text: str) -> list[tuple[int, int]]:
    """The sentences of a text, each with the blanks after it, so that they are all of it."""
    starts = [start for start, _ in sentences(text)]
    return list(zip([0, *starts[1:]], [*starts[1:], len(text)], strict=True)) if starts else []


def _left_of_phrases(hit: Hit, spans: Sequence[tuple[int, int]]) -> Hit | None:
    """The hit with what is left of its text; None for nothing."""
    text = of_spans(hit.node.text, spans).strip()
    if not text:
        return None
    return hit if text == hit.node.text.strip() else showing(hit, text)

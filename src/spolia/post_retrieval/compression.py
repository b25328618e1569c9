"""Compression of hits to less text; citations still point to the retrieved node."""

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
from spolia.post_retrieval.context_window import is_cut, show_text
from spolia.post_retrieval.selection import ALMOST, select_at_least, select_best_share
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Hit, Node, Ranking
from spolia.types.outcomes import require_successes


def select_heaviest(weights: Sequence[float], count: int) -> list[int]:
    """Return the positions of the highest weights, in order; of equal ones the first.

    >>> select_heaviest([0.5, 2.0, 0.5, 1.0], 3)
    [0, 1, 3]
    """
    order = sorted(range(len(weights)), key=lambda index: -weights[index])
    return sorted(order[: max(0, count)])  # a negative count would leave out only the last ones


def keep_heaviest(text: str, tokens: Sequence[Surprise], weights: Sequence[float], count: int) -> str:
    """Join the heaviest tokens of a text; if the text has a word, one of them is not blank.

    >>> tokens = [Surprise(0, 1, 9.0), Surprise(1, 6, 2.0), Surprise(6, 12, 1.0)]
    >>> keep_heaviest("\\nParis, France", tokens, [token.nats for token in tokens], 1)
    'Paris'
    """
    indexes = select_heaviest(weights, count)
    words = [index for index, token in enumerate(tokens) if not text[token.start : token.end].isspace()]
    if indexes and words and not set(indexes).intersection(words):
        # instead of a blank, so that the count stays
        indexes = sorted([*indexes[1:], max(words, key=lambda index: weights[index])])
    return join_spans(text, [(tokens[index].start, tokens[index].end) for index in indexes])


def join_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Join spans of a text in order; words that a blank separated stay apart.

    >>> join_spans("Paris is it", [(0, 5), (8, 11)]), join_spans("Paris\\nis\\nit", [(0, 5), (9, 11)])
    ('Paris it', 'Paris\\nit')
    """
    joined, previous_end = "", 0
    for start, end in spans:
        if joined and not joined[-1].isspace() and not text[start : start + 1].isspace():
            joined += next((sign for sign in text[previous_end:start] if sign.isspace()), "")
        joined += text[start:end]
        previous_end = end
    return joined


def split_segments(text: str, characters: int) -> Iterator[str]:
    """Split a text into segments without loss: whole sentences if they fit, else cut before a blank.

    >>> list(split_segments("One. Two three. Four.", 12))
    ['One.', ' Two three.', ' Four.']
    """
    ends = [*(end for _, end in sentences(text)[:-1]), len(text)]
    start = 0
    while start < len(text):
        fitting = [end for end in ends if start < end <= start + characters]
        # one sentence may be longer than a segment
        end = fitting[-1] if fitting else _find_cut(text, start, characters)
        yield text[start:end]
        start = end


def _find_cut(text: str, start: int, characters: int) -> int:
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

    version: ClassVar[int] = 2  # 2: words stay apart, and a text with a word keeps one

    def __post_init__(self) -> None:
        refuse_numbers(self, "a number above 0, up to 1", "rate")
        refuse_counts(self, "segment")

    def apply(self, value: Ranking, /) -> Ranking:
        # Segments of one hit need those before them; hits do not need each other.
        results = gather([partial(self._compress_hit, hit) for hit in value.hits])
        return value.but(hits=tuple(require_successes(results)))

    calls = unknown

    def _compress_hit(self, hit: Hit) -> Hit:
        text = self._compress_text(hit.node.text)
        # nothing is left out: the hit keeps its search text
        return hit if text == hit.node.text.strip() else show_text(hit, text)

    def _compress_text(self, text: str) -> str:
        compressed, token_count, kept_count = "", 0, 0
        for segment in split_segments(text.strip(), self.segment):
            (tokens,) = surprises(self.llm, [Continuation.from_texts(segment, compressed)])
            token_count += len(tokens)
            # What one segment rounds off, the next one has.
            count = max(1, math.floor(self.rate * token_count + ALMOST)) - kept_count
            kept_count += min(count, len(tokens))
            compressed += keep_heaviest(segment, tokens, [token.nats for token in tokens], count)
        return compressed.strip()


RESTRICTION = "We can get the answer to this question in the given text."
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
        # a blank text has no token to weigh
        legible = [hit for hit in value.hits if hit.node.text[: self.characters].strip()]
        hits = self._order_hits(legible, value.query.question)
        if not hits:
            return value
        texts = [hit.node.text[: self.characters] for hit in hits]
        alone = surprises(self.llm, [Continuation.from_texts(text) for text in texts])
        conditional = surprises(self.llm, [Continuation.from_texts(text, value.query.question) for text in texts])
        counts = split_budget([len(nats) for nats in alone], self.target_tokens, self.spread)
        short_hits: list[Hit] = []
        for hit, text, plain_tokens, conditional_tokens, count in zip(
            hits, texts, alone, conditional, counts, strict=True
        ):
            # By start, since a question may change how the first word is cut.
            nats = {token.start: token.nats for token in conditional_tokens}
            weights = [token.nats - nats.get(token.start, token.nats) for token in plain_tokens]
            if short_text := keep_heaviest(text, plain_tokens, weights, count).strip():
                short_hits.append(hit if short_text == hit.node.text.strip() else show_text(hit, short_text))
        return value.but(hits=tuple(short_hits))

    calls = unknown

    def _order_hits(self, hits: Sequence[Hit], question: str) -> list[Hit]:
        statement = f"{question} {RESTRICTION}"
        token_lists = surprises(
            self.llm, [Continuation.from_texts(statement, hit.node.text[: self.characters]) for hit in hits]
        )
        scores = [-math.fsum(token.nats for token in tokens) / max(1, len(tokens)) for tokens in token_lists]
        scored = [hit.but(score=score) for hit, score in zip(hits, scores, strict=True)]
        return sorted(scored, key=lambda hit: -hit.score)


def split_budget(lengths: Sequence[int], target: int, spread: float) -> list[int]:
    """Return how many tokens of each text stay, best text first: at most `target` in all, at least one of the first.

    >>> split_budget([100, 100, 100], 150, 0.3)  # rates 0.5 + 0.3, 0.5 + 0.1, 0.5 - 0.1, until 150 are spent
    [80, 60, 10]
    """
    rate, room = target / max(1, sum(lengths)), target
    counts: list[int] = []
    for place, length in enumerate(lengths):
        # all fits: no text is cut
        own = min(1.0, max(0.0, rate + spread * (1 - 2 * place / len(lengths)))) if rate < 1 else 1.0
        count = min(room, max(0 if counts else 1, math.floor(own * length + ALMOST)))
        counts.append(count)
        room -= count
    return counts


@dataclass(frozen=True)
class Extractive(Operator[Ranking, Ranking]):
    """Keep the sentences that are similar enough, sim(q, s) ≥ at_least, and of them the `most` nearest ones.

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

    version: ClassVar[int] = 3  # 3: a trained scorer may judge the sentences
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_counts(self, "most", optional=True)
        refuse_numbers(self, "a number from -1 to 1", "at_least")
        if self.embedder is not None and self.scorer is not None:
            raise WiringError(f"{self.short}: sentences are judged by an embedder or by a scorer. Leave one out.")

    def apply(self, value: Ranking, /) -> Ranking:
        spans = find_sentences(value)
        if not spans:
            return value
        scores = self._score_sentences(value.query.question, [span.text_in(value) for span in spans])
        indexes = select_at_least(scores, self.at_least)
        if self.most is not None and len(indexes) > self.most:
            indexes = [
                indexes[index]
                for index in select_best_share([scores[index] for index in indexes], self.most / len(indexes))
            ]
        return keep_sentences(value, [spans[index] for index in indexes])

    def _score_sentences(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        if self.scorer is not None:
            return self.scorer.scores(question, texts)
        if self.embedder is not None:
            (query_vector,) = embed_checked(self.embedder, [question], "query")
            return [float(vector @ query_vector) for vector in embed_checked(self.embedder, texts, "passage")]
        terms = frozenset(self.analyzer.terms(question))
        return [len(terms.intersection(self.analyzer.terms(text))) / (len(terms) or 1) for text in texts]


class SentenceSpan(NamedTuple):
    """Place of a sentence: the hit, and the span in its text."""

    hit: int
    start: int
    end: int

    def text_in(self, ranking: Ranking) -> str:
        return ranking.hits[self.hit].node.text[self.start : self.end]


def find_sentences(ranking: Ranking) -> list[SentenceSpan]:
    """Return the sentences of all hits, in order."""
    return [SentenceSpan(index, *span) for index, hit in enumerate(ranking.hits) for span in sentences(hit.node.text)]


def keep_sentences(ranking: Ranking, spans: Sequence[SentenceSpan]) -> Ranking:
    """Reduce each hit to its kept sentences; a hit without any is dropped."""
    by_hit = groupby(spans, lambda span: span.hit)  # spans come hit by hit, without which `groupby` would split hits
    return ranking.but(
        hits=tuple(_keep_spans(ranking.hits[index], [(span.start, span.end) for span in own]) for index, own in by_hit)
    )


def _keep_spans(hit: Hit, spans: Sequence[tuple[int, int]]) -> Hit:
    """Return the hit with some sentences of its text."""
    text = hit.node.text
    kept_text = " ".join(text[start:end] for start, end in spans)
    parts: tuple[Node, ...] = ()
    if is_cut(hit.node) and not hit.found:  # others have no place in the document, or are cited by what was found
        parts = tuple(
            hit.node.but(text=text[start:end], span=hit.node.span_of(start, end), search_text="")
            for start, end in spans
        )
    return hit if kept_text == text.strip() else show_text(hit, kept_text, parts)


_PHRASE = re.compile(r"[^,;:()\n、，；：]*(?:[,;:()\n、，；：]+\s*|\Z)")


@dataclass(frozen=True)
class SelectiveContext(Operator[Ranking, Ranking]):
    """Leave out the parts of the hits' texts with the least self-information under a language model.

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
        spans = [[(index, *span) for span in _split_sentences(hit.node.text)] for index, hit in enumerate(value.hits)]
        sentence_places = [place for places in spans for place in places]
        texts = [value.hits[index].node.text[start:end] for index, start, end in sentence_places]
        token_lists = surprises(self.llm, [Continuation.from_texts(text) for text in texts])
        units = [
            (index, start + first, start + last, nats)
            for (index, start, _), text, tokens in zip(sentence_places, texts, token_lists, strict=True)
            for first, last, nats in self._split_units(text, tokens)
        ]
        bound = compute_percentile([nats for *_, nats in units], self.ratio)
        words = [unit for unit in units if value.hits[unit[0]].node.text[unit[1] : unit[2]].strip()]
        kept_units = [unit for unit in units if unit[3] >= bound]
        if not set(kept_units).intersection(words):
            kept_units = [max(words, key=lambda unit: unit[3])] if words else []
        left = [
            _keep_phrases(value.hits[index], [(first, last) for _, first, last, _ in own])
            for index, own in groupby(kept_units, lambda unit: unit[0])
        ]
        return value.but(hits=tuple(hit for hit in left if hit is not None))

    def _split_units(self, text: str, tokens: Sequence[Surprise]) -> list[tuple[int, int, float]]:
        """Return start, end and mean surprise of the units of a sentence."""
        if self.unit == "token":
            return [(token.start, token.end, token.nats) for token in tokens]
        # The pattern matches the empty end too.
        spans = [(0, len(text))] if self.unit == "sentence" else [m.span() for m in _PHRASE.finditer(text) if m[0]]
        inside = [[token.nats for token in tokens if start <= token.start < end] for start, end in spans]
        # A short phrase may lie inside a token that began before it.
        return [(*span, sum(own) / len(own) if own else 0.0) for span, own in zip(spans, inside, strict=True)]

    calls = unknown


def compute_percentile(numbers: Sequence[float], share: float) -> float:
    """Return the number below which a share of the numbers lies, interpolated linearly; 0 for no numbers.

    >>> compute_percentile([4.0, 1.0, 2.0, 3.0, 5.0], 0.35)
    2.4
    """
    ordered = sorted(numbers) or [0.0]
    place = share * (len(ordered) - 1)
    lower = int(place)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (place - lower) * (ordered[upper] - ordered[lower])


def _split_sentences(text: str) -> list[tuple[int, int]]:
    """Return the sentences of a text, each with the blanks after it, so that they cover all of it."""
    starts = [start for start, _ in sentences(text)]
    return list(zip([0, *starts[1:]], [*starts[1:], len(text)], strict=True)) if starts else []


def _keep_phrases(hit: Hit, spans: Sequence[tuple[int, int]]) -> Hit | None:
    """Return the hit with the kept phrases of its text; None if no text is left."""
    text = join_spans(hit.node.text, spans).strip()
    if not text:
        return None
    return hit if text == hit.node.text.strip() else show_text(hit, text)

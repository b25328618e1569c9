"""Keeping the sentences that are nearest to the question."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import ClassVar, Literal

from spolia.core.call_bounds import unknown
from spolia.core.operator import Operator
from spolia.core.sentences import sentences
from spolia.core.wiring import refuse_counts, refuse_numbers
from spolia.models.prompting.likelihood import Continuation, Surprise, surprises
from spolia.models.protocols import Embedder, ScoresContinuations
from spolia.models.vector_checks import embedded
from spolia.post_retrieval.compression.llmlingua import of_spans
from spolia.post_retrieval.group_map import is_cut, showing
from spolia.post_retrieval.selection import best_share, reaching
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Hit, Node, Ranking, Span


@dataclass(frozen=True)
class Extractive(Operator[Ranking, Ranking]):
    """Keep the sentences of the hits that are alike enough, sim(q, s) ≥ at_least, and of them the `most` nearest ones.

    sim is the cosine of the vectors; without an embedder, the share of the question's terms that a sentence holds.
    Sentences stay in their order; of equal ones the first are kept, of some hits at least one sentence. A hit of which
    none is kept goes. Citations point to the stretches that are left, with their places in the document.

    Args:
        embedder: gives the vectors; each sentence costs one text. None compares terms.
        at_least: the least likeness, from -1 to 1.
        most: sentences of all hits together; None for all that are alike enough.
        analyzer: cuts into terms, where there is no embedder.

    Raises:
        WiringError: a bound that is not from -1 to 1.
        ModelError: what the embedder gives are no vectors.

    Source: extractive compression in Xu, Shi, Choi, "RECOMP: Improving retrieval-augmented LMs with compression and
    selective augmentation", ICLR 2024.

    >>> from spolia.types import Query
    >>> text = "Ships wait for the tide. The tide is caused by the moon. Salt is dug."
    >>> hit = Hit(Node("n", text, "d", span=Span(100, 169)), 1.0)
    >>> (kept,) = Extractive(most=1)(Ranking(Query("What causes the tide?"), (hit,)))
    >>> kept.node.text, kept.found[0].span
    ('The tide is caused by the moon.', Span(start=125, end=156, pages=None, lines=None))
    """

    embedder: Embedder | None = None
    at_least: float = 0.1
    most: int | None = None
    analyzer: Analyzer = field(default_factory=Analyzer)

    version: ClassVar[int] = 2
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_counts(self, "most", optional=True)
        refuse_numbers(self, "a number from -1 to 1", "at_least")

    def apply(self, value: Ranking, /) -> Ranking:
        spans = [(at, *span) for at, hit in enumerate(value.hits) for span in sentences(hit.node.text)]
        if not spans:
            return value
        scores = self._likeness(value.query.question, [value.hits[at].node.text[start:end] for at, start, end in spans])
        kept = reaching(scores, self.at_least)
        if self.most is not None and len(kept) > self.most:
            kept = [kept[at] for at in best_share([scores[at] for at in kept], self.most / len(kept))]
        left = [spans[at] for at in kept]
        hits = [
            _left(value.hits[at], [(start, end) for _, start, end in own]) for at, own in groupby(left, lambda p: p[0])
        ]
        return value.but(hits=tuple(hits))

    def _likeness(self, question: str, texts: Sequence[str]) -> list[float]:
        if self.embedder is not None:
            (asked,) = embedded(self.embedder, [question], "query")
            return [float(vector @ asked) for vector in embedded(self.embedder, texts, "passage")]
        terms = frozenset(self.analyzer.terms(question))
        return [len(terms.intersection(self.analyzer.terms(text))) / (len(terms) or 1) for text in texts]


def _left(hit: Hit, spans: Sequence[tuple[int, int]]) -> Hit:
    """The hit with some sentences of its text."""
    text = hit.node.text
    shown = " ".join(text[start:end] for start, end in spans)
    parts = tuple(_part(hit.node, *span) for span in spans) if is_cut(hit.node) and not hit.found else ()
    return hit if shown == text.strip() else showing(hit, shown, parts)


def _part(node: Node, start: int, end: int) -> Node:
    """A stretch of a node with its place in the document."""
    whole, lines = node.span, None
    assert whole is not None
    if whole.lines is not None:
        first = whole.lines[0] + node.text.count("\n", 0, start)
        lines = (first, first + node.text.count("\n", start, end))
    span = Span(whole.start + start, whole.start + end, whole.pages, lines)
    return node.but(text=node.text[start:end], span=span, search_text="")


_PHRASE = re.compile(r"[^,;:()\n、，；：]*(?:[,;:()\n、，；：]+\s*|\Z)")


@dataclass(frozen=True)
class SelectiveContext(Operator[Ranking, Ranking]):
    """Leave out the stretches of the hits' texts that tell least, by a language model's self-information.

    I(u) = mean over the tokens of a stretch u of -ln p(x_t | x_<t), each sentence read on its own. Of all stretches of
    all hits, those with I below the percentile of `ratio` go (interpolated linearly between neighbours); the others
    stay, in their order. With ratio 0 all stay. A hit of which nothing but blanks is left goes too; of some words at
    least one stretch stays. Scores and citations are as they were.

    Args:
        llm: a model with the capability `scores`; a small one will do.
        ratio: share of the stretches to leave out, about, from 0 to below 1.
        unit: what is left out or stays: a `sentence`, a `phrase` between commas, or a `token`.

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
        found = surprises(self.llm, [Continuation.of(text) for text in texts])
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

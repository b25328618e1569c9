"""An answer without any language model: the sentences that are most likely to hold it, word for word."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from spolia.core.operator import Operator
from spolia.core.run_context import emit
from spolia.core.wiring import refuse_counts, refuse_numbers
from spolia.generation.evidence import (
    EMBEDDED,
    LEXICAL,
    PassageSentences,
    chances,
    clues,
    confidence,
    count_words,
    plain,
)
from spolia.models.marks import without_citations
from spolia.models.protocols import Embedder
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Answer, Ranking

HARD_LIMIT = 4
"""A reply is never longer than so many times `words`; of the replies, 1 in 100 would be."""
SHORTEST = 8
"""Words that a further quote is charged at least: a scrap costs little to say, and says little."""


@dataclass(frozen=True)
class Extract(Operator[Ranking, Answer]):
    """Quote the sentences that answer the question.

    Every sentence of the best passages gets a probability to hold the answer (`spolia.generation.evidence`). A reply
    is worth P(it holds the answer) - price · its words, so it is made of the likeliest sentence and all others with
    P > price · words: short where one sentence stands out, longer where several compete. The price is set so that
    replies have `words` words on average.

    Args:
        embedder: judges likeness in meaning too, which finds more; embeds each sentence that it reads, about 25 a
            question. None judges by terms alone.
        words: mean length of a reply, from 30 to 120; below, it is one sentence. In scripts without blanks, two
            characters count as a word. A single reply may be up to four times as long.
        threshold: abstain when `confidence`, from 0 to 1, is lower; 0 never abstains. The default was set on
            squad2_dev. With (without) an embedder it refuses 2 % (3 %) of the answerable questions, 83 % (41 %) of
            those asked of other articles, and 6 % (4 %) of those that were written to look answerable: likeness is
            not entailment. The cosines are those of all-MiniLM-L6-v2; set it again for another embedder.
        passages: the best so many are read.
        analyzer: should be the one that the passages were indexed with.
        abstention: the reply when nothing answers.

    Raises:
        WiringError: for numbers out of range.

    >>> from spolia.types import Hit, Node, Query, Span
    >>> text = "Ships wait for the tide. The tide is caused by the pull of the moon. So is the current."
    >>> node = Node("n1", text, document="d1", uri="tides.txt", span=Span(100, 100 + len(text)))
    >>> answer = Extract(words=20)(Ranking(Query("What causes the tide?"), (Hit(node, 1.0),)))
    >>> answer.text
    'The tide is caused by the pull of the moon. [1]'
    >>> answer.citations[0].span
    Span(start=125, end=168, pages=None, lines=None)
    """

    embedder: Embedder | None = None
    words: int = 40
    threshold: float = 0.15
    passages: int = 5
    analyzer: Analyzer = field(default_factory=Analyzer)
    abstention: str = "No passage was found that answers this."

    version: ClassVar[int] = 2
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_counts(self, "words", "passages")
        refuse_numbers(self, "a number from 0 to 1", "threshold")

    def apply(self, value: Ranking, /) -> Answer:
        read = PassageSentences(value.cut(self.passages))
        answer = self._answer(read, cosines([read], self.embedder)[0])
        emit(answer.text)
        return answer

    def apply_batch(self, values: Sequence[Ranking], /) -> Sequence[Answer]:
        reads = [PassageSentences(value.cut(self.passages)) for value in values]
        return [self._answer(*each) for each in zip(reads, cosines(reads, self.embedder), strict=True)]

    def reads(self, value: Ranking, /) -> object:
        return (value.query.question, tuple(node.digest for node in value.cut(self.passages).nodes))

    def attach(self, out: Any, value: Any, /) -> Any:
        return out.but(evidence=value.cut(self.passages))

    def _answer(self, read: PassageSentences, likeness: list[float] | None) -> Answer:
        found = clues(read.question, read.passages, self.analyzer, likeness)
        likely = chances(found, LEXICAL if likeness is None else EMBEDDED)
        order = [index for index in sorted(range(len(likely)), key=lambda i: -likely[i]) if not found[index].idle]
        if not order or confidence(found[order[0]].near, likeness[order[0]] if likeness else None) < self.threshold:
            return Answer(self.abstention, (), "abstained", read.ranking)
        chosen = self._worth_saying(order, likely, [count_words(sentence) for sentence in read.sentences])
        quotes = tuple(read.quote(index, number) for number, index in enumerate(chosen, 1))
        text = " ".join(f"{without_citations(plain(quote.quote))} [{quote.marker}]" for quote in quotes)
        return Answer(text, quotes, "answered", read.ranking)

    def _worth_saying(self, order: Sequence[int], likely: Sequence[float], lengths: Sequence[float]) -> list[int]:
        """The likeliest sentence, and the others that are worth their words, likeliest first."""
        price, room = price_of_a_word(self.words), HARD_LIMIT * self.words - lengths[order[0]]
        chosen = [order[0]]
        for index in order[1:]:
            if likely[index] > price * max(SHORTEST, lengths[index]) and lengths[index] <= room:
                chosen.append(index)
                room -= lengths[index]
        return chosen


def cosines(reads: Sequence[PassageSentences], embedder: Embedder | None) -> list[list[float] | None]:
    """Of each sentence with its question, or None without an embedder; each distinct text is embedded once."""
    if embedder is None:
        return [None] * len(reads)
    questions = list(dict.fromkeys(read.question for read in reads))
    sentences = list(dict.fromkeys(sentence for read in reads for sentence in read.sentences))
    asked = dict(zip(questions, embedder.embed(questions, kind="query"), strict=True))
    said = dict(zip(sentences, embedder.embed(sentences, kind="passage"), strict=True))
    return [[float(said[sentence] @ asked[read.question]) for sentence in read.sentences] for read in reads]


def price_of_a_word(words: int) -> float:
    """The least chance per word that is worth saying, for replies of so many words on average.

    Measured on squad_newwiki and squad2_dev for 30, 40, 60, 80 and 120 words, with and without an embedder; a cube law
    keeps the mean length within a tenth (benchmarks/results/extract_fit.json).

    >>> round(price_of_a_word(30), 4), round(price_of_a_word(80), 4)
    (0.0108, 0.0006)
    """
    return float(0.0108 * (30 / words) ** 3)

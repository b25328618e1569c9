"""An answer of a few words without any language model: the stretch that a trained reader finds."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from spolia.core.markdown import disarm
from spolia.core.operator import Operator
from spolia.core.run_context import emit
from spolia.core.type_compatibility import refuse_counts, refuse_numbers
from spolia.generation.extract import plain_quote
from spolia.models.marks import escape_citations
from spolia.models.protocols import SpanModel
from spolia.types import Answer, Citation, Ranking


@dataclass(frozen=True)
class SpanReader(Operator[Ranking, Answer]):
    """Answer with the stretch of a passage that a trained reader finds, cited to the character.

    The stretch is the one with the highest `s - rank_weight · ln(rank)`, where s is `start + end - no answer` by the
    reader's logits, and rank that of its passage. It is abstained from if s is below `threshold`.

    Args:
        model: a reader that `spolia train reader` trained (`MiniLMSpans`), or your own.
        passages: number of passages to read, the best first.
        threshold: the least s that is an answer; 0 where an answer is as likely as none. Higher abstains more often.
        rank_weight: how much the order of the passages counts; 0 to judge by the reader alone.
        abstention: the reply where nothing answers.
        live_markdown: leave images, HTML and links of documents as they are; by default `disarm` makes them inert in
            the reply. The citation always has the document's own words.

    Raises:
        WiringError: for numbers out of range.
        WeightsError: when it runs: there is no trained reader.

    Source: Devlin et al., "BERT", NAACL 2019, section 4.3; windows as in Alberti et al., "A BERT baseline for the
    Natural Questions", 2019.

    >>> from spolia.models import MiniLMSpans, TrainedWeights
    >>> SpanReader(MiniLMSpans(TrainedWeights("trained/reader"))).passages
    3
    """

    model: SpanModel
    passages: int = 3
    threshold: float = 0.0
    rank_weight: float = 2.0
    abstention: str = "No passage was found that answers this."
    live_markdown: bool = False

    version: ClassVar[int] = 5  # 4, 5: Markdown in a quote is inert
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "passages")
        refuse_numbers(self, "a number", "threshold", "rank_weight")

    def apply(self, value: Ranking, /) -> Answer:
        ranking = value.cut(self.passages)
        spans = self.model.spans(ranking.query.question, [node.text for node in ranking.nodes])
        candidates = [
            (span.score - self.rank_weight * math.log(rank), -rank, node, span)
            for rank, (node, span) in enumerate(zip(ranking.nodes, spans, strict=True), 1)
            if span is not None and span.score >= self.threshold
        ]
        if not candidates:
            emit(self.abstention)
            return Answer(self.abstention, (), "abstained", ranking)
        # equal scores: the better passage; nodes do not compare
        *_, node, span = max(candidates, key=lambda candidate: candidate[:2])
        quote = node.text[span.start : span.end]
        cited = Citation("1", node.id, node.document, node.uri, quote, node.span_of(span.start, span.end))
        text = f"{escape_citations(plain_quote(quote))} [1]"
        answer = Answer(text if self.live_markdown else disarm(text), (cited,), "answered", ranking)
        emit(answer.text)
        return answer

    def reads(self, value: Ranking, /) -> object:
        return value.query.question, tuple(node.digest for node in value.cut(self.passages).nodes)

    def attach(self, out: Any, value: Any, /) -> Any:
        return out.but(evidence=value.cut(self.passages))

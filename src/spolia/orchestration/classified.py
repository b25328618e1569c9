"""Whether a chain of sub-questions suffices, by a classifier."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from spolia.errors import WiringError
from spolia.models.protocols import Scorer
from spolia.operator import Operator
from spolia.surrounding import degrade
from spolia.types import Chain, Verdict
from spolia.wiring import refuse_counts


@dataclass(frozen=True)
class Classified(Operator[Chain, Verdict]):
    """Stop where a classifier gives the question and its chain at least a score.

    It reads the question and as many of the newest pairs as there is room for: what is left out is the oldest. A score
    that is NaN or infinite does not stop, and is counted.

    Args:
        classifier: a scorer of (question, chain) that was trained for it, here or on a server.
        threshold: the least score that stops.
        characters: of question and chain that are read; some 2,000 are 512 tokens of English.

    Raises:
        WiringError: for a threshold that is no number.

    Source: Yeom et al., "Chain of retrieval with an external sufficiency classifier", 2025.

    >>> from spolia.models.reranking import RerankModel
    >>> from spolia.testing import OpenAIServer
    >>> from spolia.types import Query
    >>> chain = Chain(Query("Who employed Olsen?"), (("Who is Olsen?", "An engineer whom Nokia employed."),))
    >>> with OpenAIServer() as server:  # which scores by the words that question and chain share
    ...     judge = Classified(RerankModel("any", server.url), threshold=0.25)
    ...     judge(chain), judge.but(threshold=0.9)(chain)
    (Verdict(stop=True, reason='sufficient'), Verdict(stop=False, reason='sufficient'))
    """

    classifier: Scorer
    threshold: float = 0.5
    characters: int = 2_000

    cached: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "characters")
        if not math.isfinite(self.threshold):
            raise WiringError(f"{self.short}: threshold is {self.threshold}. Write a number.")

    def reads(self, value: Chain, /) -> object:
        return value.query.question, value.written(self.characters)

    def apply(self, value: Chain, /) -> Verdict:
        (score,) = self.classifier.scores(value.query.question, [value.written(self.characters)])
        if not math.isfinite(score):
            degrade(f"{self.classifier.name} gave the score {score}; the chain goes on.")
            return Verdict(False, "sufficient")
        return Verdict(score >= self.threshold, "sufficient")

    def calls(self, rows: int | None = None, /) -> int | None:
        return 0

"""LLMLingua: tokens that a small language model expects are left out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from spolia.models.likelihood import Continuation, surprises
from spolia.models.protocols import SCORES, LanguageModel
from spolia.operator import Operator
from spolia.post_retrieval.compression.budget import segments, telling
from spolia.post_retrieval.selection.kept import ALMOST, refuse_no_share
from spolia.post_retrieval.shown import showing
from spolia.surrounding import gather
from spolia.types import Failure, Hit, Ranking
from spolia.wiring import refuse_counts


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

    >>> from spolia.models.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, Served
    >>> from spolia.types import Node, Query
    >>> found = Ranking(Query("?"), (Hit(Node("a", "So it is that Nokia employed Olsen"), 1.0),))
    >>> with OpenAIServer(Served(logprob=-0.5)) as server:  # each character costs 0.5, so long words tell more
    ...     LLMLingua(CompletionModel("any", server.url))(found).nodes[0].text
    'Nokia employed Olsen'
    """

    llm: LanguageModel
    rate: float = 0.5
    segment: int = 1_000

    version: ClassVar[int] = 2
    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((SCORES,))}

    def __post_init__(self) -> None:
        refuse_no_share(self, "rate")
        refuse_counts(self, "segment")

    def apply(self, value: Ranking, /) -> Ranking:
        found = gather([partial(self._short, hit) for hit in value.hits])
        for one in found:
            if isinstance(one, Failure):
                raise one.raised()
        return value.but(hits=tuple(one for one in found if not isinstance(one, Failure)))

    def calls(self, rows: int | None = None, /) -> int | None:
        return None

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

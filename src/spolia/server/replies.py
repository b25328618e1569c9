"""What a question gives, as plain data: the same for the routes of the server and for `--json` on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, NotRequired, cast

from spolia.core.operator import Operator
from spolia.errors import WiringError
from spolia.run.lane import Lane, counted_reasons
from spolia.run.run import Run
from spolia.services.aliases import Promotion
from spolia.stores.corpus import Corpus
from spolia.types import Answer, Box, Citation, Hit, Ranking

if sys.version_info >= (3, 12):
    from typing import TypedDict as TypedDict
else:  # pydantic asks for it; it comes with typer
    from typing_extensions import TypedDict as TypedDict


class SpanReply(TypedDict):
    """The place of a text in its document: characters, pages, lines, seconds."""

    start: int
    end: int
    pages: Sequence[int] | None
    lines: Sequence[int] | None
    seconds: Sequence[float] | None


class BoxReply(TypedDict):
    """A rectangle on a page, in points from its upper left corner."""

    page: int
    left: float
    top: float
    right: float
    bottom: float


class CitationReply(TypedDict):
    """The passage behind a statement. `marker` is how the answer refers to it: `1` for `[1]`."""

    marker: str
    place: str
    uri: str
    document: str
    node: str
    quote: str
    span: SpanReply | None
    boxes: list[BoxReply]


Degraded = dict[str, dict[str, int]]
"""What was out of order: by step, each reason and how often."""


class AnswerReply(TypedDict):
    """An answer with its citations. `run` finds its trace."""

    question: str
    flow: str
    run: str
    answer: str
    stop_reason: str
    faults: list[str]
    citations: list[CitationReply]
    degraded: NotRequired[Degraded]


class HitReply(TypedDict):
    """A passage: where it stands, its score, the scores that were fused (`parts`), its text."""

    place: str
    uri: str
    document: str
    node: str
    span: SpanReply | None
    score: float
    parts: dict[str, float]
    text: str
    context: str


class StageReply(TypedDict):
    """What one step of a search gave: nodes and scores, best first."""

    step: str
    seconds: float
    hits: list[tuple[str, float]]


class SearchReply(TypedDict):
    """Passages, best first."""

    question: str
    flow: str
    run: str
    hits: list[HitReply]
    stages: NotRequired[list[StageReply]]
    degraded: NotRequired[Degraded]


class AliasReply(TypedDict):
    """What an alias stands for: a flow, the SHA-256 of its file (empty for a built-in flow), since when."""

    flow: str
    sha256: str
    promoted: float


def alias_reply(promotion: Promotion) -> AliasReply:
    return {"flow": promotion.name, "sha256": promotion.sha256, "promoted": promotion.promoted}


class ErrorDetail(TypedDict):
    """What happened, and what to write; `param` is the field that is wrong."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorReply(TypedDict):
    """An error in OpenAI's form."""

    error: ErrorDetail


def answer_reply(
    answer: Answer, corpus: Corpus, run: Run, lane: Lane, flow: Operator[Any, Any], *, question: str, name: str
) -> AnswerReply:
    """An answer; each citation has the boxes where it stands on its pages, as far as the holder may read them."""
    citations = [one.json() | {"boxes": [asdict(box) for box in _boxes(corpus, run, one)]} for one in answer.citations]
    found = answer.json() | {"citations": citations} | _degraded(lane, flow)
    return cast(AnswerReply, {"question": question, "flow": name, "run": run.id, **found})


def search_reply(
    hits: Iterable[Hit], run: Run, lane: Lane, flow: Operator[Any, Any], *, question: str, name: str
) -> SearchReply:
    found = {"hits": [hit.json() for hit in hits], **_degraded(lane, flow)}
    return cast(SearchReply, {"question": question, "flow": name, "run": run.id, **found})


def passages(result: object) -> Ranking:
    """The passages behind what a flow gave."""
    if isinstance(result, Ranking):
        return result
    if isinstance(result, Answer) and result.evidence is not None:
        return result.evidence
    raise WiringError(f"The flow gave a {type(result).__name__}; to search, it must give a Ranking or an Answer.")


def _degraded(lane: Lane, flow: Operator[Any, Any]) -> dict[str, Degraded]:
    found = counted_reasons(lane.steps(flow)) if lane.reasons else {}
    return {"degraded": found} if found else {}


def _boxes(corpus: Corpus, run: Run, citation: Citation) -> tuple[Box, ...]:
    if citation.span is None:
        return ()
    return corpus.snapshot().boxes(citation.document, citation.span, run.principals)

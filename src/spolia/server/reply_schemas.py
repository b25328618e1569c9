"""Shapes of replies, which the server's OpenAPI page describes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NotRequired

if sys.version_info >= (3, 12):
    from typing import TypedDict as TypedDict
else:  # pydantic asks for it, and brings it
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
    """Result of one step of a search: nodes and scores, best first."""

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
    """Flow behind an alias: its name, its file's SHA-256 (empty for a built-in flow), the time of its promotion."""

    flow: str
    sha256: str
    promoted: float


class ErrorDetail(TypedDict):
    """Details of an error: what happened and what to write; `param` is the wrong field."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorReply(TypedDict):
    """An error in OpenAI's form."""

    error: ErrorDetail

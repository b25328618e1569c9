"""One question that one flow was asked: what came of it, as it is kept and shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Self

from spolia.evaluation.measures.measure import Case, Seen
from spolia.run.lane import Lane
from spolia.types import Answer, Failure, Hit, Ranking, Usage, Value

SHOWN = 100
"""Hits that are kept of a result."""
READ = 10
"""Hits of which the text is kept."""
CHARACTERS = 240
LONGEST = 20_000
"""Characters of an answer that are kept."""


@dataclass(frozen=True)
class Found(Value):
    """A hit, with as much of its text as tells people what it is.

    Args:
        start, end: where it stands in its document; -1 where that is not known.
        uri: what its document is called.
    """

    node: str
    document: str
    score: float
    start: int = -1
    end: int = -1
    text: str = ""
    uri: str = ""


@dataclass(frozen=True)
class Retrieval(Value):
    """A call of a retriever: whom it asked, for what, and the ids of the nodes that it found."""

    source: str
    query: str
    found: tuple[str, ...]


@dataclass(frozen=True)
class Row(Value):
    """What a flow made of a question.

    Args:
        flow: its name.
        item: id of the question.
        seen: by measure that applies, what the question adds to it; None where that could not be determined.
        usage: what the flow needed, results from a cache included.
        spent: what it really spent.
        judging: what measures spent on judges.
        seconds: from question to result, judges not included.
        opening: seconds that opening stores took before it, where it is the first question of a process, which also
            waits for models to be loaded; None for all others.
        cached: whether a step's result came from the cache, so that the time says nothing.
        interrupted: whether a step or a judge failed for a reason that may pass, so that it is worth asking again.
        run, lane: where its steps are in the journal; lane 0 where they are not.
        failure: why there is no result.
        found: the passages of the result, or behind the answer.
        answer: what it answered.
        stop_reason: of the answer; empty where the flow gives a ranking.
        cited: documents that the answer cites.
        retrievals: calls of retrievers, in order.
    """

    flow: str
    item: str
    seen: tuple[tuple[str, Seen | None], ...]
    usage: Usage = field(default=Usage())
    spent: Usage = field(default=Usage())
    judging: Usage = field(default=Usage())
    seconds: float = 0.0
    opening: float | None = None
    cached: bool = False
    interrupted: bool = False
    run: str = ""
    lane: int = 0
    failure: Failure | None = None
    found: tuple[Found, ...] = ()
    answer: str = ""
    stop_reason: str = ""
    cited: tuple[str, ...] = ()
    retrievals: tuple[Retrieval, ...] = ()

    @classmethod
    def of(cls, flow: str, case: Case, lane: Lane, **more: Any) -> Self:
        """The row of a case."""
        answer = case.result if isinstance(case.result, Answer) else None
        return cls(
            flow,
            case.item.id,
            usage=lane.usage,
            spent=lane.spent,
            cached=lane.cached,
            lane=lane.number,
            failure=case.result.but(error=None) if isinstance(case.result, Failure) else None,
            found=tuple(_found(hit, rank) for rank, hit in enumerate(_hits(case.result)[:SHOWN])),
            answer=answer.text[:LONGEST] if answer else "",
            stop_reason=answer.stop_reason if answer else "",
            cited=tuple(dict.fromkeys(one.document for one in answer.citations)) if answer else (),
            retrievals=tuple(
                Retrieval(call.source, call.query.text[:CHARACTERS], tuple(hit.node.id for hit in call.hits[:SHOWN]))
                for call in case.retrievals
            ),
            **more,
        )

    def text(self) -> str:
        """How it is written to a file, without flow and question."""
        rest = {name: getattr(self, name) for name in ROW}
        return json.dumps(rest | {name: _plain(rest[name]) for name in CLASSES}, ensure_ascii=False)

    @classmethod
    def read(cls, flow: str, item: str, text: str) -> Row:
        """What `text` has written."""
        rest = json.loads(text)
        for name, kind in CLASSES.items():
            rest[name] = _made(kind, rest[name])
        seen = tuple((name, None if one is None else tuple(one)) for name, one in rest.pop("seen"))
        return cls(flow, item, seen, **rest | {"cited": tuple(rest["cited"])})


CLASSES: dict[str, Any] = {
    "usage": Usage, "spent": Usage, "judging": Usage, "failure": Failure, "found": [Found], "retrievals": [Retrieval]
}  # fmt: skip
ROW = tuple(name for name in Row.__dataclass_fields__ if name not in ("flow", "item"))


def _plain(value: Any) -> Any:
    if isinstance(value, Failure):
        return (value.kind, value.message, value.step)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return None if value is None else astuple(value)


def _made(kind: Any, plain: Any) -> Any:
    if isinstance(kind, list):
        return tuple(_made(kind[0], one) for one in plain)
    return None if plain is None else kind(*(tuple(one) if isinstance(one, list) else one for one in plain))


def _hits(result: Ranking | Answer | Failure) -> Sequence[Hit]:
    if isinstance(result, Failure):
        return ()
    ranking = result.evidence if isinstance(result, Answer) else result
    return ranking.hits if ranking is not None else ()


def _found(hit: Hit, rank: int) -> Found:
    node, span = hit.node, hit.node.span
    start, end = (span.start, span.end) if span is not None else (-1, -1)
    text = node.text if len(node.text) <= CHARACTERS else f"{node.text[: CHARACTERS - 1]}…"
    return Found(node.id, node.document, hit.score, start, end, text if rank < READ else "", node.uri)

"""What a flow made of one question, as a baseline keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spolia.evaluation.measures.measure import Seen
from spolia.evaluation.row import Found, Row
from spolia.types import Gold, Item, Quote, Value, digest_of

FOUND = 10
"""Passages that are written down of each question."""
ANSWER = 240
"""Characters of an answer that are."""
PARTS = ("text", "answer", "gold")
"""Of a question, what its scores depend on."""


@dataclass(frozen=True)
class Asked(Value):
    """What a flow made of a question.

    Args:
        item: its id.
        content: hashes of the question, its answers and its gold, as `PARTS` names them.
        seen: by measure, what it adds; None where that could not be determined.
        found: of the first passages found, document, start and end.
        order: hash of all that was found, in order.
        gold: the gold passages that were found, and at which rank.
        answer: how it begins; empty where the flow finds passages only.
        answered: hash of all of it.
        failure: why there is no result; empty where there is one.
    """

    item: str
    content: tuple[str, ...]
    seen: Mapping[str, Seen | None]
    found: tuple[tuple[str, int, int], ...] = ()
    order: str = ""
    gold: Mapping[str, int] = field(default_factory=dict)
    answer: str = ""
    answered: str = ""
    failure: str = ""

    @classmethod
    def of(cls, item: Item, row: Row) -> Asked:
        """What stands in a row of an experiment."""
        return cls(
            item.id,
            content_of(item),
            dict(row.seen),
            tuple((one.document or one.node, one.start, one.end) for one in row.found[:FOUND]),
            short([(one.node, one.start, one.end) for one in row.found]),
            _gold_ranks(item, row.found),
            row.answer[:ANSWER],
            short((row.answer, row.cited)),
            f"{row.failure.kind}: {row.failure.message}"[:ANSWER] if row.failure else "",
        )

    @classmethod
    def read(cls, item: str, plain: Mapping[str, Any]) -> Asked:
        """What a file says."""
        seen = {name: None if one is None else tuple(map(float, one)) for name, one in plain["seen"].items()}
        found = tuple((str(name), int(start), int(end)) for name, start, end in plain["found"])
        content = tuple(map(str, plain["content"]))
        return cls(item, **{**plain, "content": content, "seen": seen, "found": found})

    def plain(self) -> dict[str, Any]:
        """Plain data, without the id."""
        return {name: getattr(self, name) for name in type(self).__dataclass_fields__ if name != "item"}


def documents_of(item: Item) -> list[str]:
    """The documents that are its gold, or hold it."""
    gold = (one for group in item.gold for one in group)
    return list(dict.fromkeys(one.document if isinstance(one, Quote) else one for one in gold))


def content_of(item: Item) -> tuple[str, ...]:
    """Hashes of the parts of a question. Fields that say nothing of it, such as a type, may change."""
    return short(item.question), short(item.answers), short((item.gold, item.grades))


def _gold_ranks(item: Item, found: Sequence[Found]) -> dict[str, int]:
    gold = [one for group in item.gold for one in group]
    ranks = {str(one): [rank for rank, hit in enumerate(found, start=1) if _is(one, hit)] for one in gold}
    return {name: min(places) for name, places in ranks.items() if places}


def _is(gold: Gold, hit: Found) -> bool:
    if isinstance(gold, Quote):
        return hit.document == gold.document and hit.start < gold.end and gold.start < hit.end
    return gold == (hit.document or hit.node)


def short(value: object) -> str:
    """A content hash that is short enough to be read by people."""
    return digest_of(value).hex()[:16]

"""What a flow made of one question, as a baseline keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spolia.evaluation.gate.steps import Steps, best_steps
from spolia.evaluation.gold import Whereabouts, document_of
from spolia.evaluation.measures.measure import Seen
from spolia.evaluation.row import Row
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
        found: of the first passages found, the name of the document, start and end.
        order: hash of all that was found, in order.
        about: names of the documents that are gold, or of which a stretch is.
        gold: by gold passage as it is written, at which ranks how much of it was seen so far; none where nothing was.
        answer: how it begins; empty where the flow finds passages only.
        answered: hash of all of it.
        failure: why there is no result; empty where there is one.
    """

    item: str
    content: tuple[str, ...]
    seen: Mapping[str, Seen | None]
    found: tuple[tuple[str, int, int], ...] = ()
    order: str = ""
    about: tuple[str, ...] = ()
    gold: Mapping[str, Steps] = field(default_factory=dict)
    answer: str = ""
    answered: str = ""
    failure: str = ""

    @classmethod
    def of(cls, item: Item, row: Row, places: Whereabouts, names: Mapping[str, str]) -> Asked:
        """What stands in a row of an experiment.

        Args:
            item: with its gold as it is written.
            places: where that stands.
            names: of documents, by id.
        """
        gold = [one for group in item.gold for one in group]
        stand = {document_of(place) for one in gold for place in places.of(one)}
        return cls(
            item.id,
            content_of(item),
            dict(row.seen),
            tuple((names.get(one.document, one.document or one.node), one.start, one.end) for one in row.found[:FOUND]),
            short([(one.node, one.start, one.end) for one in row.found]),
            tuple(sorted(names.get(document, document) for document in stand)),
            {_named(one, names): best_steps(places.of(one), row.found) for one in gold},
            row.answer[:ANSWER],
            short((row.answer, row.cited)),
            f"{row.failure.kind}: {row.failure.message}"[:ANSWER] if row.failure else "",
        )

    @property
    def documents(self) -> tuple[str, ...]:
        """Names of those that are gold, and of those that were found."""
        return tuple(dict.fromkeys([*self.about, *(name for name, _, _ in self.found)]))

    @classmethod
    def read(cls, item: str, plain: Mapping[str, Any]) -> Asked:
        """What a file says."""
        seen = {name: None if one is None else tuple(map(float, one)) for name, one in plain["seen"].items()}
        found = tuple((str(name), int(start), int(end)) for name, start, end in plain["found"])
        kept: dict[str, Any] = {name: tuple(map(str, plain[name])) for name in ("content", "about")}
        kept["gold"] = {
            name: tuple((int(at), float(share)) for at, share in one) for name, one in plain["gold"].items()
        }
        return cls(item, **{**plain, **kept, "seen": seen, "found": found})

    def plain(self) -> dict[str, Any]:
        """Plain data, without the id."""
        return {name: getattr(self, name) for name in type(self).__dataclass_fields__ if name != "item"}


def content_of(item: Item) -> tuple[str, ...]:
    """Hashes of the parts of a question. Fields that say nothing of it, such as a type, may change."""
    return short(item.question), short(item.answers), short((item.gold, item.grades))


def _named(gold: Gold, names: Mapping[str, str]) -> str:
    name = names.get(document_of(gold), document_of(gold))
    return str(gold.but(document=name)) if isinstance(gold, Quote) else name


def short(value: object) -> str:
    """A content hash that is short enough to be read by people."""
    return digest_of(value).hex()[:16]

"""Questions that bring their own paragraphs: those of all questions are one pool, in which each stands once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spolia.errors import DataError
from spolia.evaluation.formats.own import plain
from spolia.evaluation.jsonl import first_record
from spolia.types import Document, Item, Scalar


@dataclass
class Pool:
    """Ids of paragraphs: the title, and which text of that title it is, since different texts share one."""

    texts: dict[str, dict[str, int]] = field(default_factory=dict)

    def id(self, title: str, text: str) -> tuple[str, bool]:
        """The id of a paragraph, and whether it was not there before.

        >>> pool = Pool()
        >>> pool.id("Nokia", "A town."), pool.id("Nokia", "A company."), pool.id("Nokia", "A town.")
        (('Nokia#1', True), ('Nokia#2', True), ('Nokia#1', False))
        """
        known = self.texts.setdefault(title, {})
        new = text not in known
        number = known.setdefault(text, len(known) + 1)
        return f"{title}#{number}", new


def has_fields(path: Path, *names: str) -> bool:
    """Whether the first object of a file has these fields."""
    if not path.is_file():
        return False
    found = first_record(path)
    return all(name in found for name in names)


def field_of(place: str, row: Mapping[str, Any], name: str, kind: type | tuple[type, ...] = str) -> Any:
    """A field that must be there and of a kind."""
    found = row.get(name)
    if not isinstance(found, kind):
        there = "missing" if name not in row else repr(found)[:80]
        raise DataError(f"{place}: {name!r} is {there}. The fields are: {', '.join(row) or 'none'}.")
    return found


def rest_of(row: Mapping[str, Any], known: Sequence[str]) -> Iterator[tuple[str, Scalar]]:
    """All other fields as metadata; what is no scalar as JSON."""
    for name, value in row.items():
        if name not in known:
            scalar = isinstance(value, str | int | float | bool | None)
            yield name, value if scalar else json.dumps(value, ensure_ascii=False)


def context_of(item: Item, passages: Mapping[str, Document]) -> list[Document]:
    """The paragraphs that a question brought, and all that are its gold."""
    named = list(plain(item.meta).get("context") or ())
    named += [one for group in item.gold for one in group if one not in named]
    if lacking := next((one for one in named if not isinstance(one, str) or one not in passages), None):
        raise DataError(f"{str(lacking)!r} of question {item.id!r} is no passage of the corpus.")
    return [passages[one] for one in named]

"""Metadata fields that transforms name: one that no document has is a slip of the pen, and would attach nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from spolia.core.operator import Operator
from spolia.errors import GroupError
from spolia.filters import Schema
from spolia.stores.definition import Naming
from spolia.stores.groups.growing import Grown, Growth


class Unseen:
    """What transforms name and no document that passes has, nor is declared.

    Args:
        growths: the groups that are built.
        schema: the declared fields, which any document may get.
    """

    def __init__(self, growths: Iterable[Growth], schema: Schema) -> None:
        named = {growth.group: set(_named(growth.transform)) - schema.by_name.keys() for growth in growths}
        self._left = {group: names for group, names in named.items() if names}
        self._seen: set[str] = set()

    def look(self, one: Grown) -> None:
        """A document and what was made of it passes."""
        for group, names in self._left.items():
            made = one.made.get(group)
            own = [node.meta for node in made] if isinstance(made, list) else []
            self._seen.update(name for meta in (one.document.meta, *own) for name, _ in meta)
            names -= self._seen

    def refuse(self) -> None:
        """All documents have passed.

        Raises:
            GroupError: a field was named that nothing has.
        """
        for group, names in self._left.items():
            if names:
                raise GroupError(
                    f"Group {group!r} names the metadata {', '.join(sorted(names))}, which no document has; they have: "
                    f"{', '.join(sorted(self._seen)) or 'none'}. Write one of these, or give it to the documents: "
                    "sync(..., metadata=...). What only later ones will have is declared: fields=(Field(NAME),)."
                )


def _named(transform: Operator[Any, Any]) -> Iterator[str]:
    if isinstance(transform, Naming):
        yield from transform.fields
    for _, inner in transform.inner():
        yield from _named(inner)

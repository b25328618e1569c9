"""What all nodes of a group were made from, without their texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from spolia.errors import GroupError
from spolia.stores.definition import DOCUMENT
from spolia.stores.tables import sql

if TYPE_CHECKING:
    from spolia.stores.snapshot import Snapshot


class Row(NamedTuple):
    """What the truth says of a node, but for what it says itself. `document`: the document's key."""

    key: int
    id: str
    document: int
    number: int
    parent: str
    meta: str


def rows_of(snapshot: Snapshot, group: str) -> Iterator[Row]:
    """All live nodes of a group, by key."""
    snapshot.manifest(group)
    values = {"grp": group, "at": snapshot.generation}
    return (Row(*row) for row in snapshot.opened.each(sql.LINEAGE, values))


class Climbing:
    """The way from the nodes of a group to their ancestors in a group above, or to themselves.

    Args:
        group: of the nodes.
        to: of the ancestors.

    Raises:
        GroupError: the one is not made from the other.
    """

    def __init__(self, snapshot: Snapshot, group: str, to: str) -> None:
        above = snapshot.above(group)
        if to not in above:
            raise GroupError(
                f"Group {group!r} is not made from {to!r}; above it there are: {', '.join(above[1:])}. "
                "Write one of these."
            )
        self._to, self._stays = to, to == group
        between = () if to == DOCUMENT else above[1 : above.index(to)]
        self._parents = [{row.id: row.parent for row in rows_of(snapshot, name)} for name in between]

    def of(self, row: Row) -> object:
        """What tells the ancestor apart: its id, of documents their key."""
        if self._to == DOCUMENT:
            return row.document
        if self._stays:
            return row.id
        id = row.parent
        for parents in self._parents:
            id = parents.get(id, "")
        return id

"""The nodes that nodes were made from, and those made from them: one by one, and for whole groups without texts."""

import json
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import NamedTuple

from spolia.errors import GroupError
from spolia.stores.backends import sql
from spolia.stores.definition import DOCUMENT, whole
from spolia.stores.snapshot.snapshot import PUBLIC, Snapshot
from spolia.types import Filter, Node


class LineageRow(NamedTuple):
    """What the backend says of a node, but for what it says itself. `document`: the document's key."""

    key: int
    id: str
    document: int
    number: int
    parent: str
    meta: str


def rows_of(snapshot: Snapshot, group: str, access: frozenset[str] | None = None) -> Iterator[LineageRow]:
    """All live nodes of a group, by key; of those only that these principals may read, unless it is None."""
    snapshot.manifest(group)
    values = {"grp": group, "at": snapshot.generation}
    rows = (LineageRow(*row) for row in snapshot.opened.each(sql.LINEAGE, values))
    readable = None if access is None else snapshot.allowed(group, access).mask
    return rows if readable is None else compress(rows, readable.tolist())


class AncestorPath:
    """The way from the nodes of a group to their ancestors in a group above, or to themselves."""

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

    def of(self, row: LineageRow) -> object:
        """What tells the ancestor apart: its id, of documents their key."""
        if self._to == DOCUMENT:
            return row.document
        if self._stays:
            return row.id
        id = row.parent
        for parents in self._parents:
            id = parents.get(id, "")
        return id


def parents(snapshot: Snapshot, nodes: Sequence[Node], access: frozenset[str] = PUBLIC) -> dict[str, Node]:
    """The nodes that these were made from, by id; a whole document is a node of group `document`."""
    wanted = [node.parent for node in nodes if node.parent]
    found = snapshot.nodes_of_ids(wanted, access)
    for id in dict.fromkeys(wanted):
        if id not in found and (document := snapshot.find_document(id, access)) is not None:
            found[id] = whole(document)
    return found


def children(snapshot: Snapshot, ids: Sequence[str], group: str, access: frozenset[str] = PUBLIC) -> list[Node]:
    """The nodes of a group that were made from these nodes, in the order of `ids`, then of the text."""
    snapshot.manifest(group)
    values = {"ids": json.dumps(list(ids)), "grp": group, "at": snapshot.generation}
    return snapshot.readable_of(snapshot.opened.rows(sql.CHILDREN, values), access)


def ancestors(
    snapshot: Snapshot, nodes: Sequence[Node], group: str, access: frozenset[str] = PUBLIC
) -> list[Node | None]:
    """For each node its ancestor in a group above its own, itself if it is of that group; None if not readable."""
    at: dict[int, Node] = dict(enumerate(nodes))
    while open_ := {row: node for row, node in at.items() if node.group != group}:
        found = parents(snapshot, list(open_.values()), access)
        for row, node in open_.items():
            if (parent := found.get(node.parent)) is None:
                del at[row]
            else:
                at[row] = parent
    return [at.get(row) for row in range(len(nodes))]


def descendants(
    snapshot: Snapshot, nodes: Sequence[Node], group: str, access: frozenset[str] = PUBLIC
) -> list[list[Node]]:
    """For each node those of a group below its own that were made from it, in order; itself if of that group."""
    within: list[list[Node]] = [[node] for node in nodes]
    way = list(snapshot.above(group))
    for below in reversed(way[: way.index(nodes[0].group)] if nodes else ()):
        ids = dict.fromkeys(node.id for row in within for node in row)
        made: dict[str, list[Node]] = {}
        for child in children(snapshot, list(ids), below, access):
            made.setdefault(child.parent, []).append(child)
        within = [[child for node in row for child in made.get(node.id, ())] for row in within]
    return within


def by_lineage(snapshot: Snapshot, nodes: Sequence[Node], group: str, access: frozenset[str]) -> list[list[Node]]:
    """For each node those of a group that share its nearest readable common ancestor, in order of the text."""
    rows: dict[str, list[int]] = {}
    for row, node in enumerate(nodes):
        rows.setdefault(node.group, []).append(row)
    found: list[list[Node]] = [[] for _ in nodes]
    for some in rows.values():
        for row, related in zip(some, _of_one_group(snapshot, [nodes[r] for r in some], group, access), strict=True):
            found[row] = related
    return found


def _of_one_group(snapshot: Snapshot, nodes: Sequence[Node], group: str, access: frozenset[str]) -> list[list[Node]]:
    target = snapshot.above(group)
    common = next(name for name in snapshot.above(nodes[0].group) if name in target)
    above = ancestors(snapshot, nodes, common, access)
    distinct = {node.id: node for node in above if node is not None}
    below = dict(zip(distinct, descendants(snapshot, list(distinct.values()), group, access), strict=True))
    return [below[node.id] if node is not None else [] for node in above]


def by_place(snapshot: Snapshot, nodes: Sequence[Node], group: str, access: frozenset[str]) -> list[list[Node]]:
    """For each node those of a group whose stretches of the same document overlap its own, in order of the text."""
    return [_overlapping(snapshot, node, group, access) for node in nodes]


def _overlapping(snapshot: Snapshot, node: Node, group: str, access: frozenset[str]) -> list[Node]:
    if node.span is None:
        return []
    if group == DOCUMENT:
        return list(parents(snapshot, [node.but(parent=node.document)], access).values())
    snapshot.manifest(group)
    where = {"document": node.document, "grp": group, "start": node.span.start, "end": node.span.end}
    return snapshot.readable_of(snapshot.opened.rows(sql.OVERLAPPING, where | {"at": snapshot.generation}), access)


def passing(snapshot: Snapshot, nodes: Sequence[Node], access: frozenset[str], filter: Filter | None) -> list[Node]:
    if filter is None:
        return list(nodes)
    kept: set[str] = set()
    for group in dict.fromkeys(node.group for node in nodes):
        kept |= _passing(snapshot, [node for node in nodes if node.group == group], access, filter)
    return [node for node in nodes if node.id in kept]


def _passing(snapshot: Snapshot, nodes: Sequence[Node], access: frozenset[str], filter: Filter) -> set[str]:
    """Ids of those nodes of one group that pass; whole documents are looked up as what they are."""
    ids = [node.id for node in nodes]
    if all(node.group == DOCUMENT and node.id == node.document for node in nodes):
        wanted = {"ids": json.dumps(ids), "at": snapshot.generation}
        keys = dict(snapshot.opened.rows(sql.WHOLE_KEYS_OF_IDS, wanted))
        allowed = snapshot.open.records(None).allowed(None, filter)
    else:
        keys = snapshot.keys_of(ids)
        allowed = snapshot.allowed(nodes[0].group, access, filter)
    return {id for id, holds in zip(keys, allowed.holds(keys.values()), strict=True) if holds}

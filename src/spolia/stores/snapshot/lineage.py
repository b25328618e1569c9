"""Lineage of nodes: those that nodes were made from, and those made from them, one by one, and for whole groups without
texts."""

import json
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import NamedTuple

from spolia.errors import GroupError
from spolia.stores.backends import sql
from spolia.stores.definition import DOCUMENT, document_node
from spolia.stores.snapshot.snapshot import PUBLIC, Snapshot
from spolia.types import Filter, Node


class LineageRow(NamedTuple):
    """Row of a node in the backend, without its text. `document`: the document's key."""

    key: int
    id: str
    document: int
    number: int
    parent: str
    meta: str


def rows_of(snapshot: Snapshot, group: str, access: frozenset[str] | None = None) -> Iterator[LineageRow]:
    """Yield all live nodes of a group, by key; only those that these principals may read, unless `access` is None."""
    snapshot.manifest(group)
    values = {"grp": group, "at": snapshot.generation}
    rows = (LineageRow(*row) for row in snapshot.open_store.stream_rows(sql.LINEAGE, values))
    readable = None if access is None else snapshot.allowed(group, access).mask
    return rows if readable is None else compress(rows, readable.tolist())


class AncestorPath:
    """Path from the nodes of a group to their ancestors in a group above, or to themselves."""

    def __init__(self, snapshot: Snapshot, group: str, target: str) -> None:
        lineage = snapshot.lineage_of(group)
        if target not in lineage:
            raise GroupError(
                f"Group {group!r} is not made from {target!r}; above it there are: {', '.join(lineage[1:])}. "
                "Write one of these."
            )
        self._target, self._is_own_group = target, target == group
        groups_between = () if target == DOCUMENT else lineage[1 : lineage.index(target)]
        self._parents = [{row.id: row.parent for row in rows_of(snapshot, name)} for name in groups_between]

    def ancestor_id(self, row: LineageRow) -> object:
        """Return what tells the ancestor apart: its id, of documents their key."""
        if self._target == DOCUMENT:
            return row.document
        if self._is_own_group:
            return row.id
        id = row.parent
        for parents in self._parents:
            id = parents.get(id, "")
        return id


def parents(snapshot: Snapshot, nodes: Sequence[Node], access: frozenset[str] = PUBLIC) -> dict[str, Node]:
    """Return the nodes that these were made from, by id; a whole document is a node of group `document`."""
    ids = [node.parent for node in nodes if node.parent]
    parents_by_id = snapshot.nodes_of_ids(ids, access)
    for id in dict.fromkeys(ids):
        # Nodes made from whole documents name the document, also where group `document` is not built.
        if id not in parents_by_id and (document := snapshot.find_document(id, access)) is not None:
            parents_by_id[id] = document_node(document)
    return parents_by_id


def children(snapshot: Snapshot, ids: Sequence[str], group: str, access: frozenset[str] = PUBLIC) -> list[Node]:
    """Return the nodes of a group that were made from these nodes, in the order of `ids`, then of the text."""
    snapshot.manifest(group)
    values = {"ids": json.dumps(list(ids)), "grp": group, "at": snapshot.generation}
    return snapshot.read_rows(snapshot.open_store.rows(sql.CHILDREN, values), access)


def ancestors(
    snapshot: Snapshot, nodes: Sequence[Node], group: str, access: frozenset[str] = PUBLIC
) -> list[Node | None]:
    """Return for each node its ancestor in a group above its own, itself if it is in that group; None if unreadable."""
    current: dict[int, Node] = dict(enumerate(nodes))
    while pending := {row: node for row, node in current.items() if node.group != group}:
        parents_by_id = parents(snapshot, list(pending.values()), access)
        for row, node in pending.items():
            if (parent := parents_by_id.get(node.parent)) is None:
                del current[row]
            else:
                current[row] = parent
    return [current.get(row) for row in range(len(nodes))]


def descendants(
    snapshot: Snapshot, nodes: Sequence[Node], group: str, access: frozenset[str] = PUBLIC
) -> list[list[Node]]:
    """Return for each node those of a group below its own that were made from it, in order; itself if of that group."""
    results: list[list[Node]] = [[node] for node in nodes]
    lineage = list(snapshot.lineage_of(group))
    for level in reversed(lineage[: lineage.index(nodes[0].group)] if nodes else ()):
        ids = dict.fromkeys(node.id for row in results for node in row)
        by_parent: dict[str, list[Node]] = {}
        for child in children(snapshot, list(ids), level, access):
            by_parent.setdefault(child.parent, []).append(child)
        results = [[child for node in row for child in by_parent.get(node.id, ())] for row in results]
    return results


def related_by_lineage(
    snapshot: Snapshot, nodes: Sequence[Node], group: str, access: frozenset[str]
) -> list[list[Node]]:
    """Return for each node those of a group that share its nearest readable common ancestor, in order of the text."""
    rows: dict[str, list[int]] = {}
    for row, node in enumerate(nodes):
        rows.setdefault(node.group, []).append(row)
    results: list[list[Node]] = [[] for _ in nodes]
    for numbers in rows.values():
        for row, related in zip(
            numbers, _related_in_group(snapshot, [nodes[r] for r in numbers], group, access), strict=True
        ):
            results[row] = related
    return results


def _related_in_group(
    snapshot: Snapshot, nodes: Sequence[Node], group: str, access: frozenset[str]
) -> list[list[Node]]:
    target = snapshot.lineage_of(group)
    common = next(name for name in snapshot.lineage_of(nodes[0].group) if name in target)
    common_ancestors = ancestors(snapshot, nodes, common, access)
    distinct = {node.id: node for node in common_ancestors if node is not None}
    by_ancestor = dict(zip(distinct, descendants(snapshot, list(distinct.values()), group, access), strict=True))
    return [by_ancestor[node.id] if node is not None else [] for node in common_ancestors]


def related_by_place(snapshot: Snapshot, nodes: Sequence[Node], group: str, access: frozenset[str]) -> list[list[Node]]:
    """Return for each node those of a group whose stretches of the same document overlap its own, in text order."""
    return [_overlapping(snapshot, node, group, access) for node in nodes]


def _overlapping(snapshot: Snapshot, node: Node, group: str, access: frozenset[str]) -> list[Node]:
    if node.span is None:
        return []
    if group == DOCUMENT:
        return list(parents(snapshot, [node.but(parent=node.document)], access).values())
    snapshot.manifest(group)
    values = {"document": node.document, "grp": group, "start": node.span.start, "end": node.span.end}
    return snapshot.read_rows(snapshot.open_store.rows(sql.OVERLAPPING, values | {"at": snapshot.generation}), access)


def filter_nodes(
    snapshot: Snapshot, nodes: Sequence[Node], access: frozenset[str], filter: Filter | None
) -> list[Node]:
    if filter is None:
        return list(nodes)
    ids: set[str] = set()
    for group in dict.fromkeys(node.group for node in nodes):
        ids |= _passing_ids(snapshot, [node for node in nodes if node.group == group], access, filter)
    return [node for node in nodes if node.id in ids]


def _passing_ids(snapshot: Snapshot, nodes: Sequence[Node], access: frozenset[str], filter: Filter) -> set[str]:
    """Return the ids of those nodes of one group that pass; whole documents are looked up as what they are."""
    ids = [node.id for node in nodes]
    if all(node.group == DOCUMENT and node.id == node.document for node in nodes):
        values = {"ids": json.dumps(ids), "at": snapshot.generation}
        keys = dict(snapshot.open_store.rows(sql.WHOLE_KEYS_OF_IDS, values))
        allowed = snapshot.open.records(None).allowed(None, filter)
    else:
        keys = snapshot.keys_of(ids)
        allowed = snapshot.allowed(nodes[0].group, access, filter)
    return {id for id, holds in zip(keys, allowed.holds(keys.values()), strict=True) if holds}

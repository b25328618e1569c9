"""Nodes that belong to other nodes, by lineage or by place, as far as access and a filter let them be found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from spolia.stores.definition import DOCUMENT
from spolia.stores.tables import sql
from spolia.types import Filter, Node

if TYPE_CHECKING:
    from spolia.stores.snapshot import Snapshot


def by_lineage(snapshot: Snapshot, nodes: Sequence[Node], group: str, access: frozenset[str]) -> list[list[Node]]:
    """For each node those of a group that share an ancestor with it, in order of the text.

    The way goes up to the nearest group that both were made from, and down from there: to its ancestor, to what was
    made from it, or to what was made from the same node. What may not be read is not there, and not passed through.
    """
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
    ancestors = snapshot.ancestors(nodes, common, access)
    distinct = {node.id: node for node in ancestors if node is not None}
    below = dict(zip(distinct, snapshot.descendants(list(distinct.values()), group, access), strict=True))
    return [below[node.id] if node is not None else [] for node in ancestors]


def by_place(snapshot: Snapshot, nodes: Sequence[Node], group: str, access: frozenset[str]) -> list[list[Node]]:
    """For each node those of a group whose stretches of the same document overlap its own, in order of the text."""
    return [_overlapping(snapshot, node, group, access) for node in nodes]


def _overlapping(snapshot: Snapshot, node: Node, group: str, access: frozenset[str]) -> list[Node]:
    if node.span is None:
        return []
    if group == DOCUMENT:
        return list(snapshot.parents([node.but(parent=node.document)], access).values())
    snapshot.manifest(group)
    where = {"document": node.document, "grp": group, "start": node.span.start, "end": node.span.end}
    return snapshot.readable_of(snapshot.opened.rows(sql.OVERLAPPING, where | {"at": snapshot.generation}), access)


def keys_of(snapshot: Snapshot, ids: Iterable[str]) -> dict[str, int]:
    """The keys of nodes by their ids; of those that are there."""
    return dict(snapshot.opened.rows(sql.KEYS_OF_IDS, {"ids": json.dumps(list(ids)), "at": snapshot.generation}))


def passing(snapshot: Snapshot, nodes: Sequence[Node], access: frozenset[str], filter: Filter | None) -> list[Node]:
    """Those of some nodes that a filter lets be found; all without a filter.

    Raises:
        FilterError: for a field that is not declared, or values of another type.
    """
    if filter is None:
        return list(nodes)
    kept: set[str] = set()
    for group in dict.fromkeys(node.group for node in nodes):
        kept |= _passing(snapshot, [node for node in nodes if node.group == group], access, filter)
    return [node for node in nodes if node.id in kept]


def _passing(snapshot: Snapshot, nodes: Sequence[Node], access: frozenset[str], filter: Filter) -> set[str]:
    """Ids of those nodes of one group that pass; whole documents are looked up as what they are."""
    wanted = {"ids": json.dumps([node.id for node in nodes]), "at": snapshot.generation}
    if all(node.group == DOCUMENT and node.id == node.document for node in nodes):
        keys = dict(snapshot.opened.rows(sql.WHOLE_KEYS_OF_IDS, wanted))
        allowed = snapshot.records(None).allowed(None, filter)
    else:
        keys = dict(snapshot.opened.rows(sql.KEYS_OF_IDS, wanted))
        allowed = snapshot.allowed(nodes[0].group, access, filter)
    return {id for id, holds in zip(keys, allowed.holds(keys.values()), strict=True) if holds}

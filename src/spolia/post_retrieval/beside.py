"""The nodes before and after a node in its document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spolia.errors import WiringError
from spolia.operator import Operator
from spolia.types import Filter, Node
from spolia.wiring import refuse_counts

if TYPE_CHECKING:
    from spolia.stores.snapshot import Snapshot


def beside(
    snapshot: Snapshot, node: Node, before: int, after: int, access: frozenset[str], filter: Filter | None
) -> list[Node]:
    """A node with those of its group around it, in order, up to the first that may not be read or found.

    Args:
        before: nodes before it, at most.
        after: nodes after it, at most.
    """
    from spolia.stores.reading.related import passing

    if node.number < 1:  # nobody knows where it stands
        return [node]
    around = snapshot.numbered(node.document, node.group, node.number - before, node.number + after, access)
    there = {found.number: found for found in passing(snapshot, around, access, filter)} | {node.number: node}
    first = last = node.number
    while first - 1 in there:
        first -= 1
    while last + 1 in there:
        last += 1
    return [there[number] for number in range(first, last + 1)]


def refuse_nothing(op: Operator[Any, Any], *names: str) -> None:
    """Refuse fields that are no counts from 0 on, and all of them 0."""
    refuse_counts(op, *names, least=0)
    if not any(getattr(op, name) for name in names):
        raise WiringError(
            f"{op.short} does nothing: {' and '.join(names)} are 0. Write a number above 0 for one of them."
        )


def runs(nodes: Sequence[Node]) -> list[list[Node]]:
    """Nodes of one document and group as runs without a gap, each node once.

    >>> [[node.number for node in run] for run in runs([Node(str(n), "", number=n) for n in (4, 1, 2, 5, 2)])]
    [[1, 2], [4, 5]]
    """
    found: list[list[Node]] = []
    for _, node in sorted({node.number: node for node in nodes}.items()):
        if found and found[-1][-1].number + 1 == node.number:
            found[-1].append(node)
        else:
            found.append([node])
    return found

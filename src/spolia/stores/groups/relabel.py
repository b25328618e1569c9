"""Other metadata or readers for a document that is there: only what reads them is made again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spolia.stores.backends.rows import NOT_YET, Unmade
from spolia.stores.definition import DOCUMENT, Part, transform_for
from spolia.stores.groups.group_build import GroupBuild, GroupNodes, make_up, with_those_below
from spolia.stores.staging import AnyWriter
from spolia.types import Document


def relabel(writer: AnyWriter, growths: Sequence[GroupBuild], old: Document, new: Document) -> None:
    """Give a document the metadata and readers of another one with the same text.

    Its nodes stay, and nothing is asked or embedded again, but in groups whose transform reads what has changed
    (`Operator.reads`), and in those that are made from them. Where a model for that is away, they are left to a later
    run.

    Args:
        growths: all groups of the store, in order.
        old: as the store has it.
        new: the same with other metadata or readers.
    """
    before = _parts(writer, growths, old)
    writer.relabel(old, new.meta, new.readers)
    now = _parts(writer, growths, new)
    other = [growth.group for growth in growths if _reads_otherwise(growth, new, before, now)]
    again = [growth.group for growth in with_those_below(other, growths)]
    if other:
        writer.unmake(new.id, again)
        for _ in make_up(writer, growths, [Unmade(new.id, new.uri, group, NOT_YET) for group in again]):
            """Each of them is stored as it comes."""


def _parts(writer: AnyWriter, growths: Sequence[GroupBuild], document: Document) -> Mapping[str, Sequence[Part]]:
    """What the transform of each group is given."""
    there = GroupNodes(document, lambda group: writer.nodes(document.id, group))
    return {growth.group: there.parts(growth) for growth in growths if growth.group != DOCUMENT}


def _reads_otherwise(
    growth: GroupBuild, document: Document, before: Mapping[str, Sequence[Part]], now: Mapping[str, Sequence[Part]]
) -> bool:
    if growth.group == DOCUMENT:
        return False
    transform = transform_for(growth.transform, document)
    pairs = zip(before[growth.group], now[growth.group], strict=True)
    return any(transform.reads(part) != transform.reads(other) for part, other in pairs)

"""Storing what has grown, group by group, and trying again what could not be made before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from spolia.core.run_context import check_cancelled
from spolia.errors import GroupError, StoreError
from spolia.stores.definition import DOCUMENT
from spolia.stores.groups.growing import Grown, Growth, grow, in_batches
from spolia.stores.manifest import Manifest
from spolia.stores.staging import AnyWriter
from spolia.stores.tables.rows import Unmade
from spolia.types import Failure

G = TypeVar("G", Growth, Manifest)

DOCUMENTS_AT_ONCE = 64


def store(writer: AnyWriter, one: Grown, before: Mapping[str, str] | None = None) -> None:
    """Add what could be made of a document that is there, and note what could not.

    Args:
        before: what could not be made before, and why, by group.

    Raises:
        StoreError: the store could not take it.
    """
    for group, nodes in list(one.made.items()):
        try:
            if nodes or not isinstance(nodes, Sequence):
                writer.add_nodes(one.document, nodes)
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, GroupError):
                raise
            one.fail(group, Failure.of(error, group))  # metadata of another type; a late failure of a splitter
    there, now = before or {}, one.reasons
    made = {group: "" for group in there if group in one.made or group in one.passed_over}
    if changed := {group: why for group, why in {**now, **made}.items() if there.get(group, "") != why}:
        writer.note_unmade(one.document.id, changed)


def make_up(writer: AnyWriter, growths: Sequence[Growth], unmade: Sequence[Unmade]) -> Iterator[Grown]:
    """Try again what could not be made, and what is made of that; but not in groups whose model is away.

    Args:
        growths: all groups of the store, in order.
        unmade: of documents that have not changed since.
    """
    before: dict[str, dict[str, str]] = {}
    for lack in unmade:
        before.setdefault(lack.document, {})[lack.group] = lack.reason
    alike: dict[frozenset[str], list[str]] = {}
    for document, reasons in before.items():
        alike.setdefault(frozenset(reasons), []).append(document)
    for groups, documents in alike.items():
        for some in in_batches(iter(documents), DOCUMENTS_AT_ONCE):
            check_cancelled()
            if not (left := groups - {growth.group for growth in growths if growth.reach.is_away}):
                break
            wanted = with_those_below(left, growths)
            found = [writer.document(id) for id in some]
            for one in grow(found, wanted, lambda document, group: writer.nodes(document.id, group)):
                store(writer, one, before[one.document.id])
                yield one


def with_those_below(groups: Iterable[str], all: Sequence[G]) -> list[G]:
    """These groups and those that are made from them, of `all` in order; the documents are what they are."""
    found, wanted = set(groups) - {DOCUMENT}, set(groups)
    for one in all:
        if not found.isdisjoint((one.parent, one.ref)):
            found.add(one.group)
    return [one for one in all if one.group in found | wanted]

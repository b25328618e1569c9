"""What has changed since a baseline was written, of all that its numbers depend on."""

from __future__ import annotations

from collections.abc import Iterator

from spolia.errors import DataError
from spolia.evaluation.gate.baseline import Baseline
from spolia.evaluation.gate.signature import Held
from spolia.evaluation.identity import changes

NAMED = 10
"""Documents that are named."""


def changed(before: Baseline, now: Baseline) -> tuple[tuple[str, str], ...]:
    """What differs: its kind (`documents`, `chunks`, `index`, `flow`, `models`, …), and in words."""
    found = []
    for kind in dict.fromkeys((*before.signature, *now.signature)):
        then, is_ = before.signature.get(kind, {}), now.signature.get(kind, {})
        if then != is_ and (kind != "chunks" or _is_cut_otherwise(before, now)):
            found.append((kind, "; ".join(_told(kind, before, now) or changes(then, is_))))
    return tuple(found)


def _is_cut_otherwise(before: Baseline, now: Baseline) -> bool:
    """Whether documents that have not changed are cut otherwise. Where no document has, all are looked at; else those
    that are gold or were found."""
    if before.signature["documents"] == now.signature["documents"]:
        return bool(before.signature["chunks"]["content"] != now.signature["chunks"]["content"])
    both = ((one, now.documents[id]) for id, one in before.documents.items() if id in now.documents)
    return any(old.content == new.content and old.cuts != new.cuts for old, new in both)


def _told(kind: str, before: Baseline, now: Baseline) -> list[str]:
    """Documents are named."""
    if kind != "documents":
        return []
    listed = list(_documents(before, now))
    more = [f"and {len(listed) - NAMED} more"] if len(listed) > NAMED else []
    numbers = changes(before.signature[kind].get("number", {}), now.signature[kind].get("number", {}))
    return [*numbers, *(listed[:NAMED] or ["none of those that are gold or were found"]), *more]


def _documents(before: Baseline, now: Baseline) -> Iterator[str]:
    names = {one.name: one for one in now.documents.values()}
    for id, old in before.documents.items():
        new = now.documents.get(id) or names.get(old.name)
        if new is None:
            yield f"{old.name} is gone"
        elif new.content != old.content:
            yield f"{old.name} has another text"
    if len(before.documents) == max(before.signature["documents"]["number"].values(), default=0):
        known = {one.name for one in before.documents.values()}
        yield from (f"{one.name} is new" for one in now.documents.values() if one.name not in known)


def refuse_other_corpus(before: Baseline, held: Held) -> None:
    """Refuse to compare with a corpus that has nothing to do with the baseline's, or lacks its gold.

    Raises:
        DataError: none of its documents is there.
    """
    if not before.documents or not held.groups:  # a flow that searches no store, so far as is known
        return
    names = {one.name for one in held.documents.values()}
    there = [id for id, one in before.documents.items() if id in held.documents or one.name in names]
    if not there:
        example = next(iter(before.documents.values())).name
        raise DataError(
            f"The baseline is of another corpus: none of its {len(before.documents)} documents, {example!r} for one, "
            f"is among the {len(held.documents)} that the flow searches. Search the corpus that it is of, or write a "
            "new one: --write"
        )
    lost = [one.name for id, one in before.documents.items() if one.gold and id not in held.documents]
    if lost:
        raise DataError(
            f"The documents changed: {len(lost)} that are gold are not there any more, {sorted(lost)[0]!r} for one. "
            "Name in the questions what is there now, and write a new baseline: --write"
        )

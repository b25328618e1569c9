"""The first use of a group builds it, or waits for who is building it already."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from spolia.core.run_context import check_cancelled, note
from spolia.errors import GroupError, StoreBusy
from spolia.stores.definition import Embedding
from spolia.stores.files import claimer
from spolia.stores.groups.definitions import serves
from spolia.stores.groups.materialise import materialise
from spolia.stores.stored_definition import built_in, signature

if TYPE_CHECKING:
    from spolia.models.protocols import Embedder, SparseEmbedder
    from spolia.stores.corpus import NodeGroup
    from spolia.stores.snapshot.snapshot import Snapshot

LOOK_S = 1.0
"""Seconds of waiting for another writer after which is looked whether that has built the group."""
SHOWN = 3


def built(group: NodeGroup) -> Snapshot:
    """The published snapshot, in which a group is built: here and now, unless it is there.

    While another process writes, its publications are looked at, so that what it builds is not built twice.

    Raises:
        StoreBusy: the group is not there, and the other writer did not finish in time.
    """
    end, said = time.monotonic() + group.corpus.wait_s, ""
    while not serves(group, snapshot := group.corpus.latest()):
        check_cancelled()
        left = end - time.monotonic()
        try:
            _build(group, min(LOOK_S, max(left, 0.0)))
        except GroupError:  # nobody says what it is made of: a run of `sync` may be about to
            busy = StoreBusy()
            busy.holder = claimer(group.corpus.truth.folder)
            if not busy.holder:
                raise
            if left <= 0:
                raise _out_of_patience(group, busy, snapshot) from None
            said = said or _told(group, busy)
            time.sleep(LOOK_S / 10)
        except StoreBusy as busy:
            if left <= 0:
                raise _out_of_patience(group, busy, snapshot) from busy
            said = said or _told(group, busy)
    return snapshot


def with_vectors(group: NodeGroup, embedder: Embedder | SparseEmbedder) -> NodeGroup:
    """A built-in group that has no vectors by an embedder yet, asked for with them; any other as it is."""
    definition = None if group.definition is not None else built_in(group.name)
    if definition is None:
        return group
    manifests = group.corpus.latest().manifests
    there = manifests.get(group.name)
    if there and (there.embedded(embedder.name) is not None or there.signature != signature(definition, manifests)):
        return group
    return group.but(definition=definition.but(embeddings=(Embedding(embedder),)))


def _build(group: NodeGroup, wait_s: float) -> None:
    unmade = materialise([group], retry=False, wait_s=wait_s)
    note(f"Group {group.name!r} of {group.corpus.path} was built at its first use.")
    for lack in unmade:
        if not lack.document:
            note(f"In group {group.name!r}, {lack.reason}")
    if lacking := [lack for lack in unmade if lack.document]:
        some = "; ".join(f"{lack.uri or lack.document}: {lack.reason}" for lack in lacking[:SHOWN])
        note(f"Group {group.name!r} lacks {len(lacking)} documents that it could not be made of: {some}")


def _told(group: NodeGroup, busy: StoreBusy) -> str:
    """Tell whoever waits: in the trace, and by a warning in the log, which Python shows unless told otherwise."""
    said = f"Group {group.name!r} has to be built first, and waits up to {group.corpus.wait_s:g} s for {busy.holder}."
    note(said)
    logging.getLogger("spolia").warning(said)
    return said


def _out_of_patience(group: NodeGroup, busy: StoreBusy, snapshot: Snapshot) -> StoreBusy:
    corpus = group.corpus
    if group.definition is None and built_in(group.name) is None:
        return StoreBusy(
            f"{corpus.path} is being indexed, by {busy.holder or 'another process'}. Published so far: "
            f"{snapshot.stats().documents} documents, and no group {group.name!r} yet. Search again when a batch of "
            f"them is published; to wait for it, in Python: Corpus({corpus.path!r}, wait_s=600)."
        )
    return StoreBusy(
        f"Group {group.name!r} is built at its first use, and could not be within {corpus.wait_s:g} s, since "
        f"{busy.holder or 'another process'} writes to {corpus.path}. Wait for it, then repeat. To build it "
        f"beforehand: spolia groups build {group.name} --store {corpus.path} --wait 600; in "
        f"Python Corpus({corpus.path!r}, wait_s=600) waits longer."
    )

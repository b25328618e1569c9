"""Repair of a store from itself and from its folder."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spolia.core.deprecation import renamed_arguments
from spolia.core.operator import Operator
from spolia.errors import SpoliaError, StoreError
from spolia.indexing.readers.reader import Blob
from spolia.indexing.readers.registry import READERS, Readers, by_suffix
from spolia.indexing.sync.files import FOLDER, ROOT, File, is_elsewhere, walk
from spolia.indexing.sync.groups import RequestedGroups
from spolia.indexing.sync.metadata import DocumentLabels
from spolia.indexing.sync.sync import sync_listing
from spolia.indexing.sync.sync_run import SyncOptions, select_sources
from spolia.stores.backends import sql
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.definition import MAIN
from spolia.stores.integrity import find_problems
from spolia.stores.manifest import current_definition
from spolia.stores.repair import StoreRepair, mend
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.types import Value


@dataclass(frozen=True)
class RepairReport(Value):
    """Result of a repair.

    Args:
        repaired: what was damaged and is mended, in words.
        left: what is still damaged or lacking, and what to do about it.
    """

    repaired: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


@renamed_arguments(known="operators")
def repair(
    corpus: Corpus,
    *,
    readers: Readers = READERS,
    groups: Sequence[NodeGroup] = (),
    operators: Iterable[Operator[Any, Any] | type] = (),
    wait_s: float | None = None,
) -> RepairReport:
    """Mend a store: what is derived is built again, nodes are cut again, documents are read again from its folder.

    Only damaged parts are repaired; texts whose vectors are sound are not embedded again. A document is read again if
    its file is where the folder was, the caller has given it no metadata, and it is still known who may read it.

    Args:
        readers: of the formats, as for `sync`.
        groups: with definitions, where the store does not say all: of embedders of your own.
        operators: operators of your own in definitions of groups.
        wait_s: how long to wait for another writer, seconds; None for what the corpus says.

    Raises:
        StoreBusy: another process writes, and did not finish in time.
        StoreError: the store cannot be read at all, or not be written.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from spolia.indexing.sync.sync import sync
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "stones.txt").write_text("Spolia are stones that builders take from older buildings.")
    ...     corpus = Corpus(f"{folder}/notes.spolia")
    ...     _ = sync(folder, corpus)
    ...     _ = next(Path(corpus.path).rglob("*.idx")).write_bytes(b"")
    ...     damaged, report, sound = corpus.latest().check(), repair(corpus), corpus.latest().check(deep=True)
    >>> len(damaged), len(report.repaired), report.left, sound
    (1, 1, (), [])
    """
    operators, definitions = (
        tuple(operators),
        {group.name: group.definition for group in groups if group.definition is not None},
    )
    store_repair = mend(corpus, definitions, operators, wait_s)
    if store_repair.unread or store_repair.is_short:
        _reread_documents(corpus, store_repair, readers, groups, operators)
    left = (*store_repair.remaining, *find_problems(corpus.latest(), deep=True))
    return RepairReport(tuple(store_repair.repairs), tuple(dict.fromkeys(left)))


def _make_access(
    snapshot: Snapshot, store_repair: StoreRepair, files: Mapping[str, File]
) -> Callable[[str], tuple[str, ...]]:
    """Return a function that says who may read a file: as stored for its source, or for the one document with its
    content."""
    lists = snapshot.readers.lists
    readers_by_uri = {uri: lists[number] for uri, number in snapshot.open_store.rows(sql.READERS_OF_SOURCES)}
    readers_by_uri |= {uri: readers for uri, readers in store_repair.unread.items() if readers is not None}
    is_open = snapshot.open_store.row(sql.IS_RESTRICTED) is None

    def access(uri: str) -> tuple[str, ...]:
        if is_open or uri in readers_by_uri:
            return readers_by_uri.get(uri, ())
        hash = Blob(uri, Path(files[uri].path)).content_hash if uri in files else uri
        of_content = {readers for id, readers in store_repair.orphans.items() if id.startswith(hash)}
        if len(of_content) == 1:  # of two lists, nobody knows which one is this file's
            return of_content.pop()
        raise StoreError(f"Nothing says any more who may read {uri!r}. Index again, with --readers FILE.")

    return access


def _find_without_readers(access: Callable[[str], tuple[str, ...]], uris: Iterable[str]) -> dict[str, str]:
    """Return the files of which the store does not say who may read them, with the reason."""
    reasons: dict[str, str] = {}
    for uri in uris:
        try:
            access(uri)
        except StoreError as error:
            reasons[uri] = str(error)
    return reasons


def _reread_documents(
    corpus: Corpus,
    store_repair: StoreRepair,
    readers: Readers,
    groups: Sequence[NodeGroup],
    known_operators: Sequence[Operator[Any, Any] | type],
) -> None:
    snapshot = corpus.latest()
    root = dict(snapshot.open_store.rows(sql.CURSORS, (FOLDER,))).get(ROOT, "")
    manifest = snapshot.manifests.get(MAIN)
    lacking: dict[str, str] = {}
    damaged_uris = {
        uri for uri, principals in store_repair.unread.items() if principals is not None and not is_elsewhere(uri)
    }
    if root and os.path.isdir(root) and manifest is not None and (damaged_uris or store_repair.is_short):
        listed = walk(root, by_suffix(readers))
        try:
            main = next((group.definition for group in groups if group.name == MAIN), None)
            other_groups = [group for group in groups if group.name != MAIN]
            requested_groups = RequestedGroups(
                MAIN, main or current_definition(manifest, known_operators), other_groups, known_operators
            )
            access = _make_access(snapshot, store_repair, listed.files)
            lacking = _find_without_readers(access, listed.files) if store_repair.is_short else {}
            store_repair.remaining += lacking.values()
            readable_files = listed.files.keys() - lacking.keys() if store_repair.is_short else damaged_uris
            changes = listed if store_repair.is_short and not lacking else select_sources(listed, readable_files)
            report = sync_listing(corpus, changes, DocumentLabels(None, access), SyncOptions(requested_groups))
            store_repair.remaining += [f"{uri}: {reason}" for uri, reason in report.failed]
        except SpoliaError as error:  # what was mended before stays, and is reported
            store_repair.remaining.append(str(error))
    rows = corpus.latest().sources()
    for uri in store_repair.unread:
        # Of this size as `spolia.stores.repair` noted it: nothing has read it since.
        if uri in rows and rows[uri].size < 0 and uri not in lacking:
            store_repair.remaining.append(
                f"{uri!r} was damaged and could not be read again from {root or 'a folder'}. Index it with the options "
                "of before: spolia index FOLDER, its source, or add_texts."
            )

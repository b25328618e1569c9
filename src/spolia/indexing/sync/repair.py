"""Mending a store from itself and from its folder."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spolia.core.operator import Operator
from spolia.errors import SpoliaError, StoreError
from spolia.indexing.readers.reader import Blob
from spolia.indexing.readers.registry import READERS, Readers, by_suffix
from spolia.indexing.sync.files import FOLDER, ROOT, File, is_elsewhere, walk
from spolia.indexing.sync.groups import RequestedGroups
from spolia.indexing.sync.metadata import DocumentLabels
from spolia.indexing.sync.sync import keep
from spolia.indexing.sync.sync_run import SyncOptions, only
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
    """What a repair did.

    Args:
        repaired: what was damaged and is mended, in words.
        left: what is still damaged or lacking, and what to do about it.
    """

    repaired: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def repair(
    corpus: Corpus,
    *,
    readers: Readers = READERS,
    groups: Sequence[NodeGroup] = (),
    known: Iterable[Operator[Any, Any] | type] = (),
    wait_s: float | None = None,
) -> RepairReport:
    """Mend a store: what is derived is built again, nodes are cut again, documents are read again from its folder.

    Only damaged parts are repaired; texts whose vectors are sound are not embedded again. A document is read again if
    its file is where the folder was, the caller has given it no metadata, and it is still known who may read it.

    Args:
        readers: of the formats, as for `sync`.
        groups: with definitions, where the store does not say all: of embedders of your own.
        known: operators of your own in definitions of groups.
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
    known, given = tuple(known), {group.name: group.definition for group in groups if group.definition is not None}
    found = mend(corpus, given, known, wait_s)
    if found.unread or found.is_short:
        _read_again(corpus, found, readers, groups, known)
    left = (*found.remaining, *find_problems(corpus.latest(), deep=True))
    return RepairReport(tuple(found.repairs), tuple(dict.fromkeys(left)))


def _access(snapshot: Snapshot, found: StoreRepair, files: Mapping[str, File]) -> Callable[[str], tuple[str, ...]]:
    """Who may read a file, as the store said, of its source or of the one document that has its content."""
    lists = snapshot.readers.lists
    there = {uri: lists[number] for uri, number in snapshot.open_store.rows(sql.READERS_OF_SOURCES)}
    there |= {uri: readers for uri, readers in found.unread.items() if readers is not None}
    is_open = snapshot.open_store.row(sql.IS_RESTRICTED) is None

    def access(uri: str) -> tuple[str, ...]:
        if is_open or uri in there:
            return there.get(uri, ())
        hash = Blob(uri, Path(files[uri].path)).content_hash if uri in files else uri
        of_content = {readers for id, readers in found.orphans.items() if id.startswith(hash)}
        if len(of_content) == 1:
            return of_content.pop()
        raise StoreError(f"Nothing says any more who may read {uri!r}. Index again, with --readers FILE.")

    return access


def _without_readers(access: Callable[[str], tuple[str, ...]], uris: Iterable[str]) -> dict[str, str]:
    """Return the files of which the store does not say who may read them, with the reason."""
    found: dict[str, str] = {}
    for uri in uris:
        try:
            access(uri)
        except StoreError as error:
            found[uri] = str(error)
    return found


def _read_again(
    corpus: Corpus,
    found: StoreRepair,
    readers: Readers,
    groups: Sequence[NodeGroup],
    known: Sequence[Operator[Any, Any] | type],
) -> None:
    snapshot = corpus.latest()
    root = dict(snapshot.open_store.rows(sql.CURSORS, (FOLDER,))).get(ROOT, "")
    manifest = snapshot.manifests.get(MAIN)
    lacking: dict[str, str] = {}
    again = {uri for uri, who in found.unread.items() if who is not None and not is_elsewhere(uri)}
    if root and os.path.isdir(root) and manifest is not None and (again or found.is_short):
        listed = walk(root, by_suffix(readers))
        try:
            main = next((group.definition for group in groups if group.name == MAIN), None)
            others = [group for group in groups if group.name != MAIN]
            wanted = RequestedGroups(MAIN, main or current_definition(manifest, known), others, known)
            access = _access(snapshot, found, listed.files)
            lacking = _without_readers(access, listed.files) if found.is_short else {}
            found.remaining += lacking.values()
            known_files = listed.files.keys() - lacking.keys() if found.is_short else again
            changes = listed if found.is_short and not lacking else only(listed, known_files)
            report = keep(corpus, changes, DocumentLabels(None, access), SyncOptions(wanted))
            found.remaining += [f"{uri}: {reason}" for uri, reason in report.failed]
        except SpoliaError as error:
            found.remaining.append(str(error))
    rows = corpus.latest().sources()
    for uri in found.unread:
        if uri in rows and rows[uri].size < 0 and uri not in lacking:
            found.remaining.append(
                f"{uri!r} was damaged and could not be read again from {root or 'a folder'}. Index it with the options "
                "of before: spolia index FOLDER, its source, or add_texts."
            )

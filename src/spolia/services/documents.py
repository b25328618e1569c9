"""Documents that users send to a store: each change is a job, which the publisher commits.

The bytes of an upload are in the table of jobs, until another change of the document is published.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import file_digest, sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias
from urllib.parse import quote
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from spolia.errors import (
    DocumentError,
    KeyReused,
    NotAllowed,
    NotFound,
    QueryError,
    SpoliaError,
    StoreCorrupt,
    StoreError,
)
from spolia.indexing.readers.pdf.reader import PageImage, PdfReader
from spolia.indexing.readers.reader import Blob, reader_of
from spolia.indexing.workers.pool import WorkerProcesses
from spolia.services.jobs import CALLBACK, Job, JobQueue, NewJob
from spolia.services.knowledge_bases import (
    BASE,
    LARGEST_BYTES,
    OWNER,
    KnowledgeBase,
    KnowledgeBases,
    Requester,
    ServerFolders,
    base_of,
    look_of,
)
from spolia.services.publisher import AFTER, Publisher, Reparse, table_of
from spolia.stores.backends.rows import NOT_YET, SourceRow, in_batches
from spolia.stores.corpus import Corpus
from spolia.stores.manifest import sort_groups
from spolia.types import Document, Node, Scalar, Value, is_unicode, principals
from spolia.types.documents import SENT

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot

PATHS_AT_ONCE = 100
"""Files that are added by their path in one transaction."""
LAST_NUMBER = 2**31
Transfer: TypeAlias = Literal["copy", "move"]
ADMINISTRATOR = Requester()
SCAN = Requester("folder scan")
"""Asks for changes that follow from files; no key has this name."""
INDEX = "originals.json"
LONGEST_NAME = 500
_ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]|^/|/$|//|(?:^|/)\.{1,2}(?:/|$)|://")


@dataclass(frozen=True)
class SentDocument(Value):
    """A document that was sent: its name, title, and its fields. `failed`: its last version could not be read or made,
    and the one before it is searched, if there is one; `waiting`: a change of it has not ended."""

    name: str
    title: str
    meta: tuple[tuple[str, Scalar], ...]
    state: str = "done"
    reason: str = ""


@dataclass(frozen=True)
class GroupStatus(Value):
    """What a node group has of a document: `done`, `failed` with the reason, or `waiting` until it is made."""

    group: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class DocumentStatus(Value):
    """A document with its state in each node group."""

    document: SentDocument
    groups: tuple[GroupStatus, ...]


@dataclass(frozen=True)
class Upload:
    """A document that a user sends.

    Args:
        name: with `/` for folders; its end says the format.
        data: its bytes, or a file with them.
        metadata: fields to filter by.
        access: who may read it; nobody named for everybody.
        key: the same request again with this key is the first task.
        callback: the address to which the ended task is posted.
    """

    name: str
    data: bytes | BinaryIO
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    access: Sequence[str] = ()
    key: str = ""
    callback: str = ""


class Documents(Publisher):
    """Add and delete documents of a store; a task reports the outcome of each change.

    Args:
        corpus: the store; made with the first document.
        folders: of this machine, whose files may be added by their path.
        scan_s: seconds between two comparisons with the files of `folders`; 0 for none.
        how: further arguments of the `Publisher`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     documents = Documents(Corpus(f"{folder}/notes.spolia"))
    ...     task = documents.add("tides.md", b"The moon causes the tides.")
    ...     documents.publish(), documents.queue.job(task).state, [one.name for one in documents.found()]
    (1, 'done', ['tides.md'])
    """

    def __init__(self, corpus: Corpus, *, folders: Iterable[str | Path] = (), scan_s: float = 0.0, **how: Any) -> None:
        super().__init__(corpus, **how)
        self.folders, self.bases = ServerFolders(folders), KnowledgeBases(self.queue.table)
        self.scan_s, self._seen = scan_s, dict[str, object]()
        self._artist, self._drawing = WorkerProcesses(1), threading.Lock()

    def add(self, name: str, data: bytes | BinaryIO, *, by: Requester = ADMINISTRATOR, **how: Any) -> int:
        """Add a document, or put it in the place of the one with its name; the number of the task.

        Args:
            by: who asks.
            how: further fields of an `Upload`.

        Raises:
            NotAllowed: the name belongs to another user's document or knowledge base.
            KeyReused: another request had this key.
            QueryError: the name is not one, no reader knows its format, or `access` lists no names.
        """
        return self.add_all([Upload(name, data, **how)], by=by)[0]

    def add_all(self, uploads: Sequence[Upload], *, by: Requester = ADMINISTRATOR) -> list[int]:
        """As `add`, for many documents, which become durable together. If a key was used, the others are accepted."""
        for one in uploads:
            if reader_of(checked_name(one.name), self.readers) is None:
                raise QueryError(
                    f"No reader knows the format of {one.name!r:.80}. Convert it, for example to .md or .pdf."
                )
            self._called(one.callback)
        files = [BytesIO(one.data) if isinstance(one.data, bytes) else one.data for one in uploads]
        jobs = [_job(one, file, by.name) for one, file in zip(uploads, files, strict=True)]
        with self._change(by, new=[one.name for one in uploads]) as newest:
            jobs = [_owned(job, newest, by) for job in jobs]
            tasks = self.queue.put(jobs, files)
        return self._accepted(jobs, tasks)

    def add_paths(
        self,
        paths: Iterable[str],
        *,
        access: Callable[[str], Sequence[str]] = lambda name: (),
        by: Requester = ADMINISTRATOR,
        key: str = "",
        **how: Any,
    ) -> list[int]:
        """Add files of `folders`, and all that is in folders of these, as documents with the name of the folder before
        their path in it. They become durable a hundred at a time.

        Args:
            access: who may read a document, by its name.
            how: further fields of an `Upload`.

        Raises:
            NotAllowed: a path is in none of the folders, or leads over a link.
            NotFound: nothing is there.
        """
        names = self.folders.files(paths, self.readers)
        return [
            task
            for some in in_batches(iter(names), PATHS_AT_ONCE)
            for task in self.add_all(
                [
                    Upload(name, self.folders.read(name), access=access(name), key=key and f"{key}|{name}", **how)
                    for name in some
                ],
                by=by,
            )
        ]

    def scan(self) -> list[int]:
        """Bring documents in step with the files of `folders`: add new and changed ones, delete those that this has
        added and that are gone. The tasks. Readers are those of the knowledge base with the folder's name.

        A file that cannot be read is tried again when it has changed. What users have sent or deleted stays so. If a
        folder has no files at all, it may not be mounted: then its documents stay.
        """
        bases, tasks = self.bases.all(), list[int]()
        for folder in self.folders.names:
            try:
                names = self.folders.files([folder], self.readers)
            except (SpoliaError, OSError) as error:
                logging.getLogger(__name__).warning("The folder %s is left as it is: %s", folder, error)
                continue
            access = bases[folder].access if folder in bases else ()
            for some in in_batches(iter(names), PATHS_AT_ONCE):
                found = [Upload(name, data, access=access) for name in some for data in self._changed(name)]
                tasks += self.add_all(found, by=SCAN)
            gone = [one for one in self.queue.subjects(f"{folder}/", SCAN.name) if one not in set(names)]
            gone = [
                one for one in gone if (last := self.queue.last(one)) and last.owner == SCAN.name and is_there(last)
            ]
            if gone and not names:
                logging.getLogger(__name__).warning("The folder %s is empty: its documents stay.", folder)
                continue
            tasks += self.delete_all(gone, by=SCAN)
        return tasks

    def _changed(self, name: str) -> Iterator[bytes]:
        """The bytes of a file, if they are to be added."""
        try:
            state = self.folders.state(name)
            if self._seen.get(name) == state:
                return
            data = self.folders.read(name)
        except (SpoliaError, OSError):  # it is gone, or written now: the next scan looks again
            return
        last = self.queue.last(name)
        self._seen[name] = state
        if last is None or not is_there(last):
            if last is None or last.owner == SCAN.name or state[0] > last.made * 1e9:
                yield data
        elif last.payload["original"] != sha256(data).hexdigest():
            yield data

    def patch(
        self,
        name: str,
        metadata: Mapping[str, Scalar | None] | None = None,
        access: Sequence[str] | None = None,
        *,
        by: Requester = ADMINISTRATOR,
        key: str = "",
        callback: str = "",
    ) -> int:
        """Change fields of a document, those with None go, or its readers; nothing is embedded again. The number of the
        task."""
        given = {
            "metadata": None if metadata is None else _fields(name, metadata),
            "access": None if access is None else readers_in(name, access),
        }
        return self._follow(
            [name], "patch", {what: value for what, value in given.items() if value is not None}, by, key, callback
        )[0]

    def reparse(
        self,
        names: Iterable[str],
        how: Reparse = "rebuild",
        *,
        by: Requester = ADMINISTRATOR,
        key: str = "",
        callback: str = "",
    ) -> list[int]:
        """Make documents again of the bytes that were kept; the numbers of the tasks.

        Args:
            how: `rebuild` reads and splits again, asks models again, and embeds what has no vector. If a group cannot
                be made, all stays as it was. `embed` embeds all texts again, for an embedder whose server has changed
                its model under one name; a text that other documents have too gets its new vector there as well.
                `missing` makes only what could not be made.
        """
        return self._follow(names, how, {}, by, key, callback)

    def transfer(
        self,
        names: Iterable[str],
        to: str,
        how: Transfer = "copy",
        *,
        by: Requester = ADMINISTRATOR,
        key: str = "",
        callback: str = "",
    ) -> list[int]:
        """Copy or move documents to another knowledge base, with their fields and readers; no text is embedded again.
        The numbers of the tasks: of a move two for each document, since the old one goes when the new one is there.

        Raises:
            NotFound: one was not sent.
            QueryError: it is there already, or a change of it has not ended.
        """

        def added(name: str, last: Job) -> NewJob:
            if last.state != "done":
                raise QueryError(f"Task {last.id} changes {name!r:.80}. Ask again when it has ended.")
            said = {what: value for what, value in last.payload.items() if what != CALLBACK}
            said |= {"asked": {"to": to, "how": how}, "name": to_names[name]} | called
            said[OWNER] = by.owner_after(last if how == "move" else newest.get(to_names[name]))
            return NewJob("transfer", said, keyed(name), said["name"], by.name)

        def deleted(name: str, task: int) -> NewJob:
            said = {"name": name, AFTER: task, OWNER: by.owner_after(newest[name])} | called
            return NewJob("delete", said, keyed(name, "|moved"), name, by.name)

        def keyed(name: str, what: str = "") -> str | None:
            return _key(by.name, key and f"{key}|{name}{what}")

        called, to_names = self._called(callback), {name: in_base(name, to) for name in names}
        known = self.queue.named(keyed(one, at) for one in to_names for at in ("", "|moved")) if key else []
        for job in self.queue.look(known):
            if job.kind != "delete":
                self._refuse_other(job, "transfer", job.payload.get("asked") == {"to": to, "how": how}, key)
        if known:
            return known
        with self._change(by, **{"own" if how == "move" else "read": to_names}, new=to_names.values()) as newest:
            last = self._followed(to_names, newest)
            tasks = self.queue.put([added(name, last[name]) for name in to_names], of=[one.id for one in last.values()])
            if how == "move":
                gone = self.queue.put(list(map(deleted, to_names, tasks)))
                tasks = [task for both in zip(tasks, gone, strict=True) for task in both]
        self.wake()
        return tasks

    def _called(self, callback: str) -> dict[str, str]:
        """What the payload of a job says of its callback."""
        return {CALLBACK: self.callbacks.checked(callback)} if callback else {}

    def _follow(
        self, names: Iterable[str], kind: str, asked: Mapping[str, Any], by: Requester, key: str, callback: str
    ) -> list[int]:
        """Put a change of each document that begins where its last one ends."""
        called, names = self._called(callback), list(names)

        def change(name: str, last: Job) -> NewJob:
            said = last.payload | {"asked": asked} | {what: value for what, value in asked.items() if what == "access"}
            said = {what: value for what, value in said.items() if what != CALLBACK} | called
            fields = said["metadata"] | asked.get("metadata", {})
            said["metadata"] = {what: value for what, value in fields.items() if value is not None}
            said[OWNER] = by.owner_after(last)
            return NewJob(kind, said, _key(by.name, key and f"{key}|{name}"), name, by.name)

        with self._change(by, own=names) as newest:
            last = self._followed(names, newest, reads=kind != "embed")
            tasks = self.queue.put([change(*one) for one in last.items()], of=[one.id for one in last.values()])
        self.wake()
        for first in self.queue.look(tasks) if key else ():
            self._refuse_other(first, kind, first.payload.get("asked") == asked, key)
        return tasks

    def _followed(self, names: Iterable[str], newest: Mapping[str, Job], reads: bool = True) -> dict[str, Job]:
        """The jobs whose bytes a change of these documents takes, if it `reads` them."""
        if reads and not self.keeps_originals:
            raise QueryError("The bytes of documents are not kept here. Send the document again.")
        for name in names:
            if name not in newest or not is_there(newest[name]):
                raise _not_yours(name)
        return {name: newest[name] for name in names}

    def status(self, name: str, access: frozenset[str] = frozenset(), owner: str = "") -> DocumentStatus:
        """What a document is, and what became of it in each node group.

        Args:
            owner: sees his own documents, too, that are not in the store since they wait or have failed.

        Raises:
            NotFound: these principals may read no document of this name.
        """
        last, waiting = self.queue.last(checked_name(name)), self.queue.open([name])
        try:
            snapshot, row, document = self._readable(name, access)
        except NotFound:
            if last is None or last.owner != owner or last.state == "done" or not is_there(last):
                raise
            return DocumentStatus(_undone(last), ())
        reasons = {one.group: one.reason for one in snapshot.unmade() if one.document == document.id}
        groups = dict[str, GroupStatus]()
        for manifest in sort_groups(snapshot.manifests):
            above = next((one for one in (manifest.parent, manifest.ref) if one in groups), "")
            groups[manifest.group] = _group_status(manifest.group, reasons.get(manifest.group, ""), groups.get(above))
        return DocumentStatus(_stored(name, document, row, bool(waiting)), tuple(groups.values()))

    def nodes(
        self,
        name: str,
        group: str = "chunk",
        access: frozenset[str] = frozenset(),
        *,
        page: int = 0,
        after: int = 0,
        limit: int = 100,
    ) -> list[Node]:
        """The nodes of a document in a group, in order: those on a page, from 1, or all (0); `after` is the number of
        the last one of the list before."""
        snapshot, _, document = self._readable(name, access)
        if group not in snapshot.groups():
            raise NotFound(f"There is no node group {group!r:.80}. Write one of {', '.join(snapshot.groups())}.")
        every = snapshot.numbered_nodes(document.id, group, after + 1, LAST_NUMBER if page else after + limit, access)
        return [one for one in every if not page or _is_on(one, page)][:limit]

    def original(self, name: str, access: frozenset[str] = frozenset()) -> bytes:
        """The bytes of a document as it was sent.

        Raises:
            NotFound: they are not kept, or these principals may not read the document.
        """
        _, row, _ = self._readable(name, access)
        last = self.queue.last_done(name)
        data = self.queue.attachment(last.id) if last is not None else None
        if data is None or Blob(row.uri, data).content_hash != row.content_hash:  # what is published is for its readers
            raise NotFound(f"The bytes of {name!r:.80} are not kept, or are being replaced.")
        return data

    def page_image(self, name: str, page: int, access: frozenset[str] = frozenset(), *, dpi: float = 100.0) -> bytes:
        """A page of a PDF as PNG, drawn in a process of its own, since the file is a user's.

        Args:
            page: from 1.
            dpi: dots per inch; boxes of citations are in points, 72 per inch.

        Raises:
            NotFound: the page is missing, or as for `original`.
        """
        data, reader = self.original(name, access), reader_of(name, self.readers)
        if not isinstance(reader, PdfReader):
            raise NotFound(f"{name!r:.80} is not a PDF, so it has no pages to draw. `/original` gives its bytes.")
        drawn = PageImage(reader.passwords, page, dpi)
        with self._drawing:  # one process draws one page after the other
            try:
                (image,) = self._artist.parts(drawn, Blob(SENT + name, data))
            except DocumentError as error:
                raise NotFound(str(error)) from error
        return image.data

    def close(self) -> None:
        """End the processes of this service."""
        self._artist.end()

    def _readable(self, name: str, access: frozenset[str]) -> tuple[Snapshot, SourceRow, Document]:
        snapshot, uri = self.corpus.snapshot(), SENT + checked_name(name)
        row = snapshot.sources([uri]).get(uri)
        document = snapshot.find_document(row.document, access) if row is not None else None
        if row is None or document is None:
            raise NotFound(f"There is no document {name!r:.80} that you may read. `GET /v1/documents` lists them.")
        return snapshot, row, document

    def delete(self, name: str, *, by: Requester = ADMINISTRATOR, key: str = "", callback: str = "") -> int:
        """Delete a document; the number of the task."""
        return self.delete_all([name], by=by, key=key, callback=callback)[0]

    def delete_all(
        self, names: Iterable[str], *, by: Requester = ADMINISTRATOR, key: str = "", callback: str = ""
    ) -> list[int]:
        """As `delete`, for many documents."""
        called, names = self._called(callback), list(map(checked_name, names))
        said = _key(by.name, key)
        own = () if said and self.queue.named([said]) else names  # of a repeated request they may be gone
        with self._change(by, own=own) as newest:
            jobs = [NewJob("delete", {"name": one, **called}, said, one, by.name) for one in names]
            jobs = [_owned(job, newest, by) for job in jobs]
            tasks = self.queue.put(jobs)
        return self._accepted(jobs, tasks)

    def put_base(self, base: KnowledgeBase, *, by: Requester = ADMINISTRATOR) -> None:
        """Add a knowledge base, or change one. It belongs to the owner of the first such request.

        Raises:
            NotAllowed: the name is a folder of the server, another user's, or one of documents that are not all the
                requester's.
        """
        with self.queue.changes():
            if not self._owns_base(base.name, by):
                raise _taken(base.name)
            if base.name not in (known := self.bases.all()):
                sent = (base_of(one.removeprefix(SENT)) for one in self.corpus.snapshot().sources())
                _refuse_look_alike(base.name, {*known, *self.folders.names, *sent})
            self.bases.put(base)

    def _owns_base(self, name: str, by: Requester) -> bool:
        """Return whether a user may change a knowledge base. One that nobody has put belongs to the owner of all its
        documents; one of several owners, and a folder of the server, to the administrator."""
        if name in self.folders.names:
            return by.is_administrator
        if (base := self.bases.all().get(name)) is not None:
            return by.is_owner(base.owner)
        return all(map(by.owns, self._in_base(name).values()))

    def _in_base(self, base: str) -> dict[str, Job | None]:
        """The documents of a knowledge base that are in the store or wait, with their last change."""
        stored = {one.removeprefix(SENT) for one in self.corpus.snapshot().sources()}
        inside = [one for one in stored | set(self.queue.subjects(f"{base}/")) if base_of(one) == base]
        with self.queue.changes(inside) as newest:
            is_open = {name for name, job in newest.items() if job.state != "done" and is_there(job)}
            return {name: newest.get(name) for name in sorted(inside) if name in stored or name in is_open}

    def delete_base(self, base: str, *, by: Requester = ADMINISTRATOR, callback: str = "") -> list[int]:
        """Delete a knowledge base with all its documents; the tasks.

        Raises:
            NotFound: it does not exist, or is another user's.
            NotAllowed: it holds a document of another user.
        """
        with self.queue.changes():
            documents = self._in_base(base)
            if not self._owns_base(base, by) or not (documents or base in self.bases.all()):
                raise NotFound(f"There is no knowledge base {base!r:.80} that you may delete.")
            if not all(map(by.owns, documents.values())):
                raise NotAllowed(f"The knowledge base {base!r:.80} holds documents of others. Ask the administrator.")
            tasks = self.delete_all(documents, by=by, callback=callback)
            self.bases.remove(base)
        self.wake()
        return tasks

    def found(
        self, access: frozenset[str] = frozenset(), after: str = "", limit: int = 100, owner: str = ""
    ) -> list[SentDocument]:
        """Documents that these principals may read, by name; with those of an `owner` that are not in the store since
        they wait or have failed."""
        undone = self.queue.undone(owner, after, limit) if owner else []
        found = {job.payload["name"]: _undone(job) for job in undone}
        snapshot = self.corpus.snapshot()  # after the queue: what waits no longer is there
        stored = dict(self._sent(snapshot, access))
        names = sorted(name for name in {*found, *stored} if name > after)[:limit]
        rows = snapshot.sources([SENT + name for name in names])
        waiting = {job.payload["name"] for job in self.queue.open(names)}
        for name in stored.keys() & set(names):
            found[name] = _stored(name, stored[name], rows.get(SENT + name), name in waiting)
        return [found[name] for name in names]

    def names(self, access: frozenset[str] = frozenset()) -> list[str]:
        """The names of all documents that these principals may read."""
        return [name for name, _ in self._sent(self.corpus.snapshot(), access)]

    def _sent(self, snapshot: Snapshot, access: frozenset[str]) -> Iterator[tuple[str, Document]]:
        every = snapshot.documents(access)
        return ((one.uri.removeprefix(SENT), one) for one in every if one.uri.startswith(SENT))

    def run_scans(self, stopped: threading.Event) -> None:
        """Scan until it is stopped."""
        while not stopped.is_set():
            try:
                self.scan()
            except Exception as error:  # the queue cannot be written now
                logging.getLogger(__name__).warning("A scan failed: %s: %s", type(error).__name__, error)
            stopped.wait(self.scan_s)

    @contextmanager
    def _change(
        self, by: Requester, *, own: Iterable[str] = (), new: Iterable[str] = (), read: Iterable[str] = ()
    ) -> Iterator[dict[str, Job]]:
        """A transaction in which nobody else changes documents: the last job of each of these, as far as it waits or
        the store has what it made.

        Args:
            own: documents of the requester.
            new: names that are free in a knowledge base that admits the requester, or of his own documents.
            read: documents that he may read.

        Raises:
            NotFound: one of `own` or `read` is not there, or not for the requester: one answer for both.
            NotAllowed: one of `new` is taken.
        """
        own, new, read = (list(map(checked_name, names)) for names in (own, new, read))
        with self.queue.changes([*own, *new, *read]) as newest:
            snapshot = self.corpus.snapshot()  # after the queue: what waits no longer is there
            stored = snapshot.document_ids(SENT + one for one in (*own, *new, *read))
            stored = {uri.removeprefix(SENT): id for uri, id in stored.items()}
            newest = {name: job for name, job in newest.items() if job.state != "done" or name in stored}
            for name in own:
                last = newest.get(name) or self.queue.last(name)
                has_failed = last is not None and last.state == "failed"  # its first version: for those who sent it
                is_known = name in newest or name in stored or has_failed
                if not (is_known and (last is None or is_there(last)) and by.owns(last)):
                    raise _not_yours(name)
            for name in read:
                if name not in newest or not is_there(newest[name]) or not _reads(by, newest[name], snapshot, stored):
                    raise _not_yours(name)
            bases = self.bases.all() if new else {}
            for name in new:
                base = bases.get(base_of(name))
                is_own = by.owns(newest.get(name))
                is_free = name not in newest and name not in stored and (base is None or base.admits(by))
                if not is_own and not is_free:
                    raise _taken(name)
                if name not in newest and name not in stored:
                    _refuse_look_alike(base_of(name), {*bases, *self.folders.names})
            yield newest

    def refuse_names(self, names: Iterable[str], by: Requester) -> None:
        """Raise now what adding documents under these names would raise."""
        with self._change(by, new=names):
            pass

    def _accepted(self, jobs: Sequence[NewJob], tasks: list[int]) -> list[int]:
        """The tasks of these jobs: of the first requests with their keys, which must have asked for the same."""
        self.wake()
        keyed = [(job, task) for job, task in zip(jobs, tasks, strict=True) if job.name]
        for (job, _), first in zip(keyed, self.queue.look(task for _, task in keyed), strict=True):
            is_same = _without_owner(first.payload) == _without_owner(job.payload)
            self._refuse_other(first, job.kind, is_same, (job.name or "").partition("|")[2])
        return tasks

    def _refuse_other(self, first: Job, kind: str, is_same: bool, key: str) -> None:
        if first.kind != kind or not is_same:
            raise KeyReused(f"The key {key!r:.80} was used for another change, task {first.id}. Write a new key.")

    def cancel(self, task: int) -> None:
        """Cancel a change that has not begun."""
        if self.queue.cancel(task) and (job := self.queue.job(task)) is not None:
            self.queue.detach([job.payload["name"]], self.keeps_originals)
            self.callbacks.wake()


def export_originals(corpus: Corpus, file: Path) -> int:
    """Write the bytes of documents as they were sent into a ZIP file, with their names, fields and readers; how many.
    It holds what only some may read, as `export_store` does."""
    queue, snapshot, index = JobQueue(table_of(corpus)), corpus.snapshot(), list[dict[str, Any]]()
    with ZipFile(file, "x", ZIP_DEFLATED) as members:
        os.chmod(file, 0o600)
        for name in queue.subjects():
            last = queue.last_done(name)
            data = queue.attachment(last.id) if last is not None and is_there(last) else None
            if last is None or data is None or not snapshot.sources([SENT + name]):
                continue
            said = {what: last.payload[what] for what in ("name", "original", "size", "metadata", "access")}
            index.append({**said, "owner": last.owner, "principal": last.payload.get(OWNER)})
            members.writestr(said["original"], data)
        members.writestr(INDEX, json.dumps({"originals": index, "bases": [vars(one) for one in _bases(queue)]}))
    return len(index)


def import_originals(corpus: Corpus, file: Path) -> int:
    """Keep what `export_originals` has written, for documents that an imported store has with the same content; how
    many.

    Raises:
        StoreCorrupt: the file is damaged, or is another one.
    """
    documents = Documents(corpus)
    queue, snapshot, count = documents.queue, corpus.snapshot(), 0
    try:
        with ZipFile(file) as members:
            index = json.loads(_member(members, INDEX))
            for said in index["originals"]:
                data, name = _member(members, said["original"]), checked_name(said["name"])
                if sha256(data).hexdigest() != said["original"]:
                    raise StoreCorrupt(f"{file}: the bytes of {name!r:.80} were changed. Export the originals again.")
                row = snapshot.sources([SENT + name]).get(SENT + name)
                if row is None or row.content_hash != Blob(row.uri, data).content_hash:
                    continue
                upload = Upload(name, data, said["metadata"], said["access"])
                job = _job(upload, BytesIO(data), said["owner"])
                if (owner := said.get("principal")) is not None:
                    job = job.but(payload={**job.payload, OWNER: str(owner)})
                count += len(queue.restore([job], [BytesIO(data)]))
            for one in index["bases"]:
                documents.bases.put(KnowledgeBase(**one | {"access": tuple(one["access"])}))
    except (BadZipFile, LookupError, TypeError, ValueError, OSError, RecursionError) as error:
        raise StoreCorrupt(
            f"{file} is not a file of originals ({error}). Write one with: spolia export STORE FILE --originals FILE"
        ) from error
    finally:
        documents.close()
    return count


def _member(members: ZipFile, name: str) -> bytes:
    if (size := members.getinfo(name).file_size) > LARGEST_BYTES:
        raise ValueError(f"{name:.80} would have {size:,} bytes")
    return members.read(name)


def _bases(queue: JobQueue) -> Iterable[KnowledgeBase]:
    return KnowledgeBases(queue.table).all().values()


@contextmanager
def publishing(documents: Documents | None) -> Iterator[None]:
    """While inside, threads publish what comes and tell who waits for it."""
    if documents is None:
        yield
        return
    stopped = threading.Event()
    works = (documents.run, documents.callbacks.run, *([documents.run_scans] if documents.scan_s else []))
    threads = [threading.Thread(target=one, args=(stopped,), daemon=True, name="spolia-publisher") for one in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        documents.wake()
        documents.callbacks.wake()
        for thread in threads:
            thread.join(10)
        documents.close()


def in_base(name: str, base: str) -> str:
    """The name of a document in another knowledge base.

    >>> in_base("notes/2026/tides.md", "archive")
    'archive/2026/tides.md'

    Raises:
        QueryError: it is there, or the base has no name.
    """
    if not base or "/" in checked_name(base):
        raise QueryError(f"{base!r:.80} is not a name of a knowledge base. Write a name without '/'.")
    before = base_of(name)
    if before == base:
        raise QueryError(f"{name!r:.80} is in {base!r} already. Write another knowledge base.")
    return checked_name(f"{base}/{name.removeprefix(f'{before}/') if before else name}")


def _fields(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    if BASE in fields:
        raise QueryError(f"The field {BASE!r} of {name!r:.80} is the first folder in its name. Leave it out.")
    for one in (*fields, *fields.values()):
        if isinstance(one, str) and not is_unicode(one):
            raise QueryError(f"metadata: {one!r:.80} is half a character. Write it whole.")
    return dict(fields)


def checked_name(name: str) -> str:
    """The name of a document, if it is one.

    >>> checked_name("notes/tides.md")
    'notes/tides.md'
    >>> checked_name("../tides.md")
    Traceback (most recent call last):
    spolia.errors.QueryError: '../tides.md' is not a name of a document. Write a path such as notes/tides.md.
    """
    if not name or len(name) > LONGEST_NAME or _ODD.search(name):
        raise QueryError(f"{name!r:.80} is not a name of a document. Write a path such as notes/tides.md.")
    return name


def _group_status(group: str, reason: str, above: GroupStatus | None) -> GroupStatus:
    """As the store notes it: of a group that is made from one that is not made it notes nothing."""
    if reason:
        return GroupStatus(group, "waiting" if reason == NOT_YET else "failed", reason)
    if above is not None and above.state != "done":
        return GroupStatus(group, "waiting", f"It is made from {above.group!r}, which is not made.")
    return GroupStatus(group, "done")


def _is_on(node: Node, page: int) -> bool:
    pages = node.span.pages if node.span is not None else None
    return pages is not None and pages[0] <= page <= pages[1]


def is_there(job: Job) -> bool:
    """Whether a change leaves a document."""
    return job.kind != "delete"


def _stored(name: str, document: Document, row: SourceRow | None, waits: bool) -> SentDocument:
    state = "waiting" if waits else "failed" if row is not None and row.status == "failed" else "done"
    return SentDocument(name, document.title, document.meta, state, "" if row is None else row.error.replace(SENT, ""))


def _undone(job: Job) -> SentDocument:
    """A document that is not there since its last change waits or has failed."""
    state = "failed" if job.state == "failed" else "waiting"
    return SentDocument(job.payload["name"], "", tuple(job.payload["metadata"].items()), state, job.reason)


def _taken(name: str) -> NotAllowed:
    return NotAllowed(f"You cannot use the name {name!r:.80}. Write another one.")


def _refuse_look_alike(base: str, known: Set[str]) -> None:
    """Raise NotAllowed if a new name of a knowledge base looks like another one."""
    if base not in known and look_of(base) in map(look_of, known - {""}):
        raise _taken(base)


def _not_yours(name: str) -> NotFound:
    return NotFound(f"You have no document {name!r:.80}. `GET /v1/documents` lists documents.")


def _reads(by: Requester, last: Job, snapshot: Snapshot, stored: Mapping[str, str]) -> bool:
    """Return whether a requester may read a document as it is, and as it waits to become."""
    if by.principals is None:
        return True
    readers, id = last.payload.get("access", ()), stored.get(last.payload["name"])
    is_hidden = id is not None and snapshot.find_document(id, by.principals) is None
    return not is_hidden and (not readers or not by.principals.isdisjoint(readers))


def _owned(job: NewJob, newest: Mapping[str, Job], by: Requester) -> NewJob:
    return job.but(payload={**job.payload, OWNER: by.owner_after(newest.get(job.subject))})


def _without_owner(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What a request asked for; who owns the document may differ when it is repeated."""
    return {name: value for name, value in payload.items() if name != OWNER}


def _job(upload: Upload, file: Any, by: str) -> NewJob:
    original, size = file_digest(file, "sha256").hexdigest(), file.seek(0, os.SEEK_END)
    file.seek(0)
    access = readers_in(upload.name, upload.access)
    said = {
        "name": upload.name,
        "original": original,
        "size": size,
        "metadata": _fields(upload.name, upload.metadata),
        "access": access,
    }
    said |= {CALLBACK: upload.callback} if upload.callback else {}
    return NewJob("add", said, _key(by, upload.key), upload.name, by)


def readers_in(name: str, access: Sequence[str]) -> list[str]:
    try:
        return list(principals(access, f"The readers of {name!r:.80} are"))
    except StoreError as error:
        raise QueryError(str(error)) from None


def _key(by: str, key: str) -> str | None:
    return f"{quote(by, safe='')}|{key}" if key else None

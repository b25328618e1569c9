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
    confusable_skeleton,
)
from spolia.services.publisher import PRECEDING_TASK, Publisher, Reparse, open_table
from spolia.stores.backends.rows import NOT_YET, SourceRow, in_batches
from spolia.stores.corpus import Corpus
from spolia.stores.manifest import sort_groups
from spolia.types import Document, Node, Scalar, Value, check_principals, is_unicode
from spolia.types.documents import SENT_PREFIX

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot

PATHS_AT_ONCE = 100
"""Files that are added by their path in one transaction."""
LAST_NUMBER = 2**31  # above the number of any node: the nodes of a page can stand anywhere in the document
Transfer: TypeAlias = Literal["copy", "move"]
ADMINISTRATOR = Requester()
SCAN = Requester("folder scan")
"""Asks for changes that follow from files; no key has this name."""
INDEX = "originals.json"
LONGEST_NAME = 500
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]|^/|/$|//|(?:^|/)\.{1,2}(?:/|$)|://")


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
    """State of a document in a node group: `done`, `failed` with the reason, or `waiting` until it is made."""

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
    """Publisher that adds and deletes documents of a store; a task reports the outcome of each change.

    Args:
        corpus: the store; made with the first document.
        folders: of this machine, whose files may be added by their path.
        scan_s: seconds between two comparisons with the files of `folders`; 0 for none.
        options: further arguments of the `Publisher`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     documents = Documents(Corpus(f"{folder}/notes.spolia"))
    ...     task = documents.add("tides.md", b"The moon causes the tides.")
    ...     documents.publish(), documents.queue.job(task).state, documents.list_documents()[0].name
    (1, 'done', 'tides.md')
    """

    def __init__(
        self, corpus: Corpus, *, folders: Iterable[str | Path] = (), scan_s: float = 0.0, **options: Any
    ) -> None:
        super().__init__(corpus, **options)
        self.folders, self.bases = ServerFolders(folders), KnowledgeBases(self.queue.table)
        self.scan_s, self._file_states = scan_s, dict[str, object]()
        self._page_renderer, self._render_lock = WorkerProcesses(1), threading.Lock()

    def add(
        self, name: str, data: bytes | BinaryIO, *, requester: Requester = ADMINISTRATOR, **upload_fields: Any
    ) -> int:
        """Add a document, or replace the one with its name; return the number of the task.

        Args:
            requester: who asks.
            upload_fields: further fields of an `Upload`.

        Raises:
            NotAllowed: the name belongs to another user's document or knowledge base.
            KeyReused: another request had this key.
            QueryError: the name is not one, no reader knows its format, or `access` lists no names.
        """
        return self.add_all([Upload(name, data, **upload_fields)], requester=requester)[0]

    def add_all(self, uploads: Sequence[Upload], *, requester: Requester = ADMINISTRATOR) -> list[int]:
        """Add many documents as `add` does, durably together. If a key was used, the others are accepted."""
        for upload in uploads:
            if reader_of(check_name(upload.name), self.readers) is None:
                raise QueryError(
                    f"No reader knows the format of {upload.name!r:.80}. Convert it, for example to .md or .pdf."
                )
            self._callback_payload(upload.callback)
        files = [BytesIO(upload.data) if isinstance(upload.data, bytes) else upload.data for upload in uploads]
        # Hashes the files, so before the transaction, in which nobody else can write.
        jobs = [_build_job(upload, file, requester.name) for upload, file in zip(uploads, files, strict=True)]
        with self._begin_change(requester, new=[upload.name for upload in uploads]) as newest:
            jobs = [_set_owner(job, newest, requester) for job in jobs]
            tasks = self.queue.enqueue(jobs, files)
        return self._confirm_tasks(jobs, tasks)

    def add_paths(
        self,
        paths: Iterable[str],
        *,
        access: Callable[[str], Sequence[str]] = lambda name: (),
        requester: Requester = ADMINISTRATOR,
        key: str = "",
        **upload_fields: Any,
    ) -> list[int]:
        """Add files of `folders`, and all that is in folders of these, as documents with the name of the folder before
        their path in it. They become durable a hundred at a time.

        Args:
            access: who may read a document, by its name.
            upload_fields: further fields of an `Upload`.

        Raises:
            NotAllowed: a path is in none of the folders, or leads over a link.
            NotFound: nothing is there.
        """
        names = self.folders.files(paths, self.readers)
        return [
            task
            for batch in in_batches(iter(names), PATHS_AT_ONCE)
            for task in self.add_all(
                [
                    Upload(
                        name, self.folders.read(name), access=access(name), key=key and f"{key}|{name}", **upload_fields
                    )
                    for name in batch
                ],
                requester=requester,
            )
        ]

    def scan(self) -> list[int]:
        """Add new and changed files of `folders`, delete the documents of removed files that a scan added, and return
        the tasks. Readers are those of the knowledge base with the folder's name.

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
            for batch in in_batches(iter(names), PATHS_AT_ONCE):
                uploads = [Upload(name, data, access=access) for name in batch for data in self._changed_bytes(name)]
                tasks += self.add_all(uploads, requester=SCAN)
            removed = [subject for subject in self.queue.subjects(f"{folder}/", SCAN.name) if subject not in set(names)]
            removed = [
                subject
                for subject in removed
                if (last := self.queue.last_job(subject)) and last.owner == SCAN.name and leaves_document(last)
            ]
            if removed and not names:
                logging.getLogger(__name__).warning("The folder %s is empty: its documents stay.", folder)
                continue
            tasks += self.delete_all(removed, requester=SCAN)
        return tasks

    def _changed_bytes(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file if it is to be added."""
        try:
            state = self.folders.state(name)
            if self._file_states.get(name) == state:
                return
            data = self.folders.read(name)
        except (SpoliaError, OSError):  # it is gone, or written now: the next scan looks again
            return
        last = self.queue.last_job(name)
        # Before it is added: a file that no reader can read is tried again only when it changes.
        self._file_states[name] = state
        if last is None or not leaves_document(last):
            # what a user deleted comes back only with a newer file
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
        requester: Requester = ADMINISTRATOR,
        key: str = "",
        callback: str = "",
    ) -> int:
        """Change fields of a document (None removes one) or its readers; nothing is embedded again. Return the number
        of the task."""
        changes = {
            "metadata": None if metadata is None else _check_fields(name, metadata),
            "access": None if access is None else check_readers(name, access),
        }
        return self._put_changes(
            [name],
            "patch",
            {field_name: value for field_name, value in changes.items() if value is not None},
            requester,
            key,
            callback,
        )[0]

    def reparse(
        self,
        names: Iterable[str],
        mode: Reparse = "rebuild",
        *,
        requester: Requester = ADMINISTRATOR,
        key: str = "",
        callback: str = "",
    ) -> list[int]:
        """Make documents again from their stored bytes; return the numbers of the tasks.

        Args:
            mode: `rebuild` reads and splits again, asks models again, and embeds what has no vector. If a group cannot
                be made, all stays as it was. `embed` embeds all texts again, for an embedder whose server has changed
                its model under one name; a text that other documents have too gets its new vector there as well.
                `missing` makes only what could not be made.
        """
        return self._put_changes(names, mode, {}, requester, key, callback)

    def transfer(
        self,
        names: Iterable[str],
        to: str,
        mode: Transfer = "copy",
        *,
        requester: Requester = ADMINISTRATOR,
        key: str = "",
        callback: str = "",
    ) -> list[int]:
        """Copy or move documents to another knowledge base, with their fields and readers; no text is embedded again.
        Return the tasks; a move has two for each document, since the old one goes when the new one exists.

        Raises:
            NotFound: one was not sent.
            QueryError: it is there already, or a change of it has not ended.
        """

        def build_transfer(name: str, last: Job) -> NewJob:
            if last.state != "done":
                raise QueryError(f"Task {last.id} changes {name!r:.80}. Ask again when it has ended.")
            # The callback of the earlier change is none of this one.
            payload = {payload_key: value for payload_key, value in last.payload.items() if payload_key != CALLBACK}
            payload |= {"asked": {"to": to, "how": mode}, "name": to_names[name]} | callback_payload
            payload[OWNER] = requester.owner_after(last if mode == "move" else newest.get(to_names[name]))
            return NewJob("transfer", payload, job_name(name), payload["name"], requester.name)

        def build_deletion(name: str, task: int) -> NewJob:
            payload = {
                "name": name,
                PRECEDING_TASK: task,
                OWNER: requester.owner_after(newest[name]),
            } | callback_payload
            return NewJob("delete", payload, job_name(name, "|moved"), name, requester.name)

        def job_name(name: str, suffix: str = "") -> str | None:
            return _job_name(requester.name, key and f"{key}|{name}{suffix}")

        callback_payload, to_names = self._callback_payload(callback), {name: name_in_base(name, to) for name in names}
        repeated_tasks = (
            self.queue.job_ids(job_name(item, suffix) for item in to_names for suffix in ("", "|moved")) if key else []
        )
        for job in self.queue.find_jobs(repeated_tasks):
            if job.kind != "delete":
                self._refuse_reused_key(job, "transfer", job.payload.get("asked") == {"to": to, "how": mode}, key)
        if repeated_tasks:  # before the checks below: the documents that were moved are not there any more
            return repeated_tasks
        with self._begin_change(
            requester, **{"own" if mode == "move" else "read": to_names}, new=to_names.values()
        ) as newest:
            last_jobs = self._require_last_jobs(to_names, newest)
            tasks = self.queue.enqueue(
                [build_transfer(name, last_jobs[name]) for name in to_names],
                source_ids=[item.id for item in last_jobs.values()],
            )
            if mode == "move":
                delete_tasks = self.queue.enqueue(list(map(build_deletion, to_names, tasks)))
                tasks = [task for pair in zip(tasks, delete_tasks, strict=True) for task in pair]
        self.wake()
        return tasks

    def _callback_payload(self, callback: str) -> dict[str, str]:
        """Return the part of a job's payload that names its callback."""
        return {CALLBACK: self.callbacks.check_address(callback)} if callback else {}

    def _put_changes(
        self,
        names: Iterable[str],
        kind: str,
        requested: Mapping[str, Any],
        requester: Requester,
        key: str,
        callback: str,
    ) -> list[int]:
        """Put a change of each document that begins where its last one ends."""
        callback_payload, names = self._callback_payload(callback), list(names)

        def build_change(name: str, last: Job) -> NewJob:
            payload = (
                last.payload
                | {"asked": requested}
                | {payload_key: value for payload_key, value in requested.items() if payload_key == "access"}
            )
            payload = {  # the callback of the earlier change is none of this one
                payload_key: value for payload_key, value in payload.items() if payload_key != CALLBACK
            } | callback_payload
            fields = payload["metadata"] | requested.get("metadata", {})
            payload["metadata"] = {payload_key: value for payload_key, value in fields.items() if value is not None}
            payload[OWNER] = requester.owner_after(last)
            return NewJob(kind, payload, _job_name(requester.name, key and f"{key}|{name}"), name, requester.name)

        with self._begin_change(requester, own=names) as newest:
            # re-embedding takes the texts from the store
            last_jobs = self._require_last_jobs(names, newest, reads=kind != "embed")
            tasks = self.queue.enqueue(
                [build_change(*item) for item in last_jobs.items()], source_ids=[item.id for item in last_jobs.values()]
            )
        self.wake()
        for first in self.queue.find_jobs(tasks) if key else ():
            self._refuse_reused_key(first, kind, first.payload.get("asked") == requested, key)
        return tasks

    def _require_last_jobs(self, names: Iterable[str], newest: Mapping[str, Job], reads: bool = True) -> dict[str, Job]:
        """Return the last job of each document, where the change goes on; with `reads` its bytes must be stored."""
        if reads and not self.keeps_originals:
            raise QueryError("The bytes of documents are not kept here. Send the document again.")
        for name in names:
            if name not in newest or not leaves_document(newest[name]):
                raise _not_found(name)
        return {name: newest[name] for name in names}

    def status(self, name: str, access: frozenset[str] = frozenset(), owner: str = "") -> DocumentStatus:
        """Return a document, and its state in each node group.

        Args:
            owner: sees his own documents, too, that are not in the store since they wait or have failed.

        Raises:
            NotFound: these principals may read no document of this name.
        """
        # The queue before the snapshot: a change that ends in between is in one of them.
        last, waiting = self.queue.last_job(check_name(name)), self.queue.open_jobs([name])
        try:
            snapshot, row, document = self._readable(name, access)
        except NotFound:
            # others may not learn that it exists
            if last is None or last.owner != owner or last.state == "done" or not leaves_document(last):
                raise
            return DocumentStatus(_unfinished_document(last), ())
        reasons = {item.group: item.reason for item in snapshot.unmade() if item.document == document.id}
        groups = dict[str, GroupStatus]()
        for manifest in sort_groups(snapshot.manifests):
            parent_group = next((item for item in (manifest.parent, manifest.ref) if item in groups), "")
            groups[manifest.group] = _group_status(
                manifest.group, reasons.get(manifest.group, ""), groups.get(parent_group)
            )
        return DocumentStatus(_stored_document(name, document, row, bool(waiting)), tuple(groups.values()))

    def nodes(
        self,
        name: str,
        group: str = "chunk",
        access: frozenset[str] = frozenset(),
        *,
        page: int = 0,
        after_number: int = 0,
        limit: int = 100,
    ) -> list[Node]:
        """Return the nodes of a document in a group, in order: those on a page, from 1, or all (0); `after_number` is
        the last number of the previous list."""
        snapshot, _, document = self._readable(name, access)
        if group not in snapshot.groups():
            raise NotFound(f"There is no node group {group!r:.80}. Write one of {', '.join(snapshot.groups())}.")
        group_nodes = snapshot.numbered_nodes(
            document.id, group, after_number + 1, LAST_NUMBER if page else after_number + limit, access
        )
        return [node for node in group_nodes if not page or _is_on(node, page)][:limit]

    def original(self, name: str, access: frozenset[str] = frozenset()) -> bytes:
        """Return the bytes of a document as it was sent.

        Raises:
            NotFound: they are not kept, or these principals may not read the document.
        """
        _, row, _ = self._readable(name, access)
        last = self.queue.last_done_job(name)
        data = self.queue.attachment(last.id) if last is not None else None
        if data is None or Blob(row.uri, data).content_hash != row.content_hash:  # what is published is for its readers
            raise NotFound(f"The bytes of {name!r:.80} are not kept, or are being replaced.")
        return data

    def page_image(self, name: str, page: int, access: frozenset[str] = frozenset(), *, dpi: float = 100.0) -> bytes:
        """Draw a page of a PDF as PNG, in a separate process since the file is a user's.

        Args:
            page: from 1.
            dpi: dots per inch; boxes of citations are in points, 72 per inch.

        Raises:
            NotFound: the page is missing, or as for `original`.
        """
        data, reader = self.original(name, access), reader_of(name, self.readers)
        if not isinstance(reader, PdfReader):
            raise NotFound(f"{name!r:.80} is not a PDF, so it has no pages to draw. `/original` gives its bytes.")
        image_request = PageImage(reader.passwords, page, dpi)
        with self._render_lock:  # one process draws one page after the other
            try:
                (image,) = self._page_renderer.parts(image_request, Blob(SENT_PREFIX + name, data))
            except DocumentError as error:
                raise NotFound(str(error)) from error
        return image.data

    def close(self) -> None:
        """End the processes of this service."""
        self._page_renderer.end()

    def _readable(self, name: str, access: frozenset[str]) -> tuple[Snapshot, SourceRow, Document]:
        snapshot, uri = self.corpus.snapshot(), SENT_PREFIX + check_name(name)
        row = snapshot.sources([uri]).get(uri)
        document = snapshot.find_document(row.document, access) if row is not None else None
        if row is None or document is None:
            raise NotFound(f"There is no document {name!r:.80} that you may read. `GET /v1/documents` lists them.")
        return snapshot, row, document

    def delete(self, name: str, *, requester: Requester = ADMINISTRATOR, key: str = "", callback: str = "") -> int:
        """Delete a document; return the number of the task."""
        return self.delete_all([name], requester=requester, key=key, callback=callback)[0]

    def delete_all(
        self, names: Iterable[str], *, requester: Requester = ADMINISTRATOR, key: str = "", callback: str = ""
    ) -> list[int]:
        """Delete many documents as `delete` does; return the tasks."""
        callback_payload, names = self._callback_payload(callback), list(map(check_name, names))
        job_name = _job_name(requester.name, key)
        own = () if job_name and self.queue.job_ids([job_name]) else names  # of a repeated request they may be gone
        with self._begin_change(requester, own=own) as newest:
            jobs = [
                NewJob("delete", {"name": name, **callback_payload}, job_name, name, requester.name) for name in names
            ]
            jobs = [_set_owner(job, newest, requester) for job in jobs]
            tasks = self.queue.enqueue(jobs)
        return self._confirm_tasks(jobs, tasks)

    def put_base(self, base: KnowledgeBase, *, requester: Requester = ADMINISTRATOR) -> None:
        """Add a knowledge base, or change one. It belongs to the owner of the first such request.

        Raises:
            NotAllowed: the name is a folder of the server, another user's, or one of documents that are not all the
                requester's.
        """
        with self.queue.changes():  # else two requests could both find the name free
            if not self._owns_base(base.name, requester):
                raise _name_taken(base.name)
            if base.name not in (existing := self.bases.all()):
                stored_bases = (base_of(uri.removeprefix(SENT_PREFIX)) for uri in self.corpus.snapshot().sources())
                _refuse_look_alike(base.name, {*existing, *self.folders.names, *stored_bases})
            self.bases.save(base)

    def _owns_base(self, name: str, requester: Requester) -> bool:
        """Return whether a user may change a knowledge base. One that nobody has put belongs to the owner of all its
        documents; one of several owners, and a folder of the server, to the administrator."""
        if name in self.folders.names:
            return requester.is_administrator
        if (base := self.bases.all().get(name)) is not None:
            return requester.is_owner(base.owner)
        return all(map(requester.owns, self._base_documents(name).values()))

    def _base_documents(self, base: str) -> dict[str, Job | None]:
        """Return the documents of a knowledge base that are in the store or wait, with their last change."""
        stored = {item.removeprefix(SENT_PREFIX) for item in self.corpus.snapshot().sources()}
        inside = [item for item in stored | set(self.queue.subjects(f"{base}/")) if base_of(item) == base]
        with self.queue.changes(inside) as newest:
            is_open = {name for name, job in newest.items() if job.state != "done" and leaves_document(job)}
            return {name: newest.get(name) for name in sorted(inside) if name in stored or name in is_open}

    def delete_base(self, base: str, *, requester: Requester = ADMINISTRATOR, callback: str = "") -> list[int]:
        """Delete a knowledge base with all its documents; return the tasks.

        Raises:
            NotFound: it does not exist, or is another user's.
            NotAllowed: it holds a document of another user.
        """
        with self.queue.changes():  # else a document could be added between the check and the deletion
            documents = self._base_documents(base)
            if not self._owns_base(base, requester) or not (documents or base in self.bases.all()):
                raise NotFound(f"There is no knowledge base {base!r:.80} that you may delete.")
            if not all(map(requester.owns, documents.values())):
                raise NotAllowed(f"The knowledge base {base!r:.80} holds documents of others. Ask the administrator.")
            tasks = self.delete_all(documents, requester=requester, callback=callback)
            self.bases.remove(base)
        self.wake()
        return tasks

    def list_documents(
        self, access: frozenset[str] = frozenset(), after_name: str = "", limit: int = 100, owner: str = ""
    ) -> list[SentDocument]:
        """Return the documents that these principals may read, by name; with those of an `owner` that wait or have
        failed and are not in the store."""
        undone = self.queue.unfinished_jobs(owner, after_name, limit) if owner else []
        documents_by_name = {job.payload["name"]: _unfinished_document(job) for job in undone}
        snapshot = self.corpus.snapshot()  # after the queue: what waits no longer is there
        stored = dict(self._readable_documents(snapshot, access))
        names = sorted(name for name in {*documents_by_name, *stored} if name > after_name)[:limit]
        rows = snapshot.sources([SENT_PREFIX + name for name in names])
        waiting = {job.payload["name"] for job in self.queue.open_jobs(names)}
        for name in stored.keys() & set(names):
            documents_by_name[name] = _stored_document(
                name, stored[name], rows.get(SENT_PREFIX + name), name in waiting
            )
        return [documents_by_name[name] for name in names]

    def names(self, access: frozenset[str] = frozenset()) -> list[str]:
        """Return the names of all documents that these principals may read."""
        return [name for name, _ in self._readable_documents(self.corpus.snapshot(), access)]

    def _readable_documents(self, snapshot: Snapshot, access: frozenset[str]) -> Iterator[tuple[str, Document]]:
        documents = snapshot.documents(access)
        return (
            (document.uri.removeprefix(SENT_PREFIX), document)
            for document in documents
            if document.uri.startswith(SENT_PREFIX)
        )

    def run_scans(self, stopped: threading.Event) -> None:
        """Scan until it is stopped."""
        while not stopped.is_set():
            try:
                self.scan()
            except Exception as error:  # the queue cannot be written now
                logging.getLogger(__name__).warning("A scan failed: %s: %s", type(error).__name__, error)
            stopped.wait(self.scan_s)

    @contextmanager
    def _begin_change(
        self, requester: Requester, *, own: Iterable[str] = (), new: Iterable[str] = (), read: Iterable[str] = ()
    ) -> Iterator[dict[str, Job]]:
        """Open a transaction that alone changes documents; yield the last job of each one that waits, or whose result
        the store has.

        Args:
            own: documents of the requester.
            new: names that are free in a knowledge base that admits the requester, or of his own documents.
            read: documents that he may read.

        Raises:
            NotFound: one of `own` or `read` is not there, or not for the requester: one answer for both.
            NotAllowed: one of `new` is taken.
        """
        own, new, read = (list(map(check_name, names)) for names in (own, new, read))
        with self.queue.changes([*own, *new, *read]) as newest:
            snapshot = self.corpus.snapshot()  # after the queue: what waits no longer is there
            stored = snapshot.document_ids(SENT_PREFIX + document_name for document_name in (*own, *new, *read))
            stored = {uri.removeprefix(SENT_PREFIX): id for uri, id in stored.items()}
            # A name whose deletion is done is free.
            newest = {name: job for name, job in newest.items() if job.state != "done" or name in stored}
            for name in own:
                last = newest.get(name) or self.queue.last_job(name)
                has_failed = last is not None and last.state == "failed"  # its first version: for those who sent it
                is_known = name in newest or name in stored or has_failed
                if not (is_known and (last is None or leaves_document(last)) and requester.owns(last)):
                    raise _not_found(name)
            for name in read:
                if (
                    name not in newest
                    or not leaves_document(newest[name])
                    or not _may_read(requester, newest[name], snapshot, stored)
                ):
                    raise _not_found(name)
            bases = self.bases.all() if new else {}
            for name in new:
                base = bases.get(base_of(name))
                is_own = requester.owns(newest.get(name))
                is_free = name not in newest and name not in stored and (base is None or base.admits(requester))
                if not is_own and not is_free:
                    raise _name_taken(name)
                if name not in newest and name not in stored:
                    _refuse_look_alike(base_of(name), {*bases, *self.folders.names})
            yield newest

    def refuse_names(self, names: Iterable[str], requester: Requester) -> None:
        """Raise now whatever adding documents under these names would raise."""
        with self._begin_change(requester, new=names):
            pass

    def _confirm_tasks(self, jobs: Sequence[NewJob], tasks: list[int]) -> list[int]:
        """Return the tasks of these jobs. A repeated key must ask for the same change, and gives its first task."""
        self.wake()
        keyed = [(job, task) for job, task in zip(jobs, tasks, strict=True) if job.name]
        for (job, _), first in zip(keyed, self.queue.find_jobs(task for _, task in keyed), strict=True):
            is_same = _without_owner(first.payload) == _without_owner(job.payload)
            self._refuse_reused_key(first, job.kind, is_same, (job.name or "").partition("|")[2])
        return tasks

    def _refuse_reused_key(self, first: Job, kind: str, is_same: bool, key: str) -> None:
        if first.kind != kind or not is_same:
            raise KeyReused(f"The key {key!r:.80} was used for another change, task {first.id}. Write a new key.")

    def cancel(self, task: int) -> None:
        """Cancel a change that has not begun."""
        if self.queue.cancel(task) and (job := self.queue.job(task)) is not None:
            self.queue.detach([job.payload["name"]], self.keeps_originals)
            self.callbacks.wake()


def export_originals(corpus: Corpus, file: Path) -> int:
    """Write the bytes of documents as they were sent into a ZIP file, with their names, fields and readers; return
    their number. The file also holds documents that only some may read, as with `export_store`."""
    queue, snapshot, index = JobQueue(open_table(corpus)), corpus.snapshot(), list[dict[str, Any]]()
    with ZipFile(file, "x", ZIP_DEFLATED) as members:
        os.chmod(file, 0o600)  # before anything is in it: it holds documents that only some may read
        for name in queue.subjects():
            last = queue.last_done_job(name)
            data = queue.attachment(last.id) if last is not None and leaves_document(last) else None
            if last is None or data is None or not snapshot.sources([SENT_PREFIX + name]):
                continue
            entry = {
                field_name: last.payload[field_name]
                for field_name in ("name", "original", "size", "metadata", "access")
            }
            index.append({**entry, "owner": last.owner, "principal": last.payload.get(OWNER)})
            members.writestr(entry["original"], data)
        members.writestr(INDEX, json.dumps({"originals": index, "bases": [vars(base) for base in _load_bases(queue)]}))
    return len(index)


def import_originals(corpus: Corpus, file: Path) -> int:
    """Import the file of `export_originals`, for documents that an imported store has with the same content; return
    their number.

    Raises:
        StoreCorrupt: the file is damaged, or is another one.
    """
    documents = Documents(corpus)
    queue, snapshot, count = documents.queue, corpus.snapshot(), 0
    try:
        with ZipFile(file) as members:
            index = json.loads(_read_member(members, INDEX))
            for entry in index["originals"]:
                data, name = _read_member(members, entry["original"]), check_name(entry["name"])
                if sha256(data).hexdigest() != entry["original"]:
                    raise StoreCorrupt(f"{file}: the bytes of {name!r:.80} were changed. Export the originals again.")
                row = snapshot.sources([SENT_PREFIX + name]).get(SENT_PREFIX + name)
                if row is None or row.content_hash != Blob(row.uri, data).content_hash:
                    continue
                upload = Upload(name, data, entry["metadata"], entry["access"])
                job = _build_job(upload, BytesIO(data), entry["owner"])
                if (owner := entry.get("principal")) is not None:  # None: of version 0.2.0, whose owner is the key
                    job = job.but(payload={**job.payload, OWNER: str(owner)})
                count += len(queue.restore([job], [BytesIO(data)]))
            for base_fields in index["bases"]:
                documents.bases.save(KnowledgeBase(**base_fields | {"access": tuple(base_fields["access"])}))
    except (BadZipFile, LookupError, TypeError, ValueError, OSError, RecursionError) as error:
        raise StoreCorrupt(
            f"{file} is not a file of originals ({error}). Write one with: spolia export STORE FILE --originals FILE"
        ) from error
    finally:
        documents.close()
    return count


def _read_member(members: ZipFile, name: str) -> bytes:
    # before it is unpacked: a small ZIP can hold a huge member
    if (size := members.getinfo(name).file_size) > LARGEST_BYTES:
        raise ValueError(f"{name:.80} would have {size:,} bytes")
    return members.read(name)


def _load_bases(queue: JobQueue) -> Iterable[KnowledgeBase]:
    return KnowledgeBases(queue.table).all().values()


@contextmanager
def run_publisher(documents: Documents | None) -> Iterator[None]:
    """Run the threads that publish changes and post callbacks while inside."""
    if documents is None:
        yield
        return
    stopped = threading.Event()
    loops = (documents.run, documents.callbacks.run, *([documents.run_scans] if documents.scan_s else []))
    threads = [threading.Thread(target=loop, args=(stopped,), daemon=True, name="spolia-publisher") for loop in loops]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        documents.wake()
        documents.callbacks.wake()
        for thread in threads:
            # A commit that takes longer is dropped with the process: its leases end, and another publisher does the
            # jobs.
            thread.join(10)
        documents.close()


def name_in_base(name: str, base: str) -> str:
    """Return the name of a document in another knowledge base.

    >>> name_in_base("notes/2026/tides.md", "archive")
    'archive/2026/tides.md'

    Raises:
        QueryError: it is there, or the base has no name.
    """
    if not base or "/" in check_name(base):
        raise QueryError(f"{base!r:.80} is not a name of a knowledge base. Write a name without '/'.")
    old_base = base_of(name)
    if old_base == base:
        raise QueryError(f"{name!r:.80} is in {base!r} already. Write another knowledge base.")
    return check_name(f"{base}/{name.removeprefix(f'{old_base}/') if old_base else name}")


def _check_fields(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    if BASE in fields:
        raise QueryError(f"The field {BASE!r} of {name!r:.80} is the first folder in its name. Leave it out.")
    for text in (*fields, *fields.values()):
        if isinstance(text, str) and not is_unicode(text):
            raise QueryError(f"metadata: {text!r:.80} is half a character. Write it whole.")
    return dict(fields)


def check_name(name: str) -> str:
    """Return the name of a document if it is valid.

    >>> check_name("notes/tides.md")
    'notes/tides.md'
    >>> check_name("../tides.md")
    Traceback (most recent call last):
    spolia.errors.QueryError: '../tides.md' is not a name of a document. Write a path such as notes/tides.md.
    """
    if not name or len(name) > LONGEST_NAME or _FORBIDDEN.search(name):
        raise QueryError(f"{name!r:.80} is not a name of a document. Write a path such as notes/tides.md.")
    return name


def _group_status(group: str, reason: str, parent_status: GroupStatus | None) -> GroupStatus:
    """Return the state of a document in a group; the store notes no reason for a group whose parent is not made."""
    if reason:
        return GroupStatus(group, "waiting" if reason == NOT_YET else "failed", reason)
    if parent_status is not None and parent_status.state != "done":
        return GroupStatus(group, "waiting", f"It is made from {parent_status.group!r}, which is not made.")
    return GroupStatus(group, "done")


def _is_on(node: Node, page: int) -> bool:
    pages = node.span.pages if node.span is not None else None
    return pages is not None and pages[0] <= page <= pages[1]


def leaves_document(job: Job) -> bool:
    """Return whether a change leaves a document."""
    return job.kind != "delete"


def _stored_document(name: str, document: Document, row: SourceRow | None, waits: bool) -> SentDocument:
    state = "waiting" if waits else "failed" if row is not None and row.status == "failed" else "done"
    return SentDocument(
        name, document.title, document.meta, state, "" if row is None else row.error.replace(SENT_PREFIX, "")
    )


def _unfinished_document(job: Job) -> SentDocument:
    """Return a document that is not in the store because its last change waits or has failed."""
    state = "failed" if job.state == "failed" else "waiting"
    return SentDocument(job.payload["name"], "", tuple(job.payload["metadata"].items()), state, job.reason)


def _name_taken(name: str) -> NotAllowed:
    return NotAllowed(f"You cannot use the name {name!r:.80}. Write another one.")


def _refuse_look_alike(base: str, existing: Set[str]) -> None:
    """Raise NotAllowed if a new name of a knowledge base looks like another one."""
    if base not in existing and confusable_skeleton(base) in map(confusable_skeleton, existing - {""}):
        raise _name_taken(base)


def _not_found(name: str) -> NotFound:
    return NotFound(f"You have no document {name!r:.80}. `GET /v1/documents` lists documents.")


def _may_read(requester: Requester, last: Job, snapshot: Snapshot, stored: Mapping[str, str]) -> bool:
    """Return whether a requester may read a document as it is, and as it waits to become."""
    if requester.principals is None:
        return True
    readers, id = last.payload.get("access", ()), stored.get(last.payload["name"])
    is_hidden = id is not None and snapshot.find_document(id, requester.principals) is None
    return not is_hidden and (not readers or not requester.principals.isdisjoint(readers))


def _set_owner(job: NewJob, newest: Mapping[str, Job], requester: Requester) -> NewJob:
    return job.but(payload={**job.payload, OWNER: requester.owner_after(newest.get(job.subject))})


def _without_owner(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload of a request without the owner, who may differ when it is repeated."""
    return {name: value for name, value in payload.items() if name != OWNER}


def _build_job(upload: Upload, file: Any, requester_name: str) -> NewJob:
    original, size = file_digest(file, "sha256").hexdigest(), file.seek(0, os.SEEK_END)
    file.seek(0)
    access = check_readers(upload.name, upload.access)
    payload = {
        "name": upload.name,
        "original": original,
        "size": size,
        "metadata": _check_fields(upload.name, upload.metadata),
        "access": access,
    }
    payload |= {CALLBACK: upload.callback} if upload.callback else {}
    return NewJob("add", payload, _job_name(requester_name, upload.key), upload.name, requester_name)


def check_readers(name: str, access: Sequence[str]) -> list[str]:
    try:
        return list(check_principals(access, f"The readers of {name!r:.80} are"))
    except StoreError as error:
        raise QueryError(str(error)) from None


def _job_name(requester_name: str, key: str) -> str | None:
    return f"{quote(requester_name, safe='')}|{key}" if key else None

"""Documents that users send to a store: each change is a job, and one publisher commits together the changes that wait.

The bytes of an upload are a file named by their hash, until another change of the document is published.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from spolia.errors import DocumentError, KeyReused, QueryError, SpoliaError, StoreError
from spolia.indexing.readers.reader import reader_of
from spolia.indexing.readers.registry import READERS, Readers, by_suffix
from spolia.indexing.sources.source import Items, changed_at
from spolia.indexing.sync.files import Loaded, SourceChanges, load
from spolia.indexing.sync.groups import RequestedGroups, main_definition
from spolia.indexing.sync.metadata import DocumentLabels
from spolia.indexing.sync.sync import keep
from spolia.indexing.sync.sync_run import SyncOptions
from spolia.services.jobs import LEASE_S, Claim, JobQueue, NewJob, SqliteTable
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition
from spolia.stores.manifest import definition_by_now
from spolia.types import Scalar, Value

PREFIX = "doc://"
"""How the uris of such documents begin."""
TOGETHER = 1_000
"""Changes of one commit, at most."""
RETRY_S = 5.0
LONGEST_NAME = 500
_ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]|^/|/$|//|(?:^|/)\.{1,2}(?:/|$)|://")
REPLACED = "replaced"
"""Reason of a change that a newer one of the document has overtaken."""


@dataclass(frozen=True)
class StoredDocument(Value):
    """A document of the store: its name, title, and its fields."""

    name: str
    title: str
    meta: tuple[tuple[str, Scalar], ...]


class Documents:
    """Add and delete documents of a store; tasks tell what became of each change.

    Args:
        corpus: the store; made with the first document.
        queue: the jobs; by default a file in the store's folder.
        definition: of the group `chunk`, if the store does not have it yet.
        readers: of formats, as for `sync`.
        known: operators and embedders of your own that groups of the store are made by.
        keeps_originals: whether the bytes stay after a document is published.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     documents = Documents(Corpus(f"{folder}/notes.spolia"))
    ...     task = documents.add("tides.md", b"The moon causes the tides.")
    ...     documents.publish(), documents.queue.job(task).state, [one.name for one in documents.found()]
    (1, 'done', ['tides.md'])
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        queue: JobQueue | None = None,
        definition: Definition | None = None,
        readers: Readers = READERS,
        known: Sequence[Any] = (),
        keeps_originals: bool = True,
    ) -> None:
        corpus.create()
        self.corpus, self.keeps_originals = corpus, keeps_originals
        self.definition, self.readers, self.known = definition, by_suffix(readers), tuple(known)
        self.originals = corpus.backend.folder / "originals"
        self.queue = queue or JobQueue(SqliteTable(corpus.backend.folder / "jobs.db"))
        self._came = threading.Event()

    def add(
        self,
        name: str,
        data: bytes | Path,
        *,
        metadata: Mapping[str, Scalar] | None = None,
        access: Sequence[str] = (),
        by: str = "",
        key: str = "",
    ) -> int:
        """Add a document, or put it in the place of the one with its name; the number of the task.

        Args:
            name: with `/` for folders; its end says the format.
            data: its bytes, or a file that is moved into the store.
            metadata: fields to filter by.
            access: who may read it; nobody named for everybody.
            by: who asks.
            key: the same request again with this key is the first task.

        Raises:
            KeyReused: another request had this key.
            QueryError: the name is not one, or no reader knows its format.
        """
        if reader_of(checked_name(name), self.readers) is None:
            raise QueryError(f"No reader knows the format of {name!r:.80}. Convert it, for example to .md or .pdf.")
        original = self._kept(data)
        said = {"name": name, "original": original, "metadata": dict(metadata or {}), "access": list(access)}
        kept: dict[str, Any] = {}
        try:
            task, kept = self._put("add", said, by, key)
        finally:
            if kept.get("original") != original:
                (self.originals / original).unlink()
        return task

    def delete(self, name: str, *, by: str = "", key: str = "") -> int:
        """Delete a document; the number of the task."""
        return self._put("delete", {"name": checked_name(name)}, by, key)[0]

    def found(self, access: frozenset[str] = frozenset(), after: str = "", limit: int = 100) -> list[StoredDocument]:
        """Documents that these principals may read, by name."""
        every = self.corpus.snapshot().documents(access)
        own = (one for one in every if one.uri.startswith(PREFIX) and one.uri.removeprefix(PREFIX) > after)
        named = sorted(((one.uri.removeprefix(PREFIX), one) for one in own), key=lambda pair: pair[0])
        return [StoredDocument(name, one.title, one.meta) for name, one in islice(named, limit)]

    def publish(self, limit: int = TOGETHER) -> int:
        """Commit the changes that wait, together; how many."""
        claims = self.queue.claim(f"publisher {os.getpid()}", limit)
        with self._renewed(claims):
            late = set(self.queue.outdated(claims))
            self.queue.end([one for one in claims if one.id in late], reason=REPLACED)
            self._publish([one for one in claims if one.id not in late])
            self._tidy({one.payload["name"] for one in claims})
        return len(claims)

    def run(self, stopped: threading.Event, poll_s: float = 1.0) -> None:
        """Publish what comes until it is stopped; other processes may put jobs in the queue too."""
        while not stopped.is_set():
            self._came.clear()
            try:
                found = self.publish()
            except Exception as error:  # the queue cannot be read or written now; its leases end
                logging.getLogger(__name__).warning("Documents wait: %s: %s", type(error).__name__, error)
                found = 0
            if not found:
                self._came.wait(poll_s)

    def wake(self) -> None:
        self._came.set()

    def is_open(self, name: str, access: frozenset[str]) -> bool:
        """Whether these principals may change a document: it is new, or they may read it."""
        snapshot = self.corpus.snapshot()
        uri = PREFIX + checked_name(name)
        if (id := snapshot.named([uri]).get(uri)) is None:
            return True
        with suppress(StoreError):
            return bool(snapshot.document(id, access))
        return False

    def _put(self, kind: str, said: dict[str, Any], by: str, key: str) -> tuple[int, dict[str, Any]]:
        """The task, and what it is to do: of the first request with this key, which must have asked for the same."""
        (task,) = self.queue.put([NewJob(kind, said, f"{by}|{key}" if key else None, said["name"], by)])
        self.wake()
        if not key or (first := self.queue.job(task)) is None:
            return task, said
        if (first.kind, _content(first.payload)) != (kind, _content(said)):
            raise KeyReused(f"The key {key!r:.80} was used for another change, task {task}. Write a new key.")
        return task, first.payload

    def _kept(self, data: bytes | Path) -> str:
        """The name of the file that has the bytes on disk: their SHA-256, and a number of its own."""
        self.originals.mkdir(0o700, parents=True, exist_ok=True)
        if isinstance(data, bytes):
            part = self.new_part()
            part.write_bytes(data)
            data = part
        digest = sha256()
        with data.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
            os.fsync(file.fileno())
        name = f"{digest.hexdigest()}.{secrets.token_hex(4)}"
        data.replace(self.originals / name)
        return name

    def new_part(self) -> Path:
        """A new file, into which a document can be received."""
        self.originals.mkdir(0o700, parents=True, exist_ok=True)
        return self.originals / f".{secrets.token_hex(8)}.part"

    def _tidy(self, names: Iterable[str]) -> None:
        """Delete the originals of changes that have ended, but for those behind the documents."""
        current: dict[str, str] = {}
        ended: set[str] = set()
        for job in self.queue.history(names):
            original = job.payload.get("original", "")
            if job.state == "done":
                current[job.payload["name"]] = original
            if job.state in ("done", "failed", "cancelled"):
                ended.add(original)
        for original in ended - {"", *(current.values() if self.keeps_originals else ())}:
            (self.originals / original).unlink(missing_ok=True)

    def cancel(self, task: int) -> None:
        """Cancel a change that has not begun."""
        if self.queue.cancel(task) and (job := self.queue.job(task)) is not None:
            self._tidy([job.payload["name"]])

    def _publish(self, claims: Sequence[Claim]) -> None:
        """Commit changes; where the commit fails, halves of them, so that a bad one is found."""
        if not claims:
            return
        try:
            failed = self._committed(claims)
        except SpoliaError as error:
            if error.transient:
                self.queue.retry(claims, str(error), RETRY_S)
                return
            self._divide(claims, error)
        except Exception as error:
            self._divide(claims, error)
        else:
            self.queue.end([one for one in claims if PREFIX + one.payload["name"] not in failed])
            for one in claims:
                if why := failed.get(PREFIX + one.payload["name"]):
                    self.queue.end([one], "failed", why)

    def _divide(self, claims: Sequence[Claim], error: Exception) -> None:
        if len(claims) == 1:
            self.queue.end(claims, "failed", f"{type(error).__name__}: {error}")
            return
        middle = len(claims) // 2
        self._publish(claims[:middle])
        self._publish(claims[middle:])

    def _committed(self, claims: Sequence[Claim]) -> dict[str, str]:
        """Bring the store in step with the last change of each document; the uris that could not be read, and why."""
        last = {PREFIX + one.payload["name"]: one for one in claims}
        added = {uri: one.payload for uri, one in last.items() if one.kind == "add"}
        items = Items(self.readers)
        for uri, said in added.items():
            reader, path = reader_of(uri, self.readers), self.originals / said["original"]
            at = changed_at(None, repr((said["original"], said["metadata"], said["access"])).encode())
            assert reader is not None
            size = path.stat().st_size if path.exists() else 0
            items.list(uri, size, at, reader, partial(_loaded, path, at))
        gone = frozenset(last.keys() - added.keys())
        labels = DocumentLabels(
            lambda uri: added.get(uri, {}).get("metadata", {}), lambda uri: added.get(uri, {}).get("access", ())
        )
        changes = SourceChanges(items, source=PREFIX, gone=gone)
        report = keep(self.corpus, changes, labels, SyncOptions(self._groups()))
        return dict(report.failed)

    def _groups(self) -> RequestedGroups:
        """The groups of the store as they are, or the one that it begins with."""
        manifest = self.corpus.snapshot().manifests.get("chunk")
        own = self.definition or main_definition(None, None, None)
        own = own if manifest is None else definition_by_now(manifest, self.known)
        return RequestedGroups("chunk", own, known=self.known, given=self.corpus.given)

    @contextmanager
    def _renewed(self, claims: Sequence[Claim]) -> Iterator[None]:
        """Hold jobs while inside."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(LEASE_S / 3):
                self.queue.renew(claims)

        thread = threading.Thread(target=renew, daemon=True, name="spolia-lease")
        if claims:
            thread.start()
        try:
            yield
        finally:
            done.set()


@contextmanager
def publishing(documents: Documents | None) -> Iterator[None]:
    """While inside, a thread publishes what comes."""
    if documents is None:
        yield
        return
    stopped = threading.Event()
    thread = threading.Thread(target=documents.run, args=(stopped,), daemon=True, name="spolia-publisher")
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        documents.wake()
        thread.join(10)


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


def _content(said: dict[str, Any]) -> dict[str, Any]:
    """What a change asks for, whatever file its bytes are in."""
    return said | {"original": said.get("original", "").partition(".")[0]}


def _loaded(path: Path, at: int, spool: Path | None) -> Loaded:
    try:
        found = load(str(path), spool=spool)
    except OSError as error:
        raise DocumentError(f"Its bytes are not there any more: {error.strerror}. Send it again.") from error
    return Loaded(found.content, found.size, at, max(at, 0), max(at, 0))

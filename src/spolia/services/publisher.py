"""One publisher commits together the changes of documents that wait as jobs."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Literal, TypeAlias, cast, get_args

from spolia import services
from spolia.errors import DocumentError, SpoliaError, StoreError
from spolia.filters.fields import KINDS, Field, Schema
from spolia.indexing.readers.reader import reader_of
from spolia.indexing.readers.registry import READERS, Readers, by_suffix
from spolia.indexing.sources.source import Items, changed_at
from spolia.indexing.sync.files import IN_MEMORY, Loaded, SourceChanges
from spolia.indexing.sync.groups import RequestedGroups, main_definition
from spolia.indexing.sync.metadata import DocumentLabels
from spolia.indexing.sync.sync import embed_again, keep
from spolia.indexing.sync.sync_run import SyncOptions
from spolia.indexing.workers.prepare import Executor
from spolia.services.callbacks import Callbacks
from spolia.services.jobs import LEASE_S, Claim, JobQueue, JobTable, SqliteTable
from spolia.services.knowledge_bases import BASE, base_of
from spolia.stores.backends.postgres.address import parse_address
from spolia.stores.corpus import POSTGRES, Corpus
from spolia.stores.definition import Definition
from spolia.stores.manifest import current_definition
from spolia.stores.writer import compact_all
from spolia.types import Scalar
from spolia.types.documents import SENT

TOGETHER = 1_000
"""Changes of one commit, at most."""
RETRY_S = 5.0
"""Until a change is tried again the first time."""
Reparse: TypeAlias = Literal["rebuild", "embed", "missing"]
AFTER = "after"
"""In the payload of a job that waits for another one to be done."""
KEPT_S, FORGET_S = 30 * 86_400.0, 3_600.0
"""How long tasks are kept after their end, and how often others are looked for, in seconds."""
MOST_FIELDS = 200
REPLACED = "replaced"
"""Reason of a change that a newer one of the document has overtaken."""


class Publisher:
    """Commits the changes of documents that wait, oldest first; several may run, and each job is done once.

    Args:
        corpus: the store; made with the first document.
        queue: the jobs; by default in the store's schema in PostgreSQL, or a file in its folder.
        definition: of the group `chunk`, if the store does not have it yet.
        readers: of formats, as for `sync`.
        known: operators and embedders of your own that groups of the store are made by.
        keeps_originals: whether the bytes stay after a document is published.
        workers: who reads and embeds, as for `sync`.
        callback_hosts: hosts for callbacks beside those at public addresses.
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
        workers: Executor | None = None,
        callback_hosts: Collection[str] = (),
    ) -> None:
        corpus.create()
        self.corpus, self.keeps_originals, self.workers = corpus, keeps_originals, workers
        self.definition, self.readers, self.known = definition, by_suffix(readers), tuple(known)
        self.queue = queue or JobQueue(table_of(corpus))
        self.callbacks = Callbacks(self.queue, corpus.backend.folder, callback_hosts)
        self._came, self._forget_at = threading.Event(), 0.0
        self._is_loose, self._is_clean = True, False

    def publish(self, limit: int = TOGETHER) -> int:
        """Commit the changes that wait, together; how many."""
        claims = self.queue.claim(f"publisher {os.getpid()}", limit)
        with self._renewed(claims):
            late = set(self.queue.outdated(claims))
            self.queue.end([one for one in claims if one.id in late], reason=REPLACED)
            now = [one for one in claims if one.id not in late]
            for some in _rounds([one for one in now if AFTER not in one.payload]):
                self._publish(some)
            self._publish(self._whose_turn_it_is([one for one in now if AFTER in one.payload]))
            self.queue.detach({one.payload["name"] for one in claims}, self.keeps_originals)
        if claims:
            self.callbacks.wake()
        return len(claims)

    def _whose_turn_it_is(self, claims: Sequence[Claim]) -> list[Claim]:
        """Those whose job before is done. Where it failed, they fail too; where it has not ended, they wait."""
        before = {job.id: job for job in self.queue.look({one.payload[AFTER] for one in claims})} if claims else {}
        found = list[Claim]()
        for one in claims:
            job = before.get(one.payload[AFTER])
            if job is None or job.state in ("failed", "cancelled"):
                self.queue.end([one], "failed", f"Task {one.payload[AFTER]} was not done, so this document stays.")
            elif job.state == "done":
                found.append(one)
            else:
                self._wait([one], f"Task {job.id} is not done yet.")
        return found

    def run(self, stopped: threading.Event, poll_s: float = 1.0) -> None:
        """Publish what comes until it is stopped; other processes may put jobs in the queue too."""
        self.wake()
        while True:
            came = self._came.wait(poll_s)
            if stopped.is_set():
                return
            self._came.clear()
            try:
                if self.publish():
                    self.wake()  # more may wait
                elif not came:
                    self.tidy()
            except Exception as error:  # the queue cannot be read or written now; its leases end
                logging.getLogger(__name__).warning("Documents wait: %s: %s", type(error).__name__, error)

    def tidy(self) -> None:
        """Join what many commits have left in small pieces; forget tasks that ended `KEPT_S` ago."""
        if self._is_loose:
            compact_all(self.corpus.backend, self.corpus.latest().manifests, self.corpus.wait_s)
            self._is_loose, self._is_clean = False, False
        if not self._is_clean:
            self._is_clean = self.queue.table.clean()
        if (now := time.monotonic()) >= self._forget_at:
            self._forget_at = now + FORGET_S
            self.queue.forget(KEPT_S)

    def wake(self) -> None:
        self._came.set()

    def _publish(self, claims: Sequence[Claim]) -> None:
        """Commit changes; where the commit fails, halves of them, so that a bad one is found."""
        if not claims:
            return
        try:
            failed = self._committed(claims)
        except SpoliaError as error:
            if error.transient:
                self._wait(claims, str(error))
                return
            self._divide(claims, error)
        except Exception as error:
            self._divide(claims, error)
        else:
            bad = [one for one in claims if SENT + one.payload["name"] in failed]
            self.queue.end([one for one in claims if one not in bad])
            last = _last(bad)
            for uri, one in last.items():
                self.queue.end([one], "failed", failed[uri])
            self._publish([one for one in bad if one not in last.values()])  # changes before a bad one hold

    def _wait(self, claims: Sequence[Claim], why: str) -> None:
        """Give changes back, longer each time: seven minutes in all, in which a model can be loaded."""
        for times in {one.token for one in claims}:
            self.queue.retry([one for one in claims if one.token == times], why, RETRY_S * 4 ** (times - 1))

    def _divide(self, claims: Sequence[Claim], error: Exception) -> None:
        if len(claims) == 1:
            self.queue.end(claims, "failed", f"{type(error).__name__}: {error}")
            return
        middle = len(claims) // 2
        self._publish(claims[:middle])
        self._publish(claims[middle:])

    def _committed(self, claims: Sequence[Claim]) -> dict[str, str]:
        """Bring the store in step with the last change of each document; the uris that could not be read, and why."""
        last = _last(claims)
        added = {uri: one.payload for uri, one in last.items() if one.kind != "delete"}
        items = Items(self.readers)
        for uri, said in added.items():
            reader = reader_of(uri, self.readers)
            at = changed_at(None, repr((said["original"], said["metadata"], said["access"])).encode())
            assert reader is not None
            items.list(uri, said["size"], at, reader, partial(self._loaded, last[uri].id, at))
        gone = frozenset(last.keys() - added.keys())
        labels = DocumentLabels(
            lambda uri: {**added.get(uri, {}).get("metadata", {}), **_in_its_base(uri)},
            lambda uri: added.get(uri, {}).get("access", ()),
        )
        again = frozenset(uri for uri, one in last.items() if one.kind == "rebuild")
        changes = SourceChanges(items, source=SENT, gone=gone, again=again)
        self._is_loose = True
        metas = [one["metadata"] for one in added.values()] + list(map(_in_its_base, added))
        fields = _declared(self.corpus.snapshot().schema, metas)
        how = SyncOptions(self._groups(), fields, reread=bool(again), workers=self.workers, compacts=False)
        report = keep(self.corpus, changes, labels, how)
        failed = dict(report.failed)
        renewed = [uri for uri, one in last.items() if one.kind == "embed" and uri not in failed]
        try:
            if renewed:
                embed_again(self.corpus, renewed, how.wanted, self.workers)
        except StoreError as error:
            if error.transient:
                raise
            failed |= dict.fromkeys(renewed, str(error))  # which lies at none of them
        lacking = {one.uri: f"Group {one.group!r}: {one.reason}" for one in report.unmade}
        made_up = {uri for uri, one in last.items() if one.kind == "missing"}
        failed = {uri: why for uri, why in lacking.items() if uri in made_up} | failed
        return {uri: why.replace(SENT, "") for uri, why in failed.items()}  # users know names

    def _loaded(self, task: int, at: int, spool: Path | None) -> Loaded:
        if (data := self.queue.attachment(task)) is None:
            raise DocumentError("Its bytes are not there any more. Send it again.")
        content: bytes | Path = data
        if spool is not None and len(data) > IN_MEMORY:
            descriptor, name = mkstemp(dir=spool)
            with open(descriptor, "wb") as out:
                out.write(data)
            content = Path(name)
        return Loaded(content, len(data), at, max(at, 0), max(at, 0))

    def _groups(self) -> RequestedGroups:
        """The groups of the store as they are, or the one that it begins with."""
        manifest = self.corpus.snapshot().manifests.get("chunk")
        own = self.definition or main_definition(None, None, None)
        own = own if manifest is None else current_definition(manifest, self.known)
        return RequestedGroups("chunk", own, known=self.known, given=self.corpus.definitions)

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


def table_of(corpus: Corpus) -> JobTable:
    """The table of jobs that belongs to a store."""
    if not corpus.path.startswith(POSTGRES):
        return SqliteTable(corpus.backend.folder / "jobs.db")

    return services.postgres_jobs.PostgresTable(parse_address(corpus.path))


def _in_its_base(uri: str) -> dict[str, Scalar]:
    base = base_of(uri.removeprefix(SENT))
    return {BASE: base} if base else {}


def _declared(schema: Schema, metas: Iterable[Mapping[str, Scalar]]) -> tuple[Field, ...] | None:
    """The fields of a store with those that documents have and nobody has declared, so that they can be filtered by;
    None if there are no new ones. The first value says what kind they are."""
    found: dict[str, Field] = {}
    for name, value in (pair for meta in metas for pair in meta.items()):
        if name and name not in schema.by_name and type(value).__name__ in KINDS:
            kind = "float" if name in found and {found[name].kind, type(value).__name__} == {"int", "float"} else ""
            if name not in found or kind:
                found[name] = Field(name, cast(Any, kind or type(value).__name__))
    new = list(found.values())[: max(0, MOST_FIELDS - len(schema))]
    return (*schema, *new) if new else None


def _rounds(claims: Sequence[Claim]) -> Iterator[list[Claim]]:
    """Changes that can be committed together: of each document up to the one that makes it again, whose failure is
    none of those after it. An embedder that is away holds up no change without it: first come documents without new
    texts, then new texts, then what is embedded again."""
    while claims:
        ended, new, now, later = set[str](), set[str](), list[Claim](), list[Claim]()
        for one in claims:
            (later if (name := one.payload["name"]) in ended else now).append(one)
            if one.kind in get_args(Reparse):
                ended.add(name)
        for one in now:
            if one.kind == "delete":
                new.discard(one.payload["name"])
            elif one.kind not in ("patch", "transfer", "embed"):
                new.add(one.payload["name"])
        apart = [one for one in now if one.kind == "embed"]
        others = [one for one in now if one.kind != "embed"]
        yield [one for one in others if one.payload["name"] not in new]
        yield [one for one in others if one.payload["name"] in new]
        yield apart
        claims = later


def _last(claims: Sequence[Claim]) -> dict[str, Claim]:
    """The last change of each document, by uri."""
    return {SENT + one.payload["name"]: one for one in claims}

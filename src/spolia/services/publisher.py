"""Publisher that commits waiting changes of documents together."""

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
from spolia.core.deprecation import renamed_arguments
from spolia.errors import DocumentError, SpoliaError, StoreError
from spolia.filters.fields import KINDS, Field, Schema
from spolia.indexing.readers.reader import reader_of
from spolia.indexing.readers.registry import READERS, Readers, by_suffix
from spolia.indexing.sources.source import Items, changed_at
from spolia.indexing.sync.files import IN_MEMORY, Loaded, SourceChanges
from spolia.indexing.sync.groups import RequestedGroups, main_definition
from spolia.indexing.sync.metadata import DocumentLabels
from spolia.indexing.sync.sync import reembed, sync_listing
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
from spolia.types.documents import SENT_PREFIX

BATCH_SIZE = 1_000
"""Changes of one commit, at most."""
RETRY_S = 5.0
"""Until a change is tried again the first time."""
Reparse: TypeAlias = Literal["rebuild", "embed", "missing"]
PRECEDING_TASK = "after"
"""In the payload of a job that waits for another one to be done."""
RETENTION_S, FORGET_S = 30 * 86_400.0, 3_600.0
"""How long tasks are kept after their end, and how often others are looked for, in seconds."""
MOST_FIELDS = 200  # users choose the names of fields, so their number needs a bound
REPLACED = "replaced"
"""Reason of a change that a newer one of the document has overtaken."""


class Publisher:
    """Committer of waiting document changes, oldest first. Several may run, and each job is done once.

    Args:
        corpus: the store; made with the first document.
        queue: the jobs; by default in the store's schema in PostgreSQL, or a file in its folder.
        definition: of the group `chunk`, if the store does not have it yet.
        readers: of formats, as for `sync`.
        operators: operators and embedders of your own that groups of the store are made by.
        keeps_originals: whether the bytes stay after a document is published.
        workers: who reads and embeds, as for `sync`.
        callback_hosts: hosts for callbacks beside those at public addresses.
    """

    @renamed_arguments(known="operators")
    def __init__(
        self,
        corpus: Corpus,
        *,
        queue: JobQueue | None = None,
        definition: Definition | None = None,
        readers: Readers = READERS,
        operators: Sequence[Any] = (),
        keeps_originals: bool = True,
        workers: Executor | None = None,
        callback_hosts: Collection[str] = (),
    ) -> None:
        corpus.create()
        self.corpus, self.keeps_originals, self.workers = corpus, keeps_originals, workers
        self.definition, self.readers, self.operators = definition, by_suffix(readers), tuple(operators)
        self.queue = queue or JobQueue(open_table(corpus))
        self.callbacks = Callbacks(self.queue, corpus.backend.folder, callback_hosts)
        self._wake_event, self._forget_at = threading.Event(), 0.0
        self._is_loose, self._is_clean = True, False  # an earlier process may have left small pieces

    def publish(self, limit: int = BATCH_SIZE) -> int:
        """Commit the waiting changes together; return their number."""
        claims = self.queue.claim(f"publisher {os.getpid()}", limit)
        with self._renew_leases(claims):
            # A publisher that was slow must not undo a newer change.
            outdated = set(self.queue.outdated_ids(claims))
            self.queue.end([claim for claim in claims if claim.id in outdated], reason=REPLACED)
            now = [claim for claim in claims if claim.id not in outdated]
            for batch in _split_rounds([claim for claim in now if PRECEDING_TASK not in claim.payload]):
                self._publish(batch)
            # Last, because the task before may be in this batch.
            self._publish(self._ready_claims([claim for claim in now if PRECEDING_TASK in claim.payload]))
            self.queue.detach({claim.payload["name"] for claim in claims}, self.keeps_originals)
        if claims:
            self.callbacks.wake()
        return len(claims)

    def _ready_claims(self, claims: Sequence[Claim]) -> list[Claim]:
        """Return the claims whose preceding job is done. If it failed, end them as failed; if it has not ended, give
        them back."""
        preceding_jobs = (
            {job.id: job for job in self.queue.find_jobs({claim.payload[PRECEDING_TASK] for claim in claims})}
            if claims
            else {}
        )
        ready = list[Claim]()
        for claim in claims:
            job = preceding_jobs.get(claim.payload[PRECEDING_TASK])
            if job is None or job.state in ("failed", "cancelled"):
                self.queue.end(
                    [claim], "failed", f"Task {claim.payload[PRECEDING_TASK]} was not done, so this document stays."
                )
            elif job.state == "done":
                ready.append(claim)
            else:
                self._give_back([claim], f"Task {job.id} is not done yet.")
        return ready

    def run(self, stopped: threading.Event, poll_s: float = 1.0) -> None:
        """Publish changes until it is stopped; other processes may put jobs in the queue too."""
        self.wake()
        while True:
            came = self._wake_event.wait(poll_s)
            if stopped.is_set():
                return
            self._wake_event.clear()
            try:
                if self.publish():
                    self.wake()  # more may wait
                elif not came:  # only when idle: a compaction would hold up changes
                    self.tidy()
            except Exception as error:  # the queue cannot be read or written now; its leases end
                logging.getLogger(__name__).warning("Documents wait: %s: %s", type(error).__name__, error)

    def tidy(self) -> None:
        """Compact the small pieces that many commits have left; delete tasks that ended `RETENTION_S` ago."""
        if self._is_loose:
            compact_all(self.corpus.backend, self.corpus.latest().manifests, self.corpus.wait_s)
            self._is_loose, self._is_clean = False, False
        if not self._is_clean:
            self._is_clean = self.queue.table.clean()
        if (now := time.monotonic()) >= self._forget_at:
            self._forget_at = now + FORGET_S
            self.queue.delete_old_jobs(RETENTION_S)

    def wake(self) -> None:
        self._wake_event.set()

    def _publish(self, claims: Sequence[Claim]) -> None:
        """Commit changes; if a commit fails, commit its halves, to isolate the bad change."""
        if not claims:
            return
        try:
            failed = self._commit(claims)
        except SpoliaError as error:
            if error.transient:
                self._give_back(claims, str(error))
                return
            self._publish_halves(claims, error)
        except Exception as error:
            self._publish_halves(claims, error)
        else:
            bad = [claim for claim in claims if SENT_PREFIX + claim.payload["name"] in failed]
            self.queue.end([claim for claim in claims if claim not in bad])
            last = _last_claims(bad)
            for uri, claim in last.items():
                self.queue.end([claim], "failed", failed[uri])
            self._publish([claim for claim in bad if claim not in last.values()])  # changes before a bad one hold

    def _give_back(self, claims: Sequence[Claim], reason: str) -> None:
        """Give changes back, longer each time: seven minutes in all, enough to load a model."""
        for times in {claim.token for claim in claims}:
            self.queue.retry([claim for claim in claims if claim.token == times], reason, RETRY_S * 4 ** (times - 1))

    def _publish_halves(self, claims: Sequence[Claim], error: Exception) -> None:
        if len(claims) == 1:
            self.queue.end(claims, "failed", f"{type(error).__name__}: {error}")
            return
        middle = len(claims) // 2
        self._publish(claims[:middle])
        self._publish(claims[middle:])

    def _commit(self, claims: Sequence[Claim]) -> dict[str, str]:
        """Bring the store in step with the last change of each document; return the uris that failed, with their
        reasons."""
        last = _last_claims(claims)
        added = {uri: item.payload for uri, item in last.items() if item.kind != "delete"}
        items = Items(self.readers)
        for uri, payload in added.items():
            reader = reader_of(uri, self.readers)
            change_time = changed_at(None, repr((payload["original"], payload["metadata"], payload["access"])).encode())
            assert reader is not None
            items.add_item(uri, payload["size"], change_time, reader, partial(self._load, last[uri].id, change_time))
        deleted = frozenset(last.keys() - added.keys())
        labels = DocumentLabels(
            lambda uri: {**added.get(uri, {}).get("metadata", {}), **_base_field(uri)},
            lambda uri: added.get(uri, {}).get("access", ()),
        )
        rebuilt = frozenset(uri for uri, item in last.items() if item.kind == "rebuild")
        changes = SourceChanges(items, source=SENT_PREFIX, gone=deleted, forced_uris=rebuilt)
        self._is_loose = True
        metas = [item["metadata"] for item in added.values()] + list(map(_base_field, added))
        fields = _extend_fields(self.corpus.snapshot().schema, metas)
        # `tidy` compacts later, once for many commits.
        options = SyncOptions(self._groups(), fields, reread=bool(rebuilt), workers=self.workers, compacts=False)
        report = sync_listing(self.corpus, changes, labels, options)
        failed = dict(report.failed)
        renewed = [uri for uri, item in last.items() if item.kind == "embed" and uri not in failed]
        try:
            if renewed:
                reembed(self.corpus, renewed, options.requested_groups, self.workers)
        except StoreError as error:
            if error.transient:
                raise
            failed |= dict.fromkeys(renewed, str(error))  # which lies at none of them
        lacking = {item.uri: f"Group {item.group!r}: {item.reason}" for item in report.unmade}
        retried = {uri for uri, item in last.items() if item.kind == "missing"}
        failed = {uri: reason for uri, reason in lacking.items() if uri in retried} | failed
        return {uri: reason.replace(SENT_PREFIX, "") for uri, reason in failed.items()}  # users know names

    def _load(self, task: int, change_time: int, spool: Path | None) -> Loaded:
        if (data := self.queue.attachment(task)) is None:
            raise DocumentError("Its bytes are not there any more. Send it again.")
        content: bytes | Path = data
        if spool is not None and len(data) > IN_MEMORY:
            descriptor, name = mkstemp(dir=spool)
            with open(descriptor, "wb") as out:
                out.write(data)
            content = Path(name)
        return Loaded(content, len(data), change_time, max(change_time, 0), max(change_time, 0))

    def _groups(self) -> RequestedGroups:
        """Return the groups of the store as they are, or the group that a new store begins with."""
        manifest = self.corpus.snapshot().manifests.get("chunk")
        own = self.definition or main_definition(None, None, None)
        own = own if manifest is None else current_definition(manifest, self.operators)
        return RequestedGroups("chunk", own, known_operators=self.operators, corpus_definitions=self.corpus.definitions)

    @contextmanager
    def _renew_leases(self, claims: Sequence[Claim]) -> Iterator[None]:
        """Renew the leases of claims while inside."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(LEASE_S / 3):  # two renewals may fail before a lease ends
                self.queue.renew(claims)

        thread = threading.Thread(target=renew, daemon=True, name="spolia-lease")
        if claims:
            thread.start()
        try:
            yield
        finally:
            done.set()


def open_table(corpus: Corpus) -> JobTable:
    """Open the table of jobs that belongs to a store."""
    if not corpus.path.startswith(POSTGRES):
        return SqliteTable(corpus.backend.folder / "jobs.db")

    return services.postgres_jobs.PostgresTable(parse_address(corpus.path))


def _base_field(uri: str) -> dict[str, Scalar]:
    base = base_of(uri.removeprefix(SENT_PREFIX))
    return {BASE: base} if base else {}


def _extend_fields(schema: Schema, metas: Iterable[Mapping[str, Scalar]]) -> tuple[Field, ...] | None:
    """Return the fields of a store together with undeclared ones of the documents, so that filters can use them; None
    if none are new. The first value decides the kind of a field."""
    fields_by_name: dict[str, Field] = {}
    for name, value in (pair for meta in metas for pair in meta.items()):
        if name and name not in schema.by_name and type(value).__name__ in KINDS:
            kind = (  # a float holds 1 and 1.5, whichever came first
                "float"
                if name in fields_by_name and {fields_by_name[name].kind, type(value).__name__} == {"int", "float"}
                else ""
            )
            if name not in fields_by_name or kind:
                fields_by_name[name] = Field(name, cast(Any, kind or type(value).__name__))
    new = list(fields_by_name.values())[: max(0, MOST_FIELDS - len(schema))]
    return (*schema, *new) if new else None


def _split_rounds(claims: Sequence[Claim]) -> Iterator[list[Claim]]:
    """Yield changes that can be committed together: of each document up to its first reparse, so that a failed one does
    not fail later changes. An absent embedder must hold up no other change, so documents without new texts come first,
    then new texts, then re-embedding."""
    while claims:
        ended, new, now, later = set[str](), set[str](), list[Claim](), list[Claim]()
        for claim in claims:
            (later if (name := claim.payload["name"]) in ended else now).append(claim)
            if claim.kind in get_args(Reparse):
                ended.add(name)
        for claim in now:
            if claim.kind == "delete":
                new.discard(claim.payload["name"])
            elif claim.kind not in ("patch", "transfer", "embed"):
                new.add(claim.payload["name"])
        embed_claims = [claim for claim in now if claim.kind == "embed"]
        other_claims = [claim for claim in now if claim.kind != "embed"]
        yield [claim for claim in other_claims if claim.payload["name"] not in new]
        yield [claim for claim in other_claims if claim.payload["name"] in new]
        yield embed_claims
        claims = later


def _last_claims(claims: Sequence[Claim]) -> dict[str, Claim]:
    """Return the last change of each document, by uri."""
    return {SENT_PREFIX + claim.payload["name"]: claim for claim in claims}

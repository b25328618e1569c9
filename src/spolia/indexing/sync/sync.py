"""Sync of a store with folders and other sources: only what has changed is read, cut and embedded again."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spolia import stores
from spolia.core.deprecation import renamed_arguments
from spolia.errors import DocumentError, EgressError, FolderError, GroupError, OtherDimension, SourceError, StoreError
from spolia.filters import notes_on
from spolia.indexing import sources as sources_package
from spolia.indexing import sync as sync_package
from spolia.indexing.readers.registry import READERS, Readers, by_suffix
from spolia.stores import groups as groups_package
from spolia.stores.corpus import Corpus, refuse_no_corpus
from spolia.types.value import check_names

if TYPE_CHECKING:
    from spolia.core.operator import Operator
    from spolia.filters import Field
    from spolia.indexing.sources.source import Source
    from spolia.indexing.sync.files import FileListing
    from spolia.indexing.sync.groups import RequestedGroups
    from spolia.indexing.sync.metadata import DocumentLabels
    from spolia.indexing.sync.report import Progress, SyncReport
    from spolia.indexing.sync.sync_run import SyncOptions, SyncRun
    from spolia.indexing.workers.prepare import Executor
    from spolia.indexing.workers.protocol import WorkerLimits
    from spolia.models.protocols import Embedder
    from spolia.stores.corpus import NodeGroup
    from spolia.stores.definition import Transform
    from spolia.stores.lexical.analysis import Analyzer
    from spolia.stores.staging import Staging
    from spolia.types import Scalar


@renamed_arguments(known="operators")
@check_names
def sync(
    sources: str | Path | Source | Sequence[str | Path | Source],
    corpus: Corpus,
    *,
    splitter: Transform | None = None,
    embedder: Embedder | None = None,
    analyzer: Analyzer | None = None,
    readers: Readers = READERS,
    group: str = "chunk",
    groups: Sequence[NodeGroup] = (),
    fields: Sequence[Field] | None = None,
    metadata: Callable[[str], Mapping[str, Scalar | Sequence[Scalar]]] | None = None,
    access: Callable[[str], Iterable[str]] | None = None,
    operators: Sequence[Operator[Any, Any] | type] = (),
    progress: Callable[[Progress], None] | None = None,
    batch: int = 2000,
    follow_links: bool = False,
    rebuild: bool = False,
    retry: bool = True,
    workers: int | Executor | None = None,
    limits: WorkerLimits | None = None,
    timeout_s: float | None = None,
) -> SyncReport:
    """Make a store hold the files of a folder, and no others, and what sources have, in all its node groups.

    Removed files and lost access are published first, before anything is read, asked or embedded: so they hold even if
    the run fails, because a model server is away or a group is invalid.

    A file whose size and time are the same is not opened, one whose content is the same is not read again; a moved file
    keeps its nodes, and a text that was embedded before is not embedded again. Members of archives and mails are
    documents of their own, `a.zip/b.pdf`. Each batch is published when it is complete, or after a minute, so that it
    can be searched, and a run that is stopped goes on where it was. A file that cannot be read is recorded with the
    reason, and the others go on; later runs try it again, and till then its last good version stays (`report.stale`); a
    file that was deleted goes. Texts of `add_texts` stay.

    A group of the store that cannot be made now, since its function or its embedder is not known here or its model is
    away, waits, and the others go on (`report.behind`); its missing nodes are made as soon as possible. A model
    that fails three times in a row, as one that is away does, is not asked again in this run.

    A source gives pages of the web or rows of a database (`spolia.indexing.sources`). Spolia asks only for changes
    since the last run. Documents of other callers stay, and so do documents of a source that is not named
    here. One that cannot be read is among those that failed, under its name, and the others go on.

    Args:
        sources: a folder with documents; or a source; or a list of folders, files and sources. Uris of files are
            relative to the folder that all of them are in; a store has one folder.
        corpus: the store; made if it is not there.
        splitter: cuts documents; by default windows of 200 tokens of the embedder, or of 800 characters.
        embedder: gives the vectors for dense search; None for search by words only. Named later, with the splitter
            that is there, it embeds the nodes that are there.
        analyzer: makes the terms; by default that of the group, or one for the language of the first documents.
        readers: of the formats that are indexed, other files are left out; or, by suffix or pattern, what reads some
            files otherwise than the built-in readers do: `{"*.foo": my_function}`.
        group: name of the node group that `splitter` makes.
        groups: more groups to build now; groups of the store are kept up to date whether named or not.
        fields: metadata fields that can be filtered by, all of them; None for the fields declared before. A value
            that does not fit is skipped and reported (`report.fields`).
        metadata: fields of the document in a file, by its uri. If the fields of a file change, Spolia makes
            only the groups that read them again.
        access: principals who may read the document in a file, by its uri; none for everybody. Another list for a file
            that is there already embeds nothing, and applies first.
        operators: operators of your own in definitions of groups that the store has.
        progress: gets the progress after every file and every few hundred embedded texts; for a source,
            the total is what it has given so far.
        batch: documents that are published together.
        follow_links: go where links lead out of the folder too.
        rebuild: build groups again that were built with other parts than these, and all that is made from them; if the
            store holds another folder, forget that. Searches use the old groups until the new are published. Files
            that could not be read are tried again, however often they failed.
        retry: try a file again that could not be read the last time and has not changed since: three times in all, and
            where its process died, or took too much memory or time, after a while (`spolia.indexing.sync.diff`); in
            every run where a password or a package was missing. Who looks at a folder all the time may write False.
            It is reported in any case.
        workers: processes in which PDF, office files, HTML, pictures, mails and archives are read, as many at the same
            time; by default one for each processor, four at most. A broken file in a worker cannot take the sync
            down, and workers split what they read. 0 reads all in this process. Other formats are read in this
            process anyway, and those of readers that are not built in, unless they say `isolated = True`. An
            embedder that says so, as MiniLM, computes there too where there are many texts. Or an `Executor` of your
            own (`spolia.indexing`), which gets all that can be pickled: with other machines behind it, for example.
        limits: time and memory for each file that a worker reads.
        timeout_s: how long to wait for another writer, seconds; None for what the corpus says.

    Raises:
        FolderError: the folder does not exist or may not be listed, no file in it can be read by a reader, or the store
            holds another one.
        ManifestMismatch: the group was built with another splitter, embedder or analyser, naming both.
        GroupError: the main group cannot be embedded here; or one that is made from it would be lost by a rebuild,
            since its operator is unknown here.
        ModelUnavailable: a rebuild would lose what a group has, since its model is away, so that none of it was
            published; or a new group could be made of no document, after all else was published.
        StoreError: the store cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "stones.txt").write_text("Spolia are stones that builders take from older buildings.")
    ...     report = sync(folder, Corpus(f"{folder}/notes.spolia"))
    >>> report.added, report.chunks
    (1, 1)
    """

    began = time.perf_counter()
    refuse_swapped(sources, corpus)
    total = sync_package.report.TotalProgress(progress) if progress is not None else None
    requested_groups = sync_package.groups.RequestedGroups(
        group,
        sync_package.groups.main_definition(splitter, embedder, analyzer),
        groups,
        operators,
        corpus_definitions=corpus.definitions,
    )
    options = sync_package.sync_run.SyncOptions(
        requested_groups, fields, total, batch, rebuild, retry, rebuild, workers, limits, timeout_s
    )
    labels = partial(sync_package.metadata.DocumentLabels, metadata, access)
    reports: list[SyncReport] = []
    failed: list[tuple[str, str]] = []
    for listing in listings(sources, corpus, labels, readers, failed, follow_links, reread=rebuild):
        reports.append(sync_listing(corpus, listing, labels(), options))
        options = replace(options, rebuild=False)  # the next listing must not rebuild what this one has made
        if total is not None:
            total.begin_next()
    damaged = tuple(corpus.backend.row_problems(SHARE)) if corpus.exists() else ()
    return sync_package.report.merge_reports(reports, failed).but(damaged=damaged, seconds=time.perf_counter() - began)


def listings(
    sources: str | Path | Source | Sequence[str | Path | Source],
    corpus: Corpus,
    labels: Callable[[], DocumentLabels],
    readers: Readers,
    failed: list[tuple[str, str]],
    follow_links: bool,
    reread: bool,
    asks_sources: bool = True,
) -> Iterator[FileListing]:
    """Yield the listings to sync with: a folder's, then the changes of each source; `failed` gets sources that fail."""

    folder, other_sources = split_sources(sources)
    by_name = by_suffix(readers)
    if folder is not None:
        listing = sync_package.files.walk(folder, by_name, follow_links=follow_links)
        refuse_empty(listing)
        yield listing
    for source in other_sources if asks_sources else ():
        try:
            yield from source.change_batches(
                sources_package.source.Memory(corpus, source.id, labels, reread, by_name), by_name
            )
        except (SourceError, EgressError) as error:
            failed.append((source.id, str(error)))


SHARE = 100
"""Documents, and nodes, whose digests are compared when a run ends: some milliseconds."""


ALLOCATIONS = 50_000


@contextmanager
def reduce_garbage_collection() -> Iterator[None]:
    """Make Python look for garbage less often: what waits for a commit is no garbage."""
    threshold, *other_thresholds = gc.get_threshold()
    if not 0 < threshold < ALLOCATIONS:  # another sync is under way, or the caller collects in another way
        yield
        return
    gc.set_threshold(ALLOCATIONS, *other_thresholds)
    try:
        yield
    finally:
        gc.set_threshold(threshold, *other_thresholds)


def sync_listing(corpus: Corpus, listing: FileListing, labels: DocumentLabels, options: SyncOptions) -> SyncReport:
    """Bring a store, made if it does not exist, in step with the listed files."""

    began = time.perf_counter()
    if not corpus.exists():
        corpus.create()

    wait_s = corpus.wait_s if options.timeout_s is None else options.timeout_s
    run: SyncRun | None = None
    notes: tuple[str, ...] = ()
    with (
        reduce_garbage_collection(),
        sync_package.prefetch.open_prefetch(corpus.backend.folder, options.workers, options.limits) as prefetch,
    ):
        while run is None or run.staging.conflicts:  # what others have changed meanwhile is taken once more
            opened_staging = (
                groups_package.materialise.open_staging(corpus, wait_s)  # one rebuild at a time
                if options.rebuild
                else closing(stores.staging.Staging(corpus.backend, wait_s))
            )
            with opened_staging as writer:
                run = sync_package.sync_run.run_round(writer, listing, labels, prefetch, options, previous=run)
                notes = notes_on(writer.declared, writer.metadata()) if writer.declared != writer.schema else notes
                generation, lacking = writer.publish(), writer.unmade()
                if options.compacts and not writer.conflicts:
                    generation = writer.compact()

    if groups := options.requested_groups.groups:
        known_operators, tell = options.requested_groups.known_operators, run.report_group_progress
        run.unembedded += groups_package.materialise.materialise(
            groups, retry=False, operators=known_operators, tell=tell, wait_s=options.timeout_s
        )
        generation, lacking = (published := corpus.latest()).generation, published.unmade()

    report = run.tally.report(generation, listing, time.perf_counter() - began)
    unmade = tuple(dict.fromkeys((*lacking, *(lack for lack in run.unembedded if lack.document))))
    groups_behind = (
        *sync_package.groups.find_groups_behind(run.builds),
        *sync_package.groups.find_makeshift_groups(run.builds, run.unembedded),
    )
    return report.but(unmade=unmade, behind=groups_behind, fields=notes)


def reembed(
    corpus: Corpus, uris: Iterable[str], requested_groups: RequestedGroups, workers: Executor | None = None
) -> None:
    """Embed the texts of sources and of their members again, and replace the vectors that they have.

    A text has one vector by an embedder: it is replaced in all documents that have the text. Some documents are
    published together, and never a part of one. What was published before a failure has its new vectors.

    Raises:
        GroupError: an embedder of the store is not known here.
        ModelError: an embedder failed. What was not published keeps its vectors.
        StoreError: an embedder gives vectors of another dimension; says how many documents were embedded again before.
        DocumentError: a picture cannot be embedded.
    """

    with (
        sync_package.prefetch.open_prefetch(corpus.backend.folder, workers) as prefetch,
        closing(stores.staging.Reembedding(corpus.backend, corpus.wait_s)) as staging,
    ):
        builds = requested_groups.builds(staging.manifests)
        for build in builds:
            if len(build.embedders) < len(staging.manifests[build.group].embeddings):
                raise GroupError(dict(sync_package.groups.find_groups_behind(builds))[build.group])
        done = 0
        for batch in staging.document_batches(_documents_of(staging, uris)):
            try:
                unread = groups_package.group_build.embed(staging, builds, embed_calls=prefetch.embed_texts)
            except OtherDimension as error:
                raise StoreError(
                    "The model gives vectors of another dimension than the store's, which could not be compared. "
                    f"Documents embedded again: {done}; the others keep their vectors. "
                    "Serve the former model again, or build the group with the new one: "
                    "materialise([corpus.group(NAME, Definition(…, embeddings=(Embedding(…),)))], rebuild=True)."
                ) from error
            if unread:
                raise DocumentError(unread[0].reason)
            staging.replace()
            done += len(batch)


def _documents_of(staging: Staging, uris: Iterable[str]) -> list[str]:
    """Return the documents of sources and of their members, but not of sources whose names only begin so."""

    requested_uris = set(uris)
    rows = staging.sources(staging.stamps(requested_uris))

    def is_requested(uri: str) -> bool:
        return uri in requested_uris or (uri in rows and is_requested(sync_package.report.container_of(rows[uri])))

    return list(dict.fromkeys(row.document for uri, row in rows.items() if row.document and is_requested(uri)))


def refuse_swapped(sources: object, corpus: object) -> None:
    """Refuse arguments that were swapped, or are neither documents nor a store."""
    if isinstance(sources, Corpus):
        raise StoreError(f"The store {sources.path!r} was given instead of documents. Write sync(FOLDER, corpus).")
    refuse_no_corpus(corpus, "sync(FOLDER, corpus)")


def split_sources(
    inputs: str | Path | sources_package.source.Source | Sequence[str | Path | sources_package.source.Source],
) -> tuple[str | Path | Sequence[str | Path] | None, list[sources_package.source.Source]]:
    """Return the paths, as they were given, and the sources."""
    if isinstance(inputs, (str, Path)):
        return inputs, []
    if isinstance(inputs, sources_package.source.Source):
        return None, [inputs]
    if isinstance(inputs, Mapping) or not isinstance(inputs, Iterable):
        raise FolderError(
            f"{inputs!r:.80} was given instead of documents. Write sync(FOLDER, corpus), and for texts by name "
            "add_texts(corpus, TEXTS)."
        )
    paths = [item for item in inputs if not isinstance(item, sources_package.source.Source)]
    sources = [item for item in inputs if isinstance(item, sources_package.source.Source)]
    if len({item.id for item in sources}) < len(sources):
        raise SourceError("Two sources have the same name, so a store could not distinguish them. Write other names.")
    return (paths if paths or not sources else None), sources


def refuse_empty(listing: FileListing) -> None:
    """Raise `FolderError` if no file can be indexed."""
    if listing.files or listing.unlisted:
        return
    if not listing.unread and not listing.skipped:
        contents = "is empty"
    else:
        kinds = ", ".join(f"{count} {suffix or 'without suffix'}" for suffix, count in listing.unread.most_common(5))
        reasons = "; ".join(f"{item.uri}: {item.reason}" for item in listing.skipped[:3])
        contents = f"holds no readable document, but: {'; '.join(filter(None, (kinds, reasons)))}"
    endings = ", ".join(sorted({reader.suffixes[0] for reader in listing.files.readers.values()}))
    raise FolderError(
        f"{listing.folder} {contents}. Put files there that end in {endings}, or name another folder. "
        "Nothing was changed; to have an empty store, delete it."
    )

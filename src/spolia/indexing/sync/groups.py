"""Groups of a sync: those requested, their builds, and the batches of documents that they are made from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from spolia.core.operator import Operator
from spolia.errors import DocumentError, GroupError, ManifestMismatch
from spolia.indexing.readers.reader import Reading
from spolia.indexing.splitters.sized_splitter import SlidingWindow, TokenCounter
from spolia.indexing.sync.files import FileListing
from spolia.indexing.sync.metadata import MetadataDiff
from spolia.indexing.sync.prefetch import Prefetch, Unreadable
from spolia.indexing.sync.report import DocumentReport, NodeCount
from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.stores.backends.rows import SourceRow, Unmade
from spolia.stores.corpus import NodeGroup, refuse_no_groups
from spolia.stores.definition import Definition, Embedding, Part, Pieces, Transform
from spolia.stores.groups.definitions import GroupDefinitions, refuse_other_definition, removal_advice
from spolia.stores.groups.group_build import store_nodes
from spolia.stores.groups.nodes import Availability, CutPieces, GroupBuild, GroupNodes, grow, is_transient
from spolia.stores.lexical.analysis import Analyzer, analyzer_for
from spolia.stores.manifest import (
    Manifest,
    embedder_of,
    groups_between,
    manifest_of,
    signature,
    sort_groups,
    transform_of,
)
from spolia.stores.staging import AnyWriter, Staging
from spolia.types import Document
from spolia.types.value import unchecked_constructor

SAMPLED_FILES = 40
_SAMPLED_CHARACTERS = 5_000
_SAMPLED_BYTES = 1_000_000  # a larger file would be read out of turn, only to guess a language


def main_definition(splitter: Transform | None, embedder: Embedder | None, analyzer: Analyzer | None) -> Definition:
    """Return the definition of the group that `sync` always has, by default windows of 200 tokens or 800 characters."""
    counter = getattr(embedder, "tokenizer", None)
    return Definition(
        splitter or SlidingWindow(tokenizer=counter if isinstance(counter, TokenCounter) else None),
        embeddings=(Embedding(embedder),) if embedder is not None else (),
        analyzer=analyzer,
    )


@dataclass(frozen=True)
class RequestedGroups:
    """Groups that a caller requests.

    Args:
        known_operators: operators of the caller's own in definitions that the store holds.
        availabilities: whether that which makes each group could be reached so far.
        corpus_definitions: definitions that the caller gave to `Corpus`; one counts if it equals the store's.
    """

    main: str
    definition: Definition
    groups: Sequence[NodeGroup] = ()
    known_operators: Sequence[Operator[Any, Any] | type] = ()
    availabilities: dict[str, Availability] = field(default_factory=dict, compare=False, repr=False)
    corpus_definitions: Mapping[str, Definition] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        refuse_no_groups(self.groups, "groups=")

    def define(self, writer: AnyWriter, listing: FileListing, prefetch: Prefetch, *, rebuild: bool) -> bool:
        """Write the manifests of the requested groups; existing ones must be the same. Returns whether the main group
        is renewed.

        With `rebuild`, outdated groups and groups made from them are made again.
        """
        stored = writer.manifests.get(self.main)
        analyzer = stored.analyzer if stored is not None else analyzer_for(sample_texts(listing, prefetch))
        main = manifest_of(self.main, self.definition, analyzer, writer.manifests)
        keeps = True
        if stored is not None and stored != main and (rebuild or is_embedded_first(stored, main)):
            # Nodes stay that are made as before, and only searched or embedded otherwise, but not by pictures instead
            # of their text.
            keeps = stored.signature == main.signature and stored.by_picture == main.by_picture
            writer.redefine(self.main, main, keep_nodes=keeps)
        elif stored is not None and stored != main and not main.embeddings and stored.embeddings:
            raise ManifestMismatch(_describe_missing_embedder(stored))
        else:
            writer.define(self.main, main)
        if rebuild:
            outdated = [manifest.group for manifest in self._find_changed(writer.manifests)]
            defining = GroupDefinitions(writer, self.groups, True, self.known_operators, {self.main: self.definition})
            defining.define(renewed=() if keeps else (self.main,), outdated=outdated)
        for group in self.groups:
            if group.definition is not None and group.name in writer.manifests:
                refuse_other_definition(group, writer.manifests)
        return stored is not None and stored != main

    def builds(self, manifests: dict[str, Manifest]) -> list[GroupBuild]:
        """Return the builds of all groups of the store, in order; one with an unknown operator makes nothing."""
        return [self._build(manifest, manifests) for manifest in sort_groups(manifests)]

    def _build(self, manifest: Manifest, manifests: Mapping[str, Manifest]) -> GroupBuild:
        definitions = {
            name: definition
            for name, definition in self.corpus_definitions.items()
            if name in manifests and manifests[name].signature == signature(definition, manifests)
        }
        definitions |= {group.name: group.definition for group in self.groups if group.definition is not None}
        definitions[self.main] = self.definition
        known_embedders = [
            embedding.embedder for definition in definitions.values() for embedding in definition.embeddings
        ]
        definition, lineage = definitions.get(manifest.group), (manifest.parent, manifest.ref)
        embedders, unknown = list[Embedder | SparseEmbedder](), list[GroupError]()
        # Of an embedding that is not known, nodes may lack vectors; the others are made all the same.
        for group_embedding in manifest.embeddings:
            try:
                embedders.append(embedder_of(group_embedding, manifest.group, known_embedders))
            except GroupError as error:
                unknown.append(error)
        try:
            if unknown:
                raise unknown[0]
            transform = definition.transform if definition else transform_of(manifest, self.known_operators)
        except GroupError as error:
            if manifest.group == self.main:
                raise
            transform = _Unmakeable(f"{error} The other groups go on. {removal_advice(manifest.group)}")
        # Shared by all rounds and listings of a sync: a model that is away is not asked again.
        availability = self.availabilities.setdefault(manifest.group, Availability())
        return GroupBuild(
            manifest.group, transform, *lineage, tuple(embedders), availability, groups_between(manifest, manifests)
        )

    def refuse_changed(self, manifests: dict[str, Manifest]) -> None:
        """Raise ManifestMismatch if code, models or prompts of a group have changed since it was built."""
        for manifest in self._find_changed(manifests):
            raise ManifestMismatch(
                f"Group {manifest.group!r} was made by {manifest.transform}, whose code, models or prompts have "
                f"changed since. Rebuild it: spolia groups build {manifest.group} --rebuild, or in Python "
                f"materialise([corpus.group({manifest.group!r}, definition)], rebuild=True)."
            )

    def _find_changed(self, manifests: dict[str, Manifest]) -> Iterator[Manifest]:
        """Yield groups of the store, not requested here, that would be made differently by now."""
        for manifest in sort_groups(manifests):
            if manifest.group in (self.main, *(group.name for group in self.groups)) or not manifest.signature:
                continue
            transform = self._build(manifest, manifests).transform
            if isinstance(transform, _Unmakeable):
                continue  # it is left behind, and `sync` says so
            if manifest.signature != signature(Definition(transform, manifest.parent, manifest.ref), manifests):
                yield manifest


@dataclass(frozen=True)
class _Unmakeable(Operator[Part, Pieces]):
    """Stand-in for a transform that is unknown here: it makes nothing, and `reason` says what to do about it."""

    reason: str

    def apply(self, value: Part, /) -> Pieces:
        raise GroupError(self.reason)

    def calls(self, rows: int | None = None, /) -> int | None:
        return 0


def find_groups_behind(builds: Iterable[GroupBuild]) -> tuple[tuple[str, str], ...]:
    """Return the groups that cannot be made here, or whose model is away, and why."""
    reasons = ((build.group, _reason_behind(build)) for build in builds)
    return tuple((group, reason) for group, reason in reasons if reason)


def find_makeshift_groups(builds: Iterable[GroupBuild], unmade: Iterable[Unmade]) -> tuple[tuple[str, str], ...]:
    """Return the groups with nodes made from replies that could not be parsed, and why."""
    makeshift_groups = [
        (build.group, build.availability.degradation)
        for build in builds
        if build.availability.degradation and not _reason_behind(build)
    ]
    return (*makeshift_groups, *((lack.group, lack.reason) for lack in unmade if not lack.document))


def _reason_behind(build: GroupBuild) -> str:
    return build.transform.reason if isinstance(build.transform, _Unmakeable) else build.availability.reason


def is_embedded_first(stored: Manifest, main: Manifest) -> bool:
    """Return whether only text vectors are missing: then the nodes stay."""
    return not stored.embeddings and not main.by_picture and stored == main.but(embeddings=())


def _describe_missing_embedder(stored: Manifest) -> str:
    embedding = stored.embeddings[0]
    plain_embedder = json.loads(embedding.plain) if embedding.plain else None
    name = (
        plain_embedder
        if isinstance(plain_embedder, str)
        else next(iter(plain_embedder), "")
        if isinstance(plain_embedder, dict)
        else ""
    )
    return (
        f"Group {stored.group!r} of the store is embedded with {embedding.embedder!r}, and no embedder was named. "
        f"Write the same one: embedder={f'{name}(…)' if name else 'it'}, whose name is {embedding.embedder!r}, "
        f"with the splitter that is there: {stored.transform}. "
        "To search by words only from now on: rebuild=True (--rebuild)."
    )


def sample_texts(listing: FileListing, prefetch: Prefetch, max_files: int = SAMPLED_FILES) -> Iterable[str]:
    """Yield the beginnings of some documents from all over the folder."""
    small = [uri for uri, (size, _) in listing.files.sizes().items() if size <= _SAMPLED_BYTES]
    step = max(1, len(small) // max_files)
    for uri in islice(small, 0, None, step):
        try:
            yield prefetch.sample(listing.files[uri]).document.text[:_SAMPLED_CHARACTERS]
        except Unreadable:
            continue  # it is recorded when its turn comes


_document_report = unchecked_constructor(DocumentReport)


@dataclass
class BatchItem:
    """Source that was read and waits to be stored with others; `stored` is its row in the store, `image_versions` those
    of the images it names, by uri; `is_forced`: its nodes are made again if the store has them."""

    reading: Reading
    row: SourceRow
    stored: SourceRow | None = None
    pieces: CutPieces = field(default_factory=dict[str, Any])
    parts: int = 0
    container: str = ""
    image_versions: tuple[tuple[str, str], ...] = ()
    is_forced: bool = False

    @property
    def weight(self) -> int:
        """Return how much memory it takes, in characters and bytes."""
        document = self.reading.document
        pictures = sum(image.size for image in self.reading.images) if self.reading.images else 0
        return len(document.text) + len(document.boxes.packed) + pictures


@dataclass
class Batch:
    """Documents that are stored together with the nodes of all groups; reports count the nodes of the group `main`.

    A group could not be made of documents in `tried`; the reports of documents in `recounted` list their nodes.
    """

    staging: Staging
    builds: Sequence[GroupBuild]
    main: str
    labels: MetadataDiff
    pending: list[BatchItem] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    recounted: set[str] = field(default_factory=set)
    weight: int = 0

    def add(self, item: BatchItem) -> None:
        self.pending.append(item)
        self.weight += item.weight

    def flush(self) -> Iterator[tuple[BatchItem, DocumentReport | Unreadable]]:
        """Store the waiting documents with the caller's labels; yield each one's report, or why it could not be stored.
        Existing nodes are not made again."""
        waiting, self.pending, self.weight = self.pending, [], 0
        # Fast path: one statement for all rows that `holds` below would read one by one.
        self.staging.load_rows(item.reading.document.id for item in waiting)
        pending = list[BatchItem]()
        fresh: dict[str, Document] = {}
        for item in waiting:
            try:
                document = self.labels.label_document(item.reading.document, item.stored)
            except DocumentError as error:
                row, now = item.stored or SourceRow(item.row.uri), item.row
                row = row.but(size=now.size, mtime_ns=now.mtime_ns, reader=now.reader)
                yield item, Unreadable(row, str(error), None)
                continue
            if document is not item.reading.document:
                item.reading = item.reading.but(document=document)
            pending.append(item)
            if document.id not in fresh and (item.is_forced or not self.staging.holds(document)):
                fresh[document.id] = document
        # Reversed: of several items with one document, the first one's pieces count.
        pieces = {item.reading.document.id: item.pieces for item in reversed(pending)}
        nodes_by_document = {
            document_nodes.document.id: document_nodes
            for document_nodes in grow(list(fresh.values()), self.builds, prepared=pieces)
        }
        for item in pending:
            try:
                # Of equal documents the first one gets the nodes, and the next one finds them stored.
                yield item, self._store_item(item, nodes_by_document.pop(item.reading.document.id, None))
            except Unreadable as failure:
                yield item, failure

    def recount(self, document: Document) -> None:
        """Bring the reports of a document's sources in step with its changed nodes."""
        self.recounted.add(document.id)
        node_count = NodeCount(self._embedder)
        node_count.count(self.staging.nodes(document.id, self.main))
        for row in self.staging.holders(document.id):
            if row.report:
                self.staging.touch(
                    row.but(report=node_count.update_report(DocumentReport.from_json(row.report), document).json)
                )

    def _store_item(self, item: BatchItem, document_nodes: GroupNodes | None) -> DocumentReport:
        """Store a document and its nodes, None if they are stored already; raise Unreadable if no group was made."""
        document, node_count = item.reading.document, NodeCount(self._embedder)
        is_there = item.is_forced and self.staging.holds(document)
        self.recounted.add(document.id)
        # What was there has gone with what its source held.
        if document_nodes is None and not self.staging.holds(document):
            (document_nodes,) = grow([document], self.builds)
        if document_nodes is not None:
            self._refuse_unmade(item, document_nodes, is_there)
        nodes = (
            self.staging.nodes(document.id, self.main)
            if document_nodes is None
            else document_nodes.by_group.get(self.main)
        )
        if isinstance(nodes, list):
            node_count.count(nodes)
        elif document_nodes is not None and nodes is not None:  # those of a long document are counted as they pass
            document_nodes.by_group[self.main] = node_count.count_through(nodes)
        report = self._make_report(item, node_count if isinstance(nodes, list) else None)
        row = item.row.but(document=document.id, report=report.json)
        self.staging.put_document(document, (), row, {image.content_hash: image.data for image in item.reading.images})
        if document_nodes is not None:
            if is_there:
                self.staging.unmake(document.id, document_nodes.by_group)
            store_nodes(self.staging, document_nodes)
            self._refuse_unmade(item, document_nodes, False)
            # Nodes that are no list were counted as they passed, or the group failed.
            if not isinstance(document_nodes.by_group.get(self.main), list):
                report = (
                    node_count.update_report(report, document)
                    if self.main in document_nodes.by_group
                    else self._make_report(item)
                )
                if report.json != row.report:
                    self.staging.touch(row.but(report=report.json))
        return report

    def _refuse_unmade(self, item: BatchItem, document_nodes: GroupNodes, is_there: bool) -> None:
        """Raise if no group was made; or if one of a document that `is_there` would lose its nodes."""
        if document_nodes.failures:
            self.tried.add(document_nodes.document.id)
            if not document_nodes.by_group or (
                is_there
                and any(self.staging.nodes(document_nodes.document.id, group) for group in document_nodes.failures)
            ):
                reason = next(iter(document_nodes.reasons.values()))
                is_away = any(map(is_transient, document_nodes.failures.values()))  # which is not the document's fault
                raise Unreadable(item.row, reason, None if is_away else DocumentError(reason))

    @cached_property
    def _embedder(self) -> Embedder | SparseEmbedder | None:
        embedders = (embedder for build in self.builds if build.group == self.main for embedder in build.embedders)
        return next(embedders, None)

    def _make_report(self, item: BatchItem, node_count: NodeCount | None = None) -> DocumentReport:
        """Return a document's report: what its reader noticed, and what is known of its nodes by now."""
        reading, document, declared = item.reading, item.reading.document, self.staging.declared
        warnings = (*reading.warnings, *(declared.problems(document.meta) if declared else ()))
        node_fields = node_count.report_fields(document, item.parts, warnings) if node_count else {"warnings": warnings}
        return _document_report(
            reader=document.id.rpartition(".")[2],
            characters=len(document.text),
            pages=len(document.pages),
            empty_pages=reading.empty_pages,
            ocr_pages=reading.ocr_pages,
            tables=sum(region.kind == "table" for region in document.regions),
            images=len(reading.images),
            dropped=reading.dropped,
            parts=item.parts,
            within=item.container,
            encoding=reading.encoding,
            lacks=reading.lacks,
            beside=item.image_versions,
            labels=self.labels.labels.mark(document.uri),
            **node_fields,
        )

"""The groups of a sync: which are asked for, what they are built with, and making them of batches of documents."""

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
from spolia.types.value import maker

SAMPLED_FILES = 40
_SAMPLED_CHARACTERS = 5_000
_SAMPLED_BYTES = 1_000_000


def main_definition(splitter: Transform | None, embedder: Embedder | None, analyzer: Analyzer | None) -> Definition:
    """The definition of the group that `sync` always has, by default windows of 200 tokens or 800 characters."""
    counter = getattr(embedder, "tokenizer", None)
    return Definition(
        splitter or SlidingWindow(tokenizer=counter if isinstance(counter, TokenCounter) else None),
        embeddings=(Embedding(embedder),) if embedder is not None else (),
        analyzer=analyzer,
    )


@dataclass(frozen=True)
class RequestedGroups:
    """The groups that a caller asks for.

    Args:
        known: operators of the caller's own in definitions that the store holds.
        reaches: whether that which makes each group could be reached so far.
        given: definitions that the caller gave to `Corpus`; one counts if it equals the store's.
    """

    main: str
    definition: Definition
    groups: Sequence[NodeGroup] = ()
    known: Sequence[Operator[Any, Any] | type] = ()
    reaches: dict[str, Availability] = field(default_factory=dict, compare=False, repr=False)
    given: Mapping[str, Definition] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        refuse_no_groups(self.groups, "groups=")

    def define(self, writer: AnyWriter, found: FileListing, prefetch: Prefetch, *, rebuild: bool) -> bool:
        """Write the manifests of the requested groups; existing ones must be the same. Returns whether the main group
        is renewed.

        With `rebuild`, outdated groups and groups made from them are made again.
        """
        there = writer.manifests.get(self.main)
        analyzer = there.analyzer if there is not None else analyzer_for(samples(found, prefetch))
        main = manifest_of(self.main, self.definition, analyzer, writer.manifests)
        keeps = True
        if there is not None and there != main and (rebuild or is_embedded_first(there, main)):
            # Nodes stay that are made as before, and only searched or embedded otherwise, but not by pictures instead
            # of their text.
            keeps = there.signature == main.signature and there.by_picture == main.by_picture
            writer.redefine(self.main, main, keep_nodes=keeps)
        elif there is not None and there != main and not main.embeddings and there.embeddings:
            raise ManifestMismatch(_embedder_left_out(there))
        else:
            writer.define(self.main, main)
        if rebuild:
            outdated = [manifest.group for manifest in self._changed(writer.manifests)]
            defining = GroupDefinitions(writer, self.groups, True, self.known, {self.main: self.definition})
            defining.define(renewed=() if keeps else (self.main,), outdated=outdated)
        for group in self.groups:
            if group.definition is not None and group.name in writer.manifests:
                refuse_other_definition(group, writer.manifests)
        return there is not None and there != main

    def builds(self, manifests: dict[str, Manifest]) -> list[GroupBuild]:
        """All groups of the store, each with the objects that make it, in order; an unknown one makes nothing."""
        return [self._build(manifest, manifests) for manifest in sort_groups(manifests)]

    def _build(self, manifest: Manifest, manifests: Mapping[str, Manifest]) -> GroupBuild:
        given = {
            name: definition
            for name, definition in self.given.items()
            if name in manifests and manifests[name].signature == signature(definition, manifests)
        }
        given |= {group.name: group.definition for group in self.groups if group.definition is not None}
        given[self.main] = self.definition
        passed = [embedding.embedder for definition in given.values() for embedding in definition.embeddings]
        definition, lineage = given.get(manifest.group), (manifest.parent, manifest.ref)
        embedders, unknown = list[Embedder | SparseEmbedder](), list[GroupError]()
        for how in manifest.embeddings:  # of one that is not known, nodes may lack what the others give all the same
            try:
                embedders.append(embedder_of(how, manifest.group, passed))
            except GroupError as error:
                unknown.append(error)
        try:
            if unknown:
                raise unknown[0]
            transform = definition.transform if definition else transform_of(manifest, self.known)
        except GroupError as error:
            if manifest.group == self.main:
                raise
            transform = _Unmakeable(f"{error} The other groups go on. {removal_advice(manifest.group)}")
        reach = self.reaches.setdefault(manifest.group, Availability())
        return GroupBuild(
            manifest.group, transform, *lineage, tuple(embedders), reach, groups_between(manifest, manifests)
        )

    def refuse_changed(self, manifests: dict[str, Manifest]) -> None:
        """Raise ManifestMismatch if code, models or prompts of a group have changed since it was built."""
        for manifest in self._changed(manifests):
            raise ManifestMismatch(
                f"Group {manifest.group!r} was made by {manifest.transform}, whose code, models or prompts have "
                f"changed since. Rebuild it: spolia groups build {manifest.group} --rebuild, or in Python "
                f"materialise([corpus.group({manifest.group!r}, definition)], rebuild=True)."
            )

    def _changed(self, manifests: dict[str, Manifest]) -> Iterator[Manifest]:
        """Unnamed groups of the store that would be made differently by now."""
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
    """Stands for a transform that is not known here: nothing can be made by it; `reason` says what to do about it."""

    reason: str

    def apply(self, value: Part, /) -> Pieces:
        raise GroupError(self.reason)

    def calls(self, rows: int | None = None, /) -> int | None:
        return 0


def behind(builds: Iterable[GroupBuild]) -> tuple[tuple[str, str], ...]:
    """Groups that cannot be made here, or whose model is away, and why."""
    reasons = ((each.group, _why_behind(each)) for each in builds)
    return tuple((group, reason) for group, reason in reasons if reason)


def makeshift(builds: Iterable[GroupBuild], built: Iterable[Unmade]) -> tuple[tuple[str, str], ...]:
    """Groups with nodes made from replies that could not be parsed, and why."""
    kept = [
        (each.group, each.availability.degradation)
        for each in builds
        if each.availability.degradation and not _why_behind(each)
    ]
    return (*kept, *((lack.group, lack.reason) for lack in built if not lack.document))


def _why_behind(build: GroupBuild) -> str:
    return build.transform.reason if isinstance(build.transform, _Unmakeable) else build.availability.reason


def is_embedded_first(there: Manifest, main: Manifest) -> bool:
    """Whether only text vectors are missing: then the nodes stay."""
    return not there.embeddings and not main.by_picture and there == main.but(embeddings=())


def _embedder_left_out(there: Manifest) -> str:
    how = there.embeddings[0]
    written = json.loads(how.plain) if how.plain else None
    name = written if isinstance(written, str) else next(iter(written), "") if isinstance(written, dict) else ""
    return (
        f"Group {there.group!r} of the store is embedded with {how.embedder!r}, and no embedder was named. Write the "
        f"same one: embedder={f'{name}(…)' if name else 'it'}, whose name is {how.embedder!r}, with the splitter that "
        f"is there: {there.transform}. To search by words only from now on: rebuild=True (--rebuild)."
    )


def samples(found: FileListing, prefetch: Prefetch, most: int = SAMPLED_FILES) -> Iterable[str]:
    """The beginnings of some documents from all over the folder."""
    small = [uri for uri, (size, _) in found.files.sizes().items() if size <= _SAMPLED_BYTES]
    step = max(1, len(small) // most)
    for uri in islice(small, 0, None, step):
        try:
            yield prefetch.sample(found.files[uri]).document.text[:_SAMPLED_CHARACTERS]
        except Unreadable:
            continue  # it is recorded when its turn comes


_document_report = maker(DocumentReport)


@dataclass
class BatchItem:
    """A source that was read and waits to be stored with others; `before` is its row in the store, `beside` what was
    seen of pictures, by uri; `again`: its nodes are made again where the store has them."""

    reading: Reading
    row: SourceRow
    before: SourceRow | None = None
    pieces: CutPieces = field(default_factory=dict[str, Any])
    parts: int = 0
    within: str = ""
    beside: tuple[tuple[str, str], ...] = ()
    again: bool = False

    @property
    def weight(self) -> int:
        """How much memory it takes, in characters and bytes."""
        document = self.reading.document
        pictures = sum(image.size for image in self.reading.images) if self.reading.images else 0
        return len(document.text) + len(document.boxes.packed) + pictures


@dataclass
class Batch:
    """Puts documents into the store with the nodes of all groups; the report counts the nodes of the group `main`.

    A group could not be made of documents in `tried`; the reports of documents in `counted` list their nodes.
    """

    writer: Staging
    builds: Sequence[GroupBuild]
    main: str
    labels: MetadataDiff
    pending: list[BatchItem] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    weight: int = 0

    def add(self, item: BatchItem) -> None:
        self.pending.append(item)
        self.weight += item.weight

    def flush(self) -> Iterator[tuple[BatchItem, DocumentReport | Unreadable]]:
        """Store the waiting documents, with what the caller says of them; gives each one's report, or why it could not
        be stored. Existing nodes are not made again."""
        waiting, self.pending, self.weight = self.pending, [], 0
        self.writer.prefetch(filed.reading.document.id for filed in waiting)
        pending = list[BatchItem]()
        fresh: dict[str, Document] = {}
        for filed in waiting:
            try:
                document = self.labels.on(filed.reading.document, filed.before)
            except DocumentError as error:
                row, now = filed.before or SourceRow(filed.row.uri), filed.row
                row = row.but(size=now.size, mtime_ns=now.mtime_ns, reader=now.reader)
                yield filed, Unreadable(row, str(error), None)
                continue
            if document is not filed.reading.document:
                filed.reading = filed.reading.but(document=document)
            pending.append(filed)
            if document.id not in fresh and (filed.again or not self.writer.holds(document)):
                fresh[document.id] = document
        pieces = {filed.reading.document.id: filed.pieces for filed in reversed(pending)}
        grown = {one.document.id: one for one in grow(list(fresh.values()), self.builds, prepared=pieces)}
        for filed in pending:
            try:
                yield filed, self._put(filed, grown.pop(filed.reading.document.id, None))
            except Unreadable as failure:
                yield filed, failure

    def recount(self, document: Document) -> None:
        """Bring the reports of a document's sources in step with its changed nodes."""
        self.counted.add(document.id)
        counted = NodeCount(self._embedder)
        counted.count(self.writer.nodes(document.id, self.main))
        for row in self.writer.holders(document.id):
            if row.report:
                self.writer.touch(row.but(report=counted.on(DocumentReport.of(row.report), document).json))

    def _put(self, filed: BatchItem, one: GroupNodes | None) -> DocumentReport:
        """Store a document and what could be made of it; None if it is there. Unreadable if no group was made."""
        document, counted = filed.reading.document, NodeCount(self._embedder)
        is_there = filed.again and self.writer.holds(document)
        self.counted.add(document.id)
        if one is None and not self.writer.holds(document):  # what was there has gone with what its source held
            (one,) = grow([document], self.builds)
        if one is not None:
            self._refuse_unmade(filed, one, is_there)
        nodes = self.writer.nodes(document.id, self.main) if one is None else one.by_group.get(self.main)
        if isinstance(nodes, list):
            counted.count(nodes)
        elif one is not None and nodes is not None:  # those of a long document are counted as they pass
            one.by_group[self.main] = counted.over(nodes)
        report = self._report(filed, counted if isinstance(nodes, list) else None)
        row = filed.row.but(document=document.id, report=report.json)
        self.writer.put_document(document, (), row, {image.content_hash: image.data for image in filed.reading.images})
        if one is not None:
            if is_there:
                self.writer.unmake(document.id, one.by_group)
            store_nodes(self.writer, one)
            self._refuse_unmade(filed, one, False)
            if not isinstance(
                one.by_group.get(self.main), list
            ):  # they were counted as they passed, or the group failed
                report = counted.on(report, document) if self.main in one.by_group else self._report(filed)
                if report.json != row.report:
                    self.writer.touch(row.but(report=report.json))
        return report

    def _refuse_unmade(self, filed: BatchItem, one: GroupNodes, is_there: bool) -> None:
        """Raise if no group was made; or if one of a document that `is_there` would lose its nodes."""
        if one.failures:
            self.tried.add(one.document.id)
            if not one.by_group or (
                is_there and any(self.writer.nodes(one.document.id, group) for group in one.failures)
            ):
                reason = next(iter(one.reasons.values()))
                is_away = any(map(is_transient, one.failures.values()))  # which is not the document's fault
                raise Unreadable(filed.row, reason, None if is_away else DocumentError(reason))

    @cached_property
    def _embedder(self) -> Embedder | SparseEmbedder | None:
        embedders = (embedder for build in self.builds if build.group == self.main for embedder in build.embedders)
        return next(embedders, None)

    def _report(self, filed: BatchItem, counted: NodeCount | None = None) -> DocumentReport:
        """What the reader noticed, and of the nodes what is known by now."""
        reading, document, declared = filed.reading, filed.reading.document, self.writer.declared
        warnings = (*reading.warnings, *(declared.problems(document.meta) if declared else ()))
        said = counted.said(document, filed.parts, warnings) if counted else {"warnings": warnings}
        return _document_report(
            reader=document.id.rpartition(".")[2],
            characters=len(document.text),
            pages=len(document.pages),
            empty_pages=reading.empty_pages,
            ocr_pages=reading.ocr_pages,
            tables=sum(region.kind == "table" for region in document.regions),
            images=len(reading.images),
            dropped=reading.dropped,
            parts=filed.parts,
            within=filed.within,
            encoding=reading.encoding,
            lacks=reading.lacks,
            beside=filed.beside,
            labels=self.labels.labels.mark(document.uri),
            **said,
        )

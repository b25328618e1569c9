"""Build groups on their first use, with the groups that they are made from, or wait for the process that does."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from spolia.core.deprecation import renamed_arguments
from spolia.core.operator import Operator
from spolia.core.run_context import check_cancelled, note
from spolia.errors import GroupError, ModelError, StoreBusy
from spolia.filters import Schema
from spolia.private_files import make_folder
from spolia.stores.backends import sql
from spolia.stores.backends.rows import NOT_YET, Unmade, in_batches
from spolia.stores.backends.sqlite.folder import WriterLock
from spolia.stores.definition import Definition, Embedding, FieldTransform
from spolia.stores.files import BUILD_LOCK, describe_claimer
from spolia.stores.groups.addresses import CorpusAddress, G, GroupAddress, refuse_no_groups
from spolia.stores.groups.definitions import (
    GroupDefinitions,
    changed_embeddings,
    merge_groups,
    missing_embeddings,
    refuse_other_definition,
    serves,
)
from spolia.stores.groups.group_build import (
    DOCUMENTS_AT_ONCE,
    STAGED_AT_ONCE,
    build_groups,
    build_missing,
    embed,
    refuse_away,
    store_nodes,
)
from spolia.stores.groups.nodes import GroupBuild, GroupNodes, grow
from spolia.stores.manifest import Manifest, built_in, signature, sort_groups
from spolia.stores.staging import AnyWriter, Staging
from spolia.stores.writer import compact
from spolia.types import Document, Failure, Node
from spolia.types.value import check_names

if TYPE_CHECKING:
    from spolia.models.protocols import Embedder, SparseEmbedder
    from spolia.stores.snapshot.snapshot import Snapshot


ProgressCallback = Callable[[str, int, int], None]
"""Gets the group, how many documents were cut, how many texts embedded."""


@renamed_arguments(known="operators")
@check_names
def materialise(
    groups: Iterable[GroupAddress],
    *,
    rebuild: bool = False,
    retry: bool = True,
    operators: Iterable[Operator[Any, Any] | type] = (),
    tell: ProgressCallback = lambda group, documents, embedded: None,
    wait_s: float | None = None,
) -> tuple[Unmade, ...]:
    """Build groups that are not built yet, with the groups that they are made from, and publish them together.

    Until then readers see what there was. A document that a group cannot be made of is found in its other groups, and
    is tried again by the next call and by `sync`.

    Args:
        groups: of one corpus or of several, in any order; built groups stay as they
            are. An embedding that a group does not have yet is added, another index or metric takes the place of the
            one that is there, and its nodes stay.
        rebuild: build a group again if its definition has changed, with its children.
        retry: try documents again that a group could not be made of.
        operators: operators of the caller's own in definitions that the store holds.
        tell: gets the progress.
        wait_s: how long to wait for another writer, seconds; None for what the corpus says.

    Returns:
        What could not be made of these groups, and why; the pictures in them that an embedder could not read; and, with
        neither document nor uri, how many replies of a model could not be read.

    Raises:
        GroupError: a group that nobody defines, a parent that is not there, groups made from each other in a circle, a
            transform that cannot be stored.
        ManifestMismatch: a group of this name is made of something else.
        StoreBusy: another process writes, and did not finish in time.
        StoreError: the store cannot be written.
        SpoliaError: what the transform raised, when a group could be made of no document, or a model was away while a
            group was rebuilt, which would lose its nodes; nothing was published.

    >>> import tempfile
    >>> from spolia import Corpus, sync
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "stones.txt").write_text("Spolia are stones. Builders take them from older buildings.")
    ...     corpus = Corpus(f"{folder}/notes.spolia")
    ...     _ = sync(folder, corpus)
    ...     _ = materialise([corpus.group("sentence")])
    ...     [node.text for node in corpus.snapshot().all_nodes("sentence")]
    ['Spolia are stones.', 'Builders take them from older buildings.']
    """
    by_corpus: dict[str, list[GroupAddress]] = {}
    for group in refuse_no_groups(groups, "materialise"):
        by_corpus.setdefault(group.corpus.path, []).append(group)
    unmade: list[Unmade] = []
    for corpus_groups in map(merge_groups, by_corpus.values()):
        corpus = corpus_groups[0].corpus
        if rebuild or _needs_build(corpus_groups, corpus.latest(), retry):
            with open_staging(corpus, corpus.wait_s if wait_s is None else wait_s) as staging:
                building = Building(staging, corpus_groups, rebuild, tuple(operators), tell=tell)
                building.define()
                building.build()
                if retry:
                    building.build_missing()
                building.embed()
                staging.publish(building.build_groups)
                compact(corpus.backend, staging.manifests, corpus.wait_s)
                unmade += (*building.unread, *building.degraded)
        unmade += unmade_of(corpus_groups, corpus.latest().unmade())
    return tuple(unmade)


def remake(
    corpus: CorpusAddress,
    definitions: Mapping[str, Definition],
    known_operators: Sequence[Operator[Any, Any] | type],
    wait_s: float,
) -> tuple[list[str], list[str]]:
    """Make and embed what the groups of a store lack; return in words what was embedded, and why some could not be.

    `definitions`: definitions of groups, by name, where the store does not say all of them.
    """
    messages: list[str] = []
    errors: list[str] = []
    failed: set[str] = set()
    for manifest in _incomplete_groups(corpus.latest()):
        try:
            if failed.isdisjoint((manifest.parent, manifest.ref)):
                counts: list[int] = []
                with open_staging(corpus, wait_s) as staging:
                    groups = [corpus.group(manifest.group)]
                    building = Building(
                        staging,
                        groups,
                        False,
                        known_operators,
                        definitions,
                        # Bound now: a closure would see the list of a later group.
                        tell=lambda *progress, counts=counts: counts.append(progress[-1]),
                    )
                    building.to_embed = building._builds([manifest.group])
                    building.build_missing()
                    building.embed()
                    staging.publish(
                        building.build_groups, embedded=False
                    )  # groups whose turn is later may lack vectors
                if count := sum(counts):
                    messages.append(f"Group {manifest.group!r}: {count} vectors were made again.")
        except (GroupError, ModelError) as error:
            failed.add(manifest.group)
            errors.append(str(error))
    return messages, errors


def _incomplete_groups(snapshot: "Snapshot") -> list[Manifest]:
    """Return groups that lack documents that were not tried, or vectors; each after the groups that it is made from."""
    untried, incomplete = {lack.group for lack in snapshot.unmade() if lack.is_untried}, []
    for manifest in sort_groups(snapshot.manifests):
        values = {"grp": manifest.group, "key": 0, "at": snapshot.generation}
        counts = (
            snapshot.open_store.row(sql.LACKING, {**values, "embedder": embedding.embedder})
            for embedding in manifest.embeddings
        )
        if manifest.group in untried or any(count for (count,) in counts):
            incomplete.append(manifest)
    return incomplete


@contextmanager
def open_staging(corpus: CorpusAddress, wait_s: float) -> Iterator[Staging]:
    """Open a staging for changes of groups; one process at a time, so that nothing is built twice. Others may write
    meanwhile."""
    folder = corpus.backend.folder
    make_folder(folder)
    with closing(WriterLock(folder, wait_s, BUILD_LOCK)), closing(Staging(corpus.backend, wait_s)) as staging:
        yield staging


def _needs_build(groups: Sequence[GroupAddress], snapshot: "Snapshot", retry: bool) -> bool:
    for group in groups:
        manifest = snapshot.manifests.get(group.name)
        if manifest is None:
            return True
        if group.definition is None:
            continue
        refuse_other_definition(group, snapshot.manifests)
        if missing_embeddings(group.definition, manifest) or changed_embeddings(group.definition, manifest):
            return True
    return retry and bool(unmade_of(groups, snapshot.unmade()))


def unmade_of(groups: Iterable[GroupAddress], unmade: Iterable[Unmade]) -> list[Unmade]:
    names = {group.name for group in groups}
    return [lack for lack in unmade if lack.group in names]


class Building(GroupDefinitions):
    """Build of groups of one store; `unread` are the pictures that an embedder could not read."""

    def __init__(self, staging: Staging, *args: Any, tell: ProgressCallback) -> None:
        super().__init__(staging, *args)
        self.staging, self.tell = staging, tell
        self.unread: list[Unmade] = []
        self._documents = 0

    def build(self) -> None:
        """Build the nodes of all documents in the groups that `define` has named, and in those below them."""
        missing = MissingMetadata(self.built, self.writer.schema)
        grown: set[str] = set()
        reasons = dict.fromkeys((build.group for build in self.built), NOT_YET)
        failures: dict[str, Failure] = {}
        for batch in in_batches(self.writer.documents(), DOCUMENTS_AT_ONCE) if self.built else ():
            check_cancelled()
            for document_nodes in grow(batch, self.built, self._nodes_of):
                store_nodes(self.writer, document_nodes, reasons)
                missing.observe(document_nodes)
                grown.update(document_nodes.by_group)
                failures = document_nodes.failures | failures
            self._documents += len(batch)
            self.tell(self.built[-1].group, self._documents, 0)
            self._spill_if_many()
        _refuse_nothing_made(failures, grown)
        if self.rebuild:
            refuse_away(self.built)
        if self._documents:  # without documents nothing is known of their fields
            missing.refuse()

    def build_missing(self) -> None:
        """Retry what could not be made of documents in groups that were there."""
        built = {build.group for build in self.built}
        unmade = [lack for lack in unmade_of(self.groups.values(), self.writer.unmade()) if lack.group not in built]
        builds = self._builds({lack.group for lack in unmade})
        for document_nodes in build_missing(self.writer, builds, unmade):
            self.tell(next(iter(document_nodes.by_group), ""), self._documents, 0)
            self._spill_if_many()
        self.to_embed += builds  # nodes that come late need vectors, too

    def _spill_if_many(self) -> None:
        if self.staging.weight >= STAGED_AT_ONCE:
            self.embed()  # `spill` forgets which of its texts have no vectors
            self.staging.spill()

    def embed(self, writer: AnyWriter | None = None) -> None:
        builds = [*self.built, *self.to_embed]
        self.unread += embed(
            writer or self.staging, builds, lambda count: self.tell(builds[-1].group, self._documents, count)
        )

    def build_groups(self, writer: AnyWriter) -> None:
        """Build the groups of documents that another writer has added meanwhile, before they are published."""
        for _ in build_groups(writer, self.built):
            if writer is self.staging:
                self._spill_if_many()
        self.embed(writer)

    @property
    def degraded(self) -> list[Unmade]:
        """Nodes made from replies that could not be parsed, by group."""
        availabilities = {build.group: build.availability for build in (*self.built, *self.to_embed)}
        return [
            Unmade("", "", group, availability.degradation)
            for group, availability in availabilities.items()
            if availability.degradation
        ]

    def _nodes_of(self, document: Document, group: str) -> Sequence[Node]:
        return self.writer.nodes(document.id, group)


def _refuse_nothing_made(failures: Mapping[str, Failure], grown: Set[str]) -> None:
    """Raise the failure of a group that could be made of no document: that lies at the group, not at a document."""
    for group, failure in failures.items():
        if group not in grown:
            error = failure.raised()
            error.add_note(f"Group {group!r} could be made of no document. Nothing was published.")
            raise error


class MissingMetadata:
    """Metadata fields that transforms name and no document that passes has, nor is declared."""

    def __init__(self, builds: Iterable[GroupBuild], schema: Schema) -> None:
        names_by_group = {build.group: set(_field_names(build.transform)) - schema.by_name.keys() for build in builds}
        self._missing = {group: names for group, names in names_by_group.items() if names}
        self._present: set[str] = set()

    def observe(self, document_nodes: GroupNodes) -> None:
        """Note the metadata of a document and its nodes."""
        for group, names in self._missing.items():
            nodes = document_nodes.by_group.get(group)
            node_metas = [node.meta for node in nodes] if isinstance(nodes, list) else []
            self._present.update(name for meta in (document_nodes.document.meta, *node_metas) for name, _ in meta)
            names -= self._present

    def refuse(self) -> None:
        """Raise GroupError for names that no document had; call it after all documents."""
        for group, names in self._missing.items():
            if names:
                raise GroupError(
                    f"Group {group!r} names the metadata {', '.join(sorted(names))}, which no document has; they have: "
                    f"{', '.join(sorted(self._present)) or 'none'}. Write one of these, or give it to the documents: "
                    "sync(..., metadata=...). Declare those of later documents: fields=(Field(NAME),)."
                )


def _field_names(transform: Operator[Any, Any]) -> Iterator[str]:
    if isinstance(transform, FieldTransform):
        yield from transform.fields
    for _, inner in transform.inner():
        yield from _field_names(inner)


LOOK_S = 1.0
"""Seconds of waiting for another writer after which is looked whether that has built the group."""
SHOWN = 3


def ensure_built(group: GroupAddress) -> "Snapshot":
    """Return the published snapshot with a group built: build it here, unless it is there, or another process does."""
    end, announced = time.monotonic() + group.corpus.wait_s, ""
    while not serves(group, snapshot := group.corpus.latest()):
        check_cancelled()
        remaining_s = end - time.monotonic()
        try:
            # In short waits: the process that holds the lock may be the one that builds the group.
            _build(group, min(LOOK_S, max(remaining_s, 0.0)))
        except GroupError:  # nobody says what it is made of: a run of `sync` may be about to
            busy = StoreBusy()
            busy.holder = describe_claimer(group.corpus.backend.folder)
            if not busy.holder:
                raise
            if remaining_s <= 0:
                raise _out_of_patience(group, busy, snapshot) from None
            announced = announced or _announce_wait(group, busy)
            # Nothing tells when the run of `sync` publishes the group, so it is looked for.
            time.sleep(LOOK_S / 10)
        except StoreBusy as busy:
            if remaining_s <= 0:
                raise _out_of_patience(group, busy, snapshot) from busy
            announced = announced or _announce_wait(group, busy)
    return snapshot


def with_embedding(group: G, embedder: "Embedder | SparseEmbedder") -> G:
    """Return a built-in group that lacks vectors by an embedder with a definition that has them; any other as it is."""
    definition = None if group.definition is not None else built_in(group.name)
    if definition is None:
        return group
    manifests = group.corpus.latest().manifests
    manifest = manifests.get(group.name)
    if manifest and (
        manifest.find_embedding(embedder.name) is not None or manifest.signature != signature(definition, manifests)
    ):
        return group
    return group.but(definition=definition.but(embeddings=(Embedding(embedder),)))


def _build(group: GroupAddress, wait_s: float) -> None:
    unmade = materialise([group], retry=False, wait_s=wait_s)
    note(f"Group {group.name!r} of {group.corpus.path} was built at its first use.")
    for lack in unmade:
        if not lack.document:
            note(f"In group {group.name!r}, {lack.reason}")
    if missing := [lack for lack in unmade if lack.document]:
        examples = "; ".join(f"{lack.uri or lack.document}: {lack.reason}" for lack in missing[:SHOWN])
        note(f"Group {group.name!r} lacks {len(missing)} documents that it could not be made of: {examples}")


def _announce_wait(group: GroupAddress, busy: StoreBusy) -> str:
    """Tell the user who waits: in the trace, and by a warning in the log, which Python shows unless told otherwise."""
    message = (
        f"Group {group.name!r} has to be built first, and waits up to {group.corpus.wait_s:g} s for {busy.holder}."
    )
    note(message)
    logging.getLogger("spolia").warning(message)
    return message


def _out_of_patience(group: GroupAddress, busy: StoreBusy, snapshot: "Snapshot") -> StoreBusy:
    corpus = group.corpus
    if group.definition is None and built_in(group.name) is None:
        return StoreBusy(
            f"{corpus.path} is being indexed, by {busy.holder or 'another process'}. Published so far: "
            f"{snapshot.stats().documents} documents, and no group {group.name!r} yet. Search again when a batch of "
            f"them is published; to wait for it, in Python: Corpus({corpus.path!r}, wait_s=600)."
        )
    return StoreBusy(
        f"Group {group.name!r} is built at its first use, and could not be within {corpus.wait_s:g} s, since "
        f"{busy.holder or 'another process'} writes to {corpus.path}. Wait for it, then repeat. To build it "
        f"beforehand: spolia groups build {group.name} --store {corpus.path} --wait 600; in "
        f"Python Corpus({corpus.path!r}, wait_s=600) waits longer."
    )

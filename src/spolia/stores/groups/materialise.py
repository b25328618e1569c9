"""Build groups on their first use, with the groups that they are made from, or wait for the process that does."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from spolia.core.operator import Operator
from spolia.core.run_context import check_cancelled, note
from spolia.errors import GroupError, ModelError, StoreBusy
from spolia.filters import Schema
from spolia.private_files import make_folder
from spolia.stores.backends import sql
from spolia.stores.backends.rows import NOT_YET, Unmade, in_batches
from spolia.stores.backends.sqlite.folder import WriterLock
from spolia.stores.corpus import Corpus, NodeGroup, refuse_no_groups
from spolia.stores.definition import Definition, Embedding, Naming
from spolia.stores.files import BUILD_LOCK, claimer
from spolia.stores.groups.definitions import (
    GroupDefinitions,
    by_name,
    lacking,
    refuse_other,
    searched_otherwise,
    serves,
)
from spolia.stores.groups.group_build import (
    DOCUMENTS_AT_ONCE,
    STAGED_AT_ONCE,
    complete,
    embed,
    make_up,
    refuse_away,
    store,
)
from spolia.stores.groups.nodes import GroupBuild, GroupNodes, grow
from spolia.stores.manifest import Manifest, built_in, in_order, signature
from spolia.stores.staging import AnyWriter, Staging
from spolia.stores.writer import compact
from spolia.types import Document, Failure, Node
from spolia.types.value import names_checked

if TYPE_CHECKING:
    from spolia.models.protocols import Embedder, SparseEmbedder
    from spolia.stores.snapshot.snapshot import Snapshot


Tell = Callable[[str, int, int], None]
"""Gets the group, how many documents were cut, how many texts embedded."""


@names_checked
def materialise(
    groups: Iterable[NodeGroup],
    *,
    rebuild: bool = False,
    retry: bool = True,
    known: Iterable[Operator[Any, Any] | type] = (),
    tell: Tell = lambda group, documents, embedded: None,
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
        known: operators of the caller's own in definitions that the store holds.
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
    by_corpus: dict[str, list[NodeGroup]] = {}
    for group in refuse_no_groups(groups, "materialise"):
        by_corpus.setdefault(group.corpus.path, []).append(group)
    found: list[Unmade] = []
    for wanted in map(by_name, by_corpus.values()):
        corpus = wanted[0].corpus
        if rebuild or _is_to_do(wanted, corpus.latest(), retry):
            with builder(corpus, corpus.wait_s if wait_s is None else wait_s) as staging:
                building = Building(staging, wanted, rebuild, tuple(known), tell=tell)
                building.define()
                building.build()
                if retry:
                    building.make_up()
                building.embed()
                staging.publish(building.complete)
                compact(corpus.backend, staging.manifests, corpus.wait_s)
                found += (*building.unread, *building.makeshift)
        found += unmade_of(wanted, corpus.latest().unmade())
    return tuple(found)


def remake(
    corpus: Corpus, given: Mapping[str, Definition], known: Sequence[Operator[Any, Any] | type], wait_s: float
) -> tuple[list[str], list[str]]:
    """Make and embed what the groups of a store lack; in words, what was embedded, and why some could not be.

    `given`: definitions of groups, by name, where the store does not say all of them.
    """
    made: list[str] = []
    said: list[str] = []
    failed: set[str] = set()
    for manifest in _lacking(corpus.latest()):
        try:
            if failed.isdisjoint((manifest.parent, manifest.ref)):
                counts: list[int] = []
                with builder(corpus, wait_s) as staging:
                    wanted = [corpus.group(manifest.group)]
                    building = Building(
                        staging, wanted, False, known, given, tell=lambda *told, counts=counts: counts.append(told[-1])
                    )
                    building.to_embed = building._builds([manifest.group])
                    building.make_up()
                    building.embed()
                    staging.publish(building.complete, embedded=False)  # groups whose turn is later may lack vectors
                if count := sum(counts):
                    made.append(f"Group {manifest.group!r}: {count} vectors were made again.")
        except (GroupError, ModelError) as error:
            failed.add(manifest.group)
            said.append(str(error))
    return made, said


def _lacking(snapshot: "Snapshot") -> list[Manifest]:
    """Groups that lack documents that were not tried, or vectors; each after the groups that it is made from."""
    untried, found = {lack.group for lack in snapshot.unmade() if lack.is_untried}, []
    for manifest in in_order(snapshot.manifests):
        values = {"grp": manifest.group, "key": 0, "at": snapshot.generation}
        asked = (snapshot.opened.row(sql.LACKING, {**values, "embedder": how.embedder}) for how in manifest.embeddings)
        if manifest.group in untried or any(count for (count,) in asked):
            found.append(manifest)
    return found


@contextmanager
def builder(corpus: Corpus, wait_s: float) -> Iterator[Staging]:
    """Collects changes of groups; for one at a time, so that nothing is built twice. Others may write meanwhile."""
    folder = corpus.backend.folder
    make_folder(folder)
    with closing(WriterLock(folder, wait_s, BUILD_LOCK)), closing(Staging(corpus.backend, wait_s)) as staging:
        yield staging


def _is_to_do(wanted: Sequence[NodeGroup], snapshot: "Snapshot", retry: bool) -> bool:
    for group in wanted:
        there = snapshot.manifests.get(group.name)
        if there is None:
            return True
        if group.definition is None:
            continue
        refuse_other(group, snapshot.manifests)
        if lacking(group.definition, there) or searched_otherwise(group.definition, there):
            return True
    return retry and bool(unmade_of(wanted, snapshot.unmade()))


def unmade_of(groups: Iterable[NodeGroup], unmade: Iterable[Unmade]) -> list[Unmade]:
    names = {group.name for group in groups}
    return [lack for lack in unmade if lack.group in names]


class Building(GroupDefinitions):
    """Builds groups of one store; `unread` are the pictures that an embedder could not read."""

    def __init__(self, staging: Staging, *given: Any, tell: Tell) -> None:
        super().__init__(staging, *given)
        self.staging, self.tell = staging, tell
        self.unread: list[Unmade] = []
        self._documents = 0

    def build(self) -> None:
        """Cut all documents in them, and in the groups below them: what `define` has named."""
        unseen = MissingMetadata(self.built, self.writer.schema)
        made: set[str] = set()
        before = dict.fromkeys((build.group for build in self.built), NOT_YET)
        failures: dict[str, Failure] = {}
        for some in in_batches(self.writer.documents(), DOCUMENTS_AT_ONCE) if self.built else ():
            check_cancelled()
            for one in grow(some, self.built, self._there):
                store(self.writer, one, before)
                unseen.look(one)
                made.update(one.made)
                failures = one.failures | failures
            self._documents += len(some)
            self.tell(self.built[-1].group, self._documents, 0)
            self._spill_if_many()
        _refuse_nothing_made(failures, made)
        if self.rebuild:
            refuse_away(self.built)
        if self._documents:
            unseen.refuse()

    def make_up(self) -> None:
        """Try again what could not be made of documents in groups that were there."""
        built = {build.group for build in self.built}
        unmade = [lack for lack in unmade_of(self.wanted.values(), self.writer.unmade()) if lack.group not in built]
        builds = self._builds({lack.group for lack in unmade})
        for one in make_up(self.writer, builds, unmade):
            self.tell(next(iter(one.made), ""), self._documents, 0)
            self._spill_if_many()
        self.to_embed += builds

    def _spill_if_many(self) -> None:
        if self.staging.weight >= STAGED_AT_ONCE:
            self.embed()
            self.staging.spill()

    def embed(self, writer: AnyWriter | None = None) -> None:
        builds = [*self.built, *self.to_embed]
        self.unread += embed(
            writer or self.staging, builds, lambda count: self.tell(builds[-1].group, self._documents, count)
        )

    def complete(self, writer: AnyWriter) -> None:
        """Make the groups of what another one has added meanwhile, before they are published."""
        for _ in complete(writer, self.built):
            if writer is self.staging:
                self._spill_if_many()
        self.embed(writer)

    @property
    def makeshift(self) -> list[Unmade]:
        """Nodes made from replies that could not be parsed, by group."""
        grown = {build.group: build.reach for build in (*self.built, *self.to_embed)}
        return [Unmade("", "", group, reach.makeshift) for group, reach in grown.items() if reach.makeshift]

    def _there(self, document: Document, group: str) -> Sequence[Node]:
        return self.writer.nodes(document.id, group)


def _refuse_nothing_made(failures: Mapping[str, Failure], made: Set[str]) -> None:
    """Raise what made a group fail of every document: that lies at the group, not at a document."""
    for group, failure in failures.items():
        if group not in made:
            error = failure.raised()
            error.add_note(f"Group {group!r} could be made of no document. Nothing was published.")
            raise error


class MissingMetadata:
    """What transforms name and no document that passes has, nor is declared."""

    def __init__(self, builds: Iterable[GroupBuild], schema: Schema) -> None:
        named = {build.group: set(_named(build.transform)) - schema.by_name.keys() for build in builds}
        self._left = {group: names for group, names in named.items() if names}
        self._seen: set[str] = set()

    def look(self, one: GroupNodes) -> None:
        """Note the metadata of a document and its nodes."""
        for group, names in self._left.items():
            made = one.made.get(group)
            own = [node.meta for node in made] if isinstance(made, list) else []
            self._seen.update(name for meta in (one.document.meta, *own) for name, _ in meta)
            names -= self._seen

    def refuse(self) -> None:
        """All documents have passed."""
        for group, names in self._left.items():
            if names:
                raise GroupError(
                    f"Group {group!r} names the metadata {', '.join(sorted(names))}, which no document has; they have: "
                    f"{', '.join(sorted(self._seen)) or 'none'}. Write one of these, or give it to the documents: "
                    "sync(..., metadata=...). Declare those of later documents: fields=(Field(NAME),)."
                )


def _named(transform: Operator[Any, Any]) -> Iterator[str]:
    if isinstance(transform, Naming):
        yield from transform.fields
    for _, inner in transform.inner():
        yield from _named(inner)


LOOK_S = 1.0
"""Seconds of waiting for another writer after which is looked whether that has built the group."""
SHOWN = 3


def built(group: NodeGroup) -> "Snapshot":
    """The published snapshot, in which a group is built: here and now, unless it is there, or another process does."""
    end, said = time.monotonic() + group.corpus.wait_s, ""
    while not serves(group, snapshot := group.corpus.latest()):
        check_cancelled()
        left = end - time.monotonic()
        try:
            _build(group, min(LOOK_S, max(left, 0.0)))
        except GroupError:  # nobody says what it is made of: a run of `sync` may be about to
            busy = StoreBusy()
            busy.holder = claimer(group.corpus.backend.folder)
            if not busy.holder:
                raise
            if left <= 0:
                raise _out_of_patience(group, busy, snapshot) from None
            said = said or _told(group, busy)
            time.sleep(LOOK_S / 10)
        except StoreBusy as busy:
            if left <= 0:
                raise _out_of_patience(group, busy, snapshot) from busy
            said = said or _told(group, busy)
    return snapshot


def with_vectors(group: NodeGroup, embedder: "Embedder | SparseEmbedder") -> NodeGroup:
    """A built-in group that has no vectors by an embedder yet, asked for with them; any other as it is."""
    definition = None if group.definition is not None else built_in(group.name)
    if definition is None:
        return group
    manifests = group.corpus.latest().manifests
    there = manifests.get(group.name)
    if there and (there.embedded(embedder.name) is not None or there.signature != signature(definition, manifests)):
        return group
    return group.but(definition=definition.but(embeddings=(Embedding(embedder),)))


def _build(group: NodeGroup, wait_s: float) -> None:
    unmade = materialise([group], retry=False, wait_s=wait_s)
    note(f"Group {group.name!r} of {group.corpus.path} was built at its first use.")
    for lack in unmade:
        if not lack.document:
            note(f"In group {group.name!r}, {lack.reason}")
    if lacking := [lack for lack in unmade if lack.document]:
        some = "; ".join(f"{lack.uri or lack.document}: {lack.reason}" for lack in lacking[:SHOWN])
        note(f"Group {group.name!r} lacks {len(lacking)} documents that it could not be made of: {some}")


def _told(group: NodeGroup, busy: StoreBusy) -> str:
    """Tell the user who waits: in the trace, and by a warning in the log, which Python shows unless told otherwise."""
    said = f"Group {group.name!r} has to be built first, and waits up to {group.corpus.wait_s:g} s for {busy.holder}."
    note(said)
    logging.getLogger("spolia").warning(said)
    return said


def _out_of_patience(group: NodeGroup, busy: StoreBusy, snapshot: "Snapshot") -> StoreBusy:
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

"""Building groups on their first use, with those that they are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from spolia.errors import GroupError, ManifestMismatch
from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.operator import Operator
from spolia.stores.defined import (
    BUILT_IN,
    built_in,
    embedded,
    embedder_of,
    in_order,
    index_of,
    manifest_of,
    refuse_namesakes,
    signature,
    transform_of,
)
from spolia.stores.definition import DOCUMENT, Definition, Embedding, Metric
from spolia.stores.groups.growing import Growth, embed, grow, in_batches
from spolia.stores.groups.naming import Unseen
from spolia.stores.groups.storing import DOCUMENTS_AT_ONCE, make_up, store, with_those_below
from spolia.stores.indexes import IndexSettings
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import Embedded, Manifest
from spolia.stores.tables.rows import NOT_YET, Unmade
from spolia.stores.writer import Writer
from spolia.surrounding import check_cancelled
from spolia.types import Document, Failure, Node

if TYPE_CHECKING:
    from spolia.stores.corpus import NodeGroup
    from spolia.stores.snapshot import Snapshot

Tell = Callable[[str, int, int], None]
"""Is told the group, how many documents were cut, how many texts embedded."""


def definition_of(group: NodeGroup) -> Definition:
    """What a group is made of that a store does not have yet.

    Raises:
        GroupError: nobody says it.
    """
    found = group.definition or built_in(group.name)
    if found is None:
        raise GroupError(
            f"There is no node group {group.name!r} in {group.corpus.path}, and none is built in by this name: "
            f"{', '.join(BUILT_IN)}. Write corpus.group({group.name!r}, Definition(...)) to say what it is made of."
        )
    return found


def serves(group: NodeGroup, snapshot: Snapshot) -> bool:
    """Whether a group is built in a snapshot, with all the embeddings that are asked for.

    Raises:
        ManifestMismatch: it is built there from another definition, or its vectors are searched in another way.
    """
    if group.name not in snapshot.indexes:
        return False
    if group.definition is not None:
        refuse_other(group, snapshot.manifests)
        there = snapshot.manifests[group.name]
        if searched_otherwise(group.definition, there):
            here, asked = there.embeddings, map(embedded, group.definition.embeddings)
            raise ManifestMismatch(
                f"The vectors of group {group.name!r} of {group.corpus.path} are searched by "
                f"{', '.join(how.said for how in here)}, and are asked for by {', '.join(how.said for how in asked)}. "
                "To change that for everybody, without embedding anything again, write materialise([group]); or ask "
                "for what is there."
            )
        return not lacking(group.definition, there)
    return True


def lacking(definition: Definition, there: Manifest) -> list[Embedding]:
    """The embeddings of a definition that a group was not built with; they can be added at any time.

    Raises:
        ManifestMismatch: an embedder has the name of one that the group was built with, and is another one.
    """
    for how in definition.embeddings:
        refuse_namesakes(how.embedder, {there.group: there})
    return [how for how in definition.embeddings if there.embedded(how.embedder.name) is None]


def searched_otherwise(definition: Definition, there: Manifest) -> list[Embedded]:
    """The embeddings of a definition that a group has with another index or metric; that can be changed at any time."""
    wanted = [how for how in map(embedded, definition.embeddings) if not how.is_sparse]
    return [how for how in wanted if (found := there.embedded(how.embedder)) and _searched(found) != _searched(how)]


def _searched(how: Embedded) -> tuple[Metric, IndexSettings]:
    return how.metric, index_of(how)


def refuse_other(group: NodeGroup, manifests: dict[str, Manifest]) -> None:
    """Raise `ManifestMismatch` if a group of this name is there and made of something else."""
    there, definition = manifests[group.name], group.definition
    assert definition is not None
    if there.signature == signature(definition, manifests):
        return
    asked = manifest_of(group.name, definition, there.analyzer, manifests, there.reader)
    differences = "; ".join(there.but(analyzer=asked.analyzer, embeddings=asked.embeddings).differences(asked))
    raise ManifestMismatch(
        f"Group {group.name!r} of {group.corpus.path} is made in another way than is asked for: {differences}. Give it "
        "another name, or build it anew: materialise([group], rebuild=True)."
    )


def materialise(
    groups: Iterable[NodeGroup],
    *,
    rebuild: bool = False,
    retry: bool = True,
    known: Iterable[Operator[Any, Any] | type] = (),
    tell: Tell = lambda group, documents, embedded: None,
    wait_s: float | None = None,
) -> tuple[Unmade, ...]:
    """Build groups that are not built yet, with those that they are made from, and publish them all at once.

    Until then readers see what there was. A document that a group cannot be made of is found in its other groups, and
    is tried again by the next call and by `sync`.

    Args:
        groups: of one corpus or of several, in any order; those that are built as they are defined are left as they
            are. An embedding that a group does not have yet is added, another index or metric takes the place of the
            one that is there, and its nodes stay.
        rebuild: build a group anew that is made of something else by now, and those that are made from it.
        retry: try documents again that a group could not be made of.
        known: operators of the caller's own in definitions that the store holds.
        tell: is told how far it is.
        wait_s: how long to wait for another writer, seconds; None for what the corpus says.

    Returns:
        What could not be made of these groups, and why; and the pictures in them that an embedder could not read.

    Raises:
        GroupError: a group that nobody defines, a parent that is not there, groups made from each other in a circle, a
            transform that cannot be stored.
        ManifestMismatch: a group of this name is made of something else.
        StoreBusy: another process writes, and did not finish in time.
        StoreError: the store cannot be written.
        SpoliaError: what the transform raised, when a group could be made of no document; nothing was published.

    >>> import tempfile
    >>> from spolia.indexing.sync import sync
    >>> from spolia.stores.corpus import Corpus
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
    for group in groups:
        by_corpus.setdefault(group.corpus.path, []).append(group)
    found: list[Unmade] = []
    for wanted in map(_by_name, by_corpus.values()):
        corpus = wanted[0].corpus
        if rebuild or _is_to_do(wanted, corpus.latest(), retry):
            with corpus.writer(wait_s) as writer:
                building = Building(writer, wanted, rebuild, tuple(known), tell)
                building.define()
                building.build()
                if retry:
                    building.make_up()
                building.embed()
                found += building.unread
        found += unmade_of(wanted, corpus.latest().unmade())
    return tuple(found)


def _is_to_do(wanted: Sequence[NodeGroup], snapshot: Snapshot, retry: bool) -> bool:
    for group in wanted:
        there = snapshot.manifests.get(group.name)
        if there is None or group.definition is None:
            if there is None:
                return True
            continue
        refuse_other(group, snapshot.manifests)
        if lacking(group.definition, there) or searched_otherwise(group.definition, there):
            return True
    return retry and bool(unmade_of(wanted, snapshot.unmade()))


def unmade_of(groups: Iterable[NodeGroup], unmade: Iterable[Unmade]) -> list[Unmade]:
    """What could not be made of these groups."""
    names = {group.name for group in groups}
    return [lack for lack in unmade if lack.group in names]


class Building:
    """Builds groups of one store.

    Args:
        writer: of the store.
        wanted: the groups.
        rebuild: build those anew that are made of something else by now.
        known: operators of the caller's own.
        tell: is told how far it is.

    Attributes:
        unread: pictures that an embedder could not read.
    """

    def __init__(
        self,
        writer: Writer,
        wanted: Sequence[NodeGroup],
        rebuild: bool,
        known: tuple[Operator[Any, Any] | type, ...],
        tell: Tell,
    ) -> None:
        self.writer, self.rebuild, self.known, self.tell = writer, rebuild, known, tell
        self.wanted = {group.name: group for group in _by_name(wanted)}
        self.definitions: dict[str, Definition] = {}
        self._way: list[str] = []
        self._seen: set[str] = set()
        self._built: list[Growth] = []
        self._to_embed: list[Growth] = []
        self.unread: list[Unmade] = []
        self._documents = 0

    def define(self) -> None:
        """Write the manifests of those that are to be built, each after those that it is made from, then those below.

        From then on all documents count as not made in them.
        """
        for group in self.wanted.values():
            self._define(group)
        self._built = self._growths(self.definitions)
        for growth in self._built:
            if growth.group not in self.definitions:
                self._renew(growth)

    def build(self) -> None:
        """Cut all documents in them, and in the groups below them: what `define` has named.

        Raises:
            SpoliaError: what a transform raised that could make nothing of any document.
            GroupError: a transform names metadata that no document has.
        """
        unseen = Unseen(self._built, self.writer.schema)
        made: set[str] = set()
        before = dict.fromkeys((growth.group for growth in self._built), NOT_YET)
        failures: dict[str, Failure] = {}
        for some in in_batches(self.writer.documents(), DOCUMENTS_AT_ONCE) if self._built else ():
            check_cancelled()
            for one in grow(some, self._built, self._there):
                store(self.writer, one, before)
                unseen.look(one)
                made.update(one.made)
                failures = one.failures | failures
            self._documents += len(some)
            self.tell(self._built[-1].group, self._documents, 0)
        _refuse_nothing_made(failures, made)
        if self._documents:
            unseen.refuse()

    def make_up(self) -> None:
        """Try again what could not be made of documents in groups that were there."""
        built = {growth.group for growth in self._built}
        unmade = [lack for lack in unmade_of(self.wanted.values(), self.writer.unmade()) if lack.group not in built]
        growths = self._growths({lack.group for lack in unmade})
        for one in make_up(self.writer, growths, unmade):
            self.tell(next(iter(one.made), ""), self._documents, 0)
        self._to_embed += growths

    def embed(self) -> None:
        """Embed what has no vector yet."""
        growths = [*self._built, *self._to_embed]
        told = embed(self.writer, growths, lambda count: self.tell(growths[-1].group, self._documents, count))
        self.unread += told

    def _there(self, document: Document, group: str) -> Sequence[Node]:
        return self.writer.nodes(document.id, group)

    def _growths(self, names: Iterable[str]) -> list[Growth]:
        """How these groups and those below them grow, in order."""
        return [self.growth(manifest) for manifest in with_those_below(names, in_order(self.writer.manifests))]

    def _define(self, group: NodeGroup) -> None:
        """Write a group's manifest, after those that it is made from."""
        if group.name in self._seen:
            return
        if group.name in self._way:
            way = " → ".join([*self._way[self._way.index(group.name) :], group.name])
            raise GroupError(f"The groups are made from each other in a circle: {way}. Change a parent or a ref.")
        self._way.append(group.name)
        is_there = group.name in self.writer.manifests
        definition = group.definition if is_there else definition_of(group)
        for name in (definition.parent, definition.ref) if definition else ():
            if name and name != DOCUMENT and (name in self.wanted or name not in self.writer.manifests):
                self._define(self.wanted.get(name) or group.corpus.group(name))
        self._way.pop()
        self._seen.add(group.name)
        if definition is not None and is_there and not self._is_other(group):
            self._extend(group, definition)
        elif definition is not None:
            manifest = manifest_of(group.name, definition, self._analyzer(), self.writer.manifests)
            self.writer.redefine(group.name, manifest)
            self.definitions[group.name] = definition

    def _extend(self, group: NodeGroup, definition: Definition) -> None:
        """Embed the nodes of a group that is there in further ways, and search its vectors as is asked for now."""
        there = self.writer.manifests[group.name]
        more, others = lacking(definition, there), searched_otherwise(definition, there)
        if not more and not others:
            return
        for how in others:
            _refuse_to_shorten(group.name, there, how)
        by_name = {how.embedder: how for how in others}
        kept = (by_name.get(how.embedder, how) for how in there.embeddings)
        manifest = there.but(embeddings=(*kept, *map(embedded, more)))
        if manifest.by_picture != there.by_picture:  # other keys of vectors are other nodes to who reads the old ones
            self.writer.redefine(group.name, manifest)
            self.definitions[group.name] = definition
            return
        self.writer.redefine(group.name, manifest, keep_nodes=True)
        embedders = tuple(how.embedder for how in more)
        self._to_embed.append(Growth(group.name, definition.transform, definition.parent, definition.ref, embedders))

    def _renew(self, growth: Growth) -> None:
        """A group is made of one that is built anew: its nodes end, its signature is another one."""
        manifests = self.writer.manifests
        made = signature(Definition(growth.transform, growth.parent, growth.ref), manifests)
        self.writer.redefine(growth.group, manifests[growth.group].but(signature=made))

    def _is_other(self, group: NodeGroup) -> bool:
        assert group.definition is not None
        if not self.rebuild:
            refuse_other(group, self.writer.manifests)
            return False
        return self.writer.manifests[group.name].signature != signature(group.definition, self.writer.manifests)

    def _analyzer(self) -> Analyzer:
        """That of the first group: the one for the store's language."""
        manifests = self.writer.manifests
        return next((manifests[name].analyzer for name in sorted(manifests, key=lambda n: n != "chunk")), Analyzer())

    def growth(self, manifest: Manifest) -> Growth:
        """How a group grows."""
        asked = self.wanted.get(manifest.group)
        definition = self.definitions.get(manifest.group) or (asked.definition if asked else None)
        passed: list[Embedder | SparseEmbedder] = (
            [embedding.embedder for embedding in definition.embeddings] if definition else []
        )
        return Growth(
            manifest.group,
            definition.transform if definition else transform_of(manifest, self.known),
            manifest.parent,
            manifest.ref,
            tuple(embedder_of(how, manifest.group, passed) for how in manifest.embeddings),
        )


def _by_name(groups: Iterable[NodeGroup]) -> list[NodeGroup]:
    """Each group once; of one that is named twice, what is said of it."""
    found: dict[str, NodeGroup] = {}
    for group in groups:
        before = found.get(group.name)
        if before is None or before.definition is None:
            found[group.name] = group
        elif group.definition not in (None, before.definition):
            raise GroupError(f"Group {group.name!r} is asked for with two definitions. Give one of them another name.")
    return list(found.values())


def _refuse_to_shorten(group: str, there: Manifest, how: Embedded) -> None:
    """The cosine is computed of vectors of length 1, and those of another metric were taken as they came."""
    found = there.embedded(how.embedder)
    if how.metric == "cosine" and found is not None and found.metric != "cosine":
        raise GroupError(
            f"The vectors of group {group!r} by {how.embedder!r} are compared by {found.metric}, and were taken as the "
            "embedder gave them; the cosine needs vectors of length 1. Keep the metric, or define another group."
        )


def _refuse_nothing_made(failures: Mapping[str, Failure], made: Set[str]) -> None:
    """Raise what made a group fail of every document: that lies at the group, not at a document."""
    for group, failure in failures.items():
        if group not in made:
            error = failure.raised()
            error.add_note(f"Group {group!r} could be made of no document. Nothing was published.")
            raise error

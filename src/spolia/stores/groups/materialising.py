"""Building groups on their first use, with those that they are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    manifest_of,
    refuse_namesakes,
    signature,
    transform_of,
)
from spolia.stores.definition import DOCUMENT, Definition, Embedding
from spolia.stores.groups.growing import Growth, embed, grow, in_batches
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import Manifest
from spolia.stores.writer import Writer
from spolia.surrounding import check_cancelled

if TYPE_CHECKING:
    from spolia.stores.corpus import NodeGroup
    from spolia.stores.snapshot import Snapshot

Tell = Callable[[str, int, int], None]
"""Is told the group, how many documents were cut, how many texts embedded."""

DOCUMENTS_AT_ONCE = 64


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
        ManifestMismatch: it is built there from another definition.
    """
    if group.name not in snapshot.indexes:
        return False
    if group.definition is not None:
        refuse_other(group, snapshot.manifests)
        return not lacking(group.definition, snapshot.manifests[group.name])
    return True


def lacking(definition: Definition, there: Manifest) -> list[Embedding]:
    """The embeddings of a definition that a group was not built with; they can be added at any time.

    Raises:
        ManifestMismatch: an embedder has the name of one that the group was built with, and is another one.
    """
    for how in definition.embeddings:
        refuse_namesakes(how.embedder, {there.group: there})
    return [how for how in definition.embeddings if there.embedded(how.embedder.name) is None]


def refuse_other(group: NodeGroup, manifests: dict[str, Manifest]) -> None:
    """Raise `ManifestMismatch` if a group of this name is there and made of something else."""
    there, definition = manifests[group.name], group.definition
    assert definition is not None
    if there.signature == signature(definition, manifests):
        return
    raise ManifestMismatch(
        f"Group {group.name!r} of {group.corpus.path} is made by {there.transform} of {there.parent!r}, and is asked "
        f"for as made by {definition.transform!r} of {definition.parent!r}, or its models or prompts have changed. "
        f"Give it another name, or build it anew: materialise([group], rebuild=True)."
    )


def materialise(
    groups: Iterable[NodeGroup],
    *,
    rebuild: bool = False,
    known: Iterable[Operator[Any, Any] | type] = (),
    tell: Tell = lambda group, documents, embedded: None,
) -> None:
    """Build groups that are not built yet, with those that they are made from, and publish them all at once.

    Until then readers see what there was.

    Args:
        groups: of one corpus or of several; those that are built as they are defined are left as they are. An embedding
            that a group does not have yet is added, and its nodes stay.
        rebuild: build a group anew that is made of something else by now, and those that are made from it.
        known: operators of the caller's own in definitions that the store holds.
        tell: is told how far it is.

    Raises:
        GroupError: a group that nobody defines, a parent that is not there, a transform that cannot be stored.
        ManifestMismatch: a group of this name is made of something else.
        StoreError: the store cannot be written.

    >>> import tempfile
    >>> from spolia.indexing.sync import sync
    >>> from spolia.stores.corpus import Corpus
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "stones.txt").write_text("Spolia are stones. Builders take them from older buildings.")
    ...     corpus = Corpus(f"{folder}/notes.spolia")
    ...     _ = sync(folder, corpus)
    ...     materialise([corpus.group("sentence")])
    ...     [node.text for node in corpus.snapshot().all_nodes("sentence")]
    ['Spolia are stones.', 'Builders take them from older buildings.']
    """
    by_corpus: dict[str, list[NodeGroup]] = {}
    for group in groups:
        by_corpus.setdefault(group.corpus.path, []).append(group)
    for wanted in by_corpus.values():
        snapshot = wanted[0].corpus.latest()
        if rebuild or not all(serves(group, snapshot) for group in wanted):
            with wanted[0].corpus.writer() as writer:
                building = Building(writer, wanted, rebuild, tuple(known), tell)
                building.define()
                building.build()


class Building:
    """Builds groups of one store.

    Args:
        writer: of the store.
        wanted: the groups.
        rebuild: build those anew that are made of something else by now.
        known: operators of the caller's own.
        tell: is told how far it is.
    """

    def __init__(
        self,
        writer: Writer,
        wanted: Sequence[NodeGroup],
        rebuild: bool,
        known: tuple[Operator[Any, Any] | type, ...],
        tell: Tell,
    ) -> None:
        self.writer, self.wanted, self.rebuild, self.known, self.tell = writer, wanted, rebuild, known, tell
        self.definitions: dict[str, Definition] = {}
        self.extended: list[Growth] = []

    def define(self) -> None:
        """Write the manifests of those that are to be built, and of what they are made from."""
        for group in self.wanted:
            self._define(group)

    def build(self) -> None:
        """Cut and embed all documents in them, and in the groups below them."""
        names = self._with_those_below(self.definitions)
        manifests = {name: m for name, m in self.writer.manifests.items() if name in names}
        growths = [self.growth(manifest) for manifest in in_order(manifests)]
        for growth in growths:
            if growth.group not in self.definitions:
                self._renew(growth)
        documents = self._grow(growths)
        growths += self.extended
        embed(self.writer, growths, lambda count: self.tell(growths[-1].group, documents, count))

    def _grow(self, growths: Sequence[Growth]) -> int:
        """Make the nodes of all documents; returns how many documents there are."""
        documents = 0
        for some in in_batches(self.writer.documents(), DOCUMENTS_AT_ONCE) if growths else ():
            check_cancelled()
            for one in grow(some, growths, lambda document, group: self.writer.nodes(document.id, group)):
                if one.failure is not None:
                    raise one.failure.raised()
                self.writer.add_nodes(one.document, one.nodes())
            documents += len(some)
            self.tell(growths[-1].group, documents, 0)
        return documents

    def _define(self, group: NodeGroup) -> None:
        """Write a group's manifest, after those that it is made from."""
        if group.name in self.writer.manifests and not self._is_other(group):
            self._extend(group)
            return
        definition = definition_of(group)
        for name in (definition.parent, definition.ref):
            if name and name != group.name and (name != DOCUMENT) and name not in self.writer.manifests:
                self._define(group.corpus.group(name))
        manifest = manifest_of(group.name, definition, self._analyzer(), self.writer.manifests)
        self.writer.redefine(group.name, manifest)
        self.definitions[group.name] = definition

    def _extend(self, group: NodeGroup) -> None:
        """Embed the nodes of a group that is there in further ways."""
        there, definition = self.writer.manifests[group.name], group.definition
        if definition is None or not (more := lacking(definition, there)):
            return
        manifest = there.but(embeddings=(*there.embeddings, *map(embedded, more)))
        self.writer.redefine(group.name, manifest, keep_nodes=True)
        embedders = tuple(how.embedder for how in more)
        self.extended.append(Growth(group.name, definition.transform, definition.parent, definition.ref, embedders))

    def _renew(self, growth: Growth) -> None:
        """A group is made of one that is built anew: its nodes end, its signature is another one."""
        manifests = self.writer.manifests
        made = signature(Definition(growth.transform, growth.parent, growth.ref), manifests)
        self.writer.redefine(growth.group, manifests[growth.group].but(signature=made))

    def _is_other(self, group: NodeGroup) -> bool:
        if group.definition is None:
            return False
        if not self.rebuild:
            refuse_other(group, self.writer.manifests)
            return False
        return self.writer.manifests[group.name].signature != signature(group.definition, self.writer.manifests)

    def _with_those_below(self, names: Iterable[str]) -> set[str]:
        """Groups, and all that are made from them."""
        found = set(names)
        while more := {m.group for m in self.writer.manifests.values() if {m.parent, m.ref} & found} - found:
            found |= more
        return found

    def _analyzer(self) -> Analyzer:
        """That of the first group: the one for the store's language."""
        manifests = self.writer.manifests
        return next((manifests[name].analyzer for name in sorted(manifests, key=lambda n: n != "chunk")), Analyzer())

    def growth(self, manifest: Manifest) -> Growth:
        """How a group grows."""
        definition = self.definitions.get(manifest.group)
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

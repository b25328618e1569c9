"""Requested groups, compared with those of a store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from spolia.core.operator import Operator
from spolia.errors import GroupError, ManifestMismatch
from spolia.stores.definition import DOCUMENT, MAIN, Definition, Embedding, Metric
from spolia.stores.groups.group_build import with_those_below
from spolia.stores.groups.nodes import GroupBuild
from spolia.stores.indexes import IndexSettings
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import (
    BUILT_IN,
    GroupEmbedding,
    Manifest,
    between,
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

if TYPE_CHECKING:
    from spolia.stores.corpus import NodeGroup
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.stores.staging import AnyWriter


def definition_of(group: NodeGroup) -> Definition:
    """What a group is made of that a store does not have yet."""
    given = group.corpus.given
    found = group.definition or given.get(group.name) or built_in(group.name)
    if found is None:
        there = group.corpus.latest().manifests if group.corpus.exists() else ()
        raise unknown(group.name, group.corpus.path, {*there, *given})
    return found


def serves(group: NodeGroup, snapshot: Snapshot) -> bool:
    """Whether a group is built in a snapshot, with all the embeddings that are asked for."""
    if group.name not in snapshot.indexes:
        return False
    if group.definition is not None:
        refuse_other(group, snapshot.manifests)
        there = snapshot.manifests[group.name]
        if searched_otherwise(group.definition, there):
            here, asked = there.embeddings, map(embedded, group.definition.embeddings)
            raise ManifestMismatch(
                f"The vectors of group {group.name!r} of {group.corpus.path} are searched by "
                f"{', '.join(how.said for how in here)}, and you asked for {', '.join(how.said for how in asked)}. "
                "To change that for everybody, without embedding anything again, write materialise([group]); or ask "
                "for the stored way."
            )
        return not lacking(group.definition, there)
    return True


def lacking(definition: Definition, there: Manifest) -> list[Embedding]:
    """The embeddings of a definition that a group was not built with; they can be added at any time."""
    for how in definition.embeddings:
        refuse_namesakes(how.embedder, {there.group: there})
    return [how for how in definition.embeddings if there.embedded(how.embedder.name) is None]


def searched_otherwise(definition: Definition, there: Manifest) -> list[GroupEmbedding]:
    """The embeddings of a definition that a group has with another index or metric; that can be changed at any time."""
    wanted = [how for how in map(embedded, definition.embeddings) if not how.is_sparse]
    return [how for how in wanted if (found := there.embedded(how.embedder)) and _searched(found) != _searched(how)]


def _searched(how: GroupEmbedding) -> tuple[Metric, IndexSettings]:
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
        "another name, or rebuild it: materialise([group], rebuild=True)."
    )


def refuse_to_shorten(group: str, there: Manifest, how: GroupEmbedding) -> None:
    """The cosine is computed of vectors of length 1, and those of another metric were taken as they came."""
    found = there.embedded(how.embedder)
    if how.metric == "cosine" and found is not None and found.metric != "cosine":
        raise GroupError(
            f"The vectors of group {group!r} by {how.embedder!r} are compared by {found.metric}, and were taken as the "
            "embedder gave them; the cosine needs vectors of length 1. Keep the metric, or define another group."
        )


class GroupDefinitions:
    """Writes the manifests of groups of one store.

    Args:
        rebuild: build groups again whose definition has changed.
        beside: definitions of groups that are not to be changed, by name: others may have the same embedders.
    """

    def __init__(
        self,
        writer: AnyWriter,
        wanted: Iterable[NodeGroup],
        rebuild: bool,
        known: Iterable[Operator[Any, Any] | type] = (),
        beside: Mapping[str, Definition] | None = None,
    ) -> None:
        self.writer, self.rebuild, self.known = writer, rebuild, tuple(known)
        self.wanted = {group.name: group for group in by_name(wanted)}
        given = {group.name: group.definition for group in self.wanted.values() if group.definition is not None}
        self._given = {**(beside or {}), **given}
        self.definitions: dict[str, Definition] = {}  # of the groups that are built again
        self.built: list[GroupBuild] = []  # these, and those below them, in order
        self.to_embed: list[GroupBuild] = []  # groups that keep their nodes, with embedders that they did not have
        self._way: list[str] = []
        self._seen: set[str] = set()

    def define(self, *, renewed: Collection[str] = (), outdated: Iterable[str] = ()) -> None:
        """Write the manifests of the groups to build; from then on all documents count as not made in them."""
        for group in self.wanted.values():
            self._define(group)
        whole = {*self.definitions, *renewed}
        self.built = self._builds({*whole, *outdated})
        for build in self.built:
            self._renew(build, is_new=build.group in whole)

    def _builds(self, names: Iterable[str]) -> list[GroupBuild]:
        """How these groups and those below them grow, in order."""
        return [self._build(manifest) for manifest in with_those_below(names, in_order(self.writer.manifests))]

    def _define(self, group: NodeGroup) -> None:
        """Write a group's manifest, after those of the groups that it is made from."""
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
        """Embed the nodes of an existing group in further ways, and search its vectors as requested now."""
        there = self.writer.manifests[group.name]
        more, others = lacking(definition, there), searched_otherwise(definition, there)
        if not more and not others:
            return
        for how in others:
            refuse_to_shorten(group.name, there, how)
        by_name = {how.embedder: how for how in others}
        kept = (by_name.get(how.embedder, how) for how in there.embeddings)
        manifest = there.but(embeddings=(*kept, *map(embedded, more)))
        if manifest.by_picture != there.by_picture:  # other keys of vectors are other nodes to who reads the old ones
            self.writer.redefine(group.name, manifest)
            self.definitions[group.name] = definition
            return
        self.writer.redefine(group.name, manifest, keep_nodes=True)
        embedders = tuple(how.embedder for how in more)
        self.to_embed.append(GroupBuild(group.name, definition.transform, definition.parent, definition.ref, embedders))

    def _renew(self, build: GroupBuild, *, is_new: bool) -> None:
        """A group is made from one that is rebuilt: its nodes end, its signature changes."""
        there = self.writer.manifests[build.group]
        made = signature(Definition(build.transform, build.parent, build.ref), self.writer.manifests)
        if not is_new or there.signature != made:
            self.writer.redefine(build.group, there.but(signature=made))

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

    def _build(self, manifest: Manifest) -> GroupBuild:
        definition = self.definitions.get(manifest.group) or self._given.get(manifest.group)
        passed = [how.embedder for one in (*self._given.values(), *self.definitions.values()) for how in one.embeddings]
        try:
            transform = definition.transform if definition else transform_of(manifest, self.known)
            embedders = tuple(embedder_of(how, manifest.group, passed) for how in manifest.embeddings)
        except GroupError as error:
            below = f"{manifest.parent!r} and {manifest.ref!r}" if manifest.ref else f"{manifest.parent!r}"
            raise GroupError(
                f"Group {manifest.group!r} is made from {below}, and would be lost by rebuilding that. "
                f"Nothing was changed. {error} {ways_out(manifest.group)}"
            ) from error
        way = between(manifest, self.writer.manifests)
        return GroupBuild(manifest.group, transform, manifest.parent, manifest.ref, embedders, between=way)


def ways_out(group: str) -> str:
    """What to do about a group that cannot be made here."""
    return f"If it is not needed any more: spolia groups drop {group}, or in Python writer.drop({group!r})."


def by_name(groups: Iterable[NodeGroup]) -> list[NodeGroup]:
    """Each group once; definitions of a group that is named twice are merged."""
    found: dict[str, NodeGroup] = {}
    for group in groups:
        before = found.get(group.name)
        if before is None or before.definition is None:
            found[group.name] = group
        elif group.definition not in (None, before.definition):
            raise GroupError(f"Group {group.name!r} is asked for with two definitions. Give one of them another name.")
    return list(found.values())


def unknown(name: str, store: object, there: Iterable[str]) -> GroupError:
    """What to raise for a group that a store does not have, nobody defines, and that is not built in."""
    known = sorted({*there, *BUILT_IN})
    if name == MAIN:
        return GroupError(
            f"{store} has no node group {name!r}, into which documents are put. Write: spolia index FOLDER --store "
            f"{store}, in Python sync(FOLDER, corpus). There are {', '.join(known)}."
        )
    return GroupError(
        f"There is no node group {name!r} in {store}, and none is built in by this name.{meant(name, known)} There are "
        f"{', '.join(known)}. One of your own: corpus.group({name!r}, Definition(...)), which the store keeps once "
        f"it is built; on the command line spolia groups add {name} --from FILE, or spolia groups build {name} --known "
        "FILE.py."
    )


def meant(name: str, there: Sequence[str]) -> str:
    """The nearest of some names as a question, with a blank before it; nothing where none is near."""
    return "".join(f" Did you mean {found}?" for found in get_close_matches(name, there, 1))

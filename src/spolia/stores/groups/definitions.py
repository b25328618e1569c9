"""Definitions of requested groups, compared with those of a store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from spolia.core.operator import Operator
from spolia.errors import GroupError, ManifestMismatch
from spolia.stores.definition import DOCUMENT, MAIN, Definition, Embedding, Metric
from spolia.stores.groups.addresses import G, GroupAddress
from spolia.stores.groups.group_build import with_descendants
from spolia.stores.groups.nodes import GroupBuild
from spolia.stores.indexes import IndexSettings
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import (
    BUILT_IN,
    GroupEmbedding,
    Manifest,
    built_in,
    embedder_of,
    group_embedding,
    groups_between,
    index_of,
    manifest_of,
    refuse_namesakes,
    signature,
    sort_groups,
    transform_of,
)

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.stores.staging import AnyWriter


def definition_of(group: GroupAddress) -> Definition:
    """Return the definition of a group that a store does not have yet."""
    definitions = group.corpus.definitions
    definition = group.definition or definitions.get(group.name) or built_in(group.name)
    if definition is None:
        stored = group.corpus.latest().manifests if group.corpus.exists() else ()
        raise unknown_group(group.name, group.corpus.path, {*stored, *definitions})
    return definition


def serves(group: GroupAddress, snapshot: Snapshot) -> bool:
    """Return whether a group is built in a snapshot, with all the embeddings that are asked for."""
    if group.name not in snapshot.indexes:
        return False
    if group.definition is not None:
        refuse_other_definition(group, snapshot.manifests)
        manifest = snapshot.manifests[group.name]
        if changed_embeddings(group.definition, manifest):
            stored, requested = manifest.embeddings, map(group_embedding, group.definition.embeddings)
            raise ManifestMismatch(
                f"The vectors of group {group.name!r} of {group.corpus.path} are searched by "
                f"{', '.join(embedding.description for embedding in stored)}, and you asked for "
                f"{', '.join(embedding.description for embedding in requested)}. To change that for everybody, without "
                "embedding anything again, write materialise([group]); or ask for the stored way."
            )
        return not missing_embeddings(group.definition, manifest)
    return True


def missing_embeddings(definition: Definition, manifest: Manifest) -> list[Embedding]:
    """Return the embeddings of a definition that a group was not built with; they can be added at any time."""
    for embedding in definition.embeddings:
        refuse_namesakes(embedding.embedder, {manifest.group: manifest})
    return [
        embedding for embedding in definition.embeddings if manifest.find_embedding(embedding.embedder.name) is None
    ]


def changed_embeddings(definition: Definition, manifest: Manifest) -> list[GroupEmbedding]:
    """Return the embeddings of a definition that a group has with another index or metric; that can be changed at any
    time."""
    requested = [embedding for embedding in map(group_embedding, definition.embeddings) if not embedding.is_sparse]
    return [
        embedding
        for embedding in requested
        if (stored := manifest.find_embedding(embedding.embedder))
        and _search_settings(stored) != _search_settings(embedding)
    ]


def _search_settings(embedding: GroupEmbedding) -> tuple[Metric, IndexSettings]:
    return embedding.metric, index_of(embedding)


def refuse_other_definition(group: GroupAddress, manifests: dict[str, Manifest]) -> None:
    """Raise `ManifestMismatch` if a group of this name is there and made of something else."""
    manifest, definition = manifests[group.name], group.definition
    assert definition is not None
    if manifest.signature == signature(definition, manifests):
        return
    requested = manifest_of(group.name, definition, manifest.analyzer, manifests, manifest.reader)
    differences = "; ".join(
        manifest.but(analyzer=requested.analyzer, embeddings=requested.embeddings).differences(requested)
    )
    raise ManifestMismatch(
        f"Group {group.name!r} of {group.corpus.path} is made in another way than is asked for: {differences}. Give it "
        "another name, or rebuild it: materialise([group], rebuild=True)."
    )


def refuse_cosine(group: str, manifest: Manifest, embedding: GroupEmbedding) -> None:
    """Raise GroupError for a change to cosine, which needs vectors of length 1: those of another metric were stored as
    they came."""
    stored = manifest.find_embedding(embedding.embedder)
    if embedding.metric == "cosine" and stored is not None and stored.metric != "cosine":
        raise GroupError(
            f"The vectors of group {group!r} by {embedding.embedder!r} are compared by {stored.metric}, and were taken "
            "as the embedder gave them; the cosine needs vectors of length 1. Keep the metric, or define another group."
        )


class GroupDefinitions:
    """Manifests of requested groups, written to one store.

    Args:
        rebuild: build groups again whose definition has changed.
        other_definitions: definitions of groups that stay as they are, by name; they may have the same embedders.
    """

    def __init__(
        self,
        writer: AnyWriter,
        groups: Iterable[GroupAddress],
        rebuild: bool,
        known_operators: Iterable[Operator[Any, Any] | type] = (),
        other_definitions: Mapping[str, Definition] | None = None,
    ) -> None:
        self.writer, self.rebuild, self.known_operators = writer, rebuild, tuple(known_operators)
        self.groups = {group.name: group for group in merge_groups(groups)}
        definitions = {group.name: group.definition for group in self.groups.values() if group.definition is not None}
        self._passed_definitions = {**(other_definitions or {}), **definitions}
        self.definitions: dict[str, Definition] = {}  # of the groups that are built again
        self.built: list[GroupBuild] = []  # these, and those below them, in order
        self.to_embed: list[GroupBuild] = []  # groups that keep their nodes, with embedders that they did not have
        self._path: list[str] = []
        self._visited: set[str] = set()

    def define(self, *, renewed: Collection[str] = (), outdated: Iterable[str] = ()) -> None:
        """Write the manifests of the groups to build; from then on all documents count as not made in them."""
        for group in self.groups.values():
            self._define(group)
        rebuilt = {*self.definitions, *renewed}
        self.built = self._builds({*rebuilt, *outdated})
        for build in self.built:
            self._renew(build, is_new=build.group in rebuilt)

    def _builds(self, names: Iterable[str]) -> list[GroupBuild]:
        """Return the builds of these groups and of those below them, in order."""
        return [self._build(manifest) for manifest in with_descendants(names, sort_groups(self.writer.manifests))]

    def _define(self, group: GroupAddress) -> None:
        """Write a group's manifest, after those of the groups that it is made from."""
        if group.name in self._visited:
            return
        if group.name in self._path:
            circle = " → ".join([*self._path[self._path.index(group.name) :], group.name])
            raise GroupError(f"The groups are made from each other in a circle: {circle}. Change a parent or a ref.")
        self._path.append(group.name)
        is_there = group.name in self.writer.manifests
        definition = group.definition if is_there else definition_of(group)
        for name in (definition.parent, definition.ref) if definition else ():
            if name and name != DOCUMENT and (name in self.groups or name not in self.writer.manifests):
                self._define(self.groups.get(name) or group.corpus.group(name))
        self._path.pop()
        self._visited.add(group.name)
        if definition is not None and is_there and not self._is_other(group):
            self._extend(group, definition)
        elif definition is not None:
            manifest = manifest_of(group.name, definition, self._store_analyzer(), self.writer.manifests)
            self.writer.redefine(group.name, manifest)
            self.definitions[group.name] = definition

    def _extend(self, group: GroupAddress, definition: Definition) -> None:
        """Add embeddings to the nodes of an existing group, and search its vectors as requested now."""
        stored = self.writer.manifests[group.name]
        added, changed = missing_embeddings(definition, stored), changed_embeddings(definition, stored)
        if not added and not changed:
            return
        for embedding in changed:
            refuse_cosine(group.name, stored, embedding)
        replacements = {embedding.embedder: embedding for embedding in changed}
        embeddings = (replacements.get(embedding.embedder, embedding) for embedding in stored.embeddings)
        manifest = stored.but(embeddings=(*embeddings, *map(group_embedding, added)))
        if manifest.by_picture != stored.by_picture:  # other keys of vectors are other nodes to who reads the old ones
            self.writer.redefine(group.name, manifest)
            self.definitions[group.name] = definition
            return
        self.writer.redefine(group.name, manifest, keep_nodes=True)
        embedders = tuple(embedding.embedder for embedding in added)
        self.to_embed.append(GroupBuild(group.name, definition.transform, definition.parent, definition.ref, embedders))

    def _renew(self, build: GroupBuild, *, is_new: bool) -> None:
        """End the nodes of a group that is made from a rebuilt one, and change its signature."""
        manifest = self.writer.manifests[build.group]
        new_signature = signature(Definition(build.transform, build.parent, build.ref), self.writer.manifests)
        if not is_new or manifest.signature != new_signature:
            self.writer.redefine(build.group, manifest.but(signature=new_signature))

    def _is_other(self, group: GroupAddress) -> bool:
        assert group.definition is not None
        if not self.rebuild:
            refuse_other_definition(group, self.writer.manifests)
            return False
        return self.writer.manifests[group.name].signature != signature(group.definition, self.writer.manifests)

    def _store_analyzer(self) -> Analyzer:
        """Return the analyzer of the first group: the one for the store's language."""
        manifests = self.writer.manifests
        return next((manifests[name].analyzer for name in sorted(manifests, key=lambda n: n != "chunk")), Analyzer())

    def _build(self, manifest: Manifest) -> GroupBuild:
        definition = self.definitions.get(manifest.group) or self._passed_definitions.get(manifest.group)
        known_embedders = [
            embedding.embedder
            for item in (*self._passed_definitions.values(), *self.definitions.values())
            for embedding in item.embeddings
        ]
        try:
            transform = definition.transform if definition else transform_of(manifest, self.known_operators)
            embedders = tuple(
                embedder_of(embedding, manifest.group, known_embedders) for embedding in manifest.embeddings
            )
        except GroupError as error:
            parents = f"{manifest.parent!r} and {manifest.ref!r}" if manifest.ref else f"{manifest.parent!r}"
            raise GroupError(
                f"Group {manifest.group!r} is made from {parents}, and would be lost by rebuilding that. "
                f"Nothing was changed. {error} {removal_advice(manifest.group)}"
            ) from error
        between_groups = groups_between(manifest, self.writer.manifests)
        return GroupBuild(manifest.group, transform, manifest.parent, manifest.ref, embedders, between=between_groups)


def removal_advice(group: str) -> str:
    """Advise what to do about a group that cannot be made here."""
    return f"If it is not needed any more: spolia groups drop {group}, or in Python writer.drop({group!r})."


def merge_groups(groups: Iterable[G]) -> list[G]:
    """Return each group once; definitions of a group that is named twice are merged."""
    merged: dict[str, G] = {}
    for group in groups:
        earlier = merged.get(group.name)
        if earlier is None or earlier.definition is None:
            merged[group.name] = group
        elif group.definition not in (None, earlier.definition):
            raise GroupError(f"Group {group.name!r} is asked for with two definitions. Give one of them another name.")
    return list(merged.values())


def unknown_group(name: str, store: object, names: Iterable[str]) -> GroupError:
    """Build the error for a group that a store does not have, nobody defines, and that is not built in."""
    known_names = sorted({*names, *BUILT_IN})
    if name == MAIN:
        return GroupError(
            f"{store} has no node group {name!r}, into which documents are put. Write: spolia index FOLDER --store "
            f"{store}, in Python sync(FOLDER, corpus). There are {', '.join(known_names)}."
        )
    return GroupError(
        f"There is no node group {name!r} in {store}, and none is built in by this "
        f"name.{suggest_name(name, known_names)} There are {', '.join(known_names)}. One of your own: "
        f"corpus.group({name!r}, Definition(...)), which the store keeps once it is built; on the command line spolia "
        f"groups add {name} --from FILE, or spolia groups build {name} --known FILE.py."
    )


def suggest_name(name: str, names: Sequence[str]) -> str:
    """Return the nearest of some names as a question, with a blank before it; empty where none is near."""
    return "".join(f" Did you mean {match}?" for match in get_close_matches(name, names, 1))

"""What is asked for of a group, beside what a store has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spolia.errors import GroupError, ManifestMismatch
from spolia.stores.defined import built_in, embedded, index_of, manifest_of, refuse_namesakes, signature
from spolia.stores.definition import Definition, Embedding, Metric
from spolia.stores.groups.unknown import unknown
from spolia.stores.indexes import IndexSettings
from spolia.stores.manifest import GroupEmbedding, Manifest

if TYPE_CHECKING:
    from spolia.stores.corpus import NodeGroup
    from spolia.stores.snapshot.snapshot import Snapshot


def definition_of(group: NodeGroup) -> Definition:
    """What a group is made of that a store does not have yet.

    Raises:
        GroupError: nobody says it.
    """
    given = group.corpus.given
    found = group.definition or given.get(group.name) or built_in(group.name)
    if found is None:
        there = group.corpus.latest().manifests if group.corpus.exists() else ()
        raise unknown(group.name, group.corpus.path, {*there, *given})
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
        "another name, or build it anew: materialise([group], rebuild=True)."
    )


def refuse_to_shorten(group: str, there: Manifest, how: GroupEmbedding) -> None:
    """The cosine is computed of vectors of length 1, and those of another metric were taken as they came."""
    found = there.embedded(how.embedder)
    if how.metric == "cosine" and found is not None and found.metric != "cosine":
        raise GroupError(
            f"The vectors of group {group!r} by {how.embedder!r} are compared by {found.metric}, and were taken as the "
            "embedder gave them; the cosine needs vectors of length 1. Keep the metric, or define another group."
        )

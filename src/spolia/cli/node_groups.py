"""Node groups on the command line: their names, what they are made of as data and as a tree, and how they are built."""

from collections.abc import Iterable
from json import loads
from typing import Any

from spolia.cli.user_modules import UserModules
from spolia.errors import GroupError
from spolia.stores.corpus import Corpus
from spolia.stores.groups.definitions import suggest_name, unknown_group
from spolia.stores.manifest import BUILT_IN, Manifest
from spolia.stores.snapshot.snapshot import Snapshot

DOCUMENT = "document"


def refuse_unknown(corpus: Corpus, names: Iterable[str], user_modules: UserModules) -> None:
    """Refuse groups that the store does not have, nobody defines, and that are not built in."""
    known_names = {*corpus.latest().manifests, *user_modules.groups}
    for name in names:
        if name not in known_names and name not in BUILT_IN:
            raise unknown_group(name, corpus.path, known_names)


def refuse_unbuilt(snapshot: Snapshot, name: str) -> None:
    """Refuse a group that the store does not have, though it may be built in."""
    names, store = list(snapshot.manifests), snapshot.open_store.store
    if name in names:
        return
    if name in BUILT_IN:
        raise GroupError(
            f"Group {name!r} is not built in {store} yet. Write: spolia groups build {name} --store {store}"
        )
    raise GroupError(
        f"There is no node group {name!r} in {store}.{suggest_name(name, [*names, *BUILT_IN])} It has: "
        f"{', '.join(names)}; `spolia groups list` also lists groups that can be built."
    )


def refuse_undroppable(snapshot: Snapshot, name: str) -> None:
    """Refuse to drop a group that the store does not have."""
    if name not in snapshot.manifests and name in BUILT_IN:
        raise GroupError(f"Group {name!r} is not built in {snapshot.open_store.store}, so it cannot be dropped.")
    refuse_unbuilt(snapshot, name)


def group_data(manifest: Manifest, nodes: int) -> dict[str, Any]:
    return {
        "group": manifest.group,
        "transform": loads(manifest.definition) if manifest.definition else manifest.transform,
        "parent": manifest.parent,
        "ref": manifest.ref,
        "embeddings": [
            {
                "embedder": embedding.embedder,
                "plain": loads(embedding.plain) if embedding.plain else None,
                "metric": embedding.metric,
                "index": loads(embedding.index),
            }
            for embedding in manifest.embeddings
        ],
        "nodes": nodes,
    }


def definition_data(data: dict[str, Any]) -> dict[str, Any]:
    """Return a group as the definition in a file, without what has its default."""
    embeddings = [
        {"embedder": embedding["plain"] or embedding["embedder"]}
        | ({"metric": embedding["metric"]} if embedding["metric"] != "cosine" else {})
        | ({"index": embedding["index"]} if embedding["index"] != "HNSW" else {})
        for embedding in data["embeddings"]
    ]
    definition = {
        "transform": data["transform"],
        "parent": data["parent"],
        "ref": data["ref"],
        "embeddings": embeddings,
    }
    return {name: value for name, value in definition.items() if value and (name, value) != ("parent", DOCUMENT)}

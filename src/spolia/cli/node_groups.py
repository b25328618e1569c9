"""Node groups on the command line: their names, what they are made of as data and as a tree, and how they are built."""

from collections.abc import Iterable
from json import loads
from typing import Any

from spolia.cli.user_modules import UserModules
from spolia.errors import GroupError
from spolia.stores.corpus import Corpus
from spolia.stores.groups.definitions import meant, unknown
from spolia.stores.manifest import BUILT_IN, Manifest
from spolia.stores.snapshot.snapshot import Snapshot

DOCUMENT = "document"


def refuse_unknown(corpus: Corpus, names: Iterable[str], mine: UserModules) -> None:
    """Refuse groups that the store does not have, nobody defines, and that are not built in."""
    there = {*corpus.latest().manifests, *mine.groups}
    for name in names:
        if name not in there and name not in BUILT_IN:
            raise unknown(name, corpus.path, there)


def refuse_unbuilt(snapshot: Snapshot, name: str) -> None:
    """Refuse a group that the store does not have, though it may be built in."""
    there, store = list(snapshot.manifests), snapshot.opened.store
    if name in there:
        return
    if name in BUILT_IN:
        raise GroupError(
            f"Group {name!r} is not built in {store} yet. Write: spolia groups build {name} --store {store}"
        )
    raise GroupError(
        f"There is no node group {name!r} in {store}.{meant(name, [*there, *BUILT_IN])} It has: {', '.join(there)}; "
        f"`spolia groups list` also lists groups that can be built."
    )


def refuse_undroppable(snapshot: Snapshot, name: str) -> None:
    """Refuse to drop a group that the store does not have."""
    if name not in snapshot.manifests and name in BUILT_IN:
        raise GroupError(f"Group {name!r} is not built in {snapshot.opened.store}, so it cannot be dropped.")
    refuse_unbuilt(snapshot, name)


def group_data(manifest: Manifest, nodes: int) -> dict[str, Any]:
    return {
        "group": manifest.group,
        "transform": loads(manifest.definition) if manifest.definition else manifest.transform,
        "parent": manifest.parent,
        "ref": manifest.ref,
        "embeddings": [
            {
                "embedder": how.embedder,
                "plain": loads(how.plain) if how.plain else None,
                "metric": how.metric,
                "index": loads(how.index),
            }
            for how in manifest.embeddings
        ],
        "nodes": nodes,
    }


def definition_data(data: dict[str, Any]) -> dict[str, Any]:
    """A group as the definition in a file; what has its default is left out."""
    embeddings = [
        {"embedder": how["plain"] or how["embedder"]}
        | ({"metric": how["metric"]} if how["metric"] != "cosine" else {})
        | ({"index": how["index"]} if how["index"] != "HNSW" else {})
        for how in data["embeddings"]
    ]
    found = {"transform": data["transform"], "parent": data["parent"], "ref": data["ref"], "embeddings": embeddings}
    return {name: value for name, value in found.items() if value and (name, value) != ("parent", DOCUMENT)}

"""Kill ingestions of a store with a database.

    python -m tests.stores.database_kills LanceDB FOLDER --random COUNT SEED

Of what is wrong after that is also told in what the database differs from the backend; see `tests.stores.kills`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np

from spolia.core.codec import encode
from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.backends import sql
from spolia.stores.corpus import Corpus
from spolia.stores.files import DATABASES as FOLDER
from spolia.stores.indexes import Database, IndexSettings
from spolia.stores.manifest import GroupEmbedding, index_of
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.external_index import collection_name
from tests.stores import scenario
from tests.stores.adapters.kills import DATABASES, stored_vectors
from tests.stores.kills import PUTTING, main


def read_database(snapshot: Snapshot, group: str) -> tuple[list[int], dict[int, Vectors] | None]:
    """The keys that the database of a group's first embedding holds; and the vectors, where it tells them."""
    manifest = snapshot.manifest(group)
    embedding = manifest.embeddings[0]
    settings = index_of(embedding)
    assert isinstance(settings, Database)
    name = collection_name(snapshot.open_store.uuid, manifest, embedding)
    index = settings.open(snapshot.open_store.folder / FOLDER, name, embedding.dimension, embedding.metric)
    try:
        return sorted(index.keys()), stored_vectors(index)
    finally:
        index.close()


def list_differences(corpus: Corpus, group: str) -> list[str]:
    """In what a database is not as the backend, after somebody has opened the store to write.

    It may hold what has died with what is published, until the next publication: others may still read what was before.
    """
    with corpus.writer():
        pass
    snapshot = corpus.snapshot()
    everything = Allowed(snapshot.allowed(group, frozenset()).keys)
    live = everything.keys.tolist()
    dead = [key for (key,) in snapshot.open_store.rows(sql.DEAD_BEFORE, {"grp": group, "at": sql.ALIVE})]
    keys, vectors = read_database(snapshot, group)
    if len(keys) != len(set(keys)) or not set(live) <= set(keys) <= {*live, *dead}:
        return [f"keys {sorted(set(keys) ^ set(live))[:5]}, and {len(keys) - len(set(keys))} twice"]
    meant = snapshot.vectors(group, snapshot.manifest(group).embeddings[0].embedder, everything)
    if vectors is None:
        return []
    return [
        f"vector of {key}"
        for key, vector in zip(live, meant, strict=True)
        if not np.allclose(vectors[key], vector, atol=1e-5)
    ]


def in_chunks(corpus: Corpus) -> list[str]:
    """`differing` for what the scenario embeds."""
    return list_differences(corpus, "chunk") if "chunk" in corpus.snapshot().groups() else []


if __name__ == "__main__":
    settings = DATABASES[sys.argv[1]]
    import_module(settings.module)
    how = GroupEmbedding(scenario.EMBEDDER, scenario.DIMENSION, index=json.dumps(encode(settings, IndexSettings)))
    scenario.MANIFEST = scenario.MANIFEST.but(embeddings=(how,))
    main(Path(sys.argv[2]), sys.argv[3:], replace(PUTTING, beside=in_chunks))

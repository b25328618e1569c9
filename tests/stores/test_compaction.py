"""Joining segments and building graphs beside readers and writers: what is found stays, also when it is killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from spolia.core.codec import encode
from spolia.stores import files
from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.backends import sql
from spolia.stores.backends.rows import SourceRow, hash_of
from spolia.stores.corpus import Corpus
from spolia.stores.indexes import HNSW
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.stores.open_store import get_open_store
from spolia.stores.vectors import segments
from spolia.stores.vectors.graphs import build_graph
from spolia.stores.vectors.segment_search import GraphSearch, vector_search
from spolia.stores.writer import Writer, compact
from spolia.testing.stores.fixtures import ALL
from spolia.types import Document, Node, Span
from tests.stores.vector_fixtures import drawn_vectors

EMBEDDER, DIMENSION = "drawn/1", 12
WANTED = HNSW(expansion_add=64, expansion_search=64, above=100)
MANIFEST = Manifest("line", embeddings=(GroupEmbedding(EMBEDDER, DIMENSION, index=json.dumps(encode(WANTED))),))
QUERIES = drawn_vectors(4, DIMENSION, 8)
pytestmark = pytest.mark.slow


def put(writer: Writer, number: int) -> None:
    """A document of 40 nodes, with their vectors."""
    id, lines = f"d{number}", [f"Line {line} of {number}.\n" for line in range(40)]
    starts = np.cumsum([0, *map(len, lines)]).tolist()
    nodes = [
        Node(f"{id}:{index}", line, id, "line", span=Span(starts[index], starts[index + 1]), number=index)
        for index, line in enumerate(lines)
    ]
    writer.put_document(Document(id, "".join(lines), uri=id), nodes, SourceRow(id, content_hash=id))
    hashes = [hash for hash, _ in writer.unembedded("line", EMBEDDER)]
    writer.add_vectors(EMBEDDER, hashes, drawn_vectors(len(hashes), DIMENSION, number))


@pytest.fixture
def loose_corpus(fast_folder: Path) -> Corpus:
    """Five segments of 40 vectors each, as five commits left them."""
    corpus = Corpus(str(fast_folder / "loose.spolia")).create()
    for number in range(5):
        writer = Writer(corpus.backend, 10)
        writer.define("line", MANIFEST)
        put(writer, number)
        writer.publish()
        writer.close()
    assert counts(corpus) == [40] * 5
    return corpus


def counts(corpus: Corpus) -> list[int]:
    return [count for _, _, count, _ in get_open_store(corpus.backend).rows(sql.SEGMENTS_OF, (EMBEDDER,))]


def find_neighbours(corpus: Corpus) -> list[Any]:
    search = vector_search(corpus.snapshot(), "line", EMBEDDER, "cosine", WANTED)
    return [search.search(QUERIES[index : index + 1], 10, Allowed(search.placed.keys)) for index in range(len(QUERIES))]  # type: ignore[attr-defined]


def test_what_many_commits_left_is_one_segment_with_a_graph(loose_corpus: Corpus) -> None:
    previous_hits, reader = find_neighbours(loose_corpus), loose_corpus.snapshot()
    generation = compact(loose_corpus.backend, loose_corpus.latest().manifests, 10)
    assert generation == reader.generation + 1 == loose_corpus.latest().generation
    assert counts(loose_corpus) == [200]
    search = vector_search(loose_corpus.latest(), "line", EMBEDDER, "cosine", WANTED)
    assert isinstance(search, GraphSearch)
    assert search.graphs[0]() is not None
    assert find_neighbours(loose_corpus) == previous_hits
    assert loose_corpus.latest().check() == []
    assert len(list((Path(loose_corpus.path) / files.VECTORS).glob("*/*"))) == 1, "the files of the old ones are gone"
    assert compact(loose_corpus.backend, loose_corpus.latest().manifests, 10) == 0, "nothing is left to do"


def test_others_commit_while_segments_are_joined(loose_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = Event(), Event()

    def waiting(*given: Any) -> None:
        begun.set()
        assert go.wait(600)
        build_graph(*given)

    monkeypatch.setattr("spolia.stores.vectors.compaction.build_graph", waiting)
    thread = Thread(target=compact, args=(loose_corpus.backend, loose_corpus.latest().manifests, 10))
    thread.start()
    assert begun.wait(600)
    monkeypatch.setattr(segments, "SMALL_SEGMENTS", 3)  # joins what is being joined
    with loose_corpus.writer(timeout_s=5) as writer:
        writer.remove("d1")
        put(writer, 9)
    go.set()
    thread.join()
    assert loose_corpus.latest().check() == []
    assert {node.document for node in loose_corpus.latest().all_nodes("line")} == {"d0", "d2", "d3", "d4", "d9"}
    later_hits = find_neighbours(loose_corpus)
    compact(loose_corpus.backend, loose_corpus.latest().manifests, 10)
    assert find_neighbours(loose_corpus) == later_hits


@pytest.mark.parametrize("point", ["vectors.join", "graphs.rename", "vectors.joined", "vectors.move", "vectors.move@3"])
def test_killed_anywhere_every_vector_stays(loose_corpus: Corpus, point: str) -> None:
    previous_hits = find_neighbours(loose_corpus)
    if (child := os.fork()) == 0:
        try:
            files.arm(point)
            compact(loose_corpus.backend, loose_corpus.latest().manifests, 10)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert find_neighbours(loose_corpus) == previous_hits
    assert loose_corpus.latest().check() == []
    with loose_corpus.writer() as writer:
        writer.remove("d4")
    later_hits = find_neighbours(loose_corpus)
    compact(loose_corpus.backend, loose_corpus.latest().manifests, 10)
    assert find_neighbours(loose_corpus) == later_hits
    assert loose_corpus.latest().check() == []
    assert not list((Path(loose_corpus.path) / files.GRAPHS).glob("*/000000*"))


def test_vectors_that_were_replaced_are_not_joined(loose_corpus: Corpus) -> None:
    nodes = [node for node in loose_corpus.snapshot().all_nodes("line") if node.document == "d0"][:10]
    vectors = drawn_vectors(10, DIMENSION, 99)
    writer = Writer(loose_corpus.backend, 10)
    writer.replace_vectors(EMBEDDER, [hash_of(node.text) for node in nodes], [vectors])
    writer.publish()
    writer.close()
    assert counts(loose_corpus) == [*[40] * 5, 10]
    compact(loose_corpus.backend, loose_corpus.latest().manifests, 10)
    assert counts(loose_corpus) == [200]
    search = vector_search(loose_corpus.latest(), "line", EMBEDDER, "cosine", WANTED)
    near = [search.search(vector[None], 1, Allowed(search.placed.keys))[0][0] for vector in vectors]  # type: ignore[attr-defined]
    assert [node.id for node in loose_corpus.latest().nodes([key for key, _ in near], ALL)] == [
        node.id for node in nodes
    ]
    assert [round(score, 5) for _, score in near] == [1.0] * 10
    assert loose_corpus.latest().check(deep=True) == []

"""Vector databases beside a store follow what is published, and graphs are built over large segments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spolia.indexing.splitters.text_units import Sentences
from spolia.indexing.sync.sync import sync
from spolia.retrieval.dense import Dense
from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.adapters.chroma import Chroma
from spolia.stores.adapters.lancedb import LanceDB
from spolia.stores.adapters.qdrant import Qdrant
from spolia.stores.backends.rows import hash_of
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.definition import Definition, Embedding
from spolia.stores.groups.materialise import materialise
from spolia.stores.indexes import HNSW, Database, Exact, IndexSettings
from spolia.stores.vectors import external_index
from spolia.stores.vectors.external_index import REPLACES, ExternalIndexes
from spolia.stores.vectors.segment_search import ExactSearch, locate_vectors
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Query
from tests.stores.database_kills import list_differences

pytestmark = pytest.mark.slow

EMBEDDER = HashingEmbedder(32)
DATABASES: list[Database] = [LanceDB(), Chroma(), Qdrant()]
WORDS = ["stone", "road", "arch", "bridge", "wall", "tower", "gate", "column", "temple", "forum", "bath", "market"]


def fill(folder: Path, count: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(count):
        pairs = ((WORDS[number % 12], WORDS[(number + step) % 12]) for step in range(1, 6))
        (folder / f"{number}.txt").write_text(" ".join(f"The {word} {number} and the {two}." for word, two in pairs))


@pytest.fixture(params=DATABASES, ids=lambda settings: type(settings).__name__)
def settings(request: pytest.FixtureRequest) -> Database:
    database: Database = request.param
    pytest.importorskip(database.module)
    return database


def group_of(corpus: Corpus, index: IndexSettings, name: str = "sentence") -> NodeGroup:
    return corpus.group(name, Definition(Sentences(), embeddings=(Embedding(EMBEDDER, index),)))


def search_texts(group: NodeGroup, text: str) -> list[tuple[str, float]]:
    return [(hit.node.text, round(hit.score, 9)) for hit in Dense(group, EMBEDDER, top_k=5)(Query(text))]


def test_a_database_answers_as_exact_search_does_and_follows(
    tmp_path: Path, settings: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_index, "_COMPARED", 0)
    corpus, folder = Corpus(str(tmp_path / "notes.spolia")), tmp_path / "docs"
    fill(folder, 20)
    groups = [group_of(corpus, settings), group_of(corpus, Exact(), "exact")]
    sync(folder, corpus, groups=groups)
    for text in ("the arch and the bridge", "a tower"):
        assert [score for _, score in search_texts(groups[0], text)] == [
            score for _, score in search_texts(groups[1], text)
        ]
    (folder / "3.txt").write_text("Something else about aqueducts.")
    (folder / "4.txt").unlink()
    sync(folder, corpus, groups=groups)
    assert search_texts(groups[0], "Something else about aqueducts.")[0][0] == "Something else about aqueducts."
    assert search_texts(groups[0], "the wall 4") == search_texts(groups[1], "the wall 4")
    assert corpus.snapshot().check() == []


def test_a_database_gets_the_vectors_that_take_the_place_of_others(tmp_path: Path, settings: Database) -> None:
    corpus, folder = Corpus(str(tmp_path / "notes.spolia")), tmp_path / "docs"
    fill(folder, 5)
    sync(folder, corpus, groups=[group_of(corpus, settings)])
    texts = {node.text: node.number for node in corpus.snapshot().all_nodes("sentence") if node.uri == "3.txt"}
    databases = ExternalIndexes(Path(corpus.path), corpus.backend.connect_for_reading(), corpus.latest().manifests)
    ((manifest, embedding, _),) = databases.indexed
    for prefix in ("Once ", "And again "):
        vectors = EMBEDDER.embed([f"{prefix}{number}" for number in texts.values()], kind="passage")
        with corpus.writer() as writer:
            writer.replace_vectors(EMBEDDER.name, list(map(hash_of, texts)), [vectors])
        keys = [key for key, _ in nearest_keys(corpus, vectors)]
        with databases._open_index(*databases.indexed[0]) as index:
            near = [row[0] for row in index.search(vectors, 1)]
        assert ([key for key, _ in near], [round(score, 5) for _, score in near]) == (keys, [1.0] * len(keys))
        databases._unsure_file(manifest, embedding).touch()  # the next writer compares all keys, as after a kill
    with databases._open_index(*databases.indexed[0]) as index:
        index.add(keys, EMBEDDER.embed(["never published"] * len(keys), kind="passage"))
    databases._unsure_file(manifest, embedding).write_text(
        REPLACES
    )  # as a writer leaves it that was killed while replacing
    (folder / "more.txt").write_text("One more.")
    sync(folder, corpus, groups=[group_of(corpus, settings)])
    with databases._open_index(*databases.indexed[0]) as index:
        assert [row[0][0] for row in index.search(vectors, 1)] == keys
    assert corpus.snapshot().check() == []


def nearest_keys(corpus: Corpus, vectors: Any) -> list[tuple[int, float]]:
    """The nearest node of each vector, by comparing every one."""
    placed, _ = locate_vectors(corpus.latest(), "sentence", EMBEDDER.name)
    return [row[0] for row in ExactSearch(placed).search(vectors, 1, Allowed(placed.keys))]


def writers(work: str, corpus: Corpus, settings: Database, folder: Path, points: Sequence[str]) -> None:
    """Kill a writer at each point, one after the other: forks of one process, which has imported what they need."""
    code = f"""
from importlib import import_module
from pathlib import Path
from spolia.stores import files
from tests.stores.kills import run_in_child, start_child, wait_for_child
from tests.stores.test_vector_databases import *
settings, folder = DATABASES[{DATABASES.index(settings)}], Path({str(folder)!r})
import_module(settings.module)
for point in {tuple(points)!r}:
    def work():
        files.arm(point)
        corpus = Corpus({corpus.path!r})
        {work}
    assert wait_for_child(start_child(work)) == -9, point
    assert run_in_child(lambda: Corpus({corpus.path!r}).snapshot().check(), folder.with_name("told")) == [], point
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize(
    ("settings", "points"),
    [
        (DATABASES[0], ("databases.follow", "databases.followed", "publish.commit")),
        *((database, ("databases.followed",)) for database in DATABASES[1:]),
    ],
    indirect=["settings"],
)
def test_a_killed_writer_leaves_a_database_that_the_next_one_mends(
    tmp_path: Path, settings: Database, points: Sequence[str]
) -> None:
    corpus, folder = Corpus(str(tmp_path / "notes.spolia")), tmp_path / "docs"
    fill(folder, 5)
    sync(folder, corpus)
    writers("materialise([group_of(corpus, settings)])", corpus, settings, folder, points)
    fill(folder, 3)
    (folder / "4.txt").unlink()
    sync(folder, corpus)
    materialise([group_of(corpus, settings)])
    assert corpus.snapshot().check() == []


@pytest.mark.parametrize("settings", DATABASES[:1], indirect=True)
def test_writers_killed_one_after_the_other_leave_what_readers_see_and_the_next_one_cleans_up(
    tmp_path: Path, settings: Database
) -> None:
    corpus, folder = Corpus(str(tmp_path / "notes.spolia")), tmp_path / "docs"
    fill(folder, 5)
    group = group_of(corpus, settings)
    sync(folder, corpus, groups=[group])
    (folder / "4.txt").unlink()
    (folder / "new.txt").write_text("A quarry is new.")
    points = ("databases.followed", "publish.commit", "databases.recovered", "publish.commit")
    writers("sync(folder, corpus, groups=[group_of(corpus, settings)], workers=0)", corpus, settings, folder, points)
    assert list(Path(corpus.path).glob("databases/*.unsure"))
    assert list_differences(corpus, "sentence") == []
    assert not list(Path(corpus.path).glob("databases/*.unsure"))
    sync(folder, corpus, groups=[group])
    assert search_texts(group, "A quarry is new.")[0][0] == "A quarry is new."
    assert corpus.snapshot().check() == []


def test_a_group_has_a_graph_where_it_is_large(tmp_path: Path) -> None:
    pytest.importorskip("usearch")
    corpus, folder = Corpus(str(tmp_path / "notes.spolia")), tmp_path / "docs"
    fill(folder, 30)
    groups = [group_of(corpus, HNSW(above=50)), group_of(corpus, Exact(), "exact")]
    sync(folder, corpus, groups=groups)
    assert list(Path(corpus.path).glob("graphs/*/*"))
    assert search_texts(groups[0], "the arch 7 and the temple") == search_texts(groups[1], "the arch 7 and the temple")
    assert corpus.snapshot().check() == []


def test_metrics_are_those_of_the_embedding(tmp_path: Path) -> None:
    corpus, folder = Corpus(str(tmp_path / "notes.spolia")), tmp_path / "docs"
    fill(folder, 4)
    sync(folder, corpus)
    scores: dict[str, Any] = {}
    for metric in ("cosine", "dot", "euclidean"):
        embedding = Embedding(EMBEDDER, Exact(), metric)
        scores[metric] = search_texts(
            corpus.group(metric, Definition(Sentences(), embeddings=(embedding,))), "the road 1"
        )
    assert [text for text, _ in scores["dot"]] == [text for text, _ in scores["euclidean"]]
    assert scores["cosine"] == scores["dot"]  # of vectors of length 1
    assert all(score <= 0 for _, score in scores["euclidean"])

"""A snapshot is one published generation: search, access, addresses."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spolia import stores
from spolia.errors import StoreError
from spolia.run import Run
from spolia.stores.backends.backend import Lease
from spolia.stores.corpus import Corpus
from spolia.stores.snapshot.snapshot import Snapshot
from tests.stores.scenario import EMBEDDER, MANIFEST, SECOND, add_missing_vectors, put, sync

BACKENDS = ("folder", "postgres")
NOBODY: frozenset[str] = frozenset()
ANN = frozenset(["ann", "bob"])


def texts(snapshot: Snapshot, text: str, access: frozenset[str] = NOBODY, top_k: int = 10) -> list[str]:
    return [hit.node.text for hit in snapshot.hits(snapshot.search("chunk", text, top_k, access), access)]


@pytest.mark.slow
def test_one_text_under_two_names_is_one_document_that_lives_as_long_as_one_of_them(corpus: Corpus) -> None:
    assert texts(corpus.snapshot(), "names") == ["One text under two names."]
    with corpus.writer() as writer:
        writer.remove("also.txt")
    (node,) = corpus.snapshot().nodes([corpus.snapshot().search("chunk", "names", 1, NOBODY)[0][0]], NOBODY)
    assert node.uri == "same.txt"
    with corpus.writer() as writer:
        writer.remove("same.txt")
    assert texts(corpus.snapshot(), "names") == []


@pytest.mark.slow
@pytest.mark.parametrize("address", ["folder"], indirect=True)  # it looks at files
def test_what_no_kept_generation_shows_is_gone(corpus: Corpus) -> None:
    for number in range(4):
        with corpus.writer() as writer:
            put(writer, "a.txt", f"Carsten Olsen, version {number}")
            add_missing_vectors(writer)
        corpus.snapshot()
    assert len(list((Path(corpus.path) / "lexical" / "chunk").iterdir())) == 2
    assert len(list((Path(corpus.path) / "pins").iterdir())) == 2
    rows = corpus.snapshot().open_store.rows("SELECT text FROM documents WHERE text LIKE 'Carsten%'")
    assert [text for (text,) in rows] == ["Carsten Olsen, version 2", "Carsten Olsen, version 3"]


@pytest.mark.slow
def test_a_run_sees_one_generation(corpus: Corpus) -> None:
    with Run():
        previous_fingerprint = corpus.fingerprint()
        sync(corpus, SECOND)
        assert corpus.fingerprint() == previous_fingerprint
        assert corpus.snapshot() is corpus.snapshot()
    assert corpus.fingerprint() != previous_fingerprint


@pytest.mark.slow
def test_addresses_are_plain_values(corpus: Corpus) -> None:
    group = corpus.group("chunk")
    assert pickle.loads(pickle.dumps(group)) == group
    assert group.fingerprint() == corpus.fingerprint()
    assert group.scoped
    assert corpus.scoped
    assert Corpus("nowhere.spolia").fingerprint() is None


@pytest.mark.slow
def test_an_unknown_group_is_refused_with_those_that_are_there(corpus: Corpus) -> None:
    with pytest.raises(StoreError, match=r"no node group 'chunks'\. It has: chunk\."):
        corpus.snapshot().search("chunks", "stones", 1, NOBODY)


@pytest.mark.slow
def test_equal_scores_are_ordered_by_id_wherever_the_cut_is(address: str) -> None:
    corpus = Corpus(address).create()
    for number in range(3):
        with corpus.writer() as writer:
            writer.define("chunk", MANIFEST)
            for i in range(20):
                put(writer, f"{number}/{i}", f"name{number}x{i} stone")
            add_missing_vectors(writer)
    snapshot = corpus.snapshot()
    everything = snapshot.search("chunk", "stone", 100, NOBODY)
    ids = [node.id for node in snapshot.nodes([key for key, _ in everything], NOBODY)]
    assert ids == sorted(ids)
    assert len(ids) == 60
    for top_k in (1, 7, 20, 59, 60):
        assert snapshot.search("chunk", "stone", top_k, NOBODY) == everything[:top_k]


@pytest.mark.slow
def test_a_term_asked_twice_counts_twice(corpus: Corpus) -> None:
    snapshot = corpus.snapshot()
    ((_, once),) = snapshot.search("chunk", "temples", 1, NOBODY)
    ((_, twice),) = snapshot.search("chunk", "temples temples", 1, NOBODY)
    assert twice == pytest.approx(2 * once, rel=1e-6)


@pytest.mark.slow
def test_a_vector_of_another_length_is_refused(corpus: Corpus) -> None:
    with pytest.raises(StoreError, match=r"shape \(1, 3\), those of the store have 8 numbers"):
        corpus.snapshot().nearest("chunk", EMBEDDER, np.ones(3, np.float32), 1, NOBODY)
    with pytest.raises(StoreError, match="NaN"):
        corpus.snapshot().nearest("chunk", EMBEDDER, np.full(8, np.nan, np.float32), 1, NOBODY)
    with pytest.raises(StoreError, match="no vectors by 'other'"):
        corpus.snapshot().nearest("chunk", "other", np.ones(8, np.float32), 1, NOBODY)


@pytest.mark.slow
def test_stats_count_what_is_there(corpus: Corpus) -> None:
    stats = corpus.snapshot().stats()
    assert (stats.generation, stats.documents, stats.sources) == (1, 4, (("indexed", 5),))
    assert (stats.nodes, stats.vectors) == ((("chunk", 6),), ((EMBEDDER, 6),))
    assert stats.bytes > 10_000


@pytest.mark.slow
def test_a_reader_whose_generation_was_swept_before_it_held_it_reads_the_next(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased = type(corpus.backend).lease

    def lease_late(store: Any, generation: int) -> Lease | None:
        if generation == 1:
            for number in range(3):
                with corpus.writer() as writer:
                    put(writer, "a.txt", f"Version {number}")
                    add_missing_vectors(writer)
        return leased(store, generation)

    monkeypatch.setattr(type(corpus.backend), "lease", lease_late)
    assert corpus.snapshot().generation == 4
    assert corpus.snapshot().check() == []


def test_no_other_module_knows_sql() -> None:
    words = ("SELECT ", "INSERT ", "UPDATE ", "DELETE FROM", "PRAGMA ", "CREATE TABLE")
    folder = Path(stores.__file__).parent
    outside = folder / "outside"  # databases of others, which are asked as they want to be
    own = [path for path in folder.rglob("*.py") if outside not in path.parents]
    spoken = {path.name for path in own if any(word in path.read_text() for word in words)}
    assert spoken == {"sql.py", "dialect.py"}

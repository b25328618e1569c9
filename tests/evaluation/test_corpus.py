"""A data set as a store: indexed once, kept by content."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from spolia.errors import DataError
from spolia.evaluation.data import passage_store
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import BATCH_SIZE, index_passages
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.measures.registry import parse_measures
from spolia.models.file_hash import cache_folder
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense
from spolia.stores.corpus import Corpus
from spolia.types import Query, Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

TEXTS = {
    "p1": ("Tides", "The moon pulls the sea."),
    "p2": ("", "Salt is dug in mines."),
    "p3": ("Owls", "They hunt by night."),
}
embedded: list[str] = []


@dataclass(frozen=True)
class Letters(Value):
    """Embeds a text by its letters."""

    name: str = "letters"
    dimension: int = 26
    window: int = 1000
    scoped: bool = False

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> npt.NDArray[np.float32]:
        import numpy as np

        if kind == "passage":
            embedded.extend(texts)
        counts = np.array([[text.lower().count(chr(97 + i)) + 0.01 for i in range(26)] for text in texts], np.float32)
        vectors: npt.NDArray[np.float32] = counts / np.linalg.norm(counts, axis=1, keepdims=True)
        return vectors

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]

    def covers(self, text: str) -> float:
        return 1.0


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    rows = [{"id": id, "title": title, "text": text} for id, (title, text) in TEXTS.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "questions.jsonl").write_text(
        '{"id": "q1", "question": "What pulls the sea?", "gold_ids": ["p1"]}\n'
        '{"id": "q2", "question": "What do owls do by night?", "gold_ids": ["p3"]}'
    )
    return DataSet(str(tmp_path))


def test_passages_are_found_by_their_ids_and_titles(data: DataSet, tmp_path: Path) -> None:
    chunks = index_passages(data, folder=tmp_path / "kept")
    ranking = BM25(chunks)(Query("owls"))
    assert [(hit.node.id, hit.node.document, hit.node.text) for hit in ranking.hits] == [
        ("p3/chunk", "p3", "They hunt by night.")
    ]
    report = Experiment(BM25(chunks), data.items(), parse_measures("R@1,MRR")).run()
    assert report.flows[0].json()["measures"]["R@1"]["mean"] == 1.0


def test_nothing_is_embedded_a_second_time(data: DataSet, tmp_path: Path) -> None:
    embedded.clear()
    progresses: list[tuple[int, int]] = []
    first = index_passages(
        data, Letters(), folder=tmp_path / "kept", on_progress=lambda done, total: progresses.append((done, total))
    )
    assert embedded == ["Tides\nThe moon pulls the sea.", "Salt is dug in mines.", "Owls\nThey hunt by night."]
    assert progresses == [(0, 3), (3, 3)]
    second_group = index_passages(data, Letters(), folder=tmp_path / "kept")
    assert second_group == first
    assert len(embedded) == 3
    assert len(Dense(second_group, Letters())(Query("salt"))) == 3


@pytest.mark.slow
def test_another_corpus_or_embedder_is_kept_apart(data: DataSet, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    words, letters = index_passages(data, folder=folder), index_passages(data, Letters(), folder=folder)
    (Path(data.path) / "corpus.jsonl").write_text('{"id": "p1", "text": "Other."}\n{"id": "p3", "text": ""}')
    other_group = index_passages(DataSet(data.path), folder=folder)
    assert len({words, letters, other_group}) == 3
    assert [node.id for node in BM25(other_group)(Query("other")).nodes] == ["p1/chunk"]


def test_an_index_that_broke_off_is_made_again(data: DataSet, tmp_path: Path) -> None:
    path = Path(data.path) / "corpus.jsonl"
    whole = path.read_text()
    path.write_text(whole + "\nbroken")
    with pytest.raises(DataError, match="line 4 is not JSON"):
        index_passages(data, folder=tmp_path / "kept")
    with pytest.raises(DataError, match="line 4 is not JSON"):
        index_passages(data, folder=tmp_path / "kept")
    path.write_text(whole)
    assert len(BM25(index_passages(data, folder=tmp_path / "kept"))(Query("salt"))) == 1


@pytest.mark.slow
def test_a_killed_index_goes_on_where_it_was(tmp_path: Path) -> None:
    rows = [{"id": f"p{n}", "text": f"Passage number {n} of many."} for n in range(5 * BATCH_SIZE)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "questions.jsonl").write_text("")
    folder, log = tmp_path / "kept", tmp_path / "log"
    module = [sys.executable, "-m", "tests.evaluation.killed_corpus", str(tmp_path), str(folder), str(log)]
    with subprocess.Popen([*module, rows[3 * BATCH_SIZE]["text"]]) as process:
        while (len(log.read_text().splitlines()) if log.exists() else 0) < 3 * BATCH_SIZE:
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    (store,) = folder.glob("*.spolia")
    documents = Corpus(str(store)).snapshot().stats().documents
    assert documents in (2 * BATCH_SIZE, 3 * BATCH_SIZE)  # it may be killed before the last are published
    assert subprocess.run(module, check=False).returncode == 0
    texts = log.read_text().splitlines()
    assert sorted(set(texts)) == sorted(row["text"] for row in rows)
    assert len(texts) <= 6 * BATCH_SIZE
    chunks = index_passages(DataSet(str(tmp_path)), Letters(), folder=folder)
    assert chunks.snapshot().check() == []
    assert [hit.node.id for hit in BM25(chunks, top_k=2)(Query("number 200")).hits][:1] == ["p200/chunk"]
    assert subprocess.run(module, check=False).returncode == 0
    assert log.read_text().splitlines() == texts


@pytest.mark.slow
def test_passages_that_came_in_lots_are_found_as_those_that_came_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("moon", "sea", "salt", "owl", "tide", "mine")
    rows = [{"id": f"p{n}", "text": " ".join(words[n * k % 6] for k in range(1, 9))} for n in range(3 * BATCH_SIZE)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = DataSet(str(tmp_path))
    once = index_passages(data, folder=tmp_path / "once")
    monkeypatch.setattr(passage_store, "PUBLISH_INTERVAL_S", 0)
    monkeypatch.setattr(passage_store, "PAUSE_FACTOR", 0)
    group = index_passages(data, folder=tmp_path / "lots")
    assert group.snapshot().generation > once.snapshot().generation
    for question in ("moon sea", "salt", "owl mine tide"):
        ranking, same = (BM25(chunks, top_k=50)(Query(question)) for chunks in (group, once))
        assert [(hit.node.id, hit.score) for hit in ranking.hits] == [(hit.node.id, hit.score) for hit in same.hits]


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder().name == "spolia-cache"
    monkeypatch.delenv("SPOLIA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "spolia"

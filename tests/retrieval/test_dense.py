import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest

from spolia.core.run_context import charge
from spolia.errors import ManifestMismatch, QueryError
from spolia.journal import Runs
from spolia.retrieval.dense import Dense
from spolia.run import Run
from spolia.types import Failure, Query, Ranking, Usage, Value
from tests.retrieval.conftest import Stored

Vectors = npt.NDArray[np.float32]
TEXTS = {"tower": "a tower in Paris", "louvre": "a museum in Paris", "prado": "a museum in Madrid", "sea": "the sea"}


@dataclass(frozen=True)
class Words(Value):
    """An embedder of 64 numbers: each word points somewhere, a text to the sum of its words."""

    name: str = "words@1"
    dimension: int = 64
    window: int = 8
    scoped: bool = False

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> Vectors:
        charge(Usage(embedded=len(texts)))
        vectors = np.array([sum(_of(word) for word in text.lower().split()) for text in texts], dtype=np.float32)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def covers(self, text: str) -> float:
        return 1.0


def _of(word: str) -> Vectors:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
    return np.random.default_rng(seed).standard_normal(64).astype(np.float32)


def ids(ranking: Ranking | Failure) -> list[str]:
    assert isinstance(ranking, Ranking)
    return [node.id for node in ranking.nodes]


@pytest.mark.slow
def test_hits_are_those_of_brute_force(stored: Stored) -> None:
    words = Words()
    ranking = Dense(stored(TEXTS, embedder=words), words)(Query("museum Madrid"))
    query = words.embed(["museum Madrid"], kind="query")[0]
    cosines = {id: float(words.embed([text], kind="passage")[0] @ query) for id, text in TEXTS.items()}
    assert ids(ranking) == sorted(cosines, key=lambda id: -cosines[id])
    assert [hit.score for hit in ranking.hits] == pytest.approx(sorted(cosines.values(), reverse=True), abs=1e-6)
    assert ranking.source == "dense"
    assert ranking.hits[0].node.text == TEXTS["prado"]


@pytest.mark.slow
def test_a_batch_gives_what_single_queries_give_and_embeds_once(stored: Stored) -> None:
    dense = Dense(stored(TEXTS, embedder=Words()), Words(), top_k=2)
    queries = [Query("museum"), Query("the sea"), Query("Paris tower"), Query("museum", vector=(1.0,) + (0.0,) * 63)]
    assert dense.batch(queries) == [dense(query) for query in queries]


@pytest.mark.slow
def test_a_vector_of_the_query_is_searched_instead_of_its_text(stored: Stored) -> None:
    words = Words()
    dense = Dense(stored(TEXTS, embedder=words), words, top_k=1)
    vector = tuple(map(float, words.embed(["the sea"], kind="query")[0]))
    assert ids(dense(Query("museum", vector=vector))) == ["sea"]
    with pytest.raises(QueryError, match="has 2 numbers; words@1 gives 64"):
        dense(Query("museum", vector=(1.0, 0.0)))


@pytest.mark.slow
def test_only_the_wrong_row_of_a_batch_fails(stored: Stored) -> None:
    dense = Dense(stored(TEXTS, embedder=Words()), Words(), top_k=1)
    first, empty, last = dense.batch([Query("the sea"), Query(" "), Query("tower")])
    assert (ids(first), ids(last)) == (["sea"], ["tower"])
    assert isinstance(empty, Failure)
    assert empty.kind == "QueryError"
    with pytest.raises(QueryError, match="The question is empty"):
        dense(Query(""))


@pytest.mark.slow
def test_what_the_embedder_does_not_read_is_recorded(stored: Stored, tmp_path: Path) -> None:
    dense, runs = Dense(stored(TEXTS, embedder=Words()), Words(), top_k=1), Runs(tmp_path / "runs.db")
    with Run(journal=runs.journal) as run:
        run.batch(dense, [Query("the sea"), Query("the sea " * 9)])
        dense(Query("the sea " * 30_000))
    runs.journal.flush()
    notes = [note for span in runs.journal.spans(run.id) for note in span.notes]
    assert "The question has 18 tokens; words@1 reads the first 8." in notes
    assert "The question has 240000 characters; its first and last 5000 are searched." in notes
    runs.close()


@dataclass(frozen=True)
class Letters(Words):
    """Reads each letter of a Korean syllable as a token, as all-MiniLM-L6-v2 does."""

    name: str = "letters@1"
    window: int = 24

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(unicodedata.normalize("NFD", text)) for text in texts]


@pytest.mark.slow
def test_a_question_of_fewer_characters_than_the_window_may_have_more_tokens(stored: Stored, tmp_path: Path) -> None:
    dense, runs = Dense(stored(TEXTS, embedder=Letters()), Letters(), top_k=1), Runs(tmp_path / "runs.db")
    with Run(journal=runs.journal) as run:
        dense(Query("한국의 수도는 어디입니까"))
    runs.journal.flush()
    notes = [note for span in runs.journal.spans(run.id) for note in span.notes]
    assert notes == ["The question has 28 tokens; letters@1 reads the first 24."]
    runs.close()


@pytest.mark.slow
def test_another_embedder_than_the_groups_is_refused(stored: Stored) -> None:
    with pytest.raises(ManifestMismatch, match=r"built with the embedder 'words@1', and is searched with 'words@2'"):
        Dense(stored(TEXTS, embedder=Words()), Words("words@2"))(Query("x"))
    with pytest.raises(
        ManifestMismatch,
        match=r"built with no embedder.*BM25, or make vectors: spolia sync FOLDER --store \S+ --vectors; in Python",
    ):
        Dense(stored(TEXTS), Words())(Query("x"))


@pytest.mark.slow
def test_restricted_nodes_are_found_by_their_readers_only(stored: Stored) -> None:
    dense = Dense(stored(TEXTS, embedder=Words(), readers={"prado": ("ana",)}), Words())
    assert "prado" not in ids(dense(Query("museum in Madrid")))
    with Run(principal="ana"):
        assert ids(dense(Query("museum in Madrid")))[0] == "prado"


def test_the_result_depends_on_the_text_or_the_vector_alone(stored: Stored) -> None:
    dense = Dense(stored(TEXTS, embedder=Words()), Words())
    assert dense.reads(Query("a", question="b", sample=2)) == dense.reads(Query("a")) != dense.reads(Query("b"))
    assert dense.reads(Query("a", vector=(1.0,))) == dense.reads(Query("b", vector=(1.0,)))

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import ManifestMismatch, ModelError, WiringError
from spolia.flow_files.files import dump, load
from spolia.indexing.sync.texts import add_texts
from spolia.models.protocols import Embedder
from spolia.post_retrieval.mmr import MMR
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Hit, Node, Query, Ranking, Value


@dataclass(frozen=True)
class Drawn(Value):
    """Gives each text the vector that it writes: `3 4` is (0.6, 0.8)."""

    name: str = "drawn"
    dimension: int = 2
    window: int = 9
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Sequence[str], *, kind: str) -> Any:
        rows = np.array([[float(number) for number in text.split()] for text in texts], dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [2 for _ in texts]

    def covers(self, text: str) -> float:
        return 1.0


def ranking(question: str, *texts: str) -> Ranking:
    hits = (Hit(Node(f"n{index}", text), 1.0 - index / 100) for index, text in enumerate(texts))
    return Ranking(Query(question), tuple(hits), "bm25")


def ids(selected: Ranking) -> list[str]:
    return [node.id for node in selected.nodes]


FOUR = ranking("1 0", "4 3", "3 4", "4 3", "4 -3")
"""Cosines to the question: 0.8, 0.6, 0.8, 0.8. The third is the first; the fourth has a cosine of 0.28 to it."""


def test_a_golden_of_four_points() -> None:
    diverse = MMR(Drawn(), top_k=4)(FOUR)
    # First n0 with 0.5 · 0.8. Then n3: 0.5 · 0.8 - 0.5 · 0.28; n1: 0.5 · 0.6 - 0.5 · 0.96; n2: 0.5 · 0.8 - 0.5 · 1.
    assert [(hit.node.id, round(hit.score, 6)) for hit in diverse.hits] == [
        ("n0", 0.4),
        ("n3", 0.26),
        ("n2", -0.1),
        ("n1", -0.18),
    ]


def test_relevance_alone_is_the_order_of_relevance() -> None:
    assert ids(MMR(Drawn(), relevance=1.0, top_k=4)(FOUR)) == ["n0", "n2", "n3", "n1"]
    assert ids(MMR(relevance=1.0, top_k=4)(FOUR)) == ["n0", "n1", "n2", "n3"]


def test_a_duplicate_of_what_is_chosen_comes_last() -> None:
    texts = ("the red stones of Rome", "the red stones of Rome", "the blue sea", "green hills near Rome")
    assert ids(MMR(top_k=4)(ranking("?", *texts)))[-1] == "n1"
    assert ids(MMR(Drawn(), top_k=3)(ranking("1 0", "4 3", "4 3", "4 -3"))) == ["n0", "n2", "n1"]
    cjk = ("東京タワーは赤い", "東京タワーは赤い", "大阪城は古い")
    assert ids(MMR(top_k=3)(ranking("?", *cjk))) == ["n0", "n2", "n1"]


def test_opposite_is_no_more_unlike_than_unlike() -> None:
    diverse = MMR(Drawn(), relevance=0.1, top_k=3)(ranking("1 0", "1 0", "-1 0.1", "0 1"))
    assert [hit.score for hit in diverse.hits] == sorted((hit.score for hit in diverse.hits), reverse=True)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    texts=st.lists(st.lists(st.sampled_from(["red", "sea", "old", "of"]), max_size=4).map(" ".join), max_size=7),
    relevance=st.floats(0, 1),
    top_k=st.integers(1, 9),
)
def test_any_hits_come_once_with_falling_scores(texts: list[str], relevance: float, top_k: int) -> None:
    given_hits = ranking("red sea", *texts)
    for embedder in (None, HashingEmbedder()):
        diverse = MMR(embedder, relevance=relevance, top_k=top_k)(given_hits)
        assert len(diverse) == min(top_k, len(texts)) == len(set(ids(diverse)))
        scores = [hit.score for hit in diverse.hits]
        assert scores == sorted(scores, reverse=True)
        assert set(diverse.nodes) <= set(given_hits.nodes)


def test_ten_thousand_equal_hits() -> None:
    same = ranking("red", *["red stones"] * 10_000)
    assert ids(MMR(top_k=5)(same)) == ["n0", *ids(same)[1:5]]


@pytest.mark.slow
def test_stored_vectors_are_taken_and_what_is_not_stored_is_embedded(tmp_path: Path) -> None:
    embedder, corpus = HashingEmbedder(), Corpus(str(tmp_path / "notes.spolia"))
    texts = {f"{word}.md": f"Stones are {word}." for word in ("red", "old", "hard", "wet")}
    add_texts(corpus, texts, embedder=embedder)
    stored_hits = BM25(corpus.group())(Query("stones"))
    foreign = stored_hits.but(hits=(*stored_hits.hits, Hit(Node("web", "Stones from elsewhere.", group="web"), 0.1)))
    for value in (stored_hits, foreign):
        stored, embedded = MMR(embedder, corpus.group(), top_k=5), MMR(embedder, top_k=5)
        assert stored(value) == embedded(value)
    with Run() as run, run.lane() as lane:
        MMR(embedder, corpus.group())(stored_hits)
    assert lane.usage.embedded == 1
    with pytest.raises(ManifestMismatch):
        MMR(HashingEmbedder(window=3), corpus.group())(stored_hits)


def test_a_query_that_brings_its_vector_is_not_embedded() -> None:
    value = FOUR.but(query=Query("not to be drawn", vector=(1.0, 0.0)))
    assert ids(MMR(Drawn(), top_k=4)(value)) == ["n0", "n3", "n2", "n1"]


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    group = Corpus(str(tmp_path / "a.spolia")).group()
    wrongs: list[Callable[[], MMR]] = [
        lambda: MMR(relevance=1.1),
        lambda: MMR(top_k=0),
        lambda: MMR(group=group),
        lambda: MMR("MiniLM"),  # type: ignore[arg-type]
    ]
    for wrong in wrongs:
        with pytest.raises(WiringError):
            wrong()
    assert MMR()(ranking("?")).hits == ()


def test_an_embedder_that_gives_no_vectors_is_an_error() -> None:
    @dataclass(frozen=True)
    class Broken(Drawn):
        def embed(self, texts: Sequence[str], *, kind: str) -> Any:
            return np.full((len(texts), 2), np.nan, np.float32)

    broken: Embedder = Broken()
    with pytest.raises(ModelError, match="NaN or infinity"):
        MMR(broken)(FOUR)


def test_it_is_written_and_read(tmp_path: Path) -> None:
    op = MMR(HashingEmbedder(), Corpus(str(tmp_path / "a.spolia")).group(), relevance=0.7, top_k=3)
    assert load(dump(op), operators=(HashingEmbedder,)) == op

"""Search by parts of vectors, and by vectors of tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from spolia.errors import ManifestMismatch, ModelError, QueryError, WiringError
from spolia.filters import where
from spolia.flow_files.files import dump, load
from spolia.models.protocols import TokenEmbedder
from spolia.models.vectors import TokenVectors
from spolia.post_retrieval.rerankers import ColBERT
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import LateInteraction
from spolia.retrieval.multi_head import MultiHead
from spolia.run import Run
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.testing.hash_embedder import HashingEmbedder, HashingTokens
from spolia.types import Query, Ranking, Value
from tests.retrieval.conftest import Stored, store


@dataclass(frozen=True)
class Drawn(Value):
    """Gives each text the vector that it writes, made as long as 1."""

    name: str = "drawn"
    dimension: int = 4
    window: int = 99
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Sequence[str], *, kind: str) -> Any:
        rows = np.array([[float(number) for number in text.split()] for text in texts], np.float32).reshape(-1, 4)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [4 for _ in texts]

    def covers(self, text: str) -> float:
        return 1.0


DRAWN = {"a": "1 0 0 1", "b": "1 0 1 0", "c": "0 1 1 0"}
"""Two heads of two numbers. The first sees a and b alike, the second b and c."""


def scores(ranking: Ranking) -> dict[str, float]:
    return {hit.node.id: hit.score for hit in ranking.hits}


def ids(ranking: Ranking) -> list[str]:
    return [node.id for node in ranking.nodes]


@pytest.mark.slow
def test_goldens_of_the_votes(stored: Stored) -> None:
    group = stored(DRAWN, embedder=Drawn())
    query = Query("1 0 0 1")  # head 1: a, b, c; head 2: a, b, c (b and c have the cosine 0, in the order of keys)
    strength = 1 / 2**0.5 * 2 / 3  # each part is 1/√2 long; two of three pairs are 1 apart, in both heads
    expected = {
        "strength": {"a": 2 * strength, "b": strength, "c": strength / 2},
        "decay": {"a": 2.0, "b": 1.0, "c": 0.5},
        "distance": {"a": 2 * strength * 1e6, "b": strength * 1e6 + strength, "c": 2 * strength},
        "rank": {"a": 2 / 61, "b": 2 / 62, "c": 2 / 63},
    }
    for votes, golden in expected.items():
        ranking = MultiHead(group, Drawn(), 2, votes)(query)  # type: ignore[arg-type]
        assert scores(ranking) == pytest.approx(golden, rel=1e-5), votes


def test_a_node_with_one_of_two_aspects_is_voted_for_by_that_head(stored: Stored) -> None:
    group = stored(DRAWN, embedder=Drawn())
    assert ids(MultiHead(group, Drawn(), 2, top_k=1)(Query("1 0 0 1"))) == ["a"]
    assert set(ids(MultiHead(group, Drawn(), 2, "decay", top_k=2)(Query("0 1 0 1")))) == {"a", "c"}


def test_one_head_is_the_whole_vector(stored: Stored) -> None:
    from spolia.retrieval.dense import Dense

    texts = {
        f"n{number}": f"stones and {word}" for number, word in enumerate(["sea", "road", "wall", "hill", "stones"])
    }
    group = stored(texts, embedder=HashingEmbedder())
    query = Query("stones on the road")
    assert ids(MultiHead(group, HashingEmbedder(), 1, top_k=5)(query)) == ids(Dense(group, HashingEmbedder(), 5)(query))


def test_heads_are_those_of_the_loops(stored: Stored) -> None:
    words = ["sea", "road", "wall", "hill", "stone", "red", "old", "wet"]
    texts = {f"n{number}": f"{word} {words[number - 3]} {words[number - 1]}" for number, word in enumerate(words)}
    group, embedder, heads = stored(texts, embedder=HashingEmbedder()), HashingEmbedder(), 8
    vectors = {id: embedder.embed([text], kind="passage")[0].reshape(heads, -1) for id, text in texts.items()}
    query_heads = embedder.embed(["red sea"], kind="query")[0].reshape(heads, -1)

    def cosine(left: Any, right: Any) -> float:
        lengths = float(np.linalg.norm(left) * np.linalg.norm(right))
        return round(float(left @ right) / lengths, 6) if lengths else 0.0

    expected = dict.fromkeys(texts, 0.0)
    for head in range(heads):
        order = sorted(texts, key=lambda id: (-cosine(vectors[id][head], query_heads[head]), list(texts).index(id)))
        for rank, id in enumerate(order[:4]):
            expected[id] += 2.0**-rank
    found_scores = scores(MultiHead(group, embedder, heads, "decay", top_k=4)(Query("red sea")))
    best = sorted(expected.values(), reverse=True)[:4]
    assert sorted(found_scores.values(), reverse=True) == pytest.approx(best)


def test_heads_that_do_not_fit_and_other_embedders_are_refused(stored: Stored) -> None:
    group = stored(DRAWN, embedder=Drawn())
    with pytest.raises(WiringError, match="cannot be cut into 3 parts"):
        MultiHead(group, Drawn(), 3)(Query("1 0 0 1"))
    with pytest.raises(ManifestMismatch):
        MultiHead(group, Drawn("other"), 2)(Query("1 0 0 1"))
    with pytest.raises(WiringError, match="no votes"):
        MultiHead(group, Drawn(), 2, "loud")  # type: ignore[arg-type]
    with pytest.raises(WiringError, match="heads counts from 1"):
        MultiHead(group, Drawn(), 0)
    with pytest.raises(QueryError):
        MultiHead(group, Drawn(), 2)(Query(""))


@pytest.mark.slow
def test_heads_see_what_may_be_found(stored: Stored) -> None:
    group = stored(DRAWN, embedder=Drawn(), readers={"a": ("ann",)})
    assert ids(MultiHead(group, Drawn(), 2)(Query("1 0 0 1"))) == ["b", "c"]
    assert ids(MultiHead(group, Drawn(), 2, filter=where(file_name="c.txt"))(Query("1 0 0 1"))) == ["c"]
    assert MultiHead(group, Drawn(), 2, filter=where(file_name="z.txt"))(Query("1 0 0 1")).hits == ()
    assert len(MultiHead(stored({"z": "1 0 0 1"}, embedder=Drawn()), Drawn(), 2)(Query("1 0 0 1"))) == 1


# -------------------------------------------------------------------------------------------------------- tokens


TEXTS = {"tower": "The Eiffel Tower in Paris", "louvre": "The Louvre in Paris", "prado": "The Prado in Madrid"}


@pytest.mark.slow
def test_each_token_of_the_query_finds_its_nearest(stored: Stored) -> None:
    group = stored(TEXTS)
    ranking = LateInteraction(group, HashingTokens(256))(Query("Louvre Paris"))
    assert ids(ranking)[:2] == ["louvre", "tower"]
    assert ranking.hits[0].score == pytest.approx(2.0)
    assert ranking.source == "tokens"
    reranked = (BM25(group) >> ColBERT(HashingTokens(256)))(Query("Louvre Paris"))
    assert scores(reranked) == {id: score for id, score in scores(ranking).items() if id in scores(reranked)}


@dataclass(frozen=True)
class Noted(HashingTokens):
    """Writes down what it embeds."""

    log: str = ""

    def embed_tokens(self, texts: Sequence[str], *, kind: Any) -> TokenVectors:
        with open(self.log, "a") as file:
            file.writelines(f"{kind} {text}\n" for text in texts)
        return super().embed_tokens(texts, kind=kind)


def passages(log: Path) -> list[str]:
    return sorted(re.findall(r"passage (.*)", log.read_text()))


@pytest.mark.slow
def test_no_text_is_embedded_twice_also_not_for_another_generation(tmp_path: Path) -> None:
    log = tmp_path / "log"
    group = store(tmp_path / "a.spolia", TEXTS)
    op = LateInteraction(group, Noted(log=str(log)))
    previous_ranking = op(Query("Paris"))
    assert passages(log) == sorted(TEXTS.values())
    group.snapshot().derived.clear()  # as another process finds it
    assert op(Query("Paris")).hits == previous_ranking.hits
    with group.corpus.writer() as writer:
        writer.remove("prado.txt")
    assert set(ids(op(Query("Paris")))) == {"tower", "louvre"}
    assert passages(log) == sorted(TEXTS.values())


def test_a_damaged_file_is_embedded_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    group = store(tmp_path / "a.spolia", TEXTS)
    expected = LateInteraction(group, Noted(log=str(log)))(Query("Paris")).hits
    for suffix in ("*.npz", "*.npy"):
        log.unlink()
        for path in (tmp_path / "a.spolia" / "tokens").rglob(suffix):
            path.write_bytes(path.read_bytes()[:40])
        group.snapshot().derived.clear()
        assert LateInteraction(group, Noted(log=str(log)))(Query("Paris")).hits == expected
        assert len(passages(log)) == 3


def test_a_file_of_which_a_byte_has_changed_is_embedded_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    group = store(tmp_path / "a.spolia", TEXTS)
    expected = LateInteraction(group, Noted(log=str(log)))(Query("Paris")).hits
    (path,) = (tmp_path / "a.spolia" / "tokens").rglob("*.npy")
    path.write_bytes(path.read_bytes()[:-1] + b"\x3f")
    log.unlink()
    group.snapshot().derived.clear()
    assert LateInteraction(group, Noted(log=str(log)))(Query("Paris")).hits == expected
    assert len(passages(log)) == 3


def test_filters_and_readers_hold(stored: Stored) -> None:
    group = stored(TEXTS, readers={"louvre": ("ann",)})
    op = LateInteraction(group, HashingTokens())
    assert set(ids(op(Query("Paris")))) == {"tower", "prado"}
    with Run(principal="ann"):
        assert ids(op(Query("Louvre", filter=where(file_name="louvre.txt")))) == ["louvre"]
    assert op(Query("Paris", filter=where(file_name="x"))).hits == ()


def test_a_query_or_text_without_tokens(stored: Stored) -> None:
    op = LateInteraction(stored({"a": "stone", "b": "!?"}), HashingTokens())
    assert op(Query("?!")).hits == ()
    assert scores(op(Query("stone"))) == {"a": pytest.approx(1.0), "b": 0.0}
    with pytest.raises(QueryError):
        op(Query(" "))


@pytest.mark.slow
def test_what_are_no_token_vectors_is_an_error(stored: Stored) -> None:
    @dataclass(frozen=True)
    class Short(HashingTokens):
        def embed_tokens(self, texts: Sequence[str], *, kind: Any) -> TokenVectors:
            return TokenVectors.from_vectors([[[1.0, 0.0]]], 2)

    with pytest.raises(ModelError, match="token vectors of 1 texts"):
        LateInteraction(stored(TEXTS), Short())(Query("Paris"))
    with pytest.raises(ModelError, match="A token of text 1"):
        TokenVectors.from_vectors([[[1.0]], [[float("nan")]]], 1)
    with pytest.raises(ModelError, match="offsets"):
        TokenVectors(np.array([0, 2]), np.zeros((1, 1), np.float32))
    with pytest.raises(WiringError, match="lacks embed_tokens"):
        LateInteraction(stored(TEXTS), HashingEmbedder())  # type: ignore[arg-type]


def test_they_are_written_and_read() -> None:
    group: NodeGroup = Corpus("nowhere.spolia").group()
    assert isinstance(HashingTokens(), TokenEmbedder)
    heads = MultiHead(group, HashingEmbedder(), 8, "distance", 3)
    tokens = LateInteraction(group, HashingTokens(), 3)
    assert load(dump(heads), operators=(HashingEmbedder,)) == heads
    assert load(dump(tokens), operators=(HashingTokens,)) == tokens

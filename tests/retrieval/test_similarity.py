"""Similarities of the user: every kind of function, in every order, and what they return wrongly."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spolia.core.function import step
from spolia.errors import ManifestMismatch, QueryError, WiringError
from spolia.flow_files.files import dump, load
from spolia.retrieval import similarity_search
from spolia.retrieval.dense import Dense
from spolia.retrieval.similarity_search import BySimilarity, Compared, Similarity, similarity
from spolia.stores.corpus import NodeGroup
from spolia.testing import HashingEmbedder
from spolia.types import Node, Query, Ranking
from tests.retrieval.conftest import Stored

EMBEDDER = HashingEmbedder(dimension=32)
TEXTS = {"a": "the red stone", "b": "red", "c": "stone upon red stone", "d": "sea"}


@similarity
def overlap(query: str, node: Node, *, least: int = 1) -> int:
    shared = len(set(query.split()) & set(node.text.split()))
    return shared if shared >= least else 0


@similarity(batch=True)
def overlaps(query: str, nodes: list[Node]) -> list[float]:
    return [len(set(query.split()) & set(node.text.split())) for node in nodes]


@similarity(batch=True)
def length_rank(query: str, nodes: list[Node]) -> Any:
    return np.argsort(np.argsort([len(node.text) for node in nodes]))


@similarity(descending=False)
def length(query: str, node: Node) -> int:
    return len(node.text)


@similarity(mode="embedding")
def cosine(query: Any, vector: Any) -> float:
    return float(query @ vector)


@similarity(mode="embedding", batch=True)
def cosines(query: Any, vectors: Any) -> Any:
    return vectors @ query


@similarity(mode="embedding", descending=False)
def distance(query: Any, vector: Any) -> float:
    return float(np.linalg.norm(query - vector))


@similarity(mode="embedding", batch=True, descending=False)
def distances(query: Any, vectors: Any) -> Any:
    return np.linalg.norm(vectors - query, axis=1)


def ids_and_scores(ranking: Ranking) -> list[tuple[str, float]]:
    return [(hit.node.id, round(hit.score, 5)) for hit in ranking.hits]


@pytest.fixture
def group(stored: Stored) -> NodeGroup:
    return stored(TEXTS, embedder=EMBEDDER)


def test_texts_one_by_one_and_all_at_once(group: NodeGroup) -> None:
    query = Query("red stone")
    expected = [("a", 2.0), ("c", 2.0), ("b", 1.0), ("d", 0.0)]  # equal ones in the order in which they were stored
    assert ids_and_scores(BySimilarity(group, overlap)(query)) == expected
    assert ids_and_scores(BySimilarity(group, overlaps)(query)) == expected
    assert ids_and_scores(BySimilarity(group, overlap.but(least=2), top_k=3)(query)) == [
        ("a", 2.0),
        ("c", 2.0),
        ("b", 0.0),
    ]
    assert [id for id, _ in ids_and_scores(BySimilarity(group, length_rank)(query))] == ["c", "a", "d", "b"]


def test_a_distance_counts_against(group: NodeGroup) -> None:
    ranking = BySimilarity(group, length, source="length")(Query("any"))
    assert (ranking.source, ids_and_scores(ranking)) == (
        "length",
        [("b", -3.0), ("d", -3.0), ("a", -13.0), ("c", -20.0)],
    )


def test_embeddings_one_by_one_and_all_at_once(group: NodeGroup) -> None:
    query = Query("red stone")
    expected = ids_and_scores(Dense(group, EMBEDDER)(query))
    assert ids_and_scores(BySimilarity(group, cosine, embedder=EMBEDDER)(query)) == expected
    assert ids_and_scores(BySimilarity(group, cosines, embedder=EMBEDDER)(query)) == expected
    near, nearest = (BySimilarity(group, function, embedder=EMBEDDER)(query) for function in (distance, distances))
    assert ids_and_scores(near) == ids_and_scores(nearest)
    assert [id for id, _ in ids_and_scores(near)] == [id for id, _ in expected]
    assert all(hit.score <= 0 for hit in near.hits)
    own = Query("nothing", vector=tuple(map(float, EMBEDDER.embed(["sea"], kind="query")[0])))
    assert ids_and_scores(BySimilarity(group, cosine, 1, EMBEDDER)(own)) == [("d", 1.0)]


def test_nodes_are_compared_in_bounded_numbers(group: NodeGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity_search, "AT_ONCE", 1)
    assert [id for id, _ in ids_and_scores(BySimilarity(group, overlap)(Query("red stone")))] == ["a", "c", "b", "d"]


def _make_returning(value: Callable[[int], Any], **options: Any) -> Similarity:
    def odd(query: Any, nodes: Any) -> Any:
        return value(len(nodes) if options.get("batch") else 1)

    return similarity(**options)(odd)


WRONG: dict[str, tuple[Similarity, str]] = {
    "NaN": (_make_returning(lambda n: math.nan), "odd returned nan for node 'a'"),
    "None": (_make_returning(lambda n: None), "odd returned None for node 'a'"),
    "text": (_make_returning(lambda n: "0.5"), "odd returned '0.5' for node 'a'"),
    "too few": (_make_returning(lambda n: [1.0] * (n - 1), batch=True), "odd was given 4 nodes and returned 3 numbers"),
    "too many": (_make_returning(lambda n: [1.0] * 9, batch=True), "odd was given 4 nodes and returned 9 numbers"),
    "no list": (_make_returning(lambda n: 1.0, batch=True), "odd was given 4 nodes and returned 1 numbers"),
    "NaN in a list": (
        _make_returning(lambda n: [0.0] * (n - 1) + [math.nan], batch=True),
        "odd returned nan for node 'd'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_score_is_refused_naming_the_function(name: str, group: NodeGroup) -> None:
    function, message = WRONG[name]
    with pytest.raises(WiringError, match=f"The similarity {message}"):
        BySimilarity(group, function)(Query("red"))


@pytest.mark.slow
def test_what_is_not_alike_at_all_comes_last(group: NodeGroup) -> None:
    never = _make_returning(lambda n: -math.inf)
    assert [hit.score for hit in BySimilarity(group, never)(Query("red")).hits] == [-math.inf] * 4


def test_what_cannot_be_compared_is_refused(group: NodeGroup, stored: Stored) -> None:
    with pytest.raises(WiringError, match=r"cosine compares embeddings. Write embedder="):
        BySimilarity(group, cosine)
    with pytest.raises(WiringError, match=r"overlap compares texts. Leave the embedder out"):
        BySimilarity(group, overlap, embedder=EMBEDDER)
    with pytest.raises(WiringError, match="BySimilarity wants an embedder, and was given 'MiniLM'"):
        BySimilarity(group, cosine, embedder="MiniLM")  # type: ignore[arg-type]
    with pytest.raises(WiringError, match=r"is not a similarity. Write @similarity"):
        BySimilarity(group, step(lambda query: query))  # type: ignore[arg-type]
    with pytest.raises(WiringError, match="a similarity takes a query and what it is compared"):
        similarity(lambda query: 1.0)
    with pytest.raises(WiringError, match="There is no mode 'pictures'"):
        similarity(mode="pictures")  # type: ignore[call-overload]
    with pytest.raises(ManifestMismatch, match="built with no embedder"):
        BySimilarity(stored(TEXTS), cosine, embedder=EMBEDDER)(Query("red"))
    with pytest.raises(QueryError, match="has 1 numbers"):
        BySimilarity(group, cosine, embedder=EMBEDDER)(Query("red", vector=(1.0,)))
    with pytest.raises(QueryError, match="The question is empty"):
        BySimilarity(group, overlap)(Query(" "))


def test_a_similarity_goes_to_a_file_and_to_another_process(group: NodeGroup) -> None:
    flow = BySimilarity(group, overlap.but(least=2), top_k=3)
    assert load(dump(flow), operators=(overlap,)) == flow
    assert pickle.loads(pickle.dumps(flow)) == flow
    assert flow.digest != BySimilarity(group, overlap, top_k=3).digest
    assert overlap(Compared("red", [])) == ()

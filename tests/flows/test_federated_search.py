"""Several groups, corpora and embeddings searched as one: exactly `top_k`, in order, each node once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from spolia.errors import WiringError
from spolia.flow_files.federated_search import across
from spolia.flow_files.files import dump, load
from spolia.models.protocols import Embedder
from spolia.orchestration.rank_fusion import ConvexCombination, HighestScore
from spolia.retrieval.dense import Dense
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.testing import HashingEmbedder
from spolia.types import Document, Node, Query, Ranking, Span
from tests.retrieval.test_learned_sparse import Counting

SMALL, LARGE = HashingEmbedder(dimension=64), HashingEmbedder(dimension=256)
TEXTS = [f"red stone {number} in a wall " + "sand " * number for number in range(20)]
QUERY = Query("red stone in a wall")


def store_texts(
    path: Path,
    texts: Iterable[str],
    embedders: tuple[Embedder, ...] = (SMALL, LARGE),
    group: str = "chunk",
    sparse: Counting | None = None,
) -> NodeGroup:
    corpus = Corpus(str(path)).create()
    with corpus.writer() as writer:
        embedded = [GroupEmbedding(e.name, e.dimension) for e in embedders] + (
            [GroupEmbedding(sparse.name, 0)] if sparse else []
        )
        writer.define(group, Manifest(group, embeddings=tuple(embedded)))
        for number, text in enumerate(texts):
            node = Node(f"n{number}", text, f"d{number}", group, Span(0, len(text)))
            source = SourceRow(f"{path.name}/{number}.txt", content_hash=text)
            writer.put_document(Document(f"d{number}", text, uri=source.uri), [node], source)
        for embedder in embedders:
            hashes, lacking = zip(*writer.unembedded(group, embedder.name), strict=True)
            writer.add_vectors(embedder.name, hashes, embedder.embed(lacking, kind="passage"))
        if sparse:
            hashes, lacking = zip(*writer.unembedded(group, sparse.name), strict=True)
            writer.add_sparse(sparse.name, hashes, sparse.embed_sparse(lacking, kind="passage"))
    return corpus.group(group)


def is_in_order(ranking: Ranking) -> bool:
    scores = [hit.score for hit in ranking.hits]
    return scores == sorted(scores, reverse=True) and len({(n.id, n.uri) for n in ranking.nodes}) == len(scores)


def test_two_embeddings_give_six_hits_when_six_are_asked_for(tmp_path: Path) -> None:
    group = store_texts(tmp_path / "a", TEXTS)
    ranking = across(group, (SMALL, LARGE), top_k=6)(QUERY)
    assert len(ranking) == 6
    assert is_in_order(ranking)
    assert {name for hit in ranking.hits for name, _ in hit.parts} == {SMALL.name, LARGE.name}
    assert all(len(hit.parts) == 2 for hit in ranking.hits)


def test_every_embedding_has_a_cut_off_of_its_own(tmp_path: Path) -> None:
    group = store_texts(tmp_path / "a", TEXTS)
    bound = Dense(group, SMALL, 20)(QUERY).hits[2].score
    ranking = across(group, (SMALL, LARGE), 20, at_least={SMALL.name: bound, LARGE.name: 2.0})(QUERY)
    alone = [hit for hit in Dense(group, SMALL, 20)(QUERY).hits if hit.score >= bound]
    assert [node.id for node in ranking.nodes] == [hit.node.id for hit in alone]
    assert len(ranking) >= 3, "what is exactly as good as the bound is kept"
    assert len(across(group, SMALL, 20, at_least=2.0)(QUERY)) == 0
    with pytest.raises(WiringError, match="There is a cut-off for 'other'"):
        across(group, SMALL, at_least={"other": 0.5})


@pytest.mark.slow
def test_scores_that_can_be_compared_are_compared_across_corpora(tmp_path: Path) -> None:
    groups = [store_texts(tmp_path / "a", TEXTS[:9]), store_texts(tmp_path / "b", TEXTS[9:])]
    together = store_texts(tmp_path / "c", TEXTS)
    ranking = across(groups, SMALL, fusion=HighestScore(7))(QUERY)
    single = Dense(together, SMALL, 7)(QUERY)
    assert [round(hit.score, 6) for hit in ranking.hits] == [round(hit.score, 6) for hit in single.hits]
    assert {node.text for node in ranking.nodes} == {node.text for node in single.nodes}


@pytest.mark.slow
def test_one_id_in_two_stores(tmp_path: Path) -> None:
    """Of different texts it names two nodes; of the same text it is one, found twice."""
    groups = [store_texts(tmp_path / "a", ["red stone", "sea"]), store_texts(tmp_path / "b", ["red wall", "sea"])]
    for flow in (across(groups, SMALL, 10), across(groups, SMALL, 10, fusion=HighestScore()), across(groups, top_k=10)):
        ranking = flow(Query("red stone wall sea"))
        assert sorted((node.id, node.text) for node in ranking.nodes) == [
            ("n0", "red stone"),
            ("n0", "red wall"),
            ("n1", "sea"),
        ]
        assert is_in_order(ranking)
        (sea,) = [hit for hit in ranking.hits if hit.node.text == "sea"]
        assert len(sea.parts) == 2


@pytest.mark.slow
def test_words_are_searched_where_there_is_no_embedder(tmp_path: Path) -> None:
    groups = [store_texts(tmp_path / "a", TEXTS, group="fine"), store_texts(tmp_path / "b", TEXTS[:3], group="coarse")]
    weights = ConvexCombination((("fine", 0.5), ("coarse", 0.5)), "min-max", 5)
    ranking = across(groups, fusion=weights)(QUERY)
    assert (len(ranking), is_in_order(ranking)) == (5, True)


@pytest.mark.slow
def test_dense_and_sparse_vectors_are_searched_together(tmp_path: Path) -> None:
    sparse = Counting()
    group = store_texts(tmp_path / "a", TEXTS, (SMALL,), sparse=sparse)
    ranking = across(group, (SMALL, sparse), top_k=6)(QUERY)
    assert (len(ranking), is_in_order(ranking)) == (6, True)
    assert {name for hit in ranking.hits for name, _ in hit.parts} == {SMALL.name, "counting"}
    assert across(group, sparse, top_k=6, at_least=4.0)(QUERY).hits


@pytest.mark.slow
def test_it_is_a_flow_like_one_that_was_written_out(tmp_path: Path) -> None:
    group = store_texts(tmp_path / "a", TEXTS)
    flow = across(group, (SMALL, LARGE), 6, at_least=0.1)
    inputs = {"small": SMALL, "large": LARGE}
    assert load(dump(flow, inputs), inputs) == flow
    with pytest.raises(WiringError, match="There is no group to search"):
        across(())

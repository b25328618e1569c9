"""Searching along links: how far, with which scores, and never past what may not be seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.operator import Operator
from spolia.errors import ManifestMismatch, StoreError, WiringError
from spolia.filters import Field, where
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense
from spolia.retrieval.graph.edges import Belonging, InOrder, SharedEntities, Similar
from spolia.retrieval.graph.links import Links, NodePairs
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.retrieval.graph.walk import Hops, PersonalisedPageRank, pagerank
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition
from spolia.testing import HashingEmbedder
from spolia.types import Hit, Node, Query, Ranking
from tests.group_fixtures import Cut, Source, store_texts
from tests.retrieval.test_graph_links import words

CHAIN = {"chunk": Definition(Cut("|")), "entity": Definition(words, parent="chunk")}
STORY: dict[str, str | Source] = {
    "a": "The bridge was built by OLSEN.",
    "b": "OLSEN worked for the city of PARMA.",
    "c": "PARMA lies on a river.",
    "d": "Taxes are due in May.",
}
EMBEDDER = HashingEmbedder(64)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return store_texts(tmp_path_factory.mktemp("graph") / "s.spolia", STORY, CHAIN, EMBEDDER)


def entities(corpus: Corpus) -> NodeGraph:
    return NodeGraph(corpus.group("chunk"), (SharedEntities(),))


def documents(ranking: Ranking) -> list[str]:
    return [node.document for node in ranking.nodes]


@pytest.mark.slow
def test_a_chain_is_followed_as_far_as_there_are_hops(corpus: Corpus) -> None:
    seeds = BM25(corpus.group("chunk"))
    assert documents(seeds(Query("bridge"))) == ["a"]
    for hops, expected in ((1, ["a", "b"]), (2, ["a", "b", "c"]), (5, ["a", "b", "c"])):
        assert documents((seeds >> Hops(entities(corpus), hops=hops))(Query("bridge"))) == expected


def test_scores_fall_with_every_link_by_its_weight(corpus: Corpus) -> None:
    graph = entities(corpus)
    weight = float(graph.links(corpus.snapshot()).weights[0])
    seed = BM25(corpus.group("chunk"))(Query("bridge"))
    for score in (8.0, -8.0):
        hits = tuple(hit.but(score=score) for hit in seed.hits)
        ranking = Hops(graph, hops=2, decay=0.5)(seed.but(hits=hits))
        first = score - (1 - 0.5 * weight) * abs(score)
        second = first - (1 - 0.5 * weight) * abs(first)
        assert [hit.score for hit in ranking.hits] == pytest.approx([score, first, second], rel=1e-6)


def test_a_hit_that_is_reached_too_keeps_what_is_better(corpus: Corpus) -> None:
    seed = BM25(corpus.group("chunk"))(Query("bridge"))
    nodes = {node.document: node for node in corpus.snapshot().all_nodes("chunk")}
    hits = (Hit(nodes["a"], 1.0, (("bm25", 1.0),)), Hit(nodes["b"], 0.9), Hit(nodes["c"], 0.01))
    ranking = Hops(entities(corpus), decay=1.0)(seed.but(hits=hits))
    assert ranking.hits[0] == hits[0]
    assert ranking.hits[0].parts == hits[0].parts
    assert ranking.hits[1].score == 0.9
    assert ranking.hits[2].score > 0.01
    assert len(Hops(entities(corpus), top_k=2)(seed.but(hits=hits))) == 2


def test_with_an_embedder_all_are_scored_by_the_query(corpus: Corpus) -> None:
    query = Query("bridge over a river")
    reached = Hops(entities(corpus), hops=2, embedder=EMBEDDER)(BM25(corpus.group("chunk"))(Query("bridge")).but(
        query=query))  # fmt: skip
    cosines = {hit.node.id: hit.score for hit in Dense(corpus.group("chunk"), EMBEDDER)(query).hits}
    assert {hit.node.id: hit.score for hit in reached.hits} == pytest.approx(
        {id: cosine for id, cosine in cosines.items() if not id.startswith("d")}
    )
    assert [hit.score for hit in reached.hits] == sorted((hit.score for hit in reached.hits), reverse=True)
    with pytest.raises(ManifestMismatch):
        Hops(entities(corpus), embedder=HashingEmbedder(8))(reached)


# ---------------------------------------------------------------------------------------------------------- pagerank


def test_the_walk_prefers_what_is_linked_to_the_hits(corpus: Corpus) -> None:
    flow = BM25(corpus.group("chunk")) >> PersonalisedPageRank(entities(corpus))
    ranking = flow(Query("bridge"))
    assert set(documents(ranking)) == {"a", "b", "c"}
    scores = {hit.node.document: hit.score for hit in ranking.hits}
    assert scores["b"] > scores["c"]
    assert sum(scores.values()) == pytest.approx(1)
    alone = flow.but(steps=(flow.inner()[0][1], PersonalisedPageRank(entities(corpus), damping=0.0)))(Query("bridge"))
    assert [(hit.node.document, hit.score) for hit in alone.hits] == [("a", 1.0)]


def test_hits_of_no_score_count_alike(corpus: Corpus) -> None:
    seed = BM25(corpus.group("chunk"))(Query("bridge"))
    nodes = {node.document: node for node in corpus.snapshot().all_nodes("chunk")}
    hits = (Hit(nodes["a"], -1.0), Hit(nodes["d"], -5.0))
    ranking = PersonalisedPageRank(entities(corpus), damping=0.0)(seed.but(hits=hits))
    assert [hit.score for hit in ranking.hits] == [0.5, 0.5]
    assert PersonalisedPageRank(entities(corpus))(seed.but(hits=())).hits == ()


@pytest.mark.slow
@settings(max_examples=100)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.floats(0.0625, 2, width=32)), max_size=15),
    restart=st.lists(st.floats(0.0, 1.0), min_size=7, max_size=7).filter(lambda found: sum(found) > 0.01),
    damping=st.floats(0, 0.9),
)
def test_pagerank_solves_its_equation(
    pairs: list[tuple[int, int, float]], restart: list[float], damping: float
) -> None:
    columns = [list(column) for column in zip(*pairs, strict=True)] or [[], [], []]
    sources, targets, weight = (
        np.array(columns[0], np.int64),
        np.array(columns[1], np.int64),
        np.array(columns[2], np.float32),
    )
    links = Links.from_pairs(np.arange(7), [NodePairs(sources, targets, weight)])
    shares = np.array(restart) / sum(restart)
    steps = np.zeros((7, 7))
    steps[links.sources, links.targets] = links.weights
    degrees = steps.sum(axis=1)
    for node in range(7):
        steps[node] = steps[node] / degrees[node] if degrees[node] else shares
    exact = np.linalg.solve(np.eye(7) - damping * steps.T, (1 - damping) * shares)
    assert pagerank(links, shares, damping) == pytest.approx(exact, abs=1e-8)


# ------------------------------------------------------------------------------------------------- access and filters


def searches(graph: NodeGraph) -> list[Operator[Ranking, Ranking]]:
    return [Hops(graph, hops=5), PersonalisedPageRank(graph), Hops(graph, hops=5, embedder=EMBEDDER)]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_what_may_not_be_read_is_neither_found_nor_passed_through(tmp_path: Path, number: int) -> None:
    texts: dict[str, str | Source] = {**STORY, "b": Source(str(STORY["b"]), ("ann",))}
    corpus = store_texts(tmp_path / "s.spolia", texts, CHAIN, EMBEDDER)
    flow = BM25(corpus.group("chunk")) >> searches(entities(corpus))[number]
    with Run(principal="ann"):
        assert set(documents(flow(Query("bridge")))) == {"a", "b", "c"}
    assert documents(flow(Query("bridge"))) == ["a"]
    with Run(principal="eve"):
        assert documents(flow(Query("bridge"))) == ["a"]


@pytest.mark.slow
def test_what_may_not_be_read_changes_no_probability(tmp_path: Path) -> None:
    scored_ids = []
    for name, text in (("plain", "bridge|river|city"), ("more", "bridge|river|city|treasure")):
        corpus = store_texts(tmp_path / f"{name}.spolia", {"a": text}, CHAIN, secret={"a:chunk:4": ("ann",)})
        graph = NodeGraph(corpus.group("chunk"), (InOrder(weight=0.5), Belonging("document")))
        flow = BM25(corpus.group("chunk")) >> PersonalisedPageRank(graph)
        scored_ids.append([(hit.node.id, hit.score) for hit in flow(Query("bridge")).hits])
        with Run(principal="ann"):
            assert len(flow(Query("bridge"))) == text.count("|") + 1
    assert scored_ids[0] == scored_ids[1]
    assert len(scored_ids[0]) == 3


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_what_the_filters_do_not_accept_is_neither_found_nor_passed_through(tmp_path: Path, number: int) -> None:
    texts = {id: Source(str(text), meta=(("lang", "de" if id == "b" else "en"),)) for id, text in STORY.items()}
    corpus = store_texts(tmp_path / "s.spolia", texts, CHAIN, EMBEDDER, fields=(Field("lang"),))
    flow = BM25(corpus.group("chunk")) >> searches(entities(corpus))[number]
    assert set(documents(flow(Query("bridge")))) == {"a", "b", "c"}
    assert documents(flow(Query("bridge", filter=where(lang="en")))) == ["a"]
    with Run(filter=where(lang="en")):
        assert documents(flow(Query("bridge"))) == ["a"]
    with Run(filter=where(lang="de")):
        seed = Ranking(Query("bridge"), tuple(Hit(node, 1.0) for node in corpus.snapshot().all_nodes("chunk")))
        assert documents(searches(entities(corpus))[number](seed)) == ["b"]


def test_links_of_meaning_lead_on_too(corpus: Corpus) -> None:
    graph = NodeGraph(corpus.group("chunk"), (Similar(neighbours=1),))
    ranking = (BM25(corpus.group("chunk")) >> Hops(graph, hops=3))(Query("bridge"))
    assert len(ranking) > 1


def test_bad_wiring_and_foreign_hits_are_refused(corpus: Corpus) -> None:
    graph = entities(corpus)
    foreign = Ranking(Query("?"), (Hit(Node("n", "x", group="entity"), 1.0),))
    for search in searches(graph):
        with pytest.raises(StoreError, match=r"over group 'chunk', and a hit is of group 'entity'"):
            search(foreign)
    for bad in (
        lambda: Hops(graph, hops=0),
        lambda: Hops(graph, decay=2.0),
        lambda: Hops(graph, top_k=0),
        lambda: PersonalisedPageRank(graph, damping=1.0),
        lambda: PersonalisedPageRank(graph, top_k=0),
    ):
        with pytest.raises(WiringError):
            bad()

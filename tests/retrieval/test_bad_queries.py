"""What is wrong with a query, an embedder or a number of hits is refused in words, before anything is searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spolia.core.operator import Operator
from spolia.databases.graph_file import GraphFile
from spolia.errors import ManifestMismatch, ModelError, QueryError, WiringError
from spolia.indexing.splitters.text_units import Sentences
from spolia.indexing.sync.sync import sync
from spolia.models.http.reranking import RerankModel
from spolia.models.onnx.minilm import MiniLM
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.protocols import CHAT, NEXT_TOKENS, SCORES, Kind
from spolia.models.trained_weights import TrainedWeights
from spolia.models.vectors import SparseRows
from spolia.orchestration.knowledge_plan import KnowledgeGuided
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense, LateInteraction, LearnedSparse
from spolia.retrieval.graph.edges import InOrder
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.retrieval.graph.walk import Hops
from spolia.retrieval.learned.ranker import LearnedRanker
from spolia.retrieval.similarity_search import BySimilarity, similarity
from spolia.retrieval.tree import Descend
from spolia.retrieval.web.engines import SearXNG
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.definition import Definition, Embedding
from spolia.stores.groups.materialise import materialise
from spolia.testing.hash_embedder import HashingEmbedder, HashingTokens
from spolia.types import Failure, Query, Ranking
from tests.cases import check_each
from tests.retrieval.test_learned_sparse import Counting
from tests.tree import operators

Search = Operator[Query, Ranking]


@dataclass(frozen=True)
class Told(HashingEmbedder):
    """An embedder that says of itself what it is told to."""

    called: str = "told"
    print: str | None = "weights 1"
    gives: float | None = None
    claims: int | None = None

    @property
    def name(self) -> str:
        return self.called

    def fingerprint(self) -> str | None:  # type: ignore[override]
        return self.print

    def embed(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray[Any, np.dtype[np.float32]]:
        vectors = replace(self, dimension=self.claims or self.dimension)._embedded(texts, kind)
        if self.gives is not None:
            vectors[:, 0] = self.gives
        return vectors

    def _embedded(self, texts: Sequence[str], kind: Kind) -> np.ndarray[Any, np.dtype[np.float32]]:
        return HashingEmbedder.embed(self, texts, kind=kind)


EMBEDDER = Told(16)


@similarity(mode="embedding")
def product(query: Any, node: Any) -> float:
    return float(query @ node)


SEARCHES: dict[str, Callable[[NodeGroup, Any], Search]] = {
    "dense": lambda group, embedder: Dense(group, embedder),
    "by similarity": lambda group, embedder: BySimilarity(group, product, embedder=embedder),
    "descend": lambda group, embedder: Descend((group.corpus.group(), group), embedder),
    "hops": lambda group, embedder: BM25(group) >> Hops(NodeGraph(group, (InOrder(),)), embedder=embedder),
}


@pytest.fixture(scope="module")
def shared_group(tmp_path_factory: pytest.TempPathFactory) -> NodeGroup:
    """Which is only read."""
    return fill_store(tmp_path_factory.mktemp("built"))


@pytest.fixture
def own_group(tmp_path: Path) -> NodeGroup:
    """Which is changed."""
    return fill_store(tmp_path)


def fill_store(tmp_path: Path) -> NodeGroup:
    folder, corpus = tmp_path / "docs", Corpus(str(tmp_path / "notes.spolia"))
    folder.mkdir()
    (folder / "a.txt").write_text("Stones upon stones. Roads between towns.")
    (folder / "b.txt").write_text("Stones in a wall.")
    embeddings = (Embedding(EMBEDDER), Embedding(Counting()))
    sync(
        folder, corpus, embedder=EMBEDDER, groups=[corpus.group("both", Definition(Sentences(), embeddings=embeddings))]
    )
    return corpus.group("both")


# ------------------------------------------------------------------------------------------------------- how many


SEARCHING = ("spolia.retrieval", "spolia.post_retrieval", "spolia.orchestration")
COUNTS = ("top_k", "width", "hops", "before", "after")
COUNTED = sorted(
    {
        (cls, f.name)
        for cls in operators()
        for f in fields(cls)  # type: ignore[arg-type]
        if cls.__module__.startswith(SEARCHING) and f.name in COUNTS
    },
    key=lambda found: (found[0].__name__, found[1]),
)


@check_each(("cls", "name"), COUNTED)
@check_each("value", [0.5, 5.0, -1, True, 2**65, "5", float("nan")])
def test_a_count_that_is_none_is_refused_by_every_operator(
    shared_group: NodeGroup, cls: type[Operator[Any, Any]], name: str, value: object
) -> None:
    resources = {
        "group": shared_group,
        "embedder": {LearnedSparse: Counting(), LateInteraction: HashingTokens()}.get(cls, EMBEDDER),
        "llm": ScriptedModel(("Yes.",), frozenset({CHAT, NEXT_TOKENS, SCORES})),
        "scorer": RerankModel("any", "http://127.0.0.1:1/v1"),
        "engine": SearXNG("https://searx.example.org"),
        "sources": (BM25(shared_group), BM25(shared_group)),
        "similarity": product,
        "corpus": shared_group.corpus,
        "target": shared_group,
        "levels": (shared_group, shared_group),
        "graph": GraphFile("people.json") if cls is KnowledgeGuided else NodeGraph(shared_group, (InOrder(),)),
    } | ({"weights": TrainedWeights("ranker")} if cls is LearnedRanker else {})
    required = {f.name: resources[f.name] for f in fields(cls) if f.name in resources}  # type: ignore[arg-type]
    cls.from_fields(required)
    with pytest.raises(WiringError, match=rf"{name} counts from \d, and is {value!r}"):
        cls.from_fields({**required, name: value})


# ---------------------------------------------------------------------------------------------------------- vectors


@pytest.mark.slow
@check_each("search", SEARCHES)
@check_each(
    ("vector", "said"),
    [
        ((1.0,) * 8, "has 8 numbers; told gives 16"),
        ((0.0,) * 15 + (float("nan"),), "holds nan in place 15"),
        ((float("inf"),) + (0.0,) * 15, "holds inf in place 0"),
        ((1e300,) * 16, "holds 1e[+]300 in place 0"),
        (("a",) * 16, "holds 'a' in place 0"),
    ],
)
def test_a_vector_that_is_none_of_the_embedders_is_refused(
    shared_group: NodeGroup, search: str, vector: tuple[float, ...], said: str
) -> None:
    with pytest.raises(QueryError, match=said):
        SEARCHES[search](shared_group, EMBEDDER)(Query("stones", vector=vector))


def test_only_the_row_with_the_wrong_vector_fails(shared_group: NodeGroup) -> None:
    good = tuple(map(float, EMBEDDER.embed(["stones"], kind="query")[0]))
    rows = [Query("stones"), Query("x", vector=(float("nan"),) * 16), Query("x", vector=good), Query("x", vector=())]
    results = Dense(shared_group, EMBEDDER).batch(rows)
    assert [row.kind if isinstance(row, Failure) else "" for row in results] == ["", "QueryError", "", "QueryError"]


@pytest.mark.parametrize("search", SEARCHES)
def test_an_embedder_that_gives_no_vectors_of_its_kind_is_told_so(shared_group: NodeGroup, search: str) -> None:
    for broken, message in (
        (replace(EMBEDDER, claims=32), r"shape \(1, 32\) for 1 texts, where each has 16 numbers"),
        (replace(EMBEDDER, gives=float("nan")), "told gave NaN or infinity for 'stones'"),
    ):
        with pytest.raises(ModelError, match=message):
            SEARCHES[search](shared_group, broken)(Query("stones"))


@dataclass(frozen=True)
class Short(Counting):
    def embed_sparse(self, texts: Sequence[str], *, kind: Kind) -> SparseRows:
        return SparseRows.from_weights([])


def test_too_few_sparse_vectors_are_refused(shared_group: NodeGroup) -> None:
    with pytest.raises(ModelError, match="counting gave 0 sparse vectors for 1 questions"):
        LearnedSparse(shared_group, Short())(Query("stones"))


# --------------------------------------------------------------------------------------------------- other embedders


@pytest.mark.parametrize("search", SEARCHES)
def test_an_embedder_of_the_same_name_that_is_another_one_is_refused(shared_group: NodeGroup, search: str) -> None:
    find = SEARCHES[search]
    with pytest.raises(ManifestMismatch, match="fingerprint: 'weights 1' there, 'weights 2' here"):
        find(shared_group, replace(EMBEDDER, print="weights 2"))(Query("stones"))
    with pytest.raises(ManifestMismatch, match="dimension: 16 there, 24 here"):
        find(shared_group, replace(EMBEDDER, dimension=24))(Query("stones"))
    with pytest.raises(ManifestMismatch, match=r"built with the embedder 'told'.*, and is searched with 'x'"):
        find(shared_group, replace(EMBEDDER, called="x"))(Query("stones"))
    assert (
        find(shared_group, EMBEDDER)(Query("stones")).hits
        == find(shared_group, replace(EMBEDDER, print=None))(Query("stones")).hits
    )


def test_sparse_embedders_are_told_apart_too(shared_group: NodeGroup) -> None:
    @dataclass(frozen=True)
    class Other(Counting):
        def fingerprint(self) -> str:
            return "weights 2"

    with pytest.raises(ManifestMismatch, match="fingerprint: 'counting' there, 'weights 2' here"):
        LearnedSparse(shared_group, Other())(Query("stones"))
    with pytest.raises(ManifestMismatch, match="dimension: 16 there, 0 here"):
        LearnedSparse(shared_group, Counting("told"))(Query("stones"))


@pytest.mark.slow
def test_a_store_does_not_go_on_with_another_embedder_of_the_same_name(own_group: NodeGroup, tmp_path: Path) -> None:
    corpus, other_embedder = own_group.corpus, replace(EMBEDDER, print="weights 2")
    (tmp_path / "docs" / "new.txt").write_text("Whelks.")
    for rebuild in (False, True):  # the vectors of the same texts would be taken for this one's
        with pytest.raises(ManifestMismatch, match="fingerprint: 'weights 1' there, 'weights 2' here"):
            sync(tmp_path / "docs", corpus, embedder=other_embedder, rebuild=rebuild)
    with pytest.raises(ManifestMismatch, match="a name of its own"):
        materialise([corpus.group("third", Definition(Sentences(), embeddings=(Embedding(other_embedder),)))])
    with pytest.raises(ManifestMismatch, match="a name of its own"):
        materialise([corpus.group("both", Definition(Sentences(), embeddings=(Embedding(other_embedder),)))])
    assert corpus.latest().groups() == ("both", "chunk")


@pytest.mark.slow
def test_what_has_no_fingerprint_is_known_by_name_and_dimension(tmp_path: Path) -> None:
    folder, corpus, plain = tmp_path / "docs", Corpus(str(tmp_path / "notes.spolia")), Told(16, print=None)
    folder.mkdir()
    (folder / "a.txt").write_text("Stones upon stones.")
    sync(folder, corpus, embedder=plain)
    for same in (plain, replace(plain, print="weights 1")):
        assert sync(folder, corpus, embedder=same).unchanged == 1
        assert len(Dense(corpus.group(), same)(Query("stones"))) == 1
    with pytest.raises(ManifestMismatch, match="dimension: 16 there, 24 here"):
        Dense(corpus.group(), replace(plain, dimension=24))(Query("stones"))


def test_how_an_embedder_runs_is_no_part_of_what_a_group_was_built_with(shared_group: NodeGroup) -> None:
    from spolia.stores.manifest import group_embedding

    fast, slow = group_embedding(Embedding(MiniLM(threads=2))), group_embedding(Embedding(MiniLM()))
    assert fast.plain != slow.plain
    assert fast == slow


def test_as_many_hops_as_one_likes_end_where_the_graph_does(shared_group: NodeGroup) -> None:
    search = BM25(shared_group) >> Hops(NodeGraph(shared_group, (InOrder(),)), hops=10**15)
    assert len(search(Query("roads"))) == 2

"""Search along graphs: nearly what exact search finds under any filter, and never what is not allowed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from spolia.errors import StoreCorrupt
from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.definition import Metric
from spolia.stores.files import graph_folder, segment_path
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.graphs import (
    VectorGraph,
    build_graph,
    build_graphs,
    damaged_graphs,
    graph_path,
    is_whole,
    sweep_graphs,
)
from spolia.stores.vectors.placement import PlacedVectors, Rows
from spolia.stores.vectors.segment_search import ExactSearch, GraphSearch
from tests.stores.vector_fixtures import (
    EMBEDDER,
    SETTINGS,
    drawn_vectors,
    graph_search,
    placed_in,
    recall,
    write_segments,
)

ROOT = Path(__file__).resolve().parents[2]
ROWS, DIMENSION = 8_000, 24

Built = tuple[GraphSearch, PlacedVectors]


@pytest.fixture(scope="module", params=["cosine", "dot", "euclidean"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Two segments with graphs and a small one without; some rows are of two nodes, some of none."""
    metric: Metric = request.param
    store = tmp_path_factory.mktemp(metric)
    parts = [
        drawn_vectors(rows, DIMENSION, seed, unit=metric == "cosine") for seed, rows in enumerate((ROWS, ROWS, 700))
    ]
    if metric == "dot":
        parts = [part * np.random.default_rng(8).uniform(0.2, 3, (len(part), 1)).astype(np.float32) for part in parts]
    rows = np.arange(2 * ROWS + 700)
    places = np.concatenate([rows[rows % 10 > 0], rows[rows % 7 == 1]])
    np.random.default_rng(5).shuffle(places)
    placed = placed_in(store, *parts, places=places)
    return graph_search(store, placed, metric), placed


def queries_of(metric: Metric) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return drawn_vectors(40, DIMENSION, 77, unit=metric == "cosine")


def masks(placed: PlacedVectors) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.bool_]] | None]:
    draw, count = np.random.default_rng(3), len(placed.keys)
    near = placed.vectors(placed.places) @ queries_of("cosine")[0]
    return {
        "all": None,
        **{f"random {share}": draw.random(count) < share for share in (0.7, 0.3, 0.1, 0.01)},
        "one segment": placed.segment_of == 1,
        "the half that is far from a query": near < np.median(near),
        "the tenth that is nearest to one": near > np.quantile(near, 0.9),
        "five": np.isin(np.arange(count), [5, 6, 70, 900, 4000]),
        "none": np.zeros(count, dtype=np.bool_),
    }


@pytest.mark.slow
def test_nearly_all_is_found_and_nothing_else(built: Built) -> None:
    search, placed = built
    exact, queries = ExactSearch(placed, search.metric), queries_of(search.metric)
    for name, mask in masks(placed).items():
        allowed = Allowed(placed.keys, mask)
        rankings, right = search.search(queries, 10, allowed), exact.search(queries, 10, allowed)
        assert [len(ranking) for ranking in rankings] == [min(10, allowed.count)] * len(queries), name
        assert all(allowed.holds(key for key, _ in ranking).all() for ranking in rankings), name
        if allowed.count:
            assert recall(rankings, right) >= (0.98 if mask is None else 0.99), name
        for ours, theirs in zip(rankings, right, strict=True):
            assert ours == sorted(ours, key=lambda pair: (-pair[1], pair[0])), name
            same = dict(ours).keys() & dict(theirs).keys()
            assert all(dict(ours)[key] == dict(theirs)[key] for key in same), name


@pytest.mark.slow
def test_one_query_finds_what_it_finds_among_many(built: Built) -> None:
    search, placed = built
    queries = queries_of(search.metric)
    for mask in masks(placed).values():
        allowed = Allowed(placed.keys, mask)
        assert search.search(queries, 10, allowed) == [search.search(q[None], 10, allowed)[0] for q in queries]


@pytest.mark.slow
def test_graphs_are_used_and_not_only_compared(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    search, placed = built
    walked: list[int] = []
    nearest = VectorGraph.nearest

    def noted(graph: VectorGraph, query: Vectors, count: int, expansion: int) -> Rows:
        walked.append(count)
        return nearest(graph, query, count, expansion)

    monkeypatch.setattr(VectorGraph, "nearest", noted)
    search.search(queries_of(search.metric)[:1], 10, Allowed(placed.keys))
    assert len(walked) == 2
    search.search(queries_of(search.metric)[:1], 10, Allowed(placed.keys, masks(placed)["random 0.01"]))
    assert len(walked) == 2


@pytest.mark.slow
def test_all_nodes_can_be_asked_for(built: Built) -> None:
    search, placed = built
    hits = search.search(queries_of(search.metric)[:1], len(placed.keys) + 5, Allowed(placed.keys))[0]
    assert sorted(key for key, _ in hits) == placed.keys.tolist()


@pytest.mark.slow
def test_threads_find_the_same(built: Built) -> None:
    search, placed = built
    allowed, queries = Allowed(placed.keys), queries_of(search.metric)
    right = search.search(queries, 10, allowed)
    wrong: list[int] = []

    def ask() -> None:
        for index, query in enumerate(queries):
            if search.search(query[None], 10, allowed)[0] != right[index]:
                wrong.append(index)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# The files.


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    return write_segments(tmp_path, drawn_vectors(600, 12))[0]


@pytest.fixture
def graph(tmp_path: Path, segment: Path) -> Path:
    path = graph_path(graph_folder(tmp_path, EMBEDDER), 1, "cosine", SETTINGS)
    build_graph(path, segment, "cosine", SETTINGS)
    return path


def test_the_same_segment_gives_the_same_graph(segment: Path, graph: Path) -> None:
    graph_bytes = graph.read_bytes()
    build_graph(graph, segment, "cosine", SETTINGS)
    assert graph.read_bytes() == graph_bytes
    assert not list(graph.parent.glob("*.tmp"))


@pytest.mark.parametrize("cut", [0, 5, 11, 12, 40, 300, 3_000, 30_000])
def test_a_cut_graph_is_refused_and_not_followed(segment: Path, graph: Path, cut: int) -> None:
    graph_bytes = graph.read_bytes()
    graph.write_bytes(graph_bytes[:-cut] if cut else b"")
    with pytest.raises(StoreCorrupt, match="is damaged: its end is missing"):
        VectorGraph(graph, segment)
    assert not is_whole(graph, segment)


@pytest.mark.slow
def test_any_changed_byte_is_refused(segment: Path, graph: Path) -> None:
    graph_bytes = graph.read_bytes()
    draw = np.random.default_rng(1)
    for position in [*draw.integers(0, len(graph_bytes), 60), *range(len(graph_bytes) - 30, len(graph_bytes))]:
        graph.write_bytes(graph_bytes[:position] + bytes([graph_bytes[position] ^ 0x41]) + graph_bytes[position + 1 :])
        with pytest.raises(StoreCorrupt, match="is damaged"):
            VectorGraph(graph, segment)


def test_a_graph_of_another_segment_is_refused(tmp_path: Path, graph: Path) -> None:
    other_segment = write_segments(tmp_path, drawn_vectors(600, 12, seed=9))[
        0
    ]  # takes the place and number of the first
    with pytest.raises(StoreCorrupt, match="of another segment"):
        VectorGraph(graph, other_segment)
    build_graphs(tmp_path, EMBEDDER, {1: 600}, "cosine", SETTINGS.but(above=100))
    VectorGraph(graph, other_segment)


def test_damaged_graphs_are_said_and_built_again(tmp_path: Path, segment: Path, graph: Path) -> None:
    graph_bytes = graph.read_bytes()
    graph.write_bytes(b"\0" * 64 + graph_bytes[64:])
    settings = SETTINGS.but(above=100)
    build_graphs(tmp_path, EMBEDDER, {1: 600}, "cosine", settings)  # nothing is read
    ((path, wrong),) = damaged_graphs(tmp_path).items()
    assert "its checksum differs" in wrong
    path.unlink()
    build_graphs(tmp_path, EMBEDDER, {1: 600}, "cosine", settings)
    assert damaged_graphs(tmp_path) == {}
    assert graph.read_bytes() == graph_bytes


def test_graphs_of_segments_that_are_gone_are_swept(tmp_path: Path, graph: Path) -> None:
    graph.with_suffix(".tmp").write_bytes(b"half")
    gone = graph.with_name(graph.name.replace("000001", "000002"))
    gone.write_bytes(b"x")
    sweep_graphs(tmp_path, [(EMBEDDER, 1)])
    assert list(graph.parent.iterdir()) == [graph]
    sweep_graphs(tmp_path, [("another", 1)])
    assert list(graph.parent.iterdir()) == []


def test_without_usearch_nothing_is_built(tmp_path: Path, segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usearch", None)
    build_graphs(tmp_path, EMBEDDER, {1: 600}, "cosine", SETTINGS.but(above=100))
    assert not graph_folder(tmp_path, EMBEDDER).exists()


BUILD = """
import sys
from pathlib import Path
from spolia.stores.vectors.graphs import build_graphs
from tests.stores.vector_fixtures import EMBEDDER, SETTINGS
build_graphs(Path(sys.argv[1]), EMBEDDER, {1: 600, 2: 600}, "cosine", SETTINGS.but(above=100))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "left"),
    [
        ("graphs.add", 0),
        ("graphs.add@7", 1),
        ("graphs.save", 0),
        ("graphs.fsync@2", 1),
        ("graphs.rename", 0),
        ("graphs.rename@2", 1),
        ("graphs.fsync_folder", 1),
        ("graphs.fsync_folder@2", 2),
    ],
)
def test_a_killed_building_goes_on(tmp_path: Path, point: str, left: int) -> None:
    write_segments(tmp_path, drawn_vectors(600, 12), drawn_vectors(600, 12, seed=1))
    command = [sys.executable, "-c", BUILD, str(tmp_path)]
    killed = subprocess.run(command, cwd=ROOT, env={**os.environ, "SPOLIA_FAIL_POINT": point}, check=False)
    assert killed.returncode == -signal.SIGKILL
    inodes_by_path = {path: path.stat().st_ino for path in graph_folder(tmp_path, EMBEDDER).glob("*.hnsw")}
    assert len(inodes_by_path) == left
    sweep_graphs(tmp_path, [(EMBEDDER, 1), (EMBEDDER, 2)])
    build_graphs(tmp_path, EMBEDDER, {1: 600, 2: 600}, "cosine", SETTINGS.but(above=100))
    whole = sorted(graph_folder(tmp_path, EMBEDDER).iterdir())
    assert [path.suffix for path in whole] == [".hnsw", ".hnsw"]
    for number, path in enumerate(whole, 1):
        VectorGraph(path, segment_path(tmp_path, EMBEDDER, number))
    assert all(path.stat().st_ino == inode for path, inode in inodes_by_path.items())  # what was done is not done again


BESIDE = """
import sys
from pathlib import Path
import numpy as np
from spolia.stores.vectors.graphs import VectorGraph

def search():
    graph = VectorGraph(Path(sys.argv[1]), Path(sys.argv[2]))
    assert len(graph.nearest(np.ones(12, np.float32), 5, 64)) == 5

def embed():
    import onnxruntime
    assert onnxruntime.get_available_providers()

for step in sys.argv[3:]:
    {"search": search, "embed": embed}[step]()
"""


@pytest.mark.slow
@pytest.mark.parametrize("order", [("search", "embed", "search"), ("embed", "search", "embed")])
def test_graphs_and_the_embedder_live_in_one_process(segment: Path, graph: Path, order: tuple[str, ...]) -> None:
    """They load C++ libraries that clash: whichever came second crashed the process, or not."""
    command = [sys.executable, "-c", BESIDE, str(graph), str(segment), *order]
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.slow
def test_a_killed_sweep_goes_on(tmp_path: Path, graph: Path) -> None:
    code = "import sys; from pathlib import Path; from spolia.stores.vectors.graphs import sweep_graphs; "
    command = [sys.executable, "-c", code + "sweep_graphs(Path(sys.argv[1]), [])", str(tmp_path)]
    killed = subprocess.run(command, env={**os.environ, "SPOLIA_FAIL_POINT": "graphs.sweep"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    sweep_graphs(tmp_path, [])
    assert not graph.exists()

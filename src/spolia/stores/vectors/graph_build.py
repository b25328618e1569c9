"""Building the graphs of a store: after a publication, for segments that have none; stopped anywhere, it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from spolia.errors import StoreCorrupt
from spolia.stores.definition import Metric
from spolia.stores.failpoints import fail_point
from spolia.stores.indexes import HNSW
from spolia.stores.layout import GRAPHS, VECTORS, graph_folder, segment_path
from spolia.stores.vectors.graphs import SUFFIX, VectorGraph, available, build_graph, graph_path, is_whole

NOT_AVAILABLE = (
    "usearch is not installed: vectors are searched without a graph, with the same results, slower. Write: pip install "
    "'spolia[hnsw]'"
)


def build_graphs(
    store: Path,
    embedder: str,
    segments: Mapping[int, int],
    metric: Metric,
    settings: HNSW,
    *,
    checked: bool = False,
) -> list[str]:
    """Build what graphs are missing over the large segments of an embedder; what was out of order, in words.

    Each is a file of its own, durable before the next one is begun. Searches of this process go on meanwhile, exactly.

    Args:
        segments: number and rows of each segment; those of fewer than `settings.above` rows get no graph.
        checked: read the graphs that are there, and build damaged ones again.
    """
    large = [number for number, rows in sorted(segments.items()) if rows >= settings.above]
    if not large or not available():
        return [NOT_AVAILABLE] if large else []
    said = []
    for number in large:
        path, segment = (
            graph_path(graph_folder(store, embedder), number, metric, settings),
            segment_path(store, embedder, number),
        )
        if checked and path.exists() and (wrong := _damage(path, segment)):
            path.unlink()
            said.append(f"{wrong} It was built again.")
        if not is_whole(path, segment):
            build_graph(path, segment, metric, settings)
    return said


def _damage(path: Path, segment: Path) -> str:
    try:
        VectorGraph(path, segment)
    except StoreCorrupt as error:
        return str(error)
    return ""


def damaged_graphs(store: Path) -> list[str]:
    """What is wrong with the graphs that there are, in words. All of them are read; none is needed."""
    if not available():
        return []
    segments = {
        path: store / VECTORS / path.parent.name / f"{path.name.partition('.')[0]}.seg"
        for path in sorted((store / GRAPHS).glob(f"*/*{SUFFIX}"))
    }
    return [said for path, segment in segments.items() if segment.exists() and (said := _damage(path, segment))]


def sweep_graphs(store: Path, segments: Iterable[tuple[str, int]]) -> None:
    """Remove graphs of segments that are gone, and what a killed builder left.

    Args:
        segments: embedder and number of all that there are.
    """
    known = {(graph_folder(store, embedder), f"{number:06d}") for embedder, number in segments}
    for path in sorted((store / GRAPHS).glob("*/*")):
        if (path.parent, path.name.partition(".")[0]) not in known or path.suffix == ".tmp":
            fail_point("graphs.sweep")
            path.unlink()

"""Vectors for the tests of searching: placed in real segment files, and compared one by one in plain float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.definition import Metric
from spolia.stores.files import graph_folder, segment_path
from spolia.stores.indexes import HNSW
from spolia.stores.vectors.dense import Vectors, open_segment, write_segment
from spolia.stores.vectors.graphs import VectorGraph, build_graphs, graph_path
from spolia.stores.vectors.placement import PlacedVectors
from spolia.stores.vectors.segment_search import GraphSearch, Opener

EMBEDDER = "clustered/1"
SETTINGS = HNSW(connectivity=16, expansion_add=96, expansion_search=96, above=5_000)


def drawn_vectors(rows: int, dimension: int, seed: int = 0, *, unit: bool = True) -> Vectors:
    """float32[rows, dimension] around some centres, as texts lie around topics."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(40, dimension))
    points = centres[draw.integers(0, 40, rows)] + draw.normal(size=(rows, dimension))
    if unit:
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points.astype(np.float32)


def write_segments(store: Path, *parts: Vectors) -> list[Path]:
    """Each part as a segment of a store."""
    paths = []
    for number, part in enumerate(parts, 1):
        path = segment_path(store, EMBEDDER, number)
        write_segment(path, EMBEDDER, [f"{number}:{row}".encode().ljust(16) for row in range(len(part))], part)
        paths.append(path)
    return paths


def placed_in(store: Path, *parts: Vectors, places: npt.NDArray[np.int64] | None = None) -> PlacedVectors:
    """A node for each row, or for each of `places`, with keys that have gaps."""
    segments = [open_segment(path).vectors for path in write_segments(store, *parts)]
    places = np.arange(sum(map(len, parts))) if places is None else places
    return PlacedVectors(np.arange(len(places)) * 3 + 7, segments, places)


def graph_search(store: Path, placed: PlacedVectors, metric: Metric = "cosine") -> GraphSearch:
    """With the graphs of its large segments built."""
    rows = {number: len(segment) for number, segment in enumerate(placed.segments, 1)}
    build_graphs(store, EMBEDDER, rows, metric, SETTINGS)
    return GraphSearch(placed, metric, [opener(store, number, metric) for number in rows], SETTINGS.expansion_search)


def opener(store: Path, number: int, metric: Metric) -> Opener:
    """Gives the graph of a segment, if it has one."""
    path = graph_path(graph_folder(store, EMBEDDER), number, metric, SETTINGS)
    graph = VectorGraph(path, segment_path(store, EMBEDDER, number)) if path.exists() else None
    return lambda: graph


def compare_all(
    metric: Metric, queries: Vectors, vectors: Vectors, allowed: Allowed, top_k: int
) -> list[list[tuple[int, float]]]:
    """What searching should find: every allowed vector compared, formula by formula."""
    rankings = []
    for query in queries.astype(np.float64):
        if metric == "euclidean":
            scores = -np.linalg.norm(vectors.astype(np.float64) - query, axis=1)
        else:
            length = np.linalg.norm(query) if metric == "cosine" else 1.0
            scores = vectors.astype(np.float64) @ (query / (length or 1.0))
        order = [
            position
            for position in np.lexsort((allowed.keys, -scores))
            if allowed.mask is None or allowed.mask[position]
        ]
        rankings.append([(int(allowed.keys[position]), float(scores[position])) for position in order[:top_k]])
    return rankings


def recall(rankings: list[list[tuple[int, float]]], right: list[list[tuple[int, float]]]) -> float:
    """Share of the right keys that were found."""
    pairs = list(zip(rankings, right, strict=True))
    return sum(len(dict(a).keys() & dict(b).keys()) for a, b in pairs) / sum(len(b) for _, b in pairs)

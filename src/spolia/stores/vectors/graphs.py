"""Vectors as int8 codes for graphs: a quarter of the bytes, and distances that cost a quarter of the time.

For cosine and Euclidean distance the mean is taken off, which changes no distance, and what is left is scaled so that
all but the rarest numbers fit into -127..127; between unit vectors the Euclidean distance has the order of the cosine.
Dot products are scaled only, the query by itself, since its length says nothing about their order; a graph by dot
products finds more than one by distances of vectors made equally long (Morozov, Babenko, "Non-metric similarity graphs
for maximum inner product search", 2018; measured again: recall 0.99 against 0.66 on sentences). Codes of one byte find
the same neighbours, whose scores are computed from the vectors again.
"""

import ctypes
import json
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from spolia.core.run_context import check_cancelled
from spolia.errors import MissingExtra, StoreCorrupt, installed
from spolia.private_files import make_folder, touch
from spolia.stores.definition import Metric
from spolia.stores.files import (
    GRAPHS,
    VECTORS,
    corrupt,
    entries,
    fail_point,
    fsync,
    graph_folder,
    segment_names,
    segment_path,
)
from spolia.stores.indexes import HNSW
from spolia.stores.vectors.dense import Vectors, VectorSegment, checksum_of, mapped, open_segment

if TYPE_CHECKING:
    from usearch.index import Index

Codes = npt.NDArray[np.int8]

_SAMPLED = 20_000
_FITTING = 0.9999
_LARGEST = 127


@dataclass(frozen=True, eq=False)
class Quantization:
    """How the vectors of one segment are coded: less `mean` (float32[d], zeros for dot products), times `scale`."""

    metric: Metric
    mean: Vectors
    scale: float

    @property
    def distance(self) -> str:
        return "ip" if self.metric == "dot" else "l2sq"

    def of_rows(self, rows: Vectors) -> Codes:
        return _rounded((rows - self.mean) * np.float32(self.scale))

    def of_query(self, query: Vectors) -> Codes:
        if self.metric == "dot":
            largest = float(np.abs(query).max())
            return _rounded(query * np.float32(_LARGEST / largest if largest else 0.0))
        return self.of_rows(query)


def fitted(metric: Metric, vectors: Vectors) -> Quantization:
    """The coding of a segment, from a sample of its vectors float32[n, d].

    >>> fitted("euclidean", np.array([[0, 4], [2, 4]], dtype=np.float32)).of_query(np.float32([2, 4])).tolist()
    [127, 0]
    """
    sample = vectors[:: -(-len(vectors) // _SAMPLED)]
    mean = np.zeros(sample.shape[1], np.float32) if metric == "dot" else sample.mean(axis=0, dtype=np.float64)
    mean = mean.astype(np.float32)
    reach = float(np.quantile(np.abs(sample - mean), _FITTING))
    return Quantization(metric, mean, _LARGEST / reach if reach else 1.0)


def _rounded(scaled: Vectors) -> Codes:
    codes: Codes = np.clip(np.rint(scaled), -_LARGEST, _LARGEST).astype(np.int8)
    return codes


MAGIC = b"SPLGRF01"
SUFFIX = ".hnsw"
_TAIL = 4 + len(MAGIC)
IN_MEMORY = 128 << 20
"""Bytes up to which a graph is read and not mapped: a search of 100,000 nodes takes a seventh less in large pages."""
_ADDED_AT_ONCE = 128
"""usearch holds Python's lock while it adds: about 25 ms, then other threads go on."""


def available() -> bool:
    """Return whether usearch is installed and can be loaded."""
    try:
        _usearch()
    except MissingExtra:
        return False
    return True


def graph_path(folder: Path, segment: int, metric: Metric, settings: HNSW) -> Path:
    return folder / f"{segment:06d}.{metric}-{settings.connectivity}-{settings.expansion_add}{SUFFIX}"


class VectorGraph:
    """An opened graph; `StoreCorrupt` if it is damaged or of another segment, `MissingExtra` without usearch."""

    def __init__(self, path: Path, segment: Path) -> None:
        data = mapped(path)
        footer, end = _footer(path, data)
        if footer["segment"] != checksum_of(segment).hex():
            raise _damaged(path, "it is of another segment")
        if crc32(data[:end].data) != footer["crc32"]:
            raise _damaged(path, "its checksum differs")
        graph_end = footer["graph"]
        mean = data[graph_end:end].view("<f4").copy()
        self.coding = Quantization(footer["metric"], mean, footer["scale"])
        self.count: int = footer["count"]
        self._data = data[:graph_end].copy() if graph_end <= IN_MEMORY else data[:graph_end]  # usearch does not hold it
        self._index = _usearch().Index.restore(self._data, view=True, enable_key_lookups=False)
        self._lock = threading.Lock()  # usearch has one scratch space for all searches that name no thread

    def nearest(self, query: Vectors, count: int, expansion: int) -> npt.NDArray[np.int64]:
        """About the `count` rows of the segment nearest to a query float32[d], nearest first."""
        code = self.coding.of_query(query)
        with self._lock:
            self._index.expansion_search = max(expansion, count)
            rows: npt.NDArray[np.int64] = self._index.search(code, count, threads=1).keys.astype(np.int64)
        return rows


def build_graph(path: Path, segment_path: Path, metric: Metric, settings: HNSW) -> None:
    """Build the graph of a segment and make it durable under its name; the same segment gives the same graph."""
    segment = open_segment(segment_path)
    coding = fitted(metric, segment.vectors)
    index = _built(segment, coding, settings)
    make_folder(path.parent)
    temporary = path.with_suffix(".tmp")
    try:
        fail_point("graphs.save")
        touch(temporary)
        index.save(os.fspath(temporary))
        _finish(temporary, coding, len(segment.vectors), checksum_of(segment_path))
        fail_point("graphs.fsync")
        fsync(temporary)
        fail_point("graphs.rename")
        os.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fail_point("graphs.fsync_folder")
    for folder in (path.parent, path.parent.parent):
        fsync(folder)


def _built(segment: VectorSegment, coding: Quantization, settings: HNSW) -> "Index":
    index: Index = _usearch().Index(
        ndim=len(coding.mean),
        metric=coding.distance,
        dtype="i8",
        connectivity=settings.connectivity,
        expansion_add=settings.expansion_add,
        enable_key_lookups=False,
    )
    for start in range(0, len(segment.vectors), _ADDED_AT_ONCE):
        check_cancelled()
        fail_point("graphs.add")
        codes = coding.of_rows(segment.vectors[start : start + _ADDED_AT_ONCE])
        index.add(np.arange(start, start + len(codes), dtype=np.uint64), codes, threads=1)
    return index


def _finish(path: Path, coding: Quantization, count: int, segment: bytes) -> None:
    """Put mean and footer to what usearch wrote."""
    size = path.stat().st_size
    mean = coding.mean.astype("<f4").tobytes()
    with path.open("ab") as file:
        file.write(mean)
        file.flush()
        footer = {
            "segment": segment.hex(),
            "metric": coding.metric,
            "scale": coding.scale,
            "count": count,
            "graph": size,
            "crc32": crc32(mapped(path).data),
        }
        footer["footer"] = crc32(json.dumps(footer).encode())
        written = json.dumps(footer).encode()
        file.write(written + len(written).to_bytes(4, "little") + MAGIC)


def is_whole(path: Path, segment: Path) -> bool:
    """Whether there is a graph of this segment, as far as its footer tells; `VectorGraph` reads all of it."""
    try:
        footer, _ = _footer(path, mapped(path))
        return bool(footer["segment"] == checksum_of(segment).hex())
    except (OSError, StoreCorrupt):
        return False


def _footer(path: Path, data: npt.NDArray[np.uint8]) -> tuple[dict[str, Any], int]:
    if len(data) < _TAIL or data[-len(MAGIC) :].tobytes() != MAGIC:
        raise _damaged(path, "its end is missing")
    end = len(data) - _TAIL
    begin = end - int.from_bytes(data[end : end + 4].tobytes(), "little")
    try:
        footer: dict[str, Any] = json.loads(data[max(begin, 0) : end].tobytes())
        said = footer.pop("footer", None)  # which those of earlier versions do not have
        whole = footer.keys() == {"segment", "metric", "scale", "count", "graph", "crc32"}
    except (ValueError, AttributeError, RecursionError) as error:
        raise _damaged(path, "its footer cannot be read") from error
    if said not in (None, crc32(json.dumps(footer).encode())):
        raise _damaged(path, "the checksum of its footer differs")
    if not whole or not 0 < footer["graph"] < begin:
        raise _damaged(path, "its sizes do not fit")
    return footer, begin


def _usearch() -> Any:
    if sys.platform == "linux":
        # usearch holds the C++ library and shows its symbols to what is loaded later: onnxruntime took some of them and
        # crashed (usearch 2.26.6, onnxruntime 1.31.1). They come from the system's library if that is there first.
        with suppress(OSError):
            ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
    with installed("hnsw", "usearch", "Searching a graph of vectors"):
        import usearch.index
    return usearch.index


def _damaged(path: Path, why: str) -> StoreCorrupt:
    remedy = "Searches go on without it, slower. Write spolia repair --store {store}: it is built again."
    return corrupt(path, f"The graph {path} is damaged: {why}", remedy)


def build_graphs(store: Path, embedder: str, segments: Mapping[int, int], metric: Metric, settings: HNSW) -> None:
    """Build what graphs are missing over the large segments of an embedder, while searches go on, exactly."""
    for number in missing_graphs(store, embedder, segments, metric, settings):
        path = graph_path(graph_folder(store, embedder), number, metric, settings)
        with suppress(FileNotFoundError):  # another process has removed a segment that was damaged
            build_graph(path, segment_path(store, embedder, number), metric, settings)


def damaged_graphs(store: Path) -> dict[Path, str]:
    """What is wrong with the graphs that there are, in words. All of them are read; none is needed."""
    found = {}
    for path in sorted((store / GRAPHS).glob(f"*/*{SUFFIX}")):
        segment = store / VECTORS / path.parent.name / f"{path.name.partition('.')[0]}.seg"
        if segment.exists() and available():
            try:
                VectorGraph(path, segment)
            except StoreCorrupt as error:
                found[path] = error.cause
    return found


def unneeded(store: Path, segments: Iterable[tuple[str, int]]) -> list[Path]:
    """Graphs of segments that are gone, and what a killed builder left."""
    known = {segment_names(embedder, number) for embedder, number in segments}
    return sorted(
        Path(entry.path)
        for folder, entry in entries(store / GRAPHS)
        if (folder, f"{entry.name.partition('.')[0]}.seg") not in known or entry.name.endswith(".tmp")
    )


def sweep_graphs(store: Path, segments: Iterable[tuple[str, int]]) -> None:
    for path in unneeded(store, segments):
        fail_point("graphs.sweep")
        path.unlink()


def missing_graphs(
    store: Path, embedder: str, segments: Mapping[int, int], metric: Metric, settings: HNSW
) -> list[int]:
    """Numbers of the large segments that have no whole graph, as far as its footer tells."""
    large = [number for number, rows in sorted(segments.items()) if rows >= settings.above]
    folder = graph_folder(store, embedder)
    paths = {number: graph_path(folder, number, metric, settings) for number in large}
    missing = [number for number, path in paths.items() if not is_whole(path, segment_path(store, embedder, number))]
    return missing if missing and available() else []

"""Graphs over vectors as int8 codes: a quarter of the bytes, and distances that cost a quarter of the time.

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
from spolia.errors import MissingExtra, StoreCorrupt, require_extra
from spolia.private_files import make_folder, touch
from spolia.stores.definition import Metric
from spolia.stores.files import (
    GRAPHS,
    VECTORS,
    corrupt_error,
    entries,
    fail_point,
    fsync,
    graph_folder,
    segment_names,
    segment_path,
)
from spolia.stores.indexes import HNSW
from spolia.stores.vectors.dense import Vectors, VectorSegment, mapped, open_segment, read_checksum

if TYPE_CHECKING:
    from usearch.index import Index

Codes = npt.NDArray[np.int8]

_SAMPLED = 20_000
_FIT_QUANTILE = 0.9999
_LARGEST_CODE = 127


@dataclass(frozen=True, eq=False)
class Quantization:
    """Coding of the vectors of one segment: less `mean` (float32[d], zeros for dot products), times `scale`."""

    metric: Metric
    mean: Vectors
    scale: float

    @property
    def distance(self) -> str:
        return "ip" if self.metric == "dot" else "l2sq"

    def encode_rows(self, rows: Vectors) -> Codes:
        return _round_codes((rows - self.mean) * np.float32(self.scale))

    def encode_query(self, query: Vectors) -> Codes:
        if self.metric == "dot":
            largest = float(np.abs(query).max())
            return _round_codes(query * np.float32(_LARGEST_CODE / largest if largest else 0.0))
        return self.encode_rows(query)


def fit_quantization(metric: Metric, vectors: Vectors) -> Quantization:
    """Fit the coding of a segment to a sample of its vectors float32[n, d].

    >>> quantization = fit_quantization("euclidean", np.array([[0, 4], [2, 4]], dtype=np.float32))
    >>> quantization.encode_query(np.float32([2, 4])).tolist()
    [127, 0]
    """
    sample = vectors[:: -(-len(vectors) // _SAMPLED)]
    mean = np.zeros(sample.shape[1], np.float32) if metric == "dot" else sample.mean(axis=0, dtype=np.float64)
    mean = mean.astype(np.float32)
    spread = float(np.quantile(np.abs(sample - mean), _FIT_QUANTILE))
    return Quantization(metric, mean, _LARGEST_CODE / spread if spread else 1.0)


def _round_codes(scaled: Vectors) -> Codes:
    codes: Codes = np.clip(np.rint(scaled), -_LARGEST_CODE, _LARGEST_CODE).astype(np.int8)
    return codes


MAGIC = b"SPLGRF01"
SUFFIX = ".hnsw"
_TAIL = 4 + len(MAGIC)
IN_MEMORY = 128 << 20
"""Bytes up to which a graph is read and not mapped: a search of 100,000 nodes takes a seventh less in large pages."""
_ADDED_AT_ONCE = 128
"""usearch holds Python's lock while it adds: about 25 ms, then other threads go on."""


def has_usearch() -> bool:
    """Return whether usearch is installed and can be loaded."""
    try:
        _load_usearch()
    except MissingExtra:
        return False
    return True


def graph_path(folder: Path, segment: int, metric: Metric, settings: HNSW) -> Path:
    return folder / f"{segment:06d}.{metric}-{settings.connectivity}-{settings.expansion_add}{SUFFIX}"


class VectorGraph:
    """Opened graph; `StoreCorrupt` if it is damaged or of another segment, `MissingExtra` without usearch."""

    def __init__(self, path: Path, segment: Path) -> None:
        data = mapped(path)
        footer, end = _read_footer(path, data)
        if footer["segment"] != read_checksum(segment).hex():
            raise _damaged_error(path, "it is of another segment")
        if crc32(data[:end].data) != footer["crc32"]:
            raise _damaged_error(path, "its checksum differs")
        graph_end = footer["graph"]
        mean = data[graph_end:end].view("<f4").copy()
        self.coding = Quantization(footer["metric"], mean, footer["scale"])
        self.count: int = footer["count"]
        self._data = data[:graph_end].copy() if graph_end <= IN_MEMORY else data[:graph_end]  # usearch does not hold it
        self._index = _load_usearch().Index.restore(self._data, view=True, enable_key_lookups=False)
        self._lock = threading.Lock()  # usearch has one scratch space for all searches that name no thread

    def nearest(self, query: Vectors, count: int, expansion: int) -> npt.NDArray[np.int64]:
        """Return about the `count` rows of the segment nearest to a query float32[d], nearest first."""
        code = self.coding.encode_query(query)
        with self._lock:
            self._index.expansion_search = max(expansion, count)
            rows: npt.NDArray[np.int64] = self._index.search(code, count, threads=1).keys.astype(np.int64)
        return rows


def build_graph(path: Path, segment_path: Path, metric: Metric, settings: HNSW) -> None:
    """Build the graph of a segment and make it durable under its name; the same segment gives the same graph."""
    segment = open_segment(segment_path)
    coding = fit_quantization(metric, segment.vectors)
    index = _build_index(segment, coding, settings)
    make_folder(path.parent)
    temporary = path.with_suffix(".tmp")
    try:
        fail_point("graphs.save")
        touch(temporary)
        index.save(os.fspath(temporary))
        _append_footer(temporary, coding, len(segment.vectors), read_checksum(segment_path))
        fail_point("graphs.fsync")
        fsync(temporary)
        fail_point("graphs.rename")
        os.rename(temporary, path)
    except BaseException:  # also Ctrl-C: half a graph would only take room
        temporary.unlink(missing_ok=True)
        raise
    fail_point("graphs.fsync_folder")
    for folder in (path.parent, path.parent.parent):
        fsync(folder)


def _build_index(segment: VectorSegment, coding: Quantization, settings: HNSW) -> "Index":
    index: Index = _load_usearch().Index(
        ndim=len(coding.mean),
        metric=coding.distance,
        dtype="i8",
        connectivity=settings.connectivity,
        expansion_add=settings.expansion_add,
        enable_key_lookups=False,
    )
    for start in range(0, len(segment.vectors), _ADDED_AT_ONCE):
        # Between short batches, so that a cancelled run ends soon.
        check_cancelled()
        fail_point("graphs.add")
        codes = coding.encode_rows(segment.vectors[start : start + _ADDED_AT_ONCE])
        # One thread: the order of additions decides the graph, which is to be the same each time.
        index.add(np.arange(start, start + len(codes), dtype=np.uint64), codes, threads=1)
    return index


def _append_footer(path: Path, coding: Quantization, count: int, segment: bytes) -> None:
    """Append mean and footer to what usearch wrote."""
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
        footer_json = json.dumps(footer).encode()
        file.write(footer_json + len(footer_json).to_bytes(4, "little") + MAGIC)


def is_whole(path: Path, segment: Path) -> bool:
    """Return whether there is a graph of this segment, as far as its footer tells; `VectorGraph` reads all of it."""
    try:
        footer, _ = _read_footer(path, mapped(path))
        return bool(footer["segment"] == read_checksum(segment).hex())
    except (OSError, StoreCorrupt):
        return False


def _read_footer(path: Path, data: npt.NDArray[np.uint8]) -> tuple[dict[str, Any], int]:
    if len(data) < _TAIL or data[-len(MAGIC) :].tobytes() != MAGIC:
        raise _damaged_error(path, "its end is missing")
    end = len(data) - _TAIL
    begin = end - int.from_bytes(data[end : end + 4].tobytes(), "little")
    try:
        footer: dict[str, Any] = json.loads(data[max(begin, 0) : end].tobytes())
        footer_checksum = footer.pop("footer", None)  # which those of earlier versions do not have
        is_complete = footer.keys() == {"segment", "metric", "scale", "count", "graph", "crc32"}
    except (ValueError, AttributeError, RecursionError) as error:
        raise _damaged_error(path, "its footer cannot be read") from error
    if footer_checksum not in (None, crc32(json.dumps(footer).encode())):
        raise _damaged_error(path, "the checksum of its footer differs")
    if not is_complete or not 0 < footer["graph"] < begin:
        raise _damaged_error(path, "its sizes do not fit")
    return footer, begin


def _load_usearch() -> Any:
    if sys.platform == "linux":
        # usearch holds the C++ library and shows its symbols to what is loaded later: onnxruntime took some of them and
        # crashed (usearch 2.26.6, onnxruntime 1.31.1). They come from the system's library if that is there first.
        with suppress(OSError):
            ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
    with require_extra("hnsw", "usearch", "Searching a graph of vectors"):
        import usearch.index
    return usearch.index


def _damaged_error(path: Path, damage: str) -> StoreCorrupt:
    remedy = "Searches go on without it, slower. Write spolia repair --store {store}: it is built again."
    return corrupt_error(path, f"The graph {path} is damaged: {damage}", remedy)


def build_graphs(store: Path, embedder: str, segments: Mapping[int, int], metric: Metric, settings: HNSW) -> None:
    """Build what graphs are missing over the large segments of an embedder, while searches go on, exactly."""
    for number in missing_graphs(store, embedder, segments, metric, settings):
        path = graph_path(graph_folder(store, embedder), number, metric, settings)
        with suppress(FileNotFoundError):  # another process has removed a segment that was damaged
            build_graph(path, segment_path(store, embedder, number), metric, settings)


def damaged_graphs(store: Path) -> dict[Path, str]:
    """Return in words what is wrong with the graphs that there are. All of them are read; none is needed."""
    damage = {}
    for path in sorted((store / GRAPHS).glob(f"*/*{SUFFIX}")):
        segment = store / VECTORS / path.parent.name / f"{path.name.partition('.')[0]}.seg"
        if segment.exists() and has_usearch():
            try:
                VectorGraph(path, segment)
            except StoreCorrupt as error:
                damage[path] = error.cause
    return damage


def unneeded_graphs(store: Path, segments: Iterable[tuple[str, int]]) -> list[Path]:
    """Return graphs of segments that are gone, and what a killed builder left."""
    segment_files = {segment_names(embedder, number) for embedder, number in segments}
    return sorted(
        Path(entry.path)
        for folder, entry in entries(store / GRAPHS)
        if (folder, f"{entry.name.partition('.')[0]}.seg") not in segment_files or entry.name.endswith(".tmp")
    )


def sweep_graphs(store: Path, segments: Iterable[tuple[str, int]]) -> None:
    for path in unneeded_graphs(store, segments):
        fail_point("graphs.sweep")
        path.unlink()


def missing_graphs(
    store: Path, embedder: str, segments: Mapping[int, int], metric: Metric, settings: HNSW
) -> list[int]:
    """Return the numbers of the large segments that have no whole graph, as far as its footer tells."""
    large = [number for number, rows in sorted(segments.items()) if rows >= settings.above]
    folder = graph_folder(store, embedder)
    paths = {number: graph_path(folder, number, metric, settings) for number in large}
    missing = [number for number, path in paths.items() if not is_whole(path, segment_path(store, embedder, number))]
    return missing if missing and has_usearch() else []

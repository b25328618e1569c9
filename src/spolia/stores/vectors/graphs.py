"""Graphs of near neighbours, one beside each large segment: derived, so that any can be deleted and built again.

A segment never changes, so neither does its graph, and none belongs to a generation. A graph file is: what usearch
wrote, the mean of the vectors (float32), a footer (JSON: the segment's checksum, how the vectors are coded, sizes, the
CRC-32 of all before), the length of the footer (u32) and 8 bytes of magic. It is mapped into memory. It is read through
once when it is opened, since usearch would follow a damaged link out of the file.

Source: Malkov, Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical Navigable Small
World graphs", 2018.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from spolia.core.run_context import check_cancelled
from spolia.errors import MissingExtra, StoreCorrupt
from spolia.stores.definition import Metric
from spolia.stores.failpoints import fail_point
from spolia.stores.indexes import HNSW
from spolia.stores.layout import fsync_file, fsync_folder
from spolia.stores.vectors.dense import Vectors, VectorSegment, checksum_of, open_segment
from spolia.stores.vectors.quantization import Quantization, fitted

if TYPE_CHECKING:
    from usearch.index import Index

MAGIC = b"SPLGRF01"
SUFFIX = ".hnsw"
_TAIL = 4 + len(MAGIC)
_ADDED_AT_ONCE = 128
"""usearch holds Python's lock while it adds: about 25 ms, then other threads go on."""


def available() -> bool:
    """Whether graphs can be built and searched here."""
    return find_spec("usearch") is not None


def graph_path(folder: Path, segment: int, metric: Metric, settings: HNSW) -> Path:
    """The graph of a segment; another one for other settings."""
    return folder / f"{segment:06d}.{metric}-{settings.connectivity}-{settings.expansion_add}{SUFFIX}"


class VectorGraph:
    """An opened graph.

    Args:
        path: its file.
        segment: of the segment that it is over.

    Raises:
        StoreCorrupt: the file is damaged, or of another segment.
        MissingExtra: usearch is not installed.
        FileNotFoundError: there is none.
    """

    def __init__(self, path: Path, segment: Path) -> None:
        data = _mapped(path)
        footer, end = _footer(path, data)
        if footer["segment"] != checksum_of(segment).hex():
            raise _damaged(path, "it is of another segment")
        if crc32(data[:end].data) != footer["crc32"]:
            raise _damaged(path, "its checksum differs")
        graph_end = footer["graph"]
        mean = data[graph_end:end].view("<f4").copy()
        self.coding = Quantization(footer["metric"], mean, footer["scale"])
        self.count: int = footer["count"]
        self._data = data[:graph_end]  # which usearch does not hold on to
        self._index = _usearch().Index.restore(self._data, view=True, enable_key_lookups=False)
        self._lock = threading.Lock()  # usearch has one scratch space for all searches that name no thread

    def nearest(self, query: Vectors, count: int, expansion: int) -> npt.NDArray[np.int64]:
        """About the `count` rows of the segment nearest to a query float32[d], nearest first.

        Args:
            expansion: candidates that are kept while searching (ef).
        """
        code = self.coding.of_query(query)
        with self._lock:
            self._index.expansion_search = max(expansion, count)
            rows: npt.NDArray[np.int64] = self._index.search(code, count, threads=1).keys.astype(np.int64)
        return rows


def build_graph(path: Path, segment_path: Path, metric: Metric, settings: HNSW) -> None:
    """Build the graph of a segment and make it durable under its name; the same segment gives the same graph.

    Raises:
        MissingExtra: usearch is not installed.
    """
    segment = open_segment(segment_path)
    coding = fitted(metric, segment.vectors)
    index = _built(segment, coding, settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    try:
        fail_point("graphs.save")
        index.save(os.fspath(temporary))
        _finish(temporary, coding, len(segment.vectors), checksum_of(segment_path))
        fail_point("graphs.fsync")
        fsync_file(temporary)
        fail_point("graphs.rename")
        os.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fail_point("graphs.fsync_folder")
    for folder in (path.parent, path.parent.parent):
        fsync_folder(folder)


def _built(segment: VectorSegment, coding: Quantization, settings: HNSW) -> Index:
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
            "crc32": crc32(_mapped(path).data),
        }
        written = json.dumps(footer).encode()
        file.write(written + len(written).to_bytes(4, "little") + MAGIC)


def is_whole(path: Path, segment: Path) -> bool:
    """Whether there is a graph of this segment, as far as its footer tells; `VectorGraph` reads all of it."""
    try:
        footer, _ = _footer(path, _mapped(path))
        return bool(footer["segment"] == checksum_of(segment).hex())
    except (OSError, StoreCorrupt):
        return False


def _mapped(path: Path) -> npt.NDArray[np.uint8]:
    return np.asarray(np.memmap(path, dtype=np.uint8, mode="r")) if path.stat().st_size else np.zeros(0, np.uint8)


def _footer(path: Path, data: npt.NDArray[np.uint8]) -> tuple[dict[str, Any], int]:
    """The footer, and where it begins."""
    if len(data) < _TAIL or data[-len(MAGIC) :].tobytes() != MAGIC:
        raise _damaged(path, "its end is missing")
    end = len(data) - _TAIL
    begin = end - int.from_bytes(data[end : end + 4].tobytes(), "little")
    try:
        footer: dict[str, Any] = json.loads(data[max(begin, 0) : end].tobytes())
        whole = {"segment", "metric", "scale", "count", "graph", "crc32"} <= footer.keys()
    except (ValueError, AttributeError) as error:
        raise _damaged(path, "its footer cannot be read") from error
    if not whole or not 0 < footer["graph"] < begin:
        raise _damaged(path, "its sizes do not fit")
    return footer, begin


def _usearch() -> Any:
    if sys.platform == "linux":
        # usearch holds the C++ library and shows its symbols to what is loaded later: onnxruntime took some of them and
        # crashed (usearch 2.26.6, onnxruntime 1.31.1). They come from the system's library if that is there first.
        with suppress(OSError):
            ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
    try:
        import usearch.index
    except ImportError as error:
        raise MissingExtra("hnsw", "usearch", "Searching a graph of vectors") from error
    return usearch.index


def _damaged(path: Path, why: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"The graph {path} is damaged: {why}. Searches go on without it, slower. Write writer.repair(), or "
        "spolia index FOLDER --store PATH: it is built again."
    )

"""Vectors in segment files: written once, checked by a checksum, found by the content hash of the embedded text.

A segment is: 8 bytes of magic, the length of the header (u32), the header (JSON: embedder, dimension, count), zeros up
to a multiple of 64, `count` hashes of 16 bytes, zeros up to a multiple of 64, `count × dimension` float32 (little
endian), and the BLAKE2b (16 bytes) of all that.
"""

import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from spolia.errors import StoreCorrupt
from spolia.private_files import make_folder, private
from spolia.stores.files import corrupt_error, fail_point, fsync

MAGIC = b"SPLVEC01"
HASH_BYTES = 16
_ALIGNMENT = 64
# Rows converted together, so that memory stays bounded.
_WRITTEN_ROWS = 4_096

Vectors = npt.NDArray[np.float32]


class Hashes(Sequence[bytes]):
    """Content hashes, read from the mapped file when they are asked for: a million of them would be 60 MB of memory."""

    def __init__(self, rows: npt.NDArray[np.uint8]) -> None:
        self._rows = rows.reshape(-1, HASH_BYTES)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> "Hashes": ...
    def __getitem__(self, index: int | slice) -> "bytes | Hashes":
        return Hashes(self._rows[index]) if isinstance(index, slice) else self._rows[index].tobytes()


@dataclass(frozen=True, eq=False)
class VectorSegment:
    """Opened segment: `hashes[i]` is the content hash of the text whose vector is `vectors[i]`, memory-mapped."""

    embedder: str
    hashes: Sequence[bytes]
    vectors: Vectors


def write_segment(path: Path, embedder: str, hashes: Sequence[bytes], *blocks: Vectors) -> int:
    """Make a segment of these rows, float32[n, d] each, durable under its name; returns its size in bytes."""
    return write_checked(path, _content(embedder, hashes, blocks))


def write_checked(path: Path, content: Iterable[bytes]) -> int:
    """Make a file and the BLAKE2b of its content durable under its name; returns its size in bytes."""
    make_folder(path.parent)
    # It gets its name once it is durable: a killed writer leaves no segment that is cut off.
    temporary = path.with_suffix(".tmp")
    checksum, size = blake2b(digest_size=HASH_BYTES), HASH_BYTES
    try:
        with open(temporary, "wb", opener=private) as file:
            fail_point("vectors.write")
            for piece in content:
                checksum.update(piece)
                size += file.write(piece)
            file.write(checksum.digest())
        fail_point("vectors.fsync")
        fsync(temporary)
        fail_point("vectors.rename")
        os.rename(temporary, path)
    except OSError:  # a full disk: what was written takes its last room
        temporary.unlink(missing_ok=True)
        raise
    fail_point("vectors.fsync_folder")
    # The embedder's folder may be new, too.
    for folder in (path.parent, path.parent.parent):
        fsync(folder)
    return size


def _content(embedder: str, hashes: Sequence[bytes], blocks: Sequence[Vectors]) -> Iterator[bytes]:
    yield segment_head(MAGIC, {"embedder": embedder, "dimension": blocks[0].shape[1], "count": len(hashes)}, hashes)
    for block in blocks:
        for start in range(0, len(block), _WRITTEN_ROWS):
            yield np.ascontiguousarray(block[start : start + _WRITTEN_ROWS], dtype="<f4").tobytes()


def segment_head(magic: bytes, header: dict[str, Any], hashes: Sequence[bytes]) -> bytes:
    """Build the beginning of a segment, up to a multiple of 64 bytes."""
    header_json = json.dumps(header).encode()
    content = magic + len(header_json).to_bytes(4, "little") + header_json
    content += bytes(-len(content) % _ALIGNMENT) + b"".join(hashes)
    return content + bytes(-len(content) % _ALIGNMENT)


def open_checked(
    path: Path, magic: bytes, size: Callable[[dict[str, Any]], int]
) -> tuple[dict[str, Any], Hashes, npt.NDArray[np.uint8]]:
    """Map header, hashes and body of a segment, whose header promises `size` bytes, and compare its checksum."""
    data = mapped(path)
    header, start = _header(path, data, magic)
    if blake2b(data[:-HASH_BYTES].data, digest_size=HASH_BYTES).digest() != data[-HASH_BYTES:].tobytes():
        raise _damaged_error(path, "its checksum differs")
    hashes_end = start + header["count"] * HASH_BYTES
    body = hashes_end + -hashes_end % _ALIGNMENT
    end = body + size(header)
    if len(data) != end + HASH_BYTES:
        raise _damaged_error(path, f"it has {len(data)} bytes, {end + HASH_BYTES} were written")
    return header, Hashes(data[start:hashes_end]), data[body:end]


def open_segment(path: Path) -> VectorSegment:
    """Map a segment into memory; all of it is read and compared with its checksum."""
    header, hashes, body = open_checked(path, MAGIC, lambda header: header["count"] * header["dimension"] * 4)
    return VectorSegment(header["embedder"], hashes, body.view("<f4").reshape(header["count"], header["dimension"]))


def mapped(path: Path) -> npt.NDArray[np.uint8]:
    """Map a file into memory: `np.memmap`, which resolves the path first, takes ten times as long."""
    with open(path, "rb", buffering=0) as file:
        if not os.fstat(file.fileno()).st_size:
            return np.zeros(0, np.uint8)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def read_checksum(path: str | Path) -> bytes:
    """Read the checksum that was written at the end of a segment; it names its content."""
    with open(path, "rb", buffering=0) as file:
        file.seek(-HASH_BYTES, os.SEEK_END)
        return file.read()


def _header(path: Path, data: npt.NDArray[np.uint8], magic: bytes) -> tuple[dict[str, Any], int]:
    if data[:8].tobytes() != magic or len(data) < 12:
        raise _damaged_error(path, f"it begins with {data[:8].tobytes()!r}")
    end = 12 + int.from_bytes(data[8:12].tobytes(), "little")
    try:
        header: dict[str, Any] = json.loads(data[12:end].tobytes())
    except (ValueError, RecursionError) as error:
        raise _damaged_error(path, "its header cannot be read") from error
    return header, end + -end % _ALIGNMENT


def _damaged_error(path: Path, damage: str) -> StoreCorrupt:
    return corrupt_error(path, f"The vector segment {path} is damaged: {damage}", EMBED_AGAIN)


EMBED_AGAIN = "Write spolia repair --store {store}, or writer.repair(): what it held is embedded again."

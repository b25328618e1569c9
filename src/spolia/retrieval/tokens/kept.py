"""Token vectors in files, by the hash of the text: written once, never changed, and looked at without being read whole.

Each file of vectors has one beside it that says which texts they are of; without that it is not there. What is missing
or damaged is embedded again. Two processes that embed the same text keep it twice, which does no harm.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from spolia.models.token_vectors import TokenVectors, Vectors
from spolia.stores.files import fsync_file

INDEX, VECTORS = ".npz", ".npy"
_DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)

Place = tuple[int, int, int]
"""File, first token, one past the last."""


@dataclass(eq=False)
class Kept:
    """The files of a folder.

    Args:
        folder: where they are.
        dimension: numbers in a vector.
    """

    folder: Path
    dimension: int
    files: list[Vectors] = field(default_factory=list)
    places: dict[bytes, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted(self.folder.glob(f"*{INDEX}")):
            with suppress(*_DAMAGED):
                self._open(path)

    def _open(self, path: Path) -> None:
        with np.load(path, allow_pickle=False) as index:
            hashes, offsets = index["hashes"], index["offsets"]
        vectors = np.load(path.with_suffix(VECTORS), mmap_mode="r", allow_pickle=False)
        if vectors.shape != (offsets[-1], self.dimension) or len(offsets) != len(hashes) + 1:
            raise ValueError(f"The sizes of {path} do not fit.")
        self._take(
            [bytes(hash) for hash in hashes], TokenVectors(offsets, np.zeros((offsets[-1], 0), np.float32)), vectors
        )

    def add(self, hashes: Sequence[bytes], rows: TokenVectors) -> None:
        """Keep the token vectors of texts; where nothing can be written they are there as long as this is."""
        with suppress(OSError):
            self._write(hashes, rows)
        self._take(hashes, rows, rows.vectors)

    def of(self, hashes: Sequence[bytes]) -> TokenVectors:
        """The token vectors of texts that are kept."""
        parts = [self.files[file][start:end] for file, start, end in map(self.places.__getitem__, hashes)]
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return TokenVectors(offsets, np.concatenate([np.zeros((0, self.dimension), np.float32), *parts]))

    def _take(self, hashes: Sequence[bytes], rows: TokenVectors, vectors: Vectors) -> None:
        for at, hash in enumerate(hashes):
            self.places[hash] = (len(self.files), int(rows.offsets[at]), int(rows.offsets[at + 1]))
        self.files.append(vectors)

    def _write(self, hashes: Sequence[bytes], rows: TokenVectors) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(suffix=VECTORS, dir=self.folder)
        with os.fdopen(descriptor, "wb") as file:
            np.save(file, rows.vectors, allow_pickle=False)
        fsync_file(Path(name))
        _published(Path(name).with_suffix(INDEX), {"hashes": np.array(hashes, dtype="V16"), "offsets": rows.offsets})


def _published(path: Path, parts: Mapping[str, object]) -> None:
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        np.savez(file, **parts)  # type: ignore[arg-type]
    fsync_file(temporary)
    os.rename(temporary, path)

"""Token vectors in files, by the hash of the text; missing or damaged ones are embedded again."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spolia.core.run_context import check_cancelled
from spolia.errors import ModelError
from spolia.models.protocols import TokenEmbedder
from spolia.models.vectors import TokenVectors, Vectors, max_sims
from spolia.private_files import make_folder, protect
from spolia.retrieval.array_files import DAMAGED, SUFFIX, array_damage, read_arrays, write_arrays
from spolia.retrieval.term_counts import derived, texts_of
from spolia.stores.backends.rows import hash_of
from spolia.stores.files import fsync, tokens_folder

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot

VECTORS = ".npy"

Place = tuple[int, int, int]  # file, first token, one past the last


@dataclass(eq=False)
class TokenVectorFiles:
    """The files of a folder, with vectors of `dimension` numbers."""

    folder: Path
    dimension: int
    files: list[Vectors] = field(default_factory=list)
    places: dict[bytes, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            with suppress(*DAMAGED):
                self._open(path)

    def _open(self, path: Path) -> None:
        with read_arrays(path) as index:
            hashes, offsets = index["hashes"], index["offsets"]
            said = index["digest"].tobytes() if "digest" in index else None  # those of before have none
        vectors = np.load(path.with_suffix(VECTORS), mmap_mode="r", allow_pickle=False)
        if hashes.dtype != "V16" or said not in (None, _digest(vectors)):
            raise ValueError(f"{path} is not as it was written.")
        if (offsets.dtype, vectors.dtype) != (np.int64, np.float32) or offsets[0] or (np.diff(offsets) < 0).any():
            raise ValueError(f"The kinds of numbers of {path} do not fit.")
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
        make_folder(self.folder)
        descriptor, name = tempfile.mkstemp(suffix=VECTORS, dir=self.folder)
        with os.fdopen(descriptor, "wb") as file:
            np.save(file, rows.vectors, allow_pickle=False)
        protect(name)
        fsync(Path(name))
        parts = {"hashes": np.array(hashes, dtype="V16"), "offsets": rows.offsets}
        digest = np.frombuffer(_digest(rows.vectors), np.uint8)
        write_arrays(Path(name).with_suffix(SUFFIX), {**parts, "digest": digest})


def token_file_damage(path: Path) -> str:
    """What is wrong with an index of token vectors, or with the vectors, in words; empty if nothing is."""
    if damage := array_damage(path):
        return damage
    try:
        with read_arrays(path) as index:
            digest = index["digest"].tobytes() if "digest" in index else None
            index["hashes"], index["offsets"]
        vectors = np.load(path.with_suffix(VECTORS), mmap_mode="r", allow_pickle=False)
        is_whole = digest in (None, _digest(vectors))
    except DAMAGED as error:
        return f"{path} is damaged: {error}"
    return "" if is_whole else f"{path.with_suffix(VECTORS)} changed since it was written"


def _digest(vectors: Vectors) -> bytes:
    return blake2b(np.ascontiguousarray(vectors).reshape(-1).view(np.uint8), digest_size=16).digest()  # type: ignore[arg-type]


EMBEDDED_AT_ONCE, WRITTEN_AT_ONCE, COMPARED_AT_ONCE = 64, 2_048, 256


@dataclass(frozen=True, eq=False)
class TokenIndex:
    """Where the token vectors of each node are; `hashes` of the texts of all nodes, in the order of their keys."""

    hashes: Sequence[bytes]
    kept: TokenVectorFiles

    def scores(self, query: Vectors, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """float64[m]: Σ_i max_j q_i · d_j of the nodes at int64[m], for a query float32[tokens, d]."""
        found = [np.zeros(0)]
        for start in range(0, len(positions), COMPARED_AT_ONCE):
            check_cancelled()
            some = positions[start : start + COMPARED_AT_ONCE].tolist()
            found.append(max_sims(query, self.kept.of([self.hashes[at] for at in some])))
        return np.concatenate(found)


def token_index(snapshot: "Snapshot", group: str, embedder: TokenEmbedder) -> TokenIndex:
    """The token vectors of a group; what is not kept yet is embedded, and kept in the store's folder."""
    return derived(snapshot.derived, ("tokens", group, embedder.name), lambda: _built(snapshot, group, embedder))


def embedded(embedder: TokenEmbedder, texts: Sequence[str], *, is_query: bool = False) -> TokenVectors:
    """The token vectors of texts; raises `ModelError` where they are none."""
    found = embedder.embed_tokens(texts, kind="query" if is_query else "passage")
    if len(found) != len(texts) or found.vectors.shape[1] != embedder.dimension:
        raise ModelError(
            f"{embedder.name} gave token vectors of {len(found)} texts with {found.vectors.shape[1]} numbers each, for "
            f"{len(texts)} texts and {embedder.dimension} numbers. Correct the embedder."
        )
    return found


def _built(snapshot: "Snapshot", group: str, embedder: TokenEmbedder) -> TokenIndex:
    kept = TokenVectorFiles(tokens_folder(snapshot.opened.folder, embedder.name), embedder.dimension)
    hashes: list[bytes] = []
    lacking: dict[bytes, str] = {}
    for text in texts_of(snapshot, snapshot.open.records(group).keys):
        hashes.append(hash_of(text))
        if hashes[-1] not in kept.places:
            lacking[hashes[-1]] = text
        if len(lacking) >= WRITTEN_AT_ONCE:
            _embed(kept, embedder, lacking)
    _embed(kept, embedder, lacking)
    return TokenIndex(hashes, kept)


def _embed(kept: TokenVectorFiles, embedder: TokenEmbedder, lacking: dict[bytes, str]) -> None:
    texts, parts = list(lacking.values()), list[Vectors]()
    for start in range(0, len(texts), EMBEDDED_AT_ONCE):
        check_cancelled()
        rows = embedded(embedder, texts[start : start + EMBEDDED_AT_ONCE])
        parts += [rows.row(at) for at in range(len(rows))]
    if parts:
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        kept.add(list(lacking), TokenVectors(offsets, np.concatenate(parts)))
        lacking.clear()

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
    """Files of token vectors in one folder, with `dimension` numbers each."""

    folder: Path
    dimension: int
    files: list[Vectors] = field(default_factory=list)
    places: dict[bytes, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            # A damaged file is left out; its texts are embedded again.
            with suppress(*DAMAGED):
                self._open(path)

    def _open(self, path: Path) -> None:
        with read_arrays(path) as index:
            hashes, offsets = index["hashes"], index["offsets"]
            digest = index["digest"].tobytes() if "digest" in index else None  # those of before have none
        # Mapped, not read: the vectors of a large group may not fit into memory.
        vectors = np.load(path.with_suffix(VECTORS), mmap_mode="r", allow_pickle=False)
        if hashes.dtype != "V16" or digest not in (None, _digest(vectors)):
            raise ValueError(f"{path} is not as it was written.")
        if (offsets.dtype, vectors.dtype) != (np.int64, np.float32) or offsets[0] or (np.diff(offsets) < 0).any():
            raise ValueError(f"The kinds of numbers of {path} do not fit.")
        if vectors.shape != (offsets[-1], self.dimension) or len(offsets) != len(hashes) + 1:
            raise ValueError(f"The sizes of {path} do not fit.")
        self._add_rows(
            [bytes(hash) for hash in hashes], TokenVectors(offsets, np.zeros((offsets[-1], 0), np.float32)), vectors
        )

    def add(self, hashes: Sequence[bytes], rows: TokenVectors) -> None:
        """Keep the token vectors of texts, on disk where that is possible, else in memory."""
        # A full disk or a read-only folder costs only that the vectors are made again next time.
        with suppress(OSError):
            self._write(hashes, rows)
        self._add_rows(hashes, rows, rows.vectors)

    def vectors_of(self, hashes: Sequence[bytes]) -> TokenVectors:
        """Return the kept token vectors of texts."""
        parts = [self.files[file][start:end] for file, start, end in map(self.places.__getitem__, hashes)]
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return TokenVectors(offsets, np.concatenate([np.zeros((0, self.dimension), np.float32), *parts]))

    def _add_rows(self, hashes: Sequence[bytes], rows: TokenVectors, vectors: Vectors) -> None:
        for row, hash in enumerate(hashes):
            self.places[hash] = (len(self.files), int(rows.offsets[row]), int(rows.offsets[row + 1]))
        self.files.append(vectors)

    def _write(self, hashes: Sequence[bytes], rows: TokenVectors) -> None:
        make_folder(self.folder)
        descriptor, name = tempfile.mkstemp(suffix=VECTORS, dir=self.folder)
        with os.fdopen(descriptor, "wb") as file:
            # The vectors before their index: an index never names a file that is not complete.
            np.save(file, rows.vectors, allow_pickle=False)
        protect(name)
        fsync(Path(name))
        parts = {"hashes": np.array(hashes, dtype="V16"), "offsets": rows.offsets}
        digest = np.frombuffer(_digest(rows.vectors), np.uint8)
        write_arrays(Path(name).with_suffix(SUFFIX), {**parts, "digest": digest})


def token_file_damage(path: Path) -> str:
    """Check an index of token vectors and the vectors, and return what is wrong in words; empty if nothing is."""
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


# Texts in a call of the embedder, texts in a file, and nodes in one product: each bounds memory, and how long a
# cancelled search goes on.
EMBEDDED_AT_ONCE, WRITTEN_AT_ONCE, COMPARED_AT_ONCE = 64, 2_048, 256


@dataclass(frozen=True, eq=False)
class TokenIndex:
    """Token vectors of a group's nodes; `hashes` are of their texts, in the order of their keys."""

    hashes: Sequence[bytes]
    files: TokenVectorFiles

    def scores(self, query: Vectors, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return float64[m], Σ_i max_j q_i · d_j of the nodes at int64[m], for a query float32[tokens, d]."""
        parts = [np.zeros(0)]
        for start in range(0, len(positions), COMPARED_AT_ONCE):
            check_cancelled()
            batch = positions[start : start + COMPARED_AT_ONCE].tolist()
            parts.append(max_sims(query, self.files.vectors_of([self.hashes[position] for position in batch])))
        return np.concatenate(parts)


def token_index(snapshot: "Snapshot", group: str, embedder: TokenEmbedder) -> TokenIndex:
    """Return the token vectors of a group; missing ones are embedded and kept in the store's folder."""
    return derived(snapshot.derived, ("tokens", group, embedder.name), lambda: _build_index(snapshot, group, embedder))


def embed_tokens(embedder: TokenEmbedder, texts: Sequence[str], *, is_query: bool = False) -> TokenVectors:
    """Embed texts by their tokens; raise ModelError for vectors that do not fit the texts or the embedder."""
    rows = embedder.embed_tokens(texts, kind="query" if is_query else "passage")
    if len(rows) != len(texts) or rows.vectors.shape[1] != embedder.dimension:
        raise ModelError(
            f"{embedder.name} gave token vectors of {len(rows)} texts with {rows.vectors.shape[1]} numbers each, for "
            f"{len(texts)} texts and {embedder.dimension} numbers. Correct the embedder."
        )
    return rows


def _build_index(snapshot: "Snapshot", group: str, embedder: TokenEmbedder) -> TokenIndex:
    files = TokenVectorFiles(tokens_folder(snapshot.open_store.folder, embedder.name), embedder.dimension)
    hashes: list[bytes] = []
    missing: dict[bytes, str] = {}
    for text in texts_of(snapshot, snapshot.open.records(group).keys):
        hashes.append(hash_of(text))
        if hashes[-1] not in files.places:
            missing[hashes[-1]] = text
        # Written in pieces, so that a search that is cancelled keeps what it has embedded.
        if len(missing) >= WRITTEN_AT_ONCE:
            _embed(files, embedder, missing)
    _embed(files, embedder, missing)
    return TokenIndex(hashes, files)


def _embed(files: TokenVectorFiles, embedder: TokenEmbedder, missing: dict[bytes, str]) -> None:
    texts, parts = list(missing.values()), list[Vectors]()
    for start in range(0, len(texts), EMBEDDED_AT_ONCE):
        check_cancelled()
        rows = embed_tokens(embedder, texts[start : start + EMBEDDED_AT_ONCE])
        parts += [rows.row(row) for row in range(len(rows))]
    if parts:
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        files.add(list(missing), TokenVectors(offsets, np.concatenate(parts)))
        # The caller goes on collecting into the same dictionary.
        missing.clear()

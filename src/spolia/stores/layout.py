"""Where things are in a store's folder."""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import Path

DATABASE = "corpus.db"
LOCK = "writer.lock"
PINS = "pins"
LEXICAL = "lexical"
VECTORS = "vectors"
GRAPHS = "graphs"
DATABASES = "databases"
LINKS = "links"
TOKENS = "tokens"


def pin_path(store: Path, generation: int) -> Path:
    """The file whose lock keeps a generation from being swept."""
    return store / PINS / str(generation)


def lexical_folder(store: Path, group: str, generation: object) -> Path:
    """The lexical index of a group that was frozen for a generation."""
    return store / LEXICAL / _named(group) / f"g{generation}"


def segment_folder(store: Path, embedder: str) -> Path:
    """The segments of an embedder."""
    return store / VECTORS / _named(embedder)


def segment_path(store: Path, embedder: str, number: int) -> Path:
    """A segment of an embedder."""
    return segment_folder(store, embedder) / f"{number:06d}.seg"


def graph_folder(store: Path, embedder: str) -> Path:
    """The graphs over the segments of an embedder; all of it can be built again."""
    return store / GRAPHS / _named(embedder)


def links_folder(store: Path, group: str) -> Path:
    """The links between the nodes of a group; all of it can be built again."""
    return store / LINKS / _named(group)


def tokens_folder(store: Path, embedder: str) -> Path:
    """Where the vectors of the tokens of texts are kept, by an embedder of tokens."""
    return store / TOKENS / _named(embedder)


def _named(name: str) -> str:
    """A folder for any name, another one for each name; plain names keep their name."""
    if re.fullmatch(r"[a-z0-9_]{1,64}", name):
        return name
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:48]
    return f"{plain}-{blake2b(name.encode(), digest_size=4).hexdigest()}"

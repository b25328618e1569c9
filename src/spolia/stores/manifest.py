"""What a node group was built with: other parts would give nodes that do not fit to those that are there."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from spolia.errors import GroupError, ManifestMismatch, SpoliaError, StoreCorrupt
from spolia.stores.definition import DOCUMENT, Metric
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Value

WITHIN = ("Exact", "HNSW")
"""Indexes that are part of the store."""
LONGEST_NAME = 80
_NAME = re.compile(r"\w([\w .-]*[\w.-])?")


@dataclass(frozen=True)
class Embedded(Value):
    """How the nodes of a group were embedded, as its manifest says.

    Args:
        embedder: its name; vectors are found by it, so that another one for other vectors is needed.
        dimension: numbers in a vector; of a sparse one, 0.
        metric: by which vectors are compared.
        index: the settings of the index, as plain data in JSON.
        plain: the embedder as plain data in JSON, by which it is made again; empty if it has to be passed. How it is
            made, with how many threads for example, is no part of what it gives.
        fingerprint: what the embedder said of its weights and version; empty for one that says nothing, whose name and
            dimension then decide.
    """

    embedder: str
    dimension: int
    metric: Metric = "cosine"
    index: str = '"HNSW"'
    plain: str = field(default="", compare=False)
    fingerprint: str = field(default="", compare=False)

    @property
    def said(self) -> str:
        """How the vectors are searched, in words."""
        numbers = "sparse" if self.is_sparse else f"{self.dimension} numbers"
        return f"{self.embedder!r} ({self.metric}, {numbers}, {self.index})"

    @property
    def is_sparse(self) -> bool:
        """Whether the vectors are sparse; these are searched exactly, whatever the index."""
        return not self.dimension

    @property
    def is_beside(self) -> bool:
        """Whether the vectors are in a database beside the store too."""
        if self.is_sparse:
            return False
        said = json.loads(self.index)
        return (said if isinstance(said, str) else next(iter(said))) not in WITHIN


@dataclass(frozen=True)
class Manifest(Value):
    """The parts that a node group was built with.

    Args:
        group: the node group's name.
        transform: what made its nodes, in words.
        reader: the versions of the readers.
        analyzer: how texts become terms.
        embeddings: how the nodes were embedded; none for search by words only.
        parent: the group whose nodes were cut.
        ref: the group whose nodes the transform saw beside; empty for none.
        definition: the transform as plain data in JSON, by which new documents are cut; empty if it was made by hand.
        signature: changes with whatever the transform does: code version, parameters, models, prompts, parents.

    >>> read(written(Manifest("chunk", "Whole()", "1"))) == Manifest("chunk", "Whole()", "1")
    True
    """

    group: str
    transform: str = ""
    reader: str = ""
    analyzer: Analyzer = field(default_factory=Analyzer)
    embeddings: tuple[Embedded, ...] = ()
    parent: str = DOCUMENT
    ref: str = ""
    definition: str = ""
    signature: str = ""

    @property
    def embedder(self) -> str:
        """Name of the first embedder; empty for none."""
        return self.embeddings[0].embedder if self.embeddings else ""

    def embedded(self, embedder: str) -> Embedded | None:
        """How an embedder was used, if it was."""
        return next((embedding for embedding in self.embeddings if embedding.embedder == embedder), None)

    def differences(self, other: Manifest) -> tuple[str, ...]:
        """Each part that differs, with both sides."""
        pairs = ((f.name, getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return tuple(
            f"{name}: {_said(mine)} there, {_said(yours)} here" for name, mine, yours in pairs if mine != yours
        )


def _said(part: object) -> str:
    if isinstance(part, tuple):
        return ", ".join(map(_said, part)) or "none"
    if isinstance(part, Embedded):
        return part.said
    return repr(part)


def refuse_odd_name(group: str) -> None:
    """Raise `GroupError` for a name that could not be told apart on a command line, in an id or in a file.

    >>> refuse_odd_name("a/b")
    Traceback (most recent call last):
    spolia.errors.GroupError: A node group cannot be called 'a/b'. Write letters, digits, '_', '-', '.' and blanks.
    """
    if len(group) > LONGEST_NAME or not _NAME.fullmatch(group):
        raise GroupError(
            f"A node group cannot be called {group!r:.100}. Write letters, digits, '_', '-', '.' and blanks."
        )


def refuse_other(there: Manifest, here: Manifest) -> None:
    """Raise `ManifestMismatch`, naming both sides, unless the two are equal."""
    if there != here:
        raise ManifestMismatch(
            f"Group {there.group!r} of the store was built with other parts: {'; '.join(there.differences(here))}. "
            "Write the parts that are there, name another store, or build the group anew: sync(..., rebuild=True), "
            "on the command line spolia index with --rebuild."
        )


def written(manifest: Manifest) -> str:
    """A manifest as JSON."""
    return json.dumps(asdict(manifest), ensure_ascii=False, sort_keys=True)


def read(text: str) -> Manifest:
    """The manifest that was written."""
    try:
        return of(json.loads(text))
    except ValueError as error:
        raise _unreadable(text, error) from error


def of(found: dict[str, Any]) -> Manifest:
    """The manifest that a JSON object describes."""
    try:
        embeddings = tuple(Embedded(**embedding) for embedding in found["embeddings"])
        return Manifest(**{**found, "analyzer": Analyzer(**found["analyzer"]), "embeddings": embeddings})
    except (KeyError, TypeError, SpoliaError) as error:
        raise _unreadable(found, error) from error


def _unreadable(found: object, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(
        f"A manifest of the store cannot be understood: {found!r} ({error}). "
        "Build the group anew: sync(..., rebuild=True), on the command line spolia index with --rebuild."
    )

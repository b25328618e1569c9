"""What a node group was built with: other parts would give nodes that do not fit to those that are there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from spolia.core.registry import Catalogue
from spolia.errors import GroupError, ManifestMismatch, SpoliaError, StoreCorrupt
from spolia.stores.definition import DOCUMENT, Metric
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Value

WITHIN = ("Exact", "HNSW")
"""Indexes that are part of the store."""
LONGEST_NAME = 80
_NAME = re.compile(r"\w([\w .-]*[\w.-])?")


@dataclass(frozen=True)
class GroupEmbedding(Value):
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
        pictures: nodes that show a picture are embedded by that, the others by their text.
    """

    embedder: str
    dimension: int
    metric: Metric = "cosine"
    index: str = '"HNSW"'
    plain: str = field(default="", compare=False)
    fingerprint: str = field(default="", compare=False)
    pictures: bool = False

    @property
    def said(self) -> str:
        """How the vectors are searched, in words."""
        numbers = "sparse" if self.is_sparse else f"{self.dimension} numbers"
        pictures = ", pictures" if self.pictures else ""
        return f"{self.embedder!r} ({self.metric}, {numbers}{pictures}, {self.index})"

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
        reader: how the documents were read, where a caller says it who writes manifests; versions of the readers of
            files stand in the rows of these.
        analyzer: how texts become terms.
        embeddings: how the nodes were embedded; none for search by words only.
        parent: the group whose nodes were cut.
        ref: the group whose nodes the transform saw beside; empty for none.
        definition: the transform as plain data in JSON, by which new documents are cut; empty if it was made by hand.
        signature: changes with whatever the transform does: code version, parameters, models, prompts, parents.

    Raises:
        GroupError: some embedders embed pictures and others do not, though a node has one key for all its vectors.

    >>> read(written(Manifest("chunk", "Whole()", "1"))) == Manifest("chunk", "Whole()", "1")
    True
    """

    group: str
    transform: str = ""
    reader: str = ""
    analyzer: Analyzer = field(default_factory=Analyzer)
    embeddings: tuple[GroupEmbedding, ...] = ()
    parent: str = DOCUMENT
    ref: str = ""
    definition: str = ""
    signature: str = ""

    def __post_init__(self) -> None:
        texts = [how.embedder for how in self.embeddings if not how.pictures]
        if self.by_picture and texts:
            raise GroupError(
                f"Group {self.group!r} would be embedded by its pictures, and by {', '.join(texts)} by its texts. "
                "Define two groups, one for each."
            )

    @property
    def by_picture(self) -> bool:
        """Whether nodes that show a picture are embedded by that."""
        return any(how.pictures for how in self.embeddings)

    @property
    def embedder(self) -> str:
        """Name of the first embedder; empty for none."""
        return self.embeddings[0].embedder if self.embeddings else ""

    def embedded(self, embedder: str) -> GroupEmbedding | None:
        """How an embedder was used, if it was."""
        return next((embedding for embedding in self.embeddings if embedding.embedder == embedder), None)

    def differences(self, other: Manifest) -> tuple[str, ...]:
        """Each part that differs, with both sides; of the transform parameter by parameter.

        >>> was, now = (Manifest("g", definition=f'{{"Summary": {{"words": {words}}}}}') for words in (50, 80))
        >>> was.differences(now)
        ('transform.Summary.words: 50 there, 80 here',)
        >>> Manifest("g", reader="pdf 2, text 1").differences(Manifest("g", reader="minutes 1, pdf 2, text 1"))
        ("reader: none there, 'minutes 1' here",)
        """
        parts = [(name, getattr(self, name), getattr(other, name)) for name in _PLAIN]
        parts.insert(0, ("reader", *_apart(self.reader, other.reader)))
        told = [f"{name}: {_said(mine)} there, {_said(yours)} here" for name, mine, yours in parts if mine != yours]
        told += _between(asdict(self.analyzer), asdict(other.analyzer), "analyzer")
        if self.definition and other.definition:
            told += _between(json.loads(self.definition), json.loads(other.definition), "transform")
        elif self.transform != other.transform:
            told.append(f"transform: {self.transform!r} there, {other.transform!r} here")
        if not told and self.signature != other.signature:
            told.append("the code of the transform, a model or prompt behind it, or a group above it have changed")
        return tuple(told)


_PLAIN = ("embeddings", "parent", "ref")


def _apart(there: str, here: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of two lists of readers those that the other one has not."""
    mine, yours = ([one for one in side.split(", ") if one] for side in (there, here))
    return tuple(one for one in mine if one not in yours), tuple(one for one in yours if one not in mine)


def _between(there: Any, here: Any, place: str) -> Iterator[str]:
    """Where two plain forms differ, from the outside in."""
    there, here = ({side: {}} if isinstance(side, str) and place == "transform" else side for side in (there, here))
    if isinstance(there, dict) and isinstance(here, dict):
        if place == "transform" and there.keys() != here.keys():  # operators by their names
            yield f"{place}: {', '.join(there)} there, {', '.join(here)} here"
            return
        for name in [*there, *(name for name in here if name not in there)]:
            if there.get(name) != here.get(name):
                yield from _between(there.get(name), here.get(name), f"{place}.{name}")
    elif there != here:
        sides = (_default(place) if side is None else side for side in (there, here))
        said = [json.dumps(side, ensure_ascii=False)[:80] if side is not None else "default" for side in sides]
        yield f"{place}: {said[0]} there, {said[1]} here"


def _default(place: str) -> str | int | float | bool | None:
    """What a field has that is not written down, as far as it is a plain value: that of `transform.Summary.words`."""
    owner, _, name = place.rpartition(".")
    fields = getattr(Catalogue().get(owner.rpartition(".")[2]), "__dataclass_fields__", {})
    default = fields[name].default if name in fields else None
    return default if isinstance(default, (str, int, float, bool)) else None


def _said(part: object) -> str:
    if isinstance(part, tuple):
        return ", ".join(map(_said, part)) or "none"
    if isinstance(part, GroupEmbedding):
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
        embeddings = tuple(GroupEmbedding(**embedding) for embedding in found["embeddings"])
        return Manifest(**{**found, "analyzer": Analyzer(**found["analyzer"]), "embeddings": embeddings})
    except (KeyError, TypeError, SpoliaError) as error:
        raise _unreadable(found, error) from error


def _unreadable(found: object, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(
        f"A manifest of the store cannot be understood: {found!r} ({error}). "
        "Build the group anew: sync(..., rebuild=True), on the command line spolia index with --rebuild."
    )

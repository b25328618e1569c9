"""What a node group was built with, as the store keeps it: plain data, and a signature of all that it does."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from typing import Any

from spolia import models
from spolia.core.codec import decode, encode
from spolia.core.environment import refuse_env
from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.errors import (
    CodecError,
    GroupError,
    ManifestMismatch,
    SpoliaError,
    StoreCorrupt,
    StoreError,
    VariableRefused,
)
from spolia.models.protocols import Embedder, ImageEmbedder, SparseEmbedder
from spolia.stores.definition import DOCUMENT, MAIN, Definition, Embedding, Metric, Transform, Whole, refuse_unstorable
from spolia.stores.indexes import IndexSettings
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Addressed, Value, digest_of
from spolia.types.value import kept

WITHIN = ("Exact", "HNSW")
"""Indexes that are part of the store."""
LONGEST_NAME = 80
_NAME = re.compile(r"\w([\w .-]*[\w.-])?")


@dataclass(frozen=True)
class GroupEmbedding(Value):
    """How the nodes of a group were embedded, as its manifest says.

    Args:
        embedder: its name, by which vectors are found; other vectors need another one.
        dimension: numbers in a vector; of a sparse one, 0.
        index, plain: settings of the index, and the embedder, as plain data in JSON; empty if it has to be passed.
        fingerprint: what the embedder said of its weights and version; empty for one that says nothing.
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
        numbers = "sparse" if self.is_sparse else f"{self.dimension} numbers"
        pictures = ", pictures" if self.pictures else ""
        return f"{self.embedder!r} ({self.metric}, {numbers}{pictures}, {self.index})"

    @property
    def is_sparse(self) -> bool:
        return not self.dimension

    @property
    def is_beside(self) -> bool:
        if self.is_sparse:
            return False
        said = json.loads(self.index)
        return (said if isinstance(said, str) else next(iter(said))) not in WITHIN


@dataclass(frozen=True)
class Manifest(Value):
    """The parts that a node group was built with.

    Args:
        reader: how the documents were read, where a caller who writes manifests says it.
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

    @kept
    def by_picture(self) -> bool:
        return any(how.pictures for how in self.embeddings)

    @property
    def embedder(self) -> str:
        return self.embeddings[0].embedder if self.embeddings else ""

    def embedded(self, embedder: str) -> GroupEmbedding | None:
        return next((embedding for embedding in self.embeddings if embedding.embedder == embedder), None)

    def differences(self, other: "Manifest") -> tuple[str, ...]:
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
    """Raise `GroupError` for a name that would be ambiguous on a command line, in an id or in a file.

    >>> refuse_odd_name("a/b")
    Traceback (most recent call last):
    spolia.errors.GroupError: A node group cannot be called 'a/b'. Write letters, digits, '_', '-', '.' and blanks.
    """
    if len(group) > LONGEST_NAME or not _NAME.fullmatch(group):
        raise GroupError(
            f"A node group cannot be called {group!r:.100}. Write letters, digits, '_', '-', '.' and blanks."
        )


def refuse_other(there: Manifest, here: Manifest) -> None:
    if there != here:
        raise ManifestMismatch(
            f"Group {there.group!r} of the store was built with other parts: {'; '.join(there.differences(here))}. "
            "Write the parts that are there, name another store, or rebuild the group: sync(..., rebuild=True), "
            "on the command line spolia index with --rebuild."
        )


def written(manifest: Manifest) -> str:
    return json.dumps(asdict(manifest), ensure_ascii=False, sort_keys=True)


def read(text: str) -> Manifest:
    try:
        return of(json.loads(text))
    except ValueError as error:
        raise _unreadable(text, error) from error


def of(found: dict[str, Any]) -> Manifest:
    try:
        embeddings = tuple(GroupEmbedding(**embedding) for embedding in found["embeddings"])
        return Manifest(**{**found, "analyzer": Analyzer(**found["analyzer"]), "embeddings": embeddings})
    except (KeyError, TypeError, SpoliaError) as error:
        raise _unreadable(found, error) from error


def _unreadable(found: object, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(
        f"A manifest of the store cannot be understood: {found!r} ({error}). "
        "Rebuild the group: sync(..., rebuild=True), on the command line spolia index with --rebuild."
    )


BUILT_IN: Mapping[str, Any] = {
    DOCUMENT: {"transform": "Whole"},
    "page": {"transform": "Pages"},
    "sentence": {"transform": "Sentences"},
    "fine": {"transform": {"SlidingWindow": {"size": 128, "overlap": 12}}},
    "medium": {"transform": {"SlidingWindow": {"size": 256, "overlap": 25}}},
    "coarse": {"transform": {"SlidingWindow": {"size": 1024, "overlap": 100}}},
    "entity": {"transform": {"RuleEntities": {"kinds": ["name", "acronym", "quote"]}}, "parent": MAIN},
}
"""Groups that every store can build without a definition. Sizes in tokens, of 4 characters where none are counted."""


def built_in(name: str) -> Definition | None:
    """The definition of a built-in group; None for an unknown name.

    >>> built_in("fine").transform.short
    'SlidingWindow(size=128, chars_per_token=4, covered=0.95, overlap=12)'
    """
    plain = BUILT_IN.get(name)
    return None if plain is None else decode(plain, Definition, known=Catalogue())


def manifest_of(
    name: str, definition: Definition, analyzer: Analyzer, above: Mapping[str, Manifest], reader: str = ""
) -> Manifest:
    refuse_odd_name(name)
    _refuse_lineage(name, definition, above)
    for embedding in definition.embeddings:
        refuse_namesakes(embedding.embedder, above)
    if (transform := _as_stored(name, definition.transform, above.get(name))) is not definition.transform:
        definition = definition.but(transform=transform)
    return Manifest(
        group=name,
        transform=definition.transform.short,
        reader=reader,
        analyzer=definition.analyzer or analyzer,
        embeddings=tuple(map(embedded, definition.embeddings)),
        parent=definition.parent,
        ref=definition.ref,
        definition=_plain(name, definition.transform),
        signature=signature(definition, above),
    )


def _as_stored(name: str, transform: Transform, there: Manifest | None) -> Transform:
    """The stored transform, if the given one differs only in the paths of its files, as on another machine."""
    if there is None or there.definition == _plain(name, transform):
        return transform
    with suppress(GroupError):  # by what is not known here nothing can be compared
        if _is_alike(transform, stored := transform_of(there, accept=None)):
            return stored
    return transform


def _is_alike(one: object, other: object) -> bool:
    """Whether two are equal, or addresses of the same content, or operators of which that holds field by field."""
    if one == other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Operator):
        return all(_is_alike(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))  # type: ignore[arg-type]
    if isinstance(one, Addressed) and isinstance(other, Addressed):
        return one.fingerprint() is not None and one.fingerprint() == other.fingerprint()
    return False


def refuse_namesakes(embedder: Embedder | SparseEmbedder, manifests: Mapping[str, Manifest]) -> None:
    for manifest in manifests.values():
        if (how := manifest.embedded(embedder.name)) is not None:
            refuse_other_embedder(how, manifest.group, embedder)


def embedded(embedding: Embedding) -> GroupEmbedding:
    embedder = embedding.embedder
    return GroupEmbedding(
        embedder.name,
        getattr(embedder, "dimension", 0),
        embedding.metric,
        json.dumps(encode(embedding.index, IndexSettings)),
        _plain_embedder(embedder),
        embedder.fingerprint() or "",
        isinstance(embedder, ImageEmbedder),
    )


def refuse_other_embedder(how: GroupEmbedding, group: str, embedder: Embedder | SparseEmbedder) -> None:
    dimension, fingerprint = getattr(embedder, "dimension", 0), embedder.fingerprint() or ""
    told = []
    if how.dimension != dimension:
        told.append(f"dimension: {how.dimension} there, {dimension} here")
    if how.pictures and not isinstance(embedder, ImageEmbedder):
        told.append("pictures: embedded there, not here")
    if how.fingerprint and fingerprint and how.fingerprint != fingerprint:
        told.append(f"fingerprint: {how.fingerprint!r} there, {fingerprint!r} here")
    if told:
        raise ManifestMismatch(
            f"Group {group!r} was embedded with another {embedder.name!r}: {'; '.join(told)}. Their vectors cannot be "
            "compared, and are found by the name: take the embedder that is there, or give this one a name of its own "
            "and index with it."
        )


def signature(definition: Definition, above: Mapping[str, Manifest]) -> str:
    """A hash of all that a group's nodes are made by: code version, parameters, models, prompts, the groups above."""
    transform = definition.transform
    models = tuple(resource.fingerprint() or "" for resource in transform.resources)
    made = {name: manifest.signature for name, manifest in above.items() if name != DOCUMENT}
    upper = tuple(made.get(name, "") for name in (definition.parent, definition.ref))
    return digest_of((transform.digest, models, definition.parent, definition.ref, upper)).hex()


def transform_of(
    manifest: Manifest,
    passed: Iterable[Operator[Any, Any] | type] = (),
    accept: Callable[[Any], None] | None = refuse_env,
) -> Transform:
    """The transform by which a group of the store goes on being built. `accept`: see `spolia.core.codec.decode`."""
    advice = (
        f"Give the group too, with its definition: corpus.group({manifest.group!r}, Definition(…)); or its functions: "
        "--known FILE.py, in Python known=(…,)."
    )
    if '"__main__:' in manifest.definition:
        advice += " It was built by a program that holds the function itself: put that into a module, and rebuild it."
    if not manifest.definition:
        raise GroupError(
            f"The store does not say how group {manifest.group!r} is made. {advice} It is: {manifest.transform}"
        )
    try:
        return decode(  # type: ignore[no-any-return]
            json.loads(manifest.definition), Operator, known=Catalogue(passed), accept=accept
        )
    except VariableRefused as error:
        raise StoreError(f"Group {manifest.group!r} of the store: {error.reason}") from error
    except CodecError as error:
        raise GroupError(
            f"Group {manifest.group!r} is made by an operator that is unknown here, {manifest.transform}. {advice} "
            f"({error.reason.partition('. ')[0]})"
        ) from error


def asked_by(manifest: Manifest, passed: Iterable[Operator[Any, Any] | type] = ()) -> tuple[Any, ...]:
    """The stores, models and embedders that a group of the store is kept in step by, as far as they are known here."""
    found: list[Any] = []
    with suppress(GroupError):  # by what is not known here nothing is made, so that nothing is sent
        found += transform_of(manifest, passed, accept=None).resources
    for how in manifest.embeddings:
        with suppress(SpoliaError):
            found += [decode(json.loads(how.plain), known=Catalogue())] if how.plain else []
    return tuple(found)


def definition_by_now(manifest: Manifest, passed: Iterable[Operator[Any, Any] | type] = ()) -> Definition:
    passed = tuple(passed)
    embedders = [one for one in passed if isinstance(one, (Embedder, SparseEmbedder)) and not isinstance(one, type)]
    embeddings = (
        Embedding(embedder_of(how, manifest.group, embedders), *(() if how.is_sparse else (index_of(how), how.metric)))
        for how in manifest.embeddings
    )
    made = transform_of(manifest, passed)
    return Definition(made, manifest.parent, manifest.ref, tuple(embeddings), manifest.analyzer)


def embedder_of(
    how: GroupEmbedding, group: str, passed: Iterable[Embedder | SparseEmbedder] = ()
) -> Embedder | SparseEmbedder:
    for embedder in passed:
        if embedder.name == how.embedder:
            refuse_other_embedder(how, group, embedder)
            return embedder
    advice = (
        f"Group {group!r} is embedded with {how.embedder!r}. Pass that again: --embedder FILE.py:NAME on the command "
        f"line; in Python with the group's definition, corpus.group({group!r}, Definition(..., "
        "embeddings=(Embedding(it),))), among groups=[...]."
    )
    if not how.plain:
        raise GroupError(f"The store cannot reload its embedder. {advice}")
    try:
        found = decode(json.loads(how.plain), known=Catalogue(), accept=refuse_env)
        name = found.name
    except VariableRefused as error:
        raise StoreError(f"Group {group!r} of the store: {error.reason}") from error
    except SpoliaError as error:
        raise GroupError(f"The embedder cannot be made: {error} {advice}") from error
    if name != how.embedder:
        raise GroupError(f"The embedder that the store names is {name!r} by now. {advice}")
    refuse_other_embedder(how, group, found)
    return found  # type: ignore[no-any-return]


def index_of(how: GroupEmbedding) -> IndexSettings:
    return _index_settings(how.index)


@lru_cache(64)  # each publication asks for it, and so does the first question after it
def _index_settings(written: str) -> IndexSettings:
    return decode(json.loads(written), IndexSettings, known=Catalogue())  # type: ignore[no-any-return]


def refuse_stored(settings: IndexSettings, group: str) -> None:
    """Refuse to open a database by settings that read a variable which nobody has allowed the store to name."""
    try:
        refuse_env(settings)
    except VariableRefused as error:
        raise StoreError(f"The vectors of group {group!r} of the store: {error.reason}") from error


def in_order(manifests: Mapping[str, Manifest]) -> list[Manifest]:
    """Groups after the groups that they are made from; otherwise by name."""
    found: dict[str, Manifest] = {}
    while len(found) < len(manifests):
        ready = [
            manifest
            for name, manifest in sorted(manifests.items())
            if name not in found and all(above not in manifests or above in found for above in _above(manifest))
        ]
        if not ready:
            left = sorted(set(manifests) - set(found))
            raise GroupError(f"The groups {', '.join(left)} are made from each other in a circle. Change a parent.")
        found.update((manifest.group, manifest) for manifest in ready)
    return list(found.values())


def _above(manifest: Manifest) -> set[str]:
    return {manifest.parent, manifest.ref} - {"", manifest.group if manifest.group == DOCUMENT else ""}


def _refuse_lineage(name: str, definition: Definition, above: Mapping[str, Manifest]) -> None:
    if name == DOCUMENT and definition.transform != Whole():
        raise GroupError(
            f"Group {DOCUMENT!r} is the whole documents, and is asked for as made by {definition.transform.short}. "
            "Give the group another name; for vectors of whole documents write Definition(Whole(), embeddings=(...,))."
        )
    for role, group in (("parent", definition.parent), ("ref", definition.ref)):
        if name != DOCUMENT and name in (group, *_line(group, above)):
            raise GroupError(
                f"Group {name!r} would be made from itself, by way of its {role} {group!r}. Change the {role}."
            )
        if group and group != DOCUMENT and group not in above:
            raise GroupError(
                f"Group {name!r} has the {role} {group!r}, which is not there; there are: "
                f"{', '.join(sorted({DOCUMENT, *above}))}. Write one of these, or define {group!r} before."
            )
    if definition.ref and definition.parent not in _line(definition.ref, above):
        raise GroupError(
            f"Group {name!r} has the ref {definition.ref!r}, which is not made from its parent "
            f"{definition.parent!r}. Write a group below {definition.parent!r}."
        )


def between(manifest: Manifest, manifests: Mapping[str, Manifest]) -> tuple[str, ...]:
    """The groups through which the nodes of a group's `ref` were made from those of its parent."""
    line = _line(manifest.ref, manifests) if manifest.ref else []
    return tuple(line[: line.index(manifest.parent)]) if manifest.parent in line else ()


def _line(group: str, manifests: Mapping[str, Manifest]) -> list[str]:
    """The groups above a group, the nearest first."""
    found: list[str] = []
    while group in manifests and group != DOCUMENT:
        group = manifests[group].parent
        if group in found:
            break
        found.append(group)
    return found


def _plain(name: str, transform: Transform) -> str:
    refuse_unstorable(transform)
    try:
        return json.dumps(encode(transform, Operator), ensure_ascii=False)
    except CodecError as error:
        raise GroupError(
            f"Group {name!r} cannot be kept in a store, since its transform cannot be written down: {error}"
        ) from error


def _plain_embedder(embedder: Embedder | SparseEmbedder) -> str:
    """As plain data; empty for an embedder of the caller's own that has none, and has to be passed each time."""
    if isinstance(embedder, models.FunctionEmbedder):
        return ""
    try:
        return json.dumps(encode(embedder), ensure_ascii=False)
    except CodecError:
        return ""

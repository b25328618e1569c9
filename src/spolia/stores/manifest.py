"""Manifest of a node group: the parts that it was built with as plain data, and a signature of all that makes its
nodes."""

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
from spolia.types.value import lazy_property

STORE_INDEXES = ("Exact", "HNSW")
"""Indexes that are part of the store."""
MAX_NAME = 80
_NAME = re.compile(r"\w([\w .-]*[\w.-])?")


@dataclass(frozen=True)
class GroupEmbedding(Value):
    """Embedding of a group's nodes, as its manifest says.

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
    # Not compared: an embedder may be written differently, or not say its version, and give the same vectors.
    plain: str = field(default="", compare=False)
    fingerprint: str = field(default="", compare=False)
    pictures: bool = False

    @property
    def description(self) -> str:
        numbers = "sparse" if self.is_sparse else f"{self.dimension} numbers"
        pictures = ", pictures" if self.pictures else ""
        return f"{self.embedder!r} ({self.metric}, {numbers}{pictures}, {self.index})"

    @property
    def is_sparse(self) -> bool:
        return not self.dimension

    @property
    def is_external(self) -> bool:
        if self.is_sparse:
            return False
        index = json.loads(self.index)
        return (index if isinstance(index, str) else next(iter(index))) not in STORE_INDEXES


@dataclass(frozen=True)
class Manifest(Value):
    """Parts that a node group was built with.

    Args:
        reader: how the documents were read, where a caller who writes manifests says it.
        definition: the transform as plain data in JSON, by which new documents are cut; empty if it was made by hand.
        signature: changes with whatever the transform does: code version, parameters, models, prompts, parents.

    Raises:
        GroupError: some embedders embed pictures and others do not, though a node has one key for all its vectors.

    >>> read(dump(Manifest("chunk", "Whole()", "1"))) == Manifest("chunk", "Whole()", "1")
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
        texts = [embedding.embedder for embedding in self.embeddings if not embedding.pictures]
        if self.by_picture and texts:
            raise GroupError(
                f"Group {self.group!r} would be embedded by its pictures, and by {', '.join(texts)} by its texts. "
                "Define two groups, one for each."
            )

    @lazy_property
    def by_picture(self) -> bool:
        return any(embedding.pictures for embedding in self.embeddings)

    @property
    def embedder(self) -> str:
        return self.embeddings[0].embedder if self.embeddings else ""

    def find_embedding(self, embedder: str) -> GroupEmbedding | None:
        return next((embedding for embedding in self.embeddings if embedding.embedder == embedder), None)

    def differences(self, manifest: "Manifest") -> tuple[str, ...]:
        """List each part that differs, with both sides; of the transform parameter by parameter.

        >>> was, now = (Manifest("g", definition=f'{{"Summary": {{"words": {words}}}}}') for words in (50, 80))
        >>> was.differences(now)
        ('transform.Summary.words: 50 there, 80 here',)
        >>> Manifest("g", reader="pdf 2, text 1").differences(Manifest("g", reader="minutes 1, pdf 2, text 1"))
        ("reader: none there, 'minutes 1' here",)
        """
        parts = [(name, getattr(self, name), getattr(manifest, name)) for name in _PLAIN]
        parts.insert(0, ("reader", *_unshared_readers(self.reader, manifest.reader)))
        differences = [
            f"{name}: {_describe(stored_part)} there, {_describe(new_part)} here"
            for name, stored_part, new_part in parts
            if stored_part != new_part
        ]
        differences += _compare(asdict(self.analyzer), asdict(manifest.analyzer), "analyzer")
        if self.definition and manifest.definition:
            differences += _compare(json.loads(self.definition), json.loads(manifest.definition), "transform")
        elif self.transform != manifest.transform:
            differences.append(f"transform: {self.transform!r} there, {manifest.transform!r} here")
        if not differences and self.signature != manifest.signature:
            differences.append(
                "the code of the transform, a model or prompt behind it, or a group above it have changed"
            )
        return tuple(differences)


_PLAIN = ("embeddings", "parent", "ref")


def _unshared_readers(stored: str, new: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return from two lists of readers those that the other list lacks."""
    stored_names, new_names = ([reader for reader in side.split(", ") if reader] for side in (stored, new))
    return tuple(reader for reader in stored_names if reader not in new_names), tuple(
        reader for reader in new_names if reader not in stored_names
    )


def _compare(stored: Any, new: Any, place: str) -> Iterator[str]:
    """Yield in words where two plain forms differ, from the outside in."""
    stored, new = ({side: {}} if isinstance(side, str) and place == "transform" else side for side in (stored, new))
    if isinstance(stored, dict) and isinstance(new, dict):
        if place == "transform" and stored.keys() != new.keys():  # operators by their names
            yield f"{place}: {', '.join(stored)} there, {', '.join(new)} here"
            return
        for name in [*stored, *(name for name in new if name not in stored)]:
            if stored.get(name) != new.get(name):
                yield from _compare(stored.get(name), new.get(name), f"{place}.{name}")
    elif stored != new:
        sides = (_default_of(place) if side is None else side for side in (stored, new))
        texts = [json.dumps(side, ensure_ascii=False)[:80] if side is not None else "default" for side in sides]
        yield f"{place}: {texts[0]} there, {texts[1]} here"


def _default_of(place: str) -> str | int | float | bool | None:
    """Return the default of a field that is not in the plain form, if it is a plain value: that of
    `transform.Summary.words`."""
    owner, _, name = place.rpartition(".")
    fields = getattr(Catalogue().get(owner.rpartition(".")[2]), "__dataclass_fields__", {})
    default = fields[name].default if name in fields else None
    return default if isinstance(default, (str, int, float, bool)) else None


def _describe(part: object) -> str:
    if isinstance(part, tuple):
        return ", ".join(map(_describe, part)) or "none"
    if isinstance(part, GroupEmbedding):
        return part.description
    return repr(part)


def refuse_odd_name(group: str) -> None:
    """Raise `GroupError` for a name that would be ambiguous on a command line, in an id or in a file.

    >>> refuse_odd_name("a/b")
    Traceback (most recent call last):
    spolia.errors.GroupError: A node group cannot be called 'a/b'. Write letters, digits, '_', '-', '.' and blanks.
    """
    if len(group) > MAX_NAME or not _NAME.fullmatch(group):
        raise GroupError(
            f"A node group cannot be called {group!r:.100}. Write letters, digits, '_', '-', '.' and blanks."
        )


def refuse_other_manifest(stored: Manifest, manifest: Manifest) -> None:
    if stored != manifest:
        raise ManifestMismatch(
            f"Group {stored.group!r} of the store was built with other parts: "
            f"{'; '.join(stored.differences(manifest))}. Write the parts that are there, name another store, or "
            "rebuild the group: sync(..., rebuild=True), on the command line spolia index with --rebuild."
        )


def dump(manifest: Manifest) -> str:
    return json.dumps(asdict(manifest), ensure_ascii=False, sort_keys=True)


def read(text: str) -> Manifest:
    try:
        return manifest_from_dict(json.loads(text))
    except ValueError as error:
        raise _manifest_error(text, error) from error


def manifest_from_dict(values: dict[str, Any]) -> Manifest:
    try:
        embeddings = tuple(GroupEmbedding(**embedding) for embedding in values["embeddings"])
        return Manifest(**{**values, "analyzer": Analyzer(**values["analyzer"]), "embeddings": embeddings})
    except (KeyError, TypeError, SpoliaError) as error:  # TypeError: a field that this version does not know
        raise _manifest_error(values, error) from error


def _manifest_error(content: object, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(
        f"A manifest of the store cannot be understood: {content!r} ({error}). "
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
    """Return the definition of a built-in group; None for an unknown name.

    >>> built_in("fine").transform.short
    'SlidingWindow(size=128, chars_per_token=4, covered=0.95, overlap=12)'
    """
    plain = BUILT_IN.get(name)
    return None if plain is None else decode(plain, Definition, classes=Catalogue())


def manifest_of(
    name: str, definition: Definition, analyzer: Analyzer, manifests: Mapping[str, Manifest], reader: str = ""
) -> Manifest:
    refuse_odd_name(name)
    _refuse_lineage(name, definition, manifests)
    for embedding in definition.embeddings:
        refuse_namesakes(embedding.embedder, manifests)
    if (transform := _as_stored(name, definition.transform, manifests.get(name))) is not definition.transform:
        definition = definition.but(transform=transform)
    return Manifest(
        group=name,
        transform=definition.transform.short,
        reader=reader,
        analyzer=definition.analyzer or analyzer,
        embeddings=tuple(map(group_embedding, definition.embeddings)),
        parent=definition.parent,
        ref=definition.ref,
        definition=_dump_transform(name, definition.transform),
        signature=signature(definition, manifests),
    )


def _as_stored(name: str, transform: Transform, manifest: Manifest | None) -> Transform:
    """Return the stored transform if the given one differs only in the paths of its files, as on another machine."""
    if manifest is None or manifest.definition == _dump_transform(name, transform):
        return transform
    with suppress(GroupError):  # by what is not known here nothing can be compared
        if _is_same(transform, stored := transform_of(manifest, accept=None)):
            return stored
    return transform


def _is_same(first: object, second: object) -> bool:
    """Return whether two values are equal, address the same content, or are operators of which that holds field by
    field."""
    if first == second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, Operator):
        return all(_is_same(getattr(first, f.name), getattr(second, f.name)) for f in fields(first))  # type: ignore[arg-type]
    if isinstance(first, Addressed) and isinstance(second, Addressed):
        return first.fingerprint() is not None and first.fingerprint() == second.fingerprint()
    return False


def refuse_namesakes(embedder: Embedder | SparseEmbedder, manifests: Mapping[str, Manifest]) -> None:
    for manifest in manifests.values():
        if (stored := manifest.find_embedding(embedder.name)) is not None:
            refuse_other_embedder(stored, manifest.group, embedder)


def group_embedding(embedding: Embedding) -> GroupEmbedding:
    embedder = embedding.embedder
    return GroupEmbedding(
        embedder.name,
        getattr(embedder, "dimension", 0),
        embedding.metric,
        json.dumps(encode(embedding.index, IndexSettings)),
        _dump_embedder(embedder),
        embedder.fingerprint() or "",
        isinstance(embedder, ImageEmbedder),
    )


def refuse_other_embedder(stored: GroupEmbedding, group: str, embedder: Embedder | SparseEmbedder) -> None:
    dimension, fingerprint = getattr(embedder, "dimension", 0), embedder.fingerprint() or ""
    differences = []
    if stored.dimension != dimension:
        differences.append(f"dimension: {stored.dimension} there, {dimension} here")
    if stored.pictures and not isinstance(embedder, ImageEmbedder):
        differences.append("pictures: embedded there, not here")
    if stored.fingerprint and fingerprint and stored.fingerprint != fingerprint:
        differences.append(f"fingerprint: {stored.fingerprint!r} there, {fingerprint!r} here")
    if differences:
        raise ManifestMismatch(
            f"Group {group!r} was embedded with another {embedder.name!r}: {'; '.join(differences)}. Their vectors "
            "cannot be compared, and are found by the name: take the embedder that is there, or give this one a name "
            "of its own and index with it."
        )


def signature(definition: Definition, manifests: Mapping[str, Manifest]) -> str:
    """Return a hash of all that makes a group's nodes: code version, parameters, models, prompts, the groups above."""
    transform = definition.transform
    models = tuple(resource.fingerprint() or "" for resource in transform.resources)
    signatures = {name: manifest.signature for name, manifest in manifests.items() if name != DOCUMENT}
    parents = tuple(signatures.get(name, "") for name in (definition.parent, definition.ref))
    return digest_of((transform.digest, models, definition.parent, definition.ref, parents)).hex()


def transform_of(
    manifest: Manifest,
    known_operators: Iterable[Operator[Any, Any] | type] = (),
    accept: Callable[[Any], None] | None = refuse_env,
) -> Transform:
    """Return the transform by which a stored group goes on being built. `accept`: see `spolia.core.codec.decode`."""
    advice = (
        f"Give the group too, with its definition: corpus.group({manifest.group!r}, Definition(…)); or its functions: "
        "--known FILE.py, in Python operators=(…,)."
    )
    if '"__main__:' in manifest.definition:
        advice += " It was built by a program that holds the function itself: put that into a module, and rebuild it."
    if not manifest.definition:
        raise GroupError(
            f"The store does not say how group {manifest.group!r} is made. {advice} It is: {manifest.transform}"
        )
    try:
        return decode(  # type: ignore[no-any-return]
            json.loads(manifest.definition), Operator, classes=Catalogue(known_operators), accept=accept
        )
    except VariableRefused as error:
        raise StoreError(f"Group {manifest.group!r} of the store: {error.reason}") from error
    except CodecError as error:
        raise GroupError(
            f"Group {manifest.group!r} is made by an operator that is unknown here, {manifest.transform}. {advice} "
            f"({error.reason.partition('. ')[0]})"
        ) from error


def models_of(manifest: Manifest, known_operators: Iterable[Operator[Any, Any] | type] = ()) -> tuple[Any, ...]:
    """Return the stores, models and embedders that keep a group in step, as far as they are known here."""
    resources: list[Any] = []
    with suppress(GroupError):  # by what is not known here nothing is made, so that nothing is sent
        resources += transform_of(manifest, known_operators, accept=None).resources
    for embedding in manifest.embeddings:
        # An embedder that cannot be loaded here is not asked, either.
        with suppress(SpoliaError):
            resources += [decode(json.loads(embedding.plain), classes=Catalogue())] if embedding.plain else []
    return tuple(resources)


def current_definition(manifest: Manifest, known_objects: Iterable[Operator[Any, Any] | type] = ()) -> Definition:
    known_objects = tuple(known_objects)
    embedders = [
        item for item in known_objects if isinstance(item, (Embedder, SparseEmbedder)) and not isinstance(item, type)
    ]
    embeddings = (
        Embedding(
            embedder_of(embedding, manifest.group, embedders),
            *(() if embedding.is_sparse else (index_of(embedding), embedding.metric)),
        )
        for embedding in manifest.embeddings
    )
    transform = transform_of(manifest, known_objects)
    return Definition(transform, manifest.parent, manifest.ref, tuple(embeddings), manifest.analyzer)


def embedder_of(
    embedding: GroupEmbedding, group: str, known_embedders: Iterable[Embedder | SparseEmbedder] = ()
) -> Embedder | SparseEmbedder:
    for embedder in known_embedders:
        if embedder.name == embedding.embedder:
            refuse_other_embedder(embedding, group, embedder)
            return embedder
    advice = (
        f"Group {group!r} is embedded with {embedding.embedder!r}. Pass that again: --embedder FILE.py:NAME on the "
        f"command line; in Python with the group's definition, corpus.group({group!r}, Definition(..., "
        "embeddings=(Embedding(it),))), among groups=[...]."
    )
    if not embedding.plain:
        raise GroupError(f"The store cannot reload its embedder. {advice}")
    try:
        loaded = decode(json.loads(embedding.plain), classes=Catalogue(), accept=refuse_env)
        name = loaded.name
    except VariableRefused as error:
        raise StoreError(f"Group {group!r} of the store: {error.reason}") from error
    except SpoliaError as error:
        raise GroupError(f"The embedder cannot be made: {error} {advice}") from error
    if name != embedding.embedder:
        raise GroupError(f"The embedder that the store names is {name!r} by now. {advice}")
    refuse_other_embedder(embedding, group, loaded)
    return loaded  # type: ignore[no-any-return]


def index_of(embedding: GroupEmbedding) -> IndexSettings:
    return _index_settings(embedding.index)


@lru_cache(64)  # each publication asks for it, and so does the first question after it
def _index_settings(text: str) -> IndexSettings:
    return decode(json.loads(text), IndexSettings, classes=Catalogue())  # type: ignore[no-any-return]


def refuse_stored(settings: IndexSettings, group: str) -> None:
    """Raise StoreError for settings of a database that read a variable which nobody has allowed the store to name."""
    try:
        refuse_env(settings)
    except VariableRefused as error:
        raise StoreError(f"The vectors of group {group!r} of the store: {error.reason}") from error


def sort_groups(manifests: Mapping[str, Manifest]) -> list[Manifest]:
    """Order groups after the groups that they are made from; otherwise by name."""
    ordered: dict[str, Manifest] = {}
    while len(ordered) < len(manifests):
        ready = [
            manifest
            for name, manifest in sorted(manifests.items())
            if name not in ordered
            and all(parent not in manifests or parent in ordered for parent in _parents_of(manifest))
        ]
        if not ready:
            circle = sorted(set(manifests) - set(ordered))
            raise GroupError(f"The groups {', '.join(circle)} are made from each other in a circle. Change a parent.")
        ordered.update((manifest.group, manifest) for manifest in ready)
    return list(ordered.values())


def _parents_of(manifest: Manifest) -> set[str]:
    # The manifest of the root names itself as its parent, which is no circle.
    return {manifest.parent, manifest.ref} - {"", manifest.group if manifest.group == DOCUMENT else ""}


def _refuse_lineage(name: str, definition: Definition, manifests: Mapping[str, Manifest]) -> None:
    if name == DOCUMENT and definition.transform != Whole():
        raise GroupError(
            f"Group {DOCUMENT!r} is the whole documents, and is asked for as made by {definition.transform.short}. "
            "Give the group another name; for vectors of whole documents write Definition(Whole(), embeddings=(...,))."
        )
    for role, group in (("parent", definition.parent), ("ref", definition.ref)):
        if name != DOCUMENT and name in (group, *_ancestors_of(group, manifests)):
            raise GroupError(
                f"Group {name!r} would be made from itself, by way of its {role} {group!r}. Change the {role}."
            )
        if group and group != DOCUMENT and group not in manifests:
            raise GroupError(
                f"Group {name!r} has the {role} {group!r}, which is not there; there are: "
                f"{', '.join(sorted({DOCUMENT, *manifests}))}. Write one of these, or define {group!r} before."
            )
    if definition.ref and definition.parent not in _ancestors_of(definition.ref, manifests):
        raise GroupError(
            f"Group {name!r} has the ref {definition.ref!r}, which is not made from its parent "
            f"{definition.parent!r}. Write a group below {definition.parent!r}."
        )


def groups_between(manifest: Manifest, manifests: Mapping[str, Manifest]) -> tuple[str, ...]:
    """Return the groups through which the nodes of a group's `ref` were made from those of its parent."""
    line = _ancestors_of(manifest.ref, manifests) if manifest.ref else []
    return tuple(line[: line.index(manifest.parent)]) if manifest.parent in line else ()


def _ancestors_of(group: str, manifests: Mapping[str, Manifest]) -> list[str]:
    """List the groups above a group, the nearest first."""
    ancestors: list[str] = []
    while group in manifests and group != DOCUMENT:
        group = manifests[group].parent
        # Damaged or foreign manifests may form a circle.
        if group in ancestors:
            break
        ancestors.append(group)
    return ancestors


def _dump_transform(name: str, transform: Transform) -> str:
    refuse_unstorable(transform)
    try:
        return json.dumps(encode(transform, Operator), ensure_ascii=False)
    except CodecError as error:
        raise GroupError(
            f"Group {name!r} cannot be kept in a store, since its transform cannot be written down: {error}"
        ) from error


def _dump_embedder(embedder: Embedder | SparseEmbedder) -> str:
    """Dump an embedder as plain data; empty for the caller's own that has none, and has to be passed each time."""
    if isinstance(embedder, models.FunctionEmbedder):
        return ""
    try:
        return json.dumps(encode(embedder), ensure_ascii=False)
    except CodecError:
        return ""

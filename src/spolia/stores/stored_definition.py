"""Definitions of groups as a store keeps them: as plain data in the manifest, with a signature of all that they do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any

from spolia.core.codec import decode, encode
from spolia.core.function import refuse_unstorable
from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.errors import CodecError, GroupError, ManifestMismatch, SpoliaError
from spolia.models.protocols import Embedder, ImageEmbedder, SparseEmbedder
from spolia.stores.definition import DOCUMENT, Definition, Embedding, Transform, Whole
from spolia.stores.indexes import IndexSettings
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import GroupEmbedding, Manifest, refuse_odd_name
from spolia.types import Addressed, digest_of

BUILT_IN: Mapping[str, Any] = {
    DOCUMENT: {"transform": "Whole"},
    "page": {"transform": "Pages"},
    "sentence": {"transform": "Sentences"},
    "fine": {"transform": {"SlidingWindow": {"size": 128, "overlap": 12}}},
    "medium": {"transform": {"SlidingWindow": {"size": 256, "overlap": 25}}},
    "coarse": {"transform": {"SlidingWindow": {"size": 1024, "overlap": 100}}},
}
"""Groups that every store can build without being told how. Sizes in tokens, of 4 characters where none are counted."""


def built_in(name: str) -> Definition | None:
    """The definition of a built-in group; None if there is none of this name.

    >>> built_in("fine").transform.short
    'SlidingWindow(size=128, chars_per_token=4, covered=0.95, overlap=12)'
    """
    plain = BUILT_IN.get(name)
    return None if plain is None else decode(plain, Definition, known=Catalogue())


def manifest_of(
    name: str, definition: Definition, analyzer: Analyzer, above: Mapping[str, Manifest], reader: str = ""
) -> Manifest:
    """What a store writes down of a definition."""
    refuse_odd_name(name)
    _refuse_lineage(name, definition, above)
    for embedding in definition.embeddings:
        refuse_namesakes(embedding.embedder, above)
    definition = definition.but(transform=_as_stored(definition.transform, above.get(name)))
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


def _as_stored(transform: Transform, there: Manifest | None) -> Transform:
    """The transform as the store names it, where only the places of its files differ, for example of a tokenizer.

    So the splitter that follows from an embedder is the same one on a machine that has the weights in another folder.
    """
    with suppress(GroupError):  # by what is not known here nothing can be compared
        if there is not None and _is_alike(transform, stored := transform_of(there)):
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
    """Refuse an embedder that has the name of another one, by which some group is embedded."""
    for manifest in manifests.values():
        if (how := manifest.embedded(embedder.name)) is not None:
            refuse_other_embedder(how, manifest.group, embedder)


def embedded(embedding: Embedding) -> GroupEmbedding:
    """What a store writes down of an embedding."""
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
    """Refuse an embedder that has the name of the one that a group was embedded by, and gives other vectors."""
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
    """A hash of all that a group's nodes are made by: code version, parameters, models, prompts, the groups above.

    Whether the whole documents are a group of the store makes no difference to those that are made of them.
    """
    transform = definition.transform
    models = tuple(resource.fingerprint() or "" for resource in transform.resources)
    made = {name: manifest.signature for name, manifest in above.items() if name != DOCUMENT}
    upper = tuple(made.get(name, "") for name in (definition.parent, definition.ref))
    return digest_of((transform.digest, models, definition.parent, definition.ref, upper)).hex()


def transform_of(manifest: Manifest, passed: Iterable[Operator[Any, Any] | type] = ()) -> Transform:
    """The transform by which a group of the store goes on being built."""
    advice = (
        f"Give the group too, with its definition: corpus.group({manifest.group!r}, Definition(…)); or its functions: "
        "--known FILE.py, in Python known=(…,)."
    )
    if '"__main__:' in manifest.definition:
        advice += (
            " It was built by a program that holds the function itself: put that into a module, and build it anew."
        )
    if not manifest.definition:
        raise GroupError(
            f"The store does not say how group {manifest.group!r} is made. {advice} It is: {manifest.transform}"
        )
    try:
        return decode(json.loads(manifest.definition), Operator, known=Catalogue(passed))  # type: ignore[no-any-return]
    except CodecError as error:
        raise GroupError(
            f"Group {manifest.group!r} is made by what is not known here, {manifest.transform}. {advice} "
            f"({error.reason.partition('. ')[0]})"
        ) from error


def asked_by(manifest: Manifest, passed: Iterable[Operator[Any, Any] | type] = ()) -> tuple[Any, ...]:
    """The stores, models and embedders that a group of the store is kept in step by, as far as they are known here."""
    found: list[Any] = []
    with suppress(GroupError):  # by what is not known here nothing is made, so that nothing is sent
        found += transform_of(manifest, passed).resources
    for how in manifest.embeddings:
        with suppress(SpoliaError):
            found += [decode(json.loads(how.plain), known=Catalogue())] if how.plain else []
    return tuple(found)


def definition_by_now(manifest: Manifest, passed: Iterable[Operator[Any, Any] | type] = ()) -> Definition:
    """The definition that a store has of a group, as its code, models and prompts are by now."""
    embeddings = (Embedding(embedder_of(how, manifest.group), index_of(how), how.metric) for how in manifest.embeddings)
    made = transform_of(manifest, passed)
    return Definition(made, manifest.parent, manifest.ref, tuple(embeddings), manifest.analyzer)


def embedder_of(
    how: GroupEmbedding, group: str, passed: Iterable[Embedder | SparseEmbedder] = ()
) -> Embedder | SparseEmbedder:
    """The embedder by which a group goes on being embedded."""
    for embedder in passed:
        if embedder.name == how.embedder:
            refuse_other_embedder(how, group, embedder)
            return embedder
    advice = (
        f"Group {group!r} is embedded with {how.embedder!r}. Pass that again: with the group's definition, "
        f"corpus.group({group!r}, Definition(..., embeddings=(Embedding(it),))), among groups=[...]."
    )
    if not how.plain:
        raise GroupError(f"The store does not say how to make the embedder again. {advice}")
    try:
        found = decode(json.loads(how.plain), known=Catalogue())
        name = found.name
    except SpoliaError as error:
        raise GroupError(f"The embedder cannot be made: {error} {advice}") from error
    if name != how.embedder:
        raise GroupError(f"The embedder that the store names is {name!r} by now. {advice}")
    refuse_other_embedder(how, group, found)
    return found  # type: ignore[no-any-return]


def index_of(how: GroupEmbedding) -> IndexSettings:
    """The settings of the index over a group's vectors."""
    return decode(json.loads(how.index), IndexSettings, known=Catalogue())  # type: ignore[no-any-return]


def in_order(manifests: Mapping[str, Manifest]) -> list[Manifest]:
    """Groups after those that they are made from; of others the first by name."""
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
    try:
        return json.dumps(encode(embedder), ensure_ascii=False)
    except CodecError:
        return ""

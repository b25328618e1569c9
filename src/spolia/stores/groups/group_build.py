"""Storing and embedding the nodes of groups, and making again what could not be made."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from spolia.core.run_context import check_cancelled
from spolia.deferred import numpy as np
from spolia.errors import DocumentError, GroupError, ModelRejected, SpoliaError, StoreError
from spolia.models.protocols import Embedder, ImageEmbedder, SparseEmbedder
from spolia.stores.backends.rows import NOT_YET, Unmade, in_batches
from spolia.stores.definition import DOCUMENT, Part, transform_for
from spolia.stores.groups.nodes import GroupBuild, GroupNodes, grow
from spolia.stores.manifest import Manifest
from spolia.types import Document, Failure

if TYPE_CHECKING:
    from spolia.stores.staging import AnyWriter
    from spolia.types.arrays import Vectors

EMBEDDED_AT_ONCE = 64
"""Texts in one call of an embedder: what is interrupted loses those of the call that was under way, and no others."""
STAGED_AT_ONCE = 32_000_000
"""Characters and bytes of memory that wait for one commit; then they are committed, or kept in a file."""


Texts: TypeAlias = "Sequence[tuple[bytes, str]]"
"""Texts, each with the hash by which its vector is found."""


def in_turn(embedder: Embedder, calls: Iterable[Texts]) -> Iterator[tuple[Texts, Vectors]]:
    """The vectors of texts, one call after the other."""
    for texts in calls:
        check_cancelled()
        yield texts, embedder.embed([text for _, text in texts], kind="passage")


def embed(
    writer: AnyWriter,
    builds: Iterable[GroupBuild],
    tell: Callable[[int], None] = lambda count: None,
    embedded: Callable[[Embedder, Iterable[Texts]], Iterable[tuple[Texts, Vectors]]] = in_turn,
) -> list[Unmade]:
    """Embed what has no vector yet; returns the pictures that no embedder could read, found by words only."""
    unread: list[Unmade] = []
    for build in builds:
        for embedder in build.embedders:
            calls = in_batches(writer.unembedded(build.group, embedder.name), EMBEDDED_AT_ONCE)
            if isinstance(embedder, SparseEmbedder):
                for some in calls:
                    check_cancelled()
                    rows = embedder.embed_sparse([text for _, text in some], kind="passage")
                    writer.add_sparse(embedder.name, [hash for hash, _ in some], rows)
                    tell(len(some))
                continue
            for texts, vectors in embedded(embedder, calls):
                writer.add_vectors(embedder.name, [hash for hash, _ in texts], vectors)
                tell(len(texts))
            if isinstance(embedder, ImageEmbedder):
                unread += embed_pictures(writer, build.group, embedder, tell)
    return unread


PICTURES_AT_ONCE = 16
"""In one call of an embedder, and in memory."""
BLANK = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAJklEQVR42u3NMQ0AAAwDoPo33arYsQQMkB6LQCAQCAQCgUAg+BIMi1X0ptsIcT0AAAAASUVORK5CYII="
)
"""A white PNG of 32 × 32 dots: an embedder that cannot read it is out of order, whatever it says of others."""


def embed_pictures(
    writer: AnyWriter, group: str, embedder: ImageEmbedder, tell: Callable[[int], None]
) -> Iterator[Unmade]:
    """Embed the pictures of a group that have no vector yet; gives those that the embedder could not read.

    These get the vector of length 0, that of what the embedder does not know at all: nodes with it are found by words.
    """
    for some in in_batches(writer.unembedded_pictures(group, embedder.name), PICTURES_AT_ONCE):
        check_cancelled()
        vectors, failures = seen(embedder, [picture for _, picture in some])
        writer.add_vectors(embedder.name, [one.hash for one, _ in some], vectors)
        for at, error in failures.items():
            node = some[at][0]
            yield Unmade(
                node.document,
                writer.document(node.document).uri,
                group,
                f"The picture of {node.node!r} could not be embedded by {embedder.name!r}, so that only words find "
                f"this node; the others are there. {type(error).__name__}: {error}",
            )
        tell(len(some))


def seen(embedder: ImageEmbedder, pictures: Sequence[bytes]) -> tuple[Vectors, dict[int, Exception]]:
    """The vectors of pictures, and by position why one could not be read, while the embedder reads another picture."""
    try:
        return embedder.embed_images(pictures), {}
    except Exception as error:  # whatever an embedder, or what decodes for it, makes of bytes that are no picture
        _refuse_others(error)

    rows, failures = [], dict[int, Exception]()
    for at, picture in enumerate(pictures):
        try:
            rows.append(embedder.embed_images([picture]))
        except Exception as error:  # as above
            _refuse_others(error)
            if not _reads(embedder, BLANK):
                raise
            rows.append(np.zeros((1, embedder.dimension), np.float32))
            failures[at] = error
    return np.concatenate(rows), failures


def _reads(embedder: ImageEmbedder, picture: bytes) -> bool:
    try:
        return len(embedder.embed_images([picture])) == 1
    except Exception:  # it cannot; why, was said of the picture that this is asked for
        return False


def _refuse_others(error: Exception) -> None:
    """Raise what does not lie at a picture."""
    if isinstance(error, SpoliaError) and not isinstance(error, (ModelRejected, DocumentError)):
        raise error


G = TypeVar("G", GroupBuild, Manifest)

DOCUMENTS_AT_ONCE = 64


def store(writer: AnyWriter, one: GroupNodes, before: Mapping[str, str] | None = None) -> None:
    """Add what could be made of a document that is there, and note what could not."""
    for group, nodes in list(one.made.items()):
        try:
            if nodes or not isinstance(nodes, Sequence):
                writer.add_nodes(one.document, nodes)
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, GroupError):
                raise
            one.fail(group, Failure.of(error, group))  # metadata of another type; a late failure of a splitter
    if not (before or one.failures):
        return
    there, now = before or {}, one.reasons
    made = {group: "" for group in there if group in one.made or group in one.passed_over}
    if changed := {group: why for group, why in {**now, **made}.items() if there.get(group, "") != why}:
        writer.note_unmade(one.document.id, changed)


def make_up(writer: AnyWriter, builds: Sequence[GroupBuild], unmade: Sequence[Unmade]) -> Iterator[GroupNodes]:
    """Retry nodes that could not be made, and nodes made from them; skip groups whose model is away."""
    before: dict[str, dict[str, str]] = {}
    for lack in unmade:
        before.setdefault(lack.document, {})[lack.group] = lack.reason
    alike: dict[frozenset[str], list[str]] = {}
    for document, reasons in before.items():
        alike.setdefault(frozenset(reasons), []).append(document)
    for groups, documents in alike.items():
        for some in in_batches(iter(documents), DOCUMENTS_AT_ONCE):
            check_cancelled()
            if not (left := groups - {build.group for build in builds if build.reach.is_away}):
                break
            wanted = with_those_below(left, builds)
            found = list(filter(None, (_found(writer, id) for id in some)))
            for one in grow(found, wanted, lambda document, group: writer.nodes(document.id, group)):
                store(writer, one, before[one.document.id])
                yield one


def _found(writer: AnyWriter, id: str) -> Document | None:
    """A document, unless another writer removes it at this moment."""
    try:
        return writer.document(id)
    except StoreError:
        if writer.document_key(id) is None:
            return None
        raise


def complete(writer: AnyWriter, built: Sequence[GroupBuild]) -> Iterator[GroupNodes]:
    """Make groups that are about to be published of what another writer has committed meanwhile."""
    names = {build.group for build in built}
    return make_up(writer, built, [lack for lack in writer.unmade() if lack.is_untried and lack.group in names])


def refuse_away(builds: Iterable[GroupBuild]) -> None:
    """Raise the failure that kept a group from being rebuilt: a rebuild would lose its nodes."""
    for build in builds:
        if build.reach.reason and build.reach.failure is not None:
            error = build.reach.failure.raised()
            error.add_note(f"Group {build.group!r} stays as it was. Nothing was published.")
            raise error


def with_those_below(groups: Iterable[str], all: Sequence[G]) -> list[G]:
    """These groups and all groups made from them, of `all` in order, without the documents."""
    found, wanted = set(groups) - {DOCUMENT}, set(groups)
    for one in all:
        if not found.isdisjoint((one.parent, one.ref)):
            found.add(one.group)
    return [one for one in all if one.group in found | wanted]


def relabel(writer: AnyWriter, builds: Sequence[GroupBuild], old: Document, new: Document) -> None:
    """Give a document the metadata and readers of another one with the same text.

    Its nodes stay, and nothing is asked or embedded again, but in groups whose transform reads what has changed
    (`Operator.reads`), and in groups made from them; if a model for that is away, a later run does it.
    """
    before = _parts(writer, builds, old)
    writer.relabel(old, new.meta, new.readers)
    now = _parts(writer, builds, new)
    made = (build for build in builds if build.group != DOCUMENT)
    other = [build.group for build in made if _reads_otherwise(build, new, before, now)]
    again = [build.group for build in with_those_below(other, builds)]
    if other:
        writer.unmake(new.id, again)
        for _ in make_up(writer, builds, [Unmade(new.id, new.uri, group, NOT_YET) for group in again]):
            """Each of them is stored as it comes."""


def _parts(writer: AnyWriter, builds: Sequence[GroupBuild], document: Document) -> Mapping[str, Sequence[Part]]:
    """What the transform of each group is given."""
    there = GroupNodes(document, lambda group: writer.nodes(document.id, group))
    return {build.group: there.parts(build) for build in builds if build.group != DOCUMENT}


def _reads_otherwise(
    build: GroupBuild, document: Document, before: Mapping[str, Sequence[Part]], now: Mapping[str, Sequence[Part]]
) -> bool:
    transform = transform_for(build.transform, document)
    pairs = zip(before[build.group], now[build.group], strict=True)
    return any(transform.reads(part) != transform.reads(other) for part, other in pairs)

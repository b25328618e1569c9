"""Storing and embedding the nodes of groups, and retrying what could not be made."""

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


def embed_in_turn(embedder: Embedder, calls: Iterable[Texts]) -> Iterator[tuple[Texts, Vectors]]:
    """Yield the vectors of texts, one call after the other."""
    for texts in calls:
        check_cancelled()
        yield texts, embedder.embed([text for _, text in texts], kind="passage")


def embed(
    writer: AnyWriter,
    builds: Iterable[GroupBuild],
    tell: Callable[[int], None] = lambda count: None,
    embed_calls: Callable[[Embedder, Iterable[Texts]], Iterable[tuple[Texts, Vectors]]] = embed_in_turn,
) -> list[Unmade]:
    """Embed texts that have no vector yet; return the pictures that no embedder could read, found by words only."""
    unread: list[Unmade] = []
    for build in builds:
        for embedder in build.embedders:
            calls = in_batches(writer.unembedded(build.group, embedder.name), EMBEDDED_AT_ONCE)
            if isinstance(embedder, SparseEmbedder):
                for batch in calls:
                    check_cancelled()
                    rows = embedder.embed_sparse([text for _, text in batch], kind="passage")
                    writer.add_sparse(embedder.name, [hash for hash, _ in batch], rows)
                    tell(len(batch))
                continue
            for texts, vectors in embed_calls(embedder, calls):
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
    """Embed the pictures of a group that have no vector yet; yield those that the embedder could not read.

    These get the vector of length 0, that of what the embedder does not know at all: nodes with it are found by words.
    """
    for batch in in_batches(writer.unembedded_pictures(group, embedder.name), PICTURES_AT_ONCE):
        check_cancelled()
        vectors, failures = embed_readable(embedder, [picture for _, picture in batch])
        writer.add_vectors(embedder.name, [item.hash for item, _ in batch], vectors)
        for position, error in failures.items():
            node = batch[position][0]
            yield Unmade(
                node.document,
                writer.document(node.document).uri,
                group,
                f"The picture of {node.node!r} could not be embedded by {embedder.name!r}, so that only words find "
                f"this node; the others are there. {type(error).__name__}: {error}",
            )
        tell(len(batch))


def embed_readable(embedder: ImageEmbedder, pictures: Sequence[bytes]) -> tuple[Vectors, dict[int, Exception]]:
    """Return the vectors of pictures, and by position why one could not be read, while the embedder reads another
    picture."""
    try:
        return embedder.embed_images(pictures), {}
    except Exception as error:  # whatever an embedder, or what decodes for it, makes of bytes that are no picture
        _raise_unless_picture(error)

    rows, failures = [], dict[int, Exception]()
    for position, picture in enumerate(pictures):
        try:
            rows.append(embedder.embed_images([picture]))
        except Exception as error:  # as above
            _raise_unless_picture(error)
            # An embedder that cannot read a blank picture is out of order: then no picture is to blame.
            if not _reads(embedder, BLANK):
                raise
            rows.append(np.zeros((1, embedder.dimension), np.float32))
            failures[position] = error
    return np.concatenate(rows), failures


def _reads(embedder: ImageEmbedder, picture: bytes) -> bool:
    try:
        return len(embedder.embed_images([picture])) == 1
    except Exception:  # it cannot; why, was said of the picture that this is asked for
        return False


def _raise_unless_picture(error: Exception) -> None:
    """Raise an error again that does not lie at a picture."""
    if isinstance(error, SpoliaError) and not isinstance(error, (ModelRejected, DocumentError)):
        raise error


G = TypeVar("G", GroupBuild, Manifest)

DOCUMENTS_AT_ONCE = 64


def store_nodes(writer: AnyWriter, document_nodes: GroupNodes, reasons: Mapping[str, str] | None = None) -> None:
    """Add nodes that could be made of a document, and note what could not."""
    for group, nodes in list(document_nodes.by_group.items()):  # a copy: `fail` takes groups out
        try:
            if nodes or not isinstance(nodes, Sequence):
                writer.add_nodes(document_nodes.document, nodes)
        except Exception as error:
            # A store that cannot be written to is no failure of this document.
            if isinstance(error, StoreError) and not isinstance(error, GroupError):
                raise
            document_nodes.fail(
                group, Failure.from_error(error, group)
            )  # metadata of another type; a late failure of a splitter
    if not (reasons or document_nodes.failures):
        return
    noted, current = reasons or {}, document_nodes.reasons
    resolved = {group: "" for group in noted if group in document_nodes.by_group or group in document_nodes.passed_over}
    if changed := {
        group: reason for group, reason in {**current, **resolved}.items() if noted.get(group, "") != reason
    }:
        writer.note_unmade(document_nodes.document.id, changed)


def build_missing(writer: AnyWriter, builds: Sequence[GroupBuild], unmade: Sequence[Unmade]) -> Iterator[GroupNodes]:
    """Retry nodes that could not be made, and nodes made from them; skip groups whose model is away."""
    reasons_by_document: dict[str, dict[str, str]] = {}
    for lack in unmade:
        reasons_by_document.setdefault(lack.document, {})[lack.group] = lack.reason
    documents_by_groups: dict[frozenset[str], list[str]] = {}
    for document, reasons in reasons_by_document.items():
        documents_by_groups.setdefault(frozenset(reasons), []).append(document)
    for groups, documents in documents_by_groups.items():
        for batch in in_batches(iter(documents), DOCUMENTS_AT_ONCE):
            check_cancelled()
            # A model may have become unreachable since the batch before.
            if not (reachable := groups - {build.group for build in builds if build.availability.is_away}):
                break
            needed = with_descendants(reachable, builds)
            loaded = list(filter(None, (_find_document(writer, id) for id in batch)))
            for document_nodes in grow(loaded, needed, lambda document, group: writer.nodes(document.id, group)):
                store_nodes(writer, document_nodes, reasons_by_document[document_nodes.document.id])
                yield document_nodes


def _find_document(writer: AnyWriter, id: str) -> Document | None:
    """Return a document; None if another writer removes it at this moment."""
    try:
        return writer.document(id)
    except StoreError:
        if writer.document_key(id) is None:
            return None
        raise


def build_groups(writer: AnyWriter, builds: Sequence[GroupBuild]) -> Iterator[GroupNodes]:
    """Make groups that are about to be published of what another writer has committed meanwhile."""
    names = {build.group for build in builds}
    return build_missing(writer, builds, [lack for lack in writer.unmade() if lack.is_untried and lack.group in names])


def refuse_away(builds: Iterable[GroupBuild]) -> None:
    """Raise the failure that kept a group from being rebuilt: a rebuild would lose its nodes."""
    for build in builds:
        if build.availability.reason and build.availability.failure is not None:
            error = build.availability.failure.raised()
            error.add_note(f"Group {build.group!r} stays as it was. Nothing was published.")
            raise error


def with_descendants(groups: Iterable[str], all: Sequence[G]) -> list[G]:
    """Return these groups and all groups made from them, of `all` in order, without the documents."""
    names, requested = set(groups) - {DOCUMENT}, set(groups)
    for item in all:  # one pass will do, as parents come before their children
        if not names.isdisjoint((item.parent, item.ref)):
            names.add(item.group)
    return [item for item in all if item.group in names | requested]


def relabel(writer: AnyWriter, builds: Sequence[GroupBuild], old: Document, new: Document) -> None:
    """Give a document the metadata and readers of another one with the same text.

    Its nodes stay, and nothing is asked or embedded again, but in groups whose transform reads what has changed
    (`Operator.reads`), and in groups made from them; if a model for that is away, a later run does it.
    """
    # Before the change: the store gives nodes with the metadata of today.
    old_parts = _parts_by_group(writer, builds, old)
    writer.relabel(old, new.meta, new.readers)
    new_parts = _parts_by_group(writer, builds, new)
    derived = (build for build in builds if build.group != DOCUMENT)
    changed = [build.group for build in derived if _reads_changes(build, new, old_parts, new_parts)]
    outdated = [build.group for build in with_descendants(changed, builds)]
    if changed:
        writer.unmake(new.id, outdated)
        for _ in build_missing(writer, builds, [Unmade(new.id, new.uri, group, NOT_YET) for group in outdated]):
            """Each of them is stored as it comes."""


def _parts_by_group(
    writer: AnyWriter, builds: Sequence[GroupBuild], document: Document
) -> Mapping[str, Sequence[Part]]:
    """Return the parts that the transform of each group is given."""
    document_nodes = GroupNodes(document, lambda group: writer.nodes(document.id, group))
    return {build.group: document_nodes.parts(build) for build in builds if build.group != DOCUMENT}


def _reads_changes(
    build: GroupBuild,
    document: Document,
    old_parts: Mapping[str, Sequence[Part]],
    new_parts: Mapping[str, Sequence[Part]],
) -> bool:
    transform = transform_for(build.transform, document)
    pairs = zip(old_parts[build.group], new_parts[build.group], strict=True)
    return any(transform.reads(old_part) != transform.reads(new_part) for old_part, new_part in pairs)

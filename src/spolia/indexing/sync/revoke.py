"""Revocation: removed files and lost access are published first, before anything that may fail or take long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from spolia.indexing.sync.diff import LinkedImages, SourceDiff, ancestor_uris
from spolia.indexing.sync.files import File, FileListing
from spolia.indexing.sync.metadata import DocumentLabels
from spolia.indexing.sync.prefetch import Prefetch, Unreadable, fetch_file
from spolia.indexing.sync.report import container_of
from spolia.stores.backends.rows import Stamp
from spolia.stores.staging import AnyWriter


@dataclass(frozen=True)
class Revoked:
    """Changes that a run publishes before it reads anything: removed files, and documents with other readers."""

    removed: tuple[str, ...] = ()
    relabelled: frozenset[str] = frozenset()


def revoke(
    writer: AnyWriter, listing: FileListing, labels: DocumentLabels, stamps: Mapping[str, Stamp], prefetch: Prefetch
) -> Revoked:
    """Remove missing files, update reader lists and publish that; `prefetch` reads new files that may be renamed."""
    # Fast path: nothing is gone, and no lists were given.
    if labels.access is None and stamps.keys() <= listing.files.entries.keys():
        return Revoked()
    diff = SourceDiff(writer, listing, stamps, LinkedImages(listing, labels), all=False)
    return _Revocation(writer, listing, labels, diff, prefetch).publish()


class _Revocation:
    def __init__(
        self, writer: AnyWriter, listing: FileListing, labels: DocumentLabels, diff: SourceDiff, prefetch: Prefetch
    ) -> None:
        self.writer, self.listing, self.labels, self.diff, self.prefetch = writer, listing, labels, diff, prefetch
        self.parts = {part: container for container, parts in diff.parts.items() for part in parts}
        self.heirs = self._find_heirs()

    def publish(self) -> Revoked:
        removed = tuple(uri for uri in self.diff.gone if uri not in self.heirs)
        for uri in removed:
            self.writer.remove(uri)
        relabelled = frozenset(self._relabel()) if self.labels.access is not None else frozenset[str]()
        if not self._lacks_external_vectors():  # else they are made first, and this is published with them
            self.writer.publish(embedded=False)  # vectors that were lost are made again later
        return Revoked(removed, relabelled)

    # What was moved stays until its turn comes: nothing is cut or asked again for another name.

    def _find_heirs(self) -> dict[str, str]:
        """Return the new names of moved files, by their old ones."""
        same, heirs = self._new_by_hash(), dict[str, str]()
        # Sorted: a container comes before its members, which move with it.
        for uri, row in sorted(self.diff.gone.items()):
            if row.status == "indexed" and (uris := same.get(row.content_hash)):
                heirs[uri] = uris.pop(0)  # a new file takes over one old one
            elif container := next((ancestor for ancestor in ancestor_uris(uri) if ancestor in heirs), ""):
                heirs[uri] = heirs[container] + uri.removeprefix(container)
        return heirs

    def _new_by_hash(self) -> dict[str, list[str]]:
        """Return new files that have the size of something that is gone, by the hash of their bytes."""
        sizes = {row.size for row in self.diff.gone.values()}
        uris_by_hash: dict[str, list[str]] = {}
        for uri, file in self.diff.changed_files.items() if sizes else ():
            if file.size in sizes and uri not in self.diff.rows:  # to hash a file, all of it is read
                uris_by_hash.setdefault(self._hash(file), []).append(uri)
        return uris_by_hash

    def _hash(self, file: File) -> str:
        try:
            source = fetch_file(file, None, self.prefetch.spool)
        except Unreadable:
            return ""  # its own turn reports the error
        self.prefetch.drop(source.blob)
        return source.row.content_hash

    # Readers.

    def _relabel(self) -> Iterator[str]:
        """Give documents the readers of their sources; yield the sources that are complete."""
        self._note_containers()
        stored_readers = self.writer.readers(self.listing.uris)
        uris = [uri for uri in stored_readers if uri in self.listing.files or uri in self.heirs or uri in self.parts]
        new_readers = {uri: self.labels.readers(self.heirs.get(uri, uri)) for uri in uris}
        changed_rows = self.writer.sources([uri for uri in uris if new_readers[uri] != stored_readers[uri]])
        for document, old_readers in {row.document: stored_readers[uri] for uri, row in changed_rows.items()}.items():
            holders = self.writer.holders(document)
            readers = _merge_readers(new_readers.get(row.uri, old_readers) for row in holders)
            if readers != old_readers:
                self.writer.set_readers(self.writer.document(document), readers)
            for row in holders:
                is_done = row.status == "indexed" and row.uri in changed_rows and row.uri not in self.heirs
                if is_done and new_readers[row.uri] == readers:
                    yield row.uri

    def _note_containers(self) -> None:
        """Note the container of each member: its readers may read the member, unless given otherwise."""
        for uri, row in self.writer.sources([*self.parts, *self.heirs]).items():
            container = container_of(row)
            if uri in self.parts:
                self.labels.contain(uri, container or self.parts[uri])
            elif container in self.heirs and self.heirs[uri].startswith(f"{self.heirs[container]}/"):
                self.labels.contain(self.heirs[uri], self.heirs[container])

    def _lacks_external_vectors(self) -> bool:
        """Return whether vectors were lost that a database outside the store gets with the nodes."""
        return any(
            any(True for _ in lacking(group, embedding.embedder))
            for group, manifest in self.writer.manifests.items()
            for embedding in manifest.embeddings
            if embedding.is_external
            for lacking in (self.writer.unembedded, self.writer.unembedded_pictures)
        )


def _merge_readers(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the readers of a text in several files: all who may read one of them."""
    distinct_lists = set(lists)
    return (
        ()
        if () in distinct_lists
        else tuple(sorted({principal for readers in distinct_lists for principal in readers}))
    )

"""Removed files and lost access are published first: they wait for nothing that may fail or take long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from spolia.indexing.sync.diff import LinkedImages, SourceDiff, above
from spolia.indexing.sync.files import File, FileListing
from spolia.indexing.sync.metadata import DocumentLabels
from spolia.indexing.sync.prefetch import Prefetch, Unreadable, fetched
from spolia.indexing.sync.report import container_of
from spolia.stores.backends.rows import Stamp
from spolia.stores.staging import AnyWriter


@dataclass(frozen=True)
class Revoked:
    """What a run publishes before it reads anything: removed files, and documents with other readers."""

    removed: tuple[str, ...] = ()
    relabelled: frozenset[str] = frozenset()


def revoke(
    writer: AnyWriter, found: FileListing, labels: DocumentLabels, stamps: Mapping[str, Stamp], prefetch: Prefetch
) -> Revoked:
    """Remove missing files, update reader lists and publish that; `prefetch` reads new files that may be renamed."""
    if labels.access is None and stamps.keys() <= found.files.kept.keys():
        return Revoked()
    diff = SourceDiff(writer, found, stamps, LinkedImages(found, labels), all=False)
    return _Revocation(writer, found, labels, diff, prefetch).publish()


class _Revocation:
    def __init__(
        self, writer: AnyWriter, found: FileListing, labels: DocumentLabels, diff: SourceDiff, prefetch: Prefetch
    ) -> None:
        self.writer, self.found, self.labels, self.diff, self.prefetch = writer, found, labels, diff, prefetch
        self.parts = {part: container for container, parts in diff.parts.items() for part in parts}
        self.heirs = self._heirs()

    def publish(self) -> Revoked:
        removed = tuple(uri for uri in self.diff.gone if uri not in self.heirs)
        for uri in removed:
            self.writer.remove(uri)
        relabelled = frozenset(self._relabelled()) if self.labels.access is not None else frozenset[str]()
        if not self._lacks_vectors_beside():  # else they are made first, and this is published with them
            self.writer.publish(embedded=False)  # vectors that were lost are made again later
        return Revoked(removed, relabelled)

    # What was moved stays until its turn comes: nothing is cut or asked again for another name.

    def _heirs(self) -> dict[str, str]:
        """New names of moved files, by their old ones."""
        same, heirs = self._new_by_hash(), dict[str, str]()
        for uri, row in sorted(self.diff.gone.items()):
            if row.status == "indexed" and (uris := same.get(row.content_hash)):
                heirs[uri] = uris.pop(0)
            elif container := next((one for one in above(uri) if one in heirs), ""):
                heirs[uri] = heirs[container] + uri.removeprefix(container)
        return heirs

    def _new_by_hash(self) -> dict[str, list[str]]:
        """New files that have the size of something that is gone, by the hash of their bytes."""
        sizes = {row.size for row in self.diff.gone.values()}
        found: dict[str, list[str]] = {}
        for uri, file in self.diff.unlike.items() if sizes else ():
            if file.size in sizes and uri not in self.diff.rows:
                found.setdefault(self._hash(file), []).append(uri)
        return found

    def _hash(self, file: File) -> str:
        try:
            there = fetched(file, None, self.prefetch.spool)
        except Unreadable:
            return ""  # its own turn reports the error
        self.prefetch.drop(there.blob)
        return there.row.content_hash

    # Readers.

    def _relabelled(self) -> Iterator[str]:
        """Give documents the readers of their sources; yields the sources that are complete."""
        self._contain()
        there = self.writer.readers(self.found.uris)
        uris = [uri for uri in there if uri in self.found.files or uri in self.heirs or uri in self.parts]
        said = {uri: self.labels.readers(self.heirs.get(uri, uri)) for uri in uris}
        others = self.writer.sources([uri for uri in uris if said[uri] != there[uri]])
        for document, before in {row.document: there[uri] for uri, row in others.items()}.items():
            holders = self.writer.holders(document)
            readers = _together(said.get(row.uri, before) for row in holders)
            if readers != before:
                self.writer.set_readers(self.writer.document(document), readers)
            for row in holders:
                is_done = row.status == "indexed" and row.uri in others and row.uri not in self.heirs
                if is_done and said[row.uri] == readers:
                    yield row.uri

    def _contain(self) -> None:
        """Note the container of each member: its readers may read the member, unless given otherwise."""
        for uri, row in self.writer.sources([*self.parts, *self.heirs]).items():
            within = container_of(row)
            if uri in self.parts:
                self.labels.contain(uri, within or self.parts[uri])
            elif within in self.heirs and self.heirs[uri].startswith(f"{self.heirs[within]}/"):
                self.labels.contain(self.heirs[uri], self.heirs[within])

    def _lacks_vectors_beside(self) -> bool:
        """Whether vectors were lost that a database outside the store is given with the nodes."""
        return any(
            any(True for _ in lacking(group, how.embedder))
            for group, manifest in self.writer.manifests.items()
            for how in manifest.embeddings
            if how.is_external
            for lacking in (self.writer.unembedded, self.writer.unembedded_pictures)
        )


def _together(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The readers of a text in several files: all who may read one of them."""
    given = set(lists)
    return () if () in given else tuple(sorted({principal for one in given for principal in one}))

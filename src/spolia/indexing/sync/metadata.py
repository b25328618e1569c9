"""Labels that the caller gives files beside their content: metadata, and who may read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias

from spolia.errors import DocumentError, QueryError, SpoliaError, StoreError
from spolia.indexing.sync.report import DocumentReport
from spolia.stores.backends.rows import SourceRow
from spolia.stores.groups.group_build import relabel
from spolia.stores.staging import AnyWriter
from spolia.types import Document, Meta, Scalar, check_principals, is_unicode, scalar_of

if TYPE_CHECKING:
    from spolia.stores.groups.nodes import GroupBuild

_LISTS_KEPT = 1_024
Readers: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class DocumentLabels:
    """Labels that the caller gives files: metadata, and who may read them.

    Each function is asked once for every file. A member of a container is a file like any other, by its own uri; but if
    its readers are not given, or everybody, it has the container's readers.

    Args:
        access: None if the caller does not say who may read a file.
        stored_readers: who may read what the store has of these files, by uri, unless the caller gives a list; None
            where everybody may read all that was ever in it.
        is_closed: whether the store has something that not everybody may read.
    """

    metadata: Callable[[str], Mapping[str, Scalar | Sequence[Scalar]]] | None = None
    access: Callable[[str], Iterable[str]] | None = None
    stored_readers: Mapping[str, Readers] | None = None
    is_closed: Callable[[], bool] = field(default=lambda: False, compare=False, repr=False)
    _containers: dict[str, str] = field(default_factory=dict, init=False, compare=False, repr=False)
    _metas: dict[str, Meta] = field(default_factory=dict, init=False, compare=False, repr=False)
    _readers: dict[str, Readers] = field(default_factory=dict, init=False, compare=False, repr=False)
    _lists: dict[object, Readers] = field(default_factory=dict, init=False, compare=False, repr=False)

    def contain(self, uri: str, container: str) -> None:
        self._containers[uri] = container

    def readers(self, uri: str) -> Readers:
        """Return who may read a file, in order; raise StoreError if nothing says so in a store that is not public."""
        if (container := self._containers.get(uri)) is None:
            return self._own_readers(uri)
        with suppress(StoreError, QueryError):  # where nothing says who may read a member, its container's readers do
            if own_readers := self._own_readers(uri):
                return own_readers
        return self.readers(container)

    def _own_readers(self, uri: str) -> Readers:
        if self.access is not None:
            if uri not in self._readers:
                self._readers[uri] = _read_access(self.access, uri, self._lists)
            return self._readers[uri]
        stored_readers = self.stored_readers or {}
        if uri not in stored_readers and self.is_closed():
            raise StoreError(
                f"Nothing says who may read {uri!r}, and the store holds documents that not everybody may read. "
                "Write sync(..., access=lambda uri: [...]), where an empty list is for everybody; on the command line, "
                "spolia index with --readers FILE."
            )
        return stored_readers.get(uri, ())

    def meta(self, uri: str) -> Meta:
        """Return the caller's fields, one entry for each value; raise DocumentError if their function gave none."""
        if self.metadata is None:
            return ()
        if uri not in self._metas:
            self._metas[uri] = _read_fields(self.metadata, uri)
        return self._metas[uri]

    def mark(self, uri: str) -> str:
        """Return a mark that tells the caller's fields of a file apart from others; empty for none."""
        meta = self.meta(uri)
        return blake2b(repr(meta).encode("utf-8", "replace"), digest_size=8).hexdigest() if meta else ""

    def label_document(
        self, document: Document, is_free: Callable[[Document], bool] = lambda labelled: True
    ) -> Document:
        """Return a document with the labels of its file; the caller's fields come before the reader's.

        Two files with the same content and other labels are two documents. The mark that tells them apart has 16
        bytes: two labels with one mark would open the one file to the readers of the other. A document gets the first
            of its ids that `is_free`.

        DocumentError if the reader has said who may read it. What a reader says changes only when a file is read again,
        so that a list that was changed would not apply; to drop it would open the text.
        """
        if document.readers:
            reader = document.id.rpartition(".")[2]
            raise DocumentError(
                f"The reader {reader} gave {document.uri!r} the readers {document.readers!r:.80}; it says what is in a "
                f"file, not who may read it. Write sync(..., access=lambda uri: {list(document.readers)!r:.80})."
            )
        meta, readers = self.meta(document.uri), self.readers(document.uri)
        if not (meta or readers) and is_free(document):
            return document
        caller_fields = {name for name, _ in meta}
        reader_fields = tuple(pair for pair in document.meta if pair[0] not in caller_fields)
        labelled = document.but(meta=meta + reader_fields, readers=readers) if meta or readers else document
        ids = _ids(labelled, bool(meta or readers))
        candidates = (labelled if id == labelled.id else labelled.but(id=id) for id in ids)
        return next(candidate for candidate in candidates if is_free(candidate))


def _ids(document: Document, is_marked: bool) -> Iterator[str]:
    """Yield ids that a document may have: its own, unless it is marked, then others with a mark of all its labels."""
    if not is_marked:
        yield document.id
    name, _, reader = document.id.rpartition(".")
    label_bytes = repr(document.meta).encode("utf-8", "replace") + _digest_of(document.readers)
    while True:
        yield f"{name}-{blake2b(label_bytes, digest_size=16).hexdigest()}.{reader}"
        label_bytes += b"again"  # other ids, but the same ones in every run


@lru_cache(maxsize=64)
def _digest_of(readers: Readers) -> bytes:
    """Return 16 bytes that tell a reader list apart; cached, since many files may have one long list."""
    return blake2b(repr(readers).encode("utf-8", "replace"), digest_size=16).digest()


def _read_access(access: Callable[[str], Iterable[str]], uri: str, cache: dict[object, Readers]) -> Readers:
    """Return who may read a file. A list that was seen before is not checked again, and is stored once."""
    try:
        access_list: object = access(uri)
        listed = (
            tuple(access_list)
            if isinstance(access_list, Iterable) and not isinstance(access_list, str)
            else access_list
        )
    except SpoliaError:  # says itself what to write
        raise
    except Exception as error:
        raise StoreError(
            f"access({uri!r}) failed: {type(error).__name__}: {error}. Nothing was written. Correct the function."
        ) from error
    with suppress(KeyError, TypeError):  # not known, or of things that cannot be
        return cache[listed]
    try:
        checked = check_principals(listed, f"access({uri!r}) gave")
    except StoreError as error:
        raise StoreError(f"{error} Nothing was written.") from None
    readers = tuple(sorted(set(checked)))
    if len(cache) >= _LISTS_KEPT:  # every file may have a list of its own
        cache.clear()
    return cache.setdefault(checked, cache.setdefault(readers, readers))


def _read_fields(metadata: Callable[[str], object], uri: str) -> Meta:
    try:
        fields = metadata(uri)
    except Exception as error:
        raise DocumentError(f"metadata({uri!r}) failed: {type(error).__name__}: {error}. Correct it.") from error
    if not isinstance(fields, Mapping):
        raise DocumentError(f"metadata({uri!r}) gave {fields!r:.80}. Give names with values: {{'year': 2020}}.")
    try:
        values_by_name = (
            (name, entry if isinstance(entry, (list, tuple)) else (entry,)) for name, entry in fields.items()
        )
        meta = tuple((name, scalar_of(value)) for name, values in values_by_name for value in values)
    except ValueError as error:
        raise DocumentError(f"metadata({uri!r}) gave a value that is none: {error}, or a list of these.") from error
    for name, value in meta:
        if not isinstance(name, str):
            raise DocumentError(f"metadata({uri!r}) gave the name {name!r:.80}. Give names that are texts.")
        if isinstance(value, float) and not isfinite(value):
            raise DocumentError(f"metadata({uri!r}) gave {name!r}: {value}. Give a finite number, or None.")
        if not is_unicode(f"{name}{value}"):
            raise DocumentError(
                f"metadata({uri!r}) gave {name!r}: {value!r:.80}, which no encoding of Unicode has. Write "
                "text.encode('utf-8', 'replace').decode()."
            )
    return meta


class MetadataDiff:
    """Comparison of the labels of sources (`uris`, or all) with the store; it relabels documents that exist.

    A document keeps its id when its list of readers is changed, though the id was made of the list that it had before.
    So what is added with that older list needs another id, or it would give the document its old readers back; and a
    list is changed in place only where one source alone holds the document.
    """

    def __init__(
        self,
        writer: AnyWriter,
        labels: DocumentLabels,
        uris: Collection[str] | None,
        builds: Sequence[GroupBuild],
    ) -> None:
        self.writer, self.labels, self.builds = writer, labels, builds
        says = bool(labels.access or labels.metadata) or labels.stored_readers is not None
        stored_lists = writer.access_lists(uris) if says else {}
        self._lists: dict[str, Readers | None] = {id: readers for id, (readers, _) in stored_lists.items()}
        self._holders = Counter({id: holders for id, (_, holders) in stored_lists.items()})
        self._asks = says and uris is not None
        self._added: set[str] = set()

    def _readers_of(self, id: str) -> Readers | None:
        """Return who may read a document: the list that was stored at first, with all changes since."""
        if id not in self._lists:
            stored_list = self.writer.access_list_of(id) if self._asks else None
            self._lists[id], self._holders[id] = stored_list or (None, 0)
        return self._lists[id]

    def _is_shared(self, id: str) -> bool:
        return self._readers_of(id) is not None and self._holders[id] > 1

    def _set_readers(self, id: str, readers: Readers) -> None:
        self.writer.set_readers(self.writer.document(id), readers)
        self._lists[id] = readers

    def differs(self, row: SourceRow) -> bool:
        """Return whether the labels of a source have changed."""
        try:
            return not self.is_same(row)
        except DocumentError:
            return True  # it is recorded when its turn comes

    def is_same(self, row: SourceRow, uri: str = "") -> bool:
        """Return whether a source has the caller's metadata and readers; those of another `uri`, if it is named."""
        if not self._is_described(row, uri or row.uri):
            return False
        return not self.labels.access or (self._readers_of(row.document) or ()) == self.labels.readers(uri or row.uri)

    def _is_described(self, row: SourceRow, uri: str) -> bool:
        return not self.labels.metadata or DocumentReport.from_json(row.report).labels == self.labels.mark(uri)

    def label_document(self, document: Document, stored: SourceRow | None) -> Document:
        """Return a document with the caller's labels, and note that its source is going to hold it.

        A document that differs only in its labels gets new ones and keeps its id and nodes: it is split again, and
        models are asked again, only if a transform reads what has changed.
        """
        labelled = self._label(document, stored)
        self._readers_of(labelled.id)
        self._lists[labelled.id] = labelled.readers
        self._holders[labelled.id] += 1
        self._added.add(labelled.id)
        return labelled

    def _label(self, document: Document, stored: SourceRow | None) -> Document:
        labelled = self.labels.label_document(document, self._is_free)
        if stored is None or not stored.document or not self._is_alone(stored.document):
            return labelled
        stored_document = self.writer.document(stored.document)
        relabelled = labelled.but(id=stored_document.id)
        # If more than the labels differs, it is another document.
        if stored_document.but(uri=relabelled.uri, meta=relabelled.meta, readers=relabelled.readers) != relabelled:
            return labelled
        if (stored_document.meta, stored_document.readers) != (relabelled.meta, relabelled.readers):
            relabel(self.writer, self.builds, stored_document, relabelled)
            self._lists[stored_document.id] = relabelled.readers
        return relabelled

    def _is_alone(self, id: str) -> bool:
        return not self._is_shared(id) and id not in self._added and len(self.writer.holders(id)) == 1

    def _is_free(self, document: Document) -> bool:
        """Return whether a document may have its id: no other one has it with other labels."""
        is_free = self._readers_of(document.id) in (None, document.readers)
        return self.writer.meta_of(document.id) in (None, document.meta) and is_free

    def update_readers(self, row: SourceRow, uri: str = "") -> bool:
        """Update a source's readers if only they differ, so that nothing is cut again; return whether so. `uri`: of a
        moved source."""
        if not self._is_described(row, uri or row.uri) or self._is_shared(row.document):
            return False  # another source may have another list: this one's becomes a document of its own
        self._set_readers(row.document, self.labels.readers(uri or row.uri))
        return True

    def may_stay(self, stored: SourceRow) -> bool:
        """Return whether the last good version of an unreadable source stays, for those only who may read it now."""
        if not stored.document or self.labels.access is None:
            return bool(stored.document)
        readers = self.labels.readers(stored.uri)
        if readers == (self._readers_of(stored.document) or ()):
            return True
        if self._is_shared(stored.document):
            return False
        self._set_readers(stored.document, readers)
        return True

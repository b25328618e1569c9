"""What nodes inherit: the metadata of their document, and the fields of the files that it was read from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spolia.filters import FILE_FIELDS, Field
from spolia.stores.backends import sql
from spolia.stores.backends.rows import EARLIEST_NS, unpacked
from spolia.types import Meta, Scalar

Ask = Callable[[str, Any], list[Any]]
"""Runs a statement and gives its rows."""
Keys = npt.NDArray[np.int64]


class SourceFile(NamedTuple):
    """What the truth says of a file; times in nanoseconds, 0 where they are not known."""

    uri: str
    size: int
    created_ns: int
    modified_ns: int
    accessed_ns: int


def _utc(time_ns: int) -> Scalar:
    if not time_ns or time_ns < EARLIEST_NS:
        return None
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_OF_FILE: Mapping[str, Callable[[SourceFile], Scalar]] = {
    "file_name": lambda file: PurePosixPath(file.uri).name,
    "file_type": lambda file: PurePosixPath(file.uri).suffix.lower().removeprefix("."),
    "file_size": lambda file: file.size,
    "file_created": lambda file: _utc(file.created_ns),
    "file_modified": lambda file: _utc(file.modified_ns),
    "file_accessed": lambda file: _utc(file.accessed_ns),
}


def file_meta(uri: str, size: int, created_ns: int, modified_ns: int, accessed_ns: int) -> Meta:
    """The fields of a file: name, suffix, bytes, times; a time that is not known is left out.

    >>> file_meta("old/Stones.TXT", 12, 0, 1_700_000_000_000_000_000, 0)[:4]
    (('file_name', 'Stones.TXT'), ('file_type', 'txt'), ('file_size', 12), ('file_modified', '2023-11-14T22:13:20Z'))
    """
    file = SourceFile(uri, size, created_ns, modified_ns, accessed_ns)
    return tuple((name, value) for name, made in _OF_FILE.items() if (value := made(file)) is not None)


def with_file_fields(meta: Meta, of_file: Meta) -> Meta:
    """Metadata of a document with the fields of its file: of one name, what was said of the document counts if it fits.

    >>> said = (("file_name", "Old Stones"), ("file_size", "large"))
    >>> described(said, (("file_name", "a.txt"), ("file_size", 12)))[1:]
    (('file_size', 'large'), ('file_size', 12))
    """
    kinds = {field.name: field for field in FILE_FIELDS}
    said = {name for name, value in meta if name in kinds and kinds[name].fits(value)}
    return meta + tuple(pair for pair in of_file if pair[0] not in said)


class DocumentFields(NamedTuple):
    """A document's metadata and its files."""

    meta: Meta
    files: tuple[SourceFile, ...]


class DocumentMetadata:
    """What the documents of a store are described by at a generation. It is read when it is first asked for.

    Args:
        ask: runs a statement.
        generation: at which.
        before: that of an earlier generation which is still kept; what has not changed since is not read again.

    Attributes:
        changed: keys of the documents that are described in another way than before, or came or went.
    """

    def __init__(self, ask: Ask, generation: int, before: DocumentMetadata | None = None) -> None:
        self._ask, self.generation = ask, generation
        self.changed: Keys = np.zeros(0, dtype=np.int64)
        self._found: dict[int, DocumentFields] | None = None
        if before is not None:
            rows = ask(sql.CHANGED_DOCUMENTS, {"since": before.generation, "at": generation})
            self.changed = np.array([key for (key,) in rows], dtype=np.int64)
            if before._found is not None:
                self._found = self._updated(before._found, self.changed.tolist())

    def values(self, document: int, field: Field) -> Iterator[Scalar]:
        """All values that fit to a field; those of its files where nothing else was said."""
        found = self._all.get(document)
        if found is not None:
            said = [value for name, value in found.meta if name == field.name and field.fits(value)]
            yield from said
            if not said and (made := _OF_FILE.get(field.name)) is not None:
                yield from (value for file in found.files if (value := made(file)) is not None)

    @property
    def _all(self) -> dict[int, DocumentFields]:
        if self._found is None:
            at = {"at": self.generation}
            self._found = _described(self._ask(sql.DOCUMENT_METADATA, at), self._ask(sql.FILES, at))
        return self._found

    def _updated(self, before: dict[int, DocumentFields], changed: list[int]) -> dict[int, DocumentFields]:
        found = before.copy()
        for key in changed:
            found.pop(key, None)
        at = {"keys": json.dumps(changed), "at": self.generation}
        return found | _described(self._ask(sql.METADATA_OF_DOCUMENTS, at), self._ask(sql.FILES_OF_DOCUMENTS, at))


def _described(documents: Iterable[Any], files: Iterable[Any]) -> dict[int, DocumentFields]:
    by_document: dict[int, tuple[SourceFile, ...]] = {}
    for document, *file in files:
        by_document[document] = (*by_document.get(document, ()), SourceFile(*file))
    return {key: DocumentFields(meta_of(meta), by_document.get(key, ())) for key, meta in documents}


def meta_of(packed: str) -> Meta:
    """Metadata from the truth, without fields that have no value."""
    return tuple(pair for pair in unpacked(packed) if pair[1] is not None)


def metadata_text(meta: Meta, fields: Sequence[str]) -> str:
    """A line `name: value` for each of these fields that has a value; several values stand in one line.

    >>> described((("year", 1999), ("by", "Ann"), ("by", "Bob"), ("isbn", None)), ("by", "isbn", "year", "size"))
    'by: Ann, Bob\\nyear: 1999'
    """
    found = {name: [str(value) for key, value in meta if key == name and value is not None] for name in fields}
    return "\n".join(f"{name}: {', '.join(values)}" for name, values in found.items() if values)

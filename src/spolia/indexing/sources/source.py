"""Interface of sources: each lists what has changed in it since a store last read it. Secrets are environment
variables."""

from __future__ import annotations

import json
import os
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from spolia.errors import DocumentError, SourceError, SpoliaError
from spolia.indexing.readers.reader import FileReader, ProgramReader, versioned_name
from spolia.indexing.readers.text import TextReader
from spolia.indexing.sync.files import File, Files, Loaded, Skipped, SourceChanges
from spolia.indexing.sync.report import DocumentReport
from spolia.stores.backends import sql
from spolia.stores.backends.rows import EARLIEST_NS, Stamp, in_batches
from spolia.types import Value

if TYPE_CHECKING:
    from spolia.indexing.sync.metadata import DocumentLabels
    from spolia.stores.corpus import Corpus
    from spolia.stores.snapshot.snapshot import Snapshot

_NAMED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def with_secrets(text: str) -> str:
    """Fill the values of environment variables into a text that names them as `${NAME}`."""
    return _NAMED.sub(lambda match: _env_value(match[1]), text)


def without_secrets(text: str, *described: str) -> str:
    """Strip from a text, as an error message, the values of the variables that descriptions name."""
    for name in {name for description in described for name in _NAMED.findall(description)}:
        if value := os.environ.get(name, "").strip():
            text = text.replace(value, f"${{{name}}}")
    return text


def _env_value(name: str) -> str:
    if (value := os.environ.get(name, "").strip()) == "":
        raise SourceError(f"The environment variable {name} is not set. Write: export {name}=…")
    if not value.isprintable():
        raise SourceError(f"The environment variable {name} has a line break or another odd character. Set it again.")
    return value


def refuse_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise SourceError(f"{name!r} cannot be the name of a source. Write letters, digits, '.', '-', '_'.")


_PAGE = 1_000
_LAST = "\U0010ffff"  # sorts after all that may follow a prefix


@dataclass(frozen=True)
class Memory:
    """Stored state of a source; the store need not exist yet.

    Args:
        labels: metadata that the caller gives documents: a document whose labels changed is read again.
        reread: whether all of it is to be read again.
        readers: by suffix and pattern: what was read by other versions of them, or lacked a program that one of them
            has by now, is read again too.
    """

    corpus: Corpus
    source: str
    labels: Callable[[], DocumentLabels]
    reread: bool
    readers: Mapping[str, FileReader]

    @cached_property
    def cursors(self) -> Mapping[str, str]:
        """Return how far the source was read."""
        snapshot = self._snapshot()
        return dict(snapshot.open_store.rows(sql.CURSORS, (self.source,))) if snapshot else {}

    def stamps(self, uris: Sequence[str]) -> Mapping[str, Stamp]:
        """Return the stamps of the documents that are up to date, unless they have changed at their source."""
        snapshot = self._snapshot()
        if snapshot is None or self.reread:
            return {}
        rows = snapshot.open_store.rows(sql.LABELLED, {"uris": json.dumps(list(uris)), "at": snapshot.generation})
        labels, lists = self.labels(), snapshot.readers.lists
        return {
            uri: (size, mtime_ns, status, reader)
            for uri, size, mtime_ns, status, reader, report, audience in rows
            if status != "indexed"
            or (
                (not self.readers or reader in self._versions)
                and _is_labelled(labels, uri, report, lists[audience])
                and not self._is_due(report)
            )
        }

    @cached_property
    def _versions(self) -> frozenset[str]:
        """Return the available readers, in their versions."""
        return frozenset(map(versioned_name, (*self.readers.values(), TextReader())))

    def _is_due(self, report: str) -> bool:
        """Return whether a document lacked what its reader has by now."""
        return '"lacks":' in report and DocumentReport.from_json(report).reader in self._equipped

    @cached_property
    def _equipped(self) -> frozenset[str]:
        """Return the names of the readers that lack nothing."""
        readers = [reader for reader in self.readers.values() if isinstance(reader, ProgramReader)]
        return frozenset(reader.name for reader in readers) - {reader.name for reader in readers if reader.lacking()}

    def uris(self, prefix: str) -> Iterator[str]:
        """Yield all documents whose uri begins with a prefix, in order; fetched in pages, since there may be many."""
        last_uri, snapshot = prefix, self._snapshot()
        while snapshot is not None:
            values = {"after": last_uri, "before": prefix + _LAST, "limit": _PAGE, "at": snapshot.generation}
            rows = snapshot.open_store.rows(sql.URIS_BETWEEN, values)
            yield from (uri for (uri,) in rows)
            if len(rows) < _PAGE:
                return
            last_uri = rows[-1][0]

    def is_labelled(self, prefix: str) -> bool:
        """Return whether the caller's labels are the same as before for all documents with this prefix."""
        labels = self.labels()
        if labels.access is None and labels.metadata is None:
            return True
        return all(len(self.stamps(page)) == len(page) for page in in_batches(self.uris(prefix), _PAGE))

    def _snapshot(self) -> Snapshot | None:
        return self.corpus.latest() if self.corpus.exists() else None


def _is_labelled(labels: DocumentLabels, uri: str, report: str, readers: tuple[str, ...]) -> bool:
    if labels.access is not None and labels.readers(uri) != readers:
        return False
    try:
        return labels.metadata is None or (DocumentReport.from_json(report).labels if report else "") == labels.mark(
            uri
        )
    except DocumentError:
        return False  # it is recorded when its turn comes


@dataclass(frozen=True)
class Source(Value):
    """Place with documents, described by plain data: a file can hold it, and two that say the same are equal.

    What it gives has uris with `://` in them, so that several sources, texts and a folder live in one store.
    """

    @property
    @abstractmethod
    def id(self) -> str:
        """Return the name under which a store remembers how far it was read."""

    @property
    def env_names(self) -> dict[str, bool]:
        """See `spolia.core.environment.env_of`."""
        return dict.fromkeys(_NAMED.findall(repr(self)), True)

    def definition(self, *left_out: str) -> str:
        """Return a text that differs where documents would differ; `left_out` names fields that do not change them."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left_out}
        return blake2b(repr(values).encode(), digest_size=8).hexdigest()

    @abstractmethod
    def change_batches(self, memory: Memory, readers: Mapping[str, FileReader]) -> Iterator[SourceChanges]:
        """Yield what has changed, in batches; each is published before the next is asked for.

        Raises:
            SourceError: it cannot be read as it is described.
            SourceUnavailable: it cannot be read now. Earlier documents stay.
        """


ITEMS_AT_ONCE, BYTES_AT_ONCE = 1_000, 16_000_000
"""A lot has no more than this, but for its last item."""
LONGEST_URI = 2_000
Load: TypeAlias = Callable[[Path | None], Loaded]
_SECOND = 1_000_000_000
_NAME = re.compile(r"[\w.-]+")
_EARLIEST_S, _LATEST_S = 10**8, 2**33
"""From 1973 to 2242; a number below or above counts something else than seconds."""


def changed_at(seconds: float | None, version_data: bytes) -> int:
    """Return the time of the last change in nanoseconds, as a store compares it; `version_data` tells versions apart.

    Few sources tell it more exactly than to a second. So the rest tells versions of one second apart; a missing time is
    before `EARLIEST_NS`, which stands for none.
    """
    version = int.from_bytes(blake2b(version_data, digest_size=8).digest())
    if seconds is None or not _EARLIEST_S <= seconds < _LATEST_S:
        return EARLIEST_NS - (version >> 2) - 1
    return int(seconds) * _SECOND + version % _SECOND


@dataclass(frozen=True)
class SourceItem(File):
    """Document of a source; `get` gives its bytes, or copies a large one into the folder that it is given."""

    get: Load = field(default=lambda spool: Loaded(b"", 0, 0), compare=False, repr=False)

    def load(self, spool: Path | None = None) -> Loaded:
        return self.get(spool)


class Items(Files):
    """Items by uri, in the order in which they came."""

    def __init__(self, readers: Mapping[str, FileReader]) -> None:
        super().__init__(readers)
        self._loaders: dict[str, tuple[FileReader, Load]] = {}

    def __getitem__(self, uri: str) -> File:
        size, mtime_ns, path, *_ = self.entries[uri]
        reader, get = self._loaders[uri]
        return SourceItem(uri, path, size, mtime_ns, reader, get=get)

    def find_changed(self, stamps: Mapping[str, Stamp]) -> dict[str, File]:
        current_stamps = (
            (uri, (size, mtime_ns, "indexed", versioned_name(self._loaders[uri][0])))
            for uri, (size, mtime_ns, *_) in self.entries.items()
        )
        return {uri: self[uri] for uri, stamp in current_stamps if stamps.get(uri) != stamp}

    def add_item(self, uri: str, size: int, mtime_ns: int, reader: FileReader, get: Load) -> None:
        """Add an item that is fetched only if it has changed."""
        self.entries[uri], self._loaders[uri] = (size, mtime_ns, "", False, None), (reader, get)

    def drop(self, uri: str) -> None:
        self.entries.pop(uri, None)
        self._loaders.pop(uri, None)


class ChangeCollector:
    """Collector of a source's changes until there are enough for a batch."""

    def __init__(self, source: str, readers: Mapping[str, FileReader]) -> None:
        self.source, self.readers = source, readers
        self._begin()

    def _begin(self) -> None:
        self.items, self.gone, self.skipped = Items(self.readers), set[str](), list[Skipped]()
        self.unread, self.bytes = Counter[str](), 0

    def add(self, uri: str, data: bytes, seconds: float | None, reader: FileReader) -> None:
        """Add an item whose bytes are here already."""
        mtime_ns = changed_at(seconds, data)
        self.gone.discard(uri)  # one batch may lose an item and get it again
        self.items.add_item(
            uri,
            len(data),
            mtime_ns,
            reader,
            lambda spool: Loaded(data, len(data), mtime_ns, max(mtime_ns, 0), max(mtime_ns, 0)),
        )
        self.bytes += len(data)

    def fail(self, uri: str, error: SpoliaError) -> None:
        """Add an item that could not be fetched, and why; its stored document stays."""

        def get(spool: Path | None) -> Loaded:
            raise error

        self.items.add_item(uri, 0, EARLIEST_NS - 1, TextReader(), get)  # a time that no version has: it is tried again

    def lose(self, uri: str) -> None:
        self.items.drop(uri)
        self.gone.add(uri)

    def lose_all(self, uris: Iterable[str], cursors: Mapping[str, str]) -> Iterator[SourceChanges]:
        """Remove items that are gone; yield the batches that become full."""
        for uri in uris:
            self.lose(uri)
            if self.is_full:
                yield self.take_batch(cursors)

    def skip(self, uri: str, reason: str) -> None:
        self.skipped.append(Skipped(uri, reason))

    @property
    def is_full(self) -> bool:
        return len(self.items) + len(self.gone) >= ITEMS_AT_ONCE or self.bytes >= BYTES_AT_ONCE

    def take_batch(self, cursors: Mapping[str, str]) -> SourceChanges:
        """Return the gathered changes, and start a new batch."""
        changes = SourceChanges(self.items, self.skipped, self.unread, (), self.source, cursors, frozenset(self.gone))
        self._begin()
        return changes

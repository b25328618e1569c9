"""Following a source: what a store has of it is compared with what there is, lot by lot."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from spolia.errors import DocumentError, EgressError, SourceError
from spolia.indexing.readers.reader import Equipped, FileReader, versioned
from spolia.indexing.readers.text import TextReader
from spolia.indexing.sources.source import Source
from spolia.indexing.sync.files import SourceChanges
from spolia.indexing.sync.metadata import DocumentLabels
from spolia.indexing.sync.report import DocumentReport
from spolia.stores.backends import sql
from spolia.stores.backends.rows import Stamp
from spolia.stores.corpus import Corpus
from spolia.stores.snapshot.snapshot import Snapshot

_PAGE = 1_000
_LAST = "\U0010ffff"


@dataclass(frozen=True)
class KnownSource:
    """What a store has of a source; see `spolia.indexing.sources.source.Memory`.

    Args:
        corpus: the store; it need not be there.
        labels: what the caller says of documents: one of which something else is said than before is read again.
        afresh: whether all of it is to be read again.
        readers: by suffix and pattern: what was read by other versions of them, or lacked a program that one of them
            has by now, is read again too.
    """

    corpus: Corpus
    source: str
    labels: Callable[[], DocumentLabels]
    afresh: bool = False
    readers: Mapping[str, FileReader] = field(default_factory=dict)

    @cached_property
    def cursors(self) -> Mapping[str, str]:
        snapshot = self._snapshot()
        return dict(snapshot.opened.rows(sql.CURSORS, (self.source,))) if snapshot else {}

    def stamps(self, uris: Sequence[str]) -> Mapping[str, Stamp]:
        snapshot = self._snapshot()
        if snapshot is None or self.afresh:
            return {}
        rows = snapshot.opened.rows(sql.LABELLED, {"uris": json.dumps(list(uris)), "at": snapshot.generation})
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
        """The readers that are there, in their versions."""
        return frozenset(map(versioned, (*self.readers.values(), TextReader())))

    def _is_due(self, report: str) -> bool:
        """Whether a document lacked what its reader has by now."""
        return '"lacks":' in report and DocumentReport.of(report).reader in self._equipped

    @cached_property
    def _equipped(self) -> frozenset[str]:
        """The names of the readers that lack nothing."""
        readers = [reader for reader in self.readers.values() if isinstance(reader, Equipped)]
        return frozenset(reader.name for reader in readers) - {reader.name for reader in readers if reader.lacking()}

    def uris(self, prefix: str) -> Iterator[str]:
        """They are fetched some at a time, so that there may be many."""
        after, snapshot = prefix, self._snapshot()
        while snapshot is not None:
            values = {"after": after, "before": prefix + _LAST, "limit": _PAGE, "at": snapshot.generation}
            rows = snapshot.opened.rows(sql.URIS_BETWEEN, values)
            yield from (uri for (uri,) in rows)
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def is_labelled(self, prefix: str) -> bool:
        """Whether of all documents whose uri begins like this the same is said as before."""
        labels = self.labels()
        if labels.access is None and labels.metadata is None:
            return True
        page: list[str] = []
        for uri in self.uris(prefix):
            page.append(uri)
            if len(page) == _PAGE:
                if len(self.stamps(page)) < len(page):
                    return False
                page = []
        return self.afresh or len(self.stamps(page)) == len(page)

    def _snapshot(self) -> Snapshot | None:
        return self.corpus.latest() if self.corpus.exists() else None


def _is_labelled(labels: DocumentLabels, uri: str, report: str, readers: tuple[str, ...]) -> bool:
    if labels.access is not None and labels.readers(uri) != readers:
        return False
    try:
        return labels.metadata is None or (DocumentReport.of(report).labels if report else "") == labels.mark(uri)
    except DocumentError:
        return False  # it is recorded when its turn comes


def followed(
    source: Source,
    corpus: Corpus,
    labels: Callable[[], DocumentLabels],
    readers: Mapping[str, FileReader],
    failed: list[tuple[str, str]],
    *,
    afresh: bool,
) -> Iterator[SourceChanges]:
    """What has changed in a source since it was read the last time.

    Args:
        labels: what the caller says of documents; another one for each lot, since it remembers what it said.
        failed: takes the name of a source that could not be read to its end, and why.
    """
    memory = KnownSource(corpus, source.id, labels, afresh, readers)
    try:
        yield from source.lots(memory, readers)
    except (SourceError, EgressError) as error:
        failed.append((source.id, str(error)))

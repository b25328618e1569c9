"""What a store holds, as whoever keeps it sees it: reader lists keep nobody out who can read the store's files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING

from spolia.errors import QueryError
from spolia.stores.tables.rows import EARLIEST_NS

if TYPE_CHECKING:
    from spolia.indexing.report import DocumentReport
    from spolia.stores.snapshot import Snapshot
    from spolia.stores.tables.rows import SourceRow
    from spolia.types import Document

Unmade = Mapping[str, Mapping[str, str]]
"""Why groups could not be made, by document and group."""
LAST = 2**62
"""No node has a higher number."""


@dataclass(frozen=True)
class Held:
    """A source of a store, the document that it holds, and what was noticed of it.

    Args:
        document: without its text; None where it could not be read.
        characters: of the text.
        report: None where nothing was noted, as for documents that a program has put there.
        unmade: why groups could not be made of it, by group.
    """

    source: SourceRow
    document: Document | None
    characters: int
    report: DocumentReport | None
    unmade: Mapping[str, str]

    @property
    def changed(self) -> str:
        """When the file was last changed, in UTC; empty where that is not known."""
        if not self.source.mtime_ns or self.source.mtime_ns < EARLIEST_NS:
            return ""
        return datetime.fromtimestamp(self.source.mtime_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")

    @property
    def noticed(self) -> tuple[str, ...]:
        """Why it could not be read, or what it was read with, and which groups it is not in."""
        said = (self.source.error,) if self.source.error else ()
        lacks = tuple(f"It is not in group {group}: {reason}" for group, reason in self.unmade.items())
        return said + lacks + (self.report.warnings if self.report else ())

    @property
    def is_lacking(self) -> bool:
        """Whether something of it cannot be found."""
        return self.source.status == "failed" or bool(self.unmade)


def seen_by(snapshot: Snapshot, access: Sequence[str] | None) -> frozenset[str]:
    """These principals; None for whoever keeps the store."""
    return keeper(snapshot) if access is None else frozenset(access)


def keeper(snapshot: Snapshot) -> frozenset[str]:
    """All principals that a store knows."""
    return frozenset(chain.from_iterable(snapshot.readers.lists.values()))


def held(snapshot: Snapshot, access: Sequence[str] | None = None) -> Iterator[Held]:
    """All sources, by uri.

    Args:
        access: only those whose document one of these principals may read; None for all.
    """
    who = seen_by(snapshot, access)
    documents = {one.id: (one.but(text=""), len(one.text)) for one in snapshot.documents(who)}
    unmade = _unmade(snapshot)
    for source in snapshot.sources(noted=True).values():
        if access is None or source.document in documents:
            document, characters = documents.get(source.document, (None, 0))
            yield _held(source, document, characters, unmade)


def one_held(snapshot: Snapshot, name: str, access: Sequence[str] | None = None) -> Held:
    """The source of this uri, or of the document of this id.

    Args:
        access: as for `held`.

    Raises:
        QueryError: there is none; names those that are written nearly so.
    """
    sources = (
        {one.source.uri: one.source for one in held(snapshot, access)} if access is not None else snapshot.sources()
    )
    source = sources.get(name) or next((row for row in sources.values() if row.document == name), None)
    if source is None:
        raise QueryError(f"There is no document {name!r} in {snapshot.opened.store}. {_near(name, list(sources))}")
    document = snapshot.document(source.document, keeper(snapshot)) if source.document else None
    return _held(source, document, len(document.text) if document else 0, _unmade(snapshot))


def _held(source: SourceRow, document: Document | None, characters: int, unmade: Unmade) -> Held:
    from spolia.indexing.report import DocumentReport

    report = DocumentReport.of(source.report) if source.report else None
    return Held(source, document, characters, report, unmade.get(source.document, {}))


def _unmade(snapshot: Snapshot) -> Unmade:
    found: dict[str, dict[str, str]] = {}
    for lack in snapshot.unmade():
        found.setdefault(lack.document, {})[lack.group] = lack.reason
    return found


def _near(name: str, there: Sequence[str]) -> str:
    near = get_close_matches(name, there, 3) or [uri for uri in there if name in uri][:3]
    return f"Write one of: {', '.join(near)}." if near else "`spolia docs list` has all."


def parts_of(uri: str, sources: Mapping[str, SourceRow]) -> list[str]:
    """What was read out of a container, by uri, and out of what was; nothing of what is no container."""
    from spolia.indexing.report import DocumentReport

    within: dict[str, list[str]] = {}
    for row in sources.values():
        if row.report and (container := DocumentReport.of(row.report).within):
            within.setdefault(container, []).append(row.uri)
    found = list(within.get(uri, ()))
    for part in found:  # it grows
        found += within.get(part, ())
    return sorted(found)

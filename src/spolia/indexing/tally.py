"""What a run of `sync` has done so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from spolia.indexing.files import Found
from spolia.indexing.report import DocumentReport, Progress, SyncReport
from spolia.stores.tables.rows import SourceRow


@dataclass
class Tally:
    """Numbers that grow while files are dealt with; see `SyncReport` and `Progress`."""

    total: int = 0
    done: int = 0
    added: int = 0
    changed: int = 0
    moved: int = 0
    removed: int = 0
    unchanged: int = 0
    warned: int = 0
    chunks: int = 0
    embedded: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    counted: dict[str, str] = field(default_factory=dict)

    def put(self, uri: str, report: DocumentReport, *, is_new: bool) -> None:
        """Count a document that was stored."""
        self.count(uri, "added" if is_new else "changed")
        self.warned += bool(report.warnings)
        self.chunks += report.chunks

    def count(self, uri: str, what: Literal["added", "changed", "moved", "removed", "unchanged"]) -> None:
        """Count what became of a source."""
        setattr(self, what, getattr(self, what) + 1)
        self.counted[uri] = what

    def fail(self, row: SourceRow) -> None:
        """Count a source that cannot be read."""
        self.failed.append((row.uri, row.error))
        if row.is_stale:
            self.stale.append(row.uri)

    def take_back(self, uris: Iterable[str]) -> None:
        """Another writer was there first, so that these were not stored as they were counted; they are taken again."""
        for uri in uris:
            if what := self.counted.pop(uri, ""):
                setattr(self, what, getattr(self, what) - 1)
            self.failed = [one for one in self.failed if one[0] != uri]
            self.stale = [one for one in self.stale if one != uri]

    def progress(self, uri: str, change: str) -> Progress:
        """How far it is."""
        return Progress(self.done, self.total, uri, len(self.failed), self.chunks, self.embedded, change)

    def report(self, generation: int, found: Found, seconds: float) -> SyncReport:
        """What was done in the end."""
        return SyncReport(
            generation=generation,
            added=self.added,
            changed=self.changed,
            moved=self.moved,
            removed=self.removed,
            unchanged=self.unchanged,
            failed=tuple(self.failed),
            stale=tuple(self.stale),
            skipped=tuple(found.skipped),
            unread=tuple(found.unread.most_common()),
            warned=self.warned,
            chunks=self.chunks,
            embedded=self.embedded,
            seconds=seconds,
        )

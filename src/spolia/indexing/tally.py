"""What a run of `sync` has done so far."""

from __future__ import annotations

from dataclasses import dataclass, field

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

    def put(self, report: DocumentReport, *, is_new: bool) -> None:
        """Count a document that was stored."""
        if is_new:
            self.added += 1
        else:
            self.changed += 1
        self.warned += bool(report.warnings)
        self.chunks += report.chunks

    def fail(self, row: SourceRow) -> None:
        """Count a source that cannot be read."""
        self.failed.append((row.uri, row.error))
        if row.is_stale:
            self.stale.append(row.uri)

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

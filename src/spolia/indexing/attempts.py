"""How often a source is tried that cannot be read, and when again: kept in its row, so that it outlasts the run."""

from __future__ import annotations

import time

from spolia.errors import EncryptedDocument, MissingExtra
from spolia.indexing.report import DocumentReport
from spolia.stores.tables.rows import SourceRow

ATTEMPTS = 3
"""How often a source is tried; then it is left alone until it changes."""
WAIT_S, GROWTH = 30, 4
"""Seconds between the first two attempts where the cause may pass, and by how much each further wait is longer."""


def failed(row: SourceRow, reason: str, cause: Exception | None, before: SourceRow | None, reader: str) -> SourceRow:
    """The row of a source that cannot be read, with one attempt more than before.

    Args:
        row: as the source is now.
        reason: in words.
        cause: whether it is `transient` says whether it may pass. None, a missing package and a password that is not
            known are no fault of the source, and no attempt: it is tried in every run.
        before: the row that the store has.
        reader: name of the reader.

    >>> row, error = SourceRow("a.pdf", 9, 1, "f00d"), ValueError()
    >>> once = failed(row, "It is damaged.", error, None, "pdf")
    >>> twice = failed(row, "It is damaged.", error, once, "pdf")
    >>> twice.error, is_due(twice), is_due(failed(row, "It is damaged.", error, twice, "pdf"))
    ('It is damaged.', True, False)
    """
    row = row.but(status="failed", error=reason)
    told = DocumentReport.of(row.report) if row.report else DocumentReport(reader, 0)
    if cause is None or isinstance(cause, (EncryptedDocument, MissingExtra)):
        return row.but(report=told.but(attempts=0, tried_ns=0).json)
    passes = bool(getattr(cause, "transient", False))
    tried = told.but(attempts=_attempts(row, before) + 1, tried_ns=time.time_ns(), passes=passes)
    return row.but(report=tried.json)


def _attempts(row: SourceRow, before: SourceRow | None) -> int:
    """How often it was tried as it is."""
    if before is None or before.status != "failed" or not before.report or _content(before) != _content(row):
        return 0
    return DocumentReport.of(before.report).attempts


def _content(row: SourceRow) -> tuple[int, int, str, str]:
    return row.size, row.mtime_ns, row.content_hash, row.reader


def is_due(row: SourceRow) -> bool:
    """Whether a source that could not be read, and has not changed since, is to be tried again now."""
    if not row.report:
        return True
    told = DocumentReport.of(row.report)
    return told.attempts < ATTEMPTS and time.time_ns() >= again_ns(told)


def again_ns(told: DocumentReport) -> int:
    """From when on a source is tried again, nanoseconds."""
    wait_s = WAIT_S * GROWTH ** max(0, told.attempts - 1) if told.passes else 0
    return told.tried_ns + wait_s * 1_000_000_000

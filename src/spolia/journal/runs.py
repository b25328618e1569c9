"""One file of traces and cached results."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from spolia.journal.cache import Cache
from spolia.journal.database import Database
from spolia.journal.trace import Journal


class Runs:
    """Open `runs.db`: its journal and its cache. Deleting the file loses nothing but them.

    Args:
        path: the file; made when it is not there.
        max_bytes: when more is in the file on closing, the older half of the cache's room and all but 1000 runs go.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Runs(Path(folder) / "runs.db") as runs:
    ...     runs.journal.runs()
    []
    """

    def __init__(self, path: str | Path, *, max_bytes: int = 1 << 30) -> None:
        self.database, self.max_bytes = Database(Path(path)), max_bytes
        self.journal = Journal(self.database)
        self.cache = Cache(self.database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Write what is pending, drop what is old where the file has grown too large, and close it."""
        self.journal.hand_over()
        if self.database.size() > self.max_bytes:
            self.cache.prune(self.max_bytes // 2)
            self.journal.prune(1000)
        self.database.close()

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

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Runs(Path(folder) / "runs.db") as runs:
    ...     runs.journal.runs()
    []
    """

    def __init__(self, path: str | Path) -> None:
        self.database = Database(Path(path))
        self.journal = Journal(self.database)
        self.cache = Cache(self.database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Write what is pending and close the file."""
        self.journal.hand_over()
        self.database.close()

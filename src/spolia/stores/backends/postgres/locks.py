"""Locks on a store in PostgreSQL. They belong to a session, so that they end with the process, however it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg

from spolia.stores.backends.postgres import dialect
from spolia.stores.backends.postgres.address import Address
from spolia.stores.backends.postgres.session import PostgresSession
from spolia.stores.truth import busy

_POLL_S = 0.02


def lock_number(table: int) -> int:
    """An object id, which is an unsigned number of 32 bits, as a lock's, which is a signed one."""
    return table - (1 << 32) if table >= 1 << 31 else table


class SessionLease:
    """A generation shared by a session of its own; see `spolia.stores.truth.Lease`."""

    def __init__(self, session: PostgresSession) -> None:
        self.session = session

    def is_held(self) -> bool:
        return not self.session.is_lost

    def __del__(self) -> None:
        self.session.close()


def leased(session: PostgresSession, table: int, generation: int) -> SessionLease:
    """Wait until nobody sweeps a generation, and keep it from being swept."""
    session.ask(dialect.SHARE, (lock_number(table), generation))
    return SessionLease(session)


class PostgresWriteSession:
    """The right to write to a schema, and the session that has it.

    Raises:
        StoreBusy: it was not free within `timeout_s` seconds.
    """

    def __init__(self, address: Address, open: Callable[[], tuple[PostgresSession, int]], timeout_s: float) -> None:
        self.connection, self.table = open()
        try:
            self._wait(address, timeout_s)
        except BaseException:
            self.connection.close()
            raise

    def _wait(self, address: Address, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        lock = (lock_number(self.table), dialect.WRITING)
        while not self.connection.one(dialect.TRY_LOCK, lock)[0]:
            if time.monotonic() >= end:
                raise busy(address, self._holder(), timeout_s)
            time.sleep(min(_POLL_S, max(0.0, end - time.monotonic())))

    def _holder(self) -> str:
        """As its session calls itself: `spolia PID@HOST`."""
        asked = (self.table, dialect.WRITING % (1 << 32))
        name, address = self.connection.one(dialect.HOLDER, asked) or ("", None)
        own = self.connection.raw.info.get_parameters().get("application_name", "")
        pid, _, host = (name or "").removeprefix("spolia ").partition("@")
        if name == own:
            return f"this process, pid {os.getpid()}"
        if not pid.isdecimal():
            return f"another session, {name or 'of another user'}"
        if host == own.partition("@")[2]:
            return f"another process, pid {pid}"
        return f"another process, pid {pid} on {host or address}"

    def close(self) -> None:
        """A closed session ends when the server comes to it; the lock is let go of before."""
        session = self.connection
        if session.is_lost or os.getpid() != session.pid:
            session.close()
            return
        with suppress(psycopg.Error):  # with the connection the lock is lost
            if session.in_transaction:
                session.raw.rollback()
            session.ask(dialect.UNLOCK, (lock_number(self.table), dialect.WRITING))
        session.close()

"""Sessions with a PostgreSQL server, adapted to the store's statements."""

import json
import math
import os
import re
import select
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, ClassVar

import psycopg
from psycopg import pq
from psycopg.types.string import StrDumperUnknown, TextLoader

from spolia.stores.backends.postgres import dialect
from spolia.stores.backends.postgres.address import Address
from spolia.stores.backends.publication import wait_for_right
from spolia.stores.backends.rows import in_batches

CONNECT_S = 10
READ_S = 60
WRITE_S = 600
GRACE_S = 5.0
"""Beyond what a statement may take: until then the server has said that it has ended it."""
_BATCH_ROWS = 500
_FETCH_ROWS = 2_000
_ESCAPE = "\x1a"
"""Goes before a 0 for NUL, which PostgreSQL cannot hold in a text, and before a 1 for itself."""


class _TextDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Any:
        if "\0" in obj or _ESCAPE in obj:
            obj = obj.replace(_ESCAPE, _ESCAPE + "1").replace("\0", _ESCAPE + "0")
        return super().dump(obj)


class _TextLoader(TextLoader):
    def load(self, data: Any) -> Any:
        text = super().load(data)
        if not isinstance(text, str) or _ESCAPE not in text:
            return text
        return re.sub("\x1a([01])", lambda match: "\0" if match[1] == "0" else _ESCAPE, text)


class PatientConnection(psycopg.Connection[Any]):
    """Connection that ends when its server is silent for too long: a server that hangs ends no statement."""

    patience_s: float = math.inf

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        try:
            return super().wait(_poll_until(gen, self.patience_s), *args, **options)
        except _ServerSilent as error:
            self.pgconn.finish()  # the server may still run the statement: nothing more can be read here
            raise psycopg.OperationalError(f"the server said nothing for {self.patience_s:g} s") from error


class _ServerSilent(Exception):
    """Error for a server that sent nothing in time."""


def _poll_until(gen: Any, seconds: float) -> Any:
    """Return the result of a psycopg generator, polled until it is ready or the time is up."""
    deadline = monotonic() + seconds
    try:
        state = next(gen)
        while True:
            ready = yield state
            if not ready and monotonic() > deadline:
                raise _ServerSilent
            state = gen.send(ready)
    except StopIteration as end:
        return end.value


def connect(address: Address, timeout_s: float, *settings: str) -> PatientConnection:
    """Open a connection that commits each statement; its application name tells the process and the machine."""
    options = [f"statement_timeout={int(timeout_s * 1000)}", "lock_timeout=30000", *settings]
    conninfo = pq.Conninfo.parse(address.server.encode())
    address_options = next(
        (option.val.decode() for option in conninfo if option.keyword == b"options" and option.val), ""
    )
    defaults = {
        "connect_timeout": str(CONNECT_S),
        "application_name": f"spolia {os.getpid()}@{socket.gethostname()}"[:63],  # PostgreSQL cuts longer ones
        # A server that has vanished is noticed within a minute.
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "3",
        "tcp_user_timeout": "60000",
    }
    # What the address sets goes before these defaults.
    for option in conninfo:
        if option.val:
            defaults.pop(option.keyword.decode(), None)
    options_text = " ".join([*(f"-c {option}" for option in options), address_options]).strip()
    raw = PatientConnection.connect(
        address.server,
        autocommit=True,
        **{**defaults, **address.secrets(), "options": options_text, "client_encoding": "UTF8"},  # type: ignore[arg-type]
    )
    raw.adapters.register_dumper(str, _TextDumper)
    raw.adapters.register_loader("text", _TextLoader)
    raw.patience_s = timeout_s + GRACE_S
    (allowed,) = raw.execute(dialect.ALLOWED_MS, prepare=False).fetchone() or (0,)
    raw.patience_s = allowed / 1000 + GRACE_S if allowed else math.inf  # the address may say otherwise
    return raw


class PostgresSession:
    def __init__(self, raw: PatientConnection) -> None:
        self.raw = raw
        self.pid = os.getpid()
        self._number = 0

    @property
    def in_transaction(self) -> bool:
        return self.raw.info.transaction_status in (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR)

    def execute(self, statement: str, values: Any = (), /) -> psycopg.Cursor[Any]:
        return self.raw.execute(dialect.translate(statement), _decode_lists(values) or None)

    def executemany(self, statement: str, values: Iterable[Any], /) -> None:
        """Run a statement in batches, each sent together; the iterable of values may itself use this connection."""
        for batch in in_batches(values, _BATCH_ROWS):
            with self.raw.cursor() as cursor:
                cursor.executemany(dialect.translate(statement), batch)

    def stream_rows(self, statement: str, values: Any = (), /) -> Iterator[Any]:
        """Stream rows from a cursor of the server, which outlives the transaction."""
        self._number += 1
        with self.raw.cursor(f"each_{self._number}", withhold=True) as cursor:
            cursor.itersize = _FETCH_ROWS
            yield from cursor.execute(dialect.translate(statement), _decode_lists(values) or None)

    def ask(self, statement: str, values: Any = (), /) -> psycopg.Cursor[Any]:
        """Run a statement in PostgreSQL's own dialect; it is never prepared, so that it is planned for its values."""
        return self.raw.execute(statement, values or None, prepare=False)

    def fetch_one(self, statement: str, values: Any = (), /) -> Any:
        return self.ask(statement, values).fetchone()

    @contextmanager
    def without_timeout(self) -> Iterator[None]:
        """Open a transaction whose statements may take any time."""
        patience_s, self.raw.patience_s = self.raw.patience_s, math.inf
        try:
            with self.raw.transaction():
                self.ask(dialect.NO_TIMEOUT)
                yield
        finally:
            self.raw.patience_s = patience_s

    @property
    def is_lost(self) -> bool:
        """Return whether the server has ended the session, as far as this machine knows."""
        if self.raw.closed:
            return True
        try:
            return _is_closed(self.raw.fileno())
        except psycopg.Error:
            return True

    def close(self) -> None:
        """End it; a child process that was forked meanwhile leaves that to its parent."""
        if os.getpid() == self.pid:
            self.raw.close()

    def __del__(self) -> None:
        self.close()


def _is_closed(descriptor: int) -> bool:
    """Return whether the other side has closed a connection; nothing is read from it."""
    poll = select.poll()
    poll.register(descriptor, getattr(select, "POLLRDHUP", 0))  # POLLHUP and POLLERR come unasked
    return bool(poll.poll(0))


def _decode_lists(values: Any) -> Any:
    if isinstance(values, dict) and any(name in values for name in dialect.LISTS):
        return {n: json.loads(v) if n in dialect.LISTS else v for n, v in values.items()}
    return values


def lock_number(table: int) -> int:
    """Convert an object id, unsigned with 32 bits, to the number of a lock, which is signed."""
    return table - (1 << 32) if table >= 1 << 31 else table


class SessionLease:
    can_be_lost: ClassVar[bool] = True

    def __init__(self, session: PostgresSession) -> None:
        self.session = session

    def is_held(self) -> bool:
        return not self.session.is_lost

    def __del__(self) -> None:
        self.session.close()


class PostgresWriteSession:
    def __init__(self, address: Address, open: Callable[[], tuple[PostgresSession, int]], timeout_s: float) -> None:
        self.connection, self.table = open()
        try:
            lock = (lock_number(self.table), dialect.WRITING)
            wait_for_right(
                lambda: self.connection.fetch_one(dialect.TRY_LOCK, lock)[0], address, self._holder, timeout_s
            )
        except BaseException:
            self.connection.close()
            raise

    def _holder(self) -> str:
        lock = (self.table, dialect.WRITING % (1 << 32))  # `pg_locks` shows both numbers unsigned
        name, address = self.connection.fetch_one(dialect.HOLDER, lock) or ("", None)
        own_name = self.connection.raw.info.get_parameters().get("application_name", "")
        pid, _, host = (name or "").removeprefix("spolia ").partition("@")
        if name == own_name:
            return f"this process, pid {os.getpid()}"
        if not pid.isdecimal():
            return f"another session, {name or 'of another user'}"
        if host == own_name.partition("@")[2]:
            return f"another process, pid {pid}"
        return f"another process, pid {pid} on {host or address}"

    def close(self) -> None:
        """Release the lock, then close: the server notices a closed session only after a while."""
        session = self.connection
        # In a forked child, the rollback and the unlock would go to the parent's session.
        if session.is_lost or os.getpid() != session.pid:
            session.close()
            return
        with suppress(psycopg.Error):  # with the connection the lock is lost
            if session.in_transaction:
                session.raw.rollback()
            session.ask(dialect.UNLOCK, (lock_number(self.table), dialect.WRITING))
        session.close()

"""Sessions with a PostgreSQL server, as the store's statements want them."""

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
_AT_ONCE = 500
_FETCHED = 2_000
_SET_ASIDE = "\x1a"
"""Goes before a 0 for NUL, which PostgreSQL cannot hold in a text, and before a 1 for itself."""


class _Texts(StrDumperUnknown):
    def dump(self, obj: str) -> Any:
        if "\0" in obj or _SET_ASIDE in obj:
            obj = obj.replace(_SET_ASIDE, _SET_ASIDE + "1").replace("\0", _SET_ASIDE + "0")
        return super().dump(obj)


class _TextsBack(TextLoader):
    def load(self, data: Any) -> Any:
        text = super().load(data)
        if not isinstance(text, str) or _SET_ASIDE not in text:
            return text
        return re.sub("\x1a([01])", lambda found: "\0" if found[1] == "0" else _SET_ASIDE, text)


class Patient(psycopg.Connection[Any]):
    """A connection that ends when its server is silent for too long, since a server that hangs ends no statement."""

    patience_s: float = math.inf

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        try:
            return super().wait(_limited(gen, self.patience_s), *args, **options)
        except _Silent as error:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"the server said nothing for {self.patience_s:g} s") from error


class _Silent(Exception):
    """Nothing came."""


def _limited(gen: Any, seconds: float) -> Any:
    """The result of a psycopg generator, polled until it is ready or the time is up."""
    until = monotonic() + seconds
    try:
        state = next(gen)
        while True:
            ready = yield state
            if not ready and monotonic() > until:
                raise _Silent
            state = gen.send(ready)
    except StopIteration as end:
        return end.value


def connected(address: Address, timeout_s: float, *settings: str) -> Patient:
    """A connection that commits each statement, under a name that says which process of which machine has it."""
    options = [f"statement_timeout={int(timeout_s * 1000)}", "lock_timeout=30000", *settings]
    given = pq.Conninfo.parse(address.server.encode())
    theirs = next((found.val.decode() for found in given if found.keyword == b"options" and found.val), "")
    defaults = {
        "connect_timeout": str(CONNECT_S),
        "application_name": f"spolia {os.getpid()}@{socket.gethostname()}"[:63],
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "3",
        "tcp_user_timeout": "60000",
    }
    for found in given:
        if found.val:
            defaults.pop(found.keyword.decode(), None)
    options_text = " ".join([*(f"-c {option}" for option in options), theirs]).strip()
    raw = Patient.connect(
        address.server,
        autocommit=True,
        **{**defaults, **address.secrets(), "options": options_text, "client_encoding": "UTF8"},  # type: ignore[arg-type]
    )
    raw.adapters.register_dumper(str, _Texts)
    raw.adapters.register_loader("text", _TextsBack)
    raw.patience_s = timeout_s + GRACE_S
    (allowed,) = raw.execute(dialect.ALLOWED_MS, prepare=False).fetchone() or (0,)
    raw.patience_s = allowed / 1000 + GRACE_S if allowed else math.inf  # the address may say otherwise
    return raw


class PostgresSession:
    def __init__(self, raw: Patient) -> None:
        self.raw = raw
        self.pid = os.getpid()
        self._number = 0

    @property
    def in_transaction(self) -> bool:
        return self.raw.info.transaction_status in (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR)

    def execute(self, statement: str, values: Any = (), /) -> psycopg.Cursor[Any]:
        return self.raw.execute(dialect.translated(statement), _arrays(values) or None)

    def executemany(self, statement: str, values: Iterable[Any], /) -> None:
        """In batches, each sent in one go: the iterable of values may itself use this connection."""
        for batch in in_batches(values, _AT_ONCE):
            with self.raw.cursor() as cursor:
                cursor.executemany(dialect.translated(statement), batch)

    def each(self, statement: str, values: Any = (), /) -> Iterator[Any]:
        """By a cursor of the server's, which outlives the transaction."""
        self._number += 1
        with self.raw.cursor(f"each_{self._number}", withhold=True) as cursor:
            cursor.itersize = _FETCHED
            yield from cursor.execute(dialect.translated(statement), _arrays(values) or None)

    def ask(self, statement: str, values: Any = (), /) -> psycopg.Cursor[Any]:
        """A statement in PostgreSQL's own dialect; never prepared, so that it is planned for its values."""
        return self.raw.execute(statement, values or None, prepare=False)

    def one(self, statement: str, values: Any = (), /) -> Any:
        return self.ask(statement, values).fetchone()

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """A transaction whose statements may take any time."""
        before, self.raw.patience_s = self.raw.patience_s, math.inf
        try:
            with self.raw.transaction():
                self.ask(dialect.NO_TIMEOUT)
                yield
        finally:
            self.raw.patience_s = before

    @property
    def is_lost(self) -> bool:
        """Whether the server has ended it, as far as this machine knows."""
        if self.raw.closed:
            return True
        try:
            return _is_at_its_end(self.raw.fileno())
        except psycopg.Error:
            return True

    def close(self) -> None:
        """End it; a child process that was forked meanwhile leaves that to its parent."""
        if os.getpid() == self.pid:
            self.raw.close()

    def __del__(self) -> None:
        self.close()


def _is_at_its_end(descriptor: int) -> bool:
    """Whether the other side has closed a connection; nothing is read from it."""
    asked = select.poll()
    asked.register(descriptor, getattr(select, "POLLRDHUP", 0))  # POLLHUP and POLLERR come unasked
    return bool(asked.poll(0))


def _arrays(values: Any) -> Any:
    if isinstance(values, dict) and any(name in values for name in dialect.LISTS):
        return {n: json.loads(v) if n in dialect.LISTS else v for n, v in values.items()}
    return values


def lock_number(table: int) -> int:
    """An object id, which is an unsigned number of 32 bits, as a lock's, which is a signed one."""
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
            wait_for_right(lambda: self.connection.one(dialect.TRY_LOCK, lock)[0], address, self._holder, timeout_s)
        except BaseException:
            self.connection.close()
            raise

    def _holder(self) -> str:
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

"""What PostgreSQL and libpq raise, in words that say what to do."""

from __future__ import annotations

import psycopg
from psycopg import errors

from spolia.errors import NotAStore, StoreBusy, StoreCorrupt, StoreError, StoreUnavailable
from spolia.stores.backends.postgres.address import Address
from spolia.stores.backends.sqlite.connection import no_text

_WHOLE = "What was published before is whole."
_COMING = ("starting up", "shutting down", "too many", "recovery", "remaining connection slots")
_GONE = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.TooManyConnections,
    errors.IdleInTransactionSessionTimeout,
    errors.ConnectionException,
)
_FULL = (errors.DiskFull, errors.OutOfMemory, errors.ConfigurationLimitExceeded, errors.ProgramLimitExceeded)


def problem(address: Address, doing: str, error: Exception) -> StoreError | None:
    """The `StoreError` that an exception stands for; None for those of neither database nor file system."""
    what, text = f"{address} could not be {doing}", " ".join(str(error).split())
    if isinstance(error, psycopg.Error):
        return _of_database(address, what, text, error)
    if isinstance(error, UnicodeEncodeError):
        return no_text(what, error)
    if isinstance(error, OSError):
        return StoreError(f"{what}: {text}. {_WHOLE} What is derived is kept below SPOLIA_CACHE: name another folder.")
    return None


def _of_database(address: Address, what: str, text: str, error: psycopg.Error) -> StoreError:
    if isinstance(error, errors.QueryCanceled):
        return StoreUnavailable(
            f"{what}: the server did not answer in time ({text}). {_WHOLE} Repeat, or give it more time: "
            "…?options=-c%20statement_timeout%3D600000"
        )
    if isinstance(error, errors.LockNotAvailable):
        return StoreBusy(f"{what}: another session has locked a table ({text}). End it, then repeat.")
    if isinstance(error, _FULL):
        return StoreError(f"{what}: the server has no room left ({text}). {_WHOLE} Free some space there and repeat.")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreError(f"{what}: the user may not do that ({text}). Have it granted to this user, or name another.")
    if isinstance(error, errors.UniqueViolation) and "nodes" in text:
        return StoreError(f"{what}: two nodes have one id ({text}). Give every node of a corpus an id of its own.")
    if isinstance(error, (errors.UndefinedTable, errors.InvalidSchemaName)):
        return NotAStore(
            f"{what}: it was deleted while it was open ({text}). Write: spolia index FOLDER --store {address}"
        )
    if isinstance(error, (errors.DataCorrupted, errors.IndexCorrupted)):
        return StoreCorrupt(f"{what}: {text}. The server's disk is damaged: a backup has to be restored.")
    if isinstance(error, _GONE) or (isinstance(error, psycopg.OperationalError) and _is_away(error, text)):
        return StoreUnavailable(f"{what}: the server is gone, or was never there ({text}). {_WHOLE} Repeat later.")
    if error.sqlstate is None and "FATAL" in text:
        return StoreError(
            f"{what}: the server refused the connection ({text}). Check user, database and password: PGPASSWORD, "
            "~/.pgpass or password_env=NAME in the address."
        )
    return StoreError(f"{what}: {text}. {_WHOLE}")


def _is_away(error: psycopg.Error, text: str) -> bool:
    """Whether the connection ended or was not made, for reasons that may pass."""
    return error.sqlstate is None and ("FATAL" not in text or any(word in text for word in _COMING))

"""Keys and their limits: requests a minute; requests, tokens and money a day. Only a key's SHA-256 is stored."""

from __future__ import annotations

import logging
import os
import re
import secrets
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from threading import RLock
from time import monotonic, time
from typing import Any, Self

from spolia.checksums import checksum_of
from spolia.errors import QueryError, StoreCorrupt
from spolia.private_files import make_folder, private
from spolia.record_files import connect, guard, translate_damage
from spolia.run import Budget
from spolia.run.budget import Limiter
from spolia.types import Usage, Value

PREFIX = "sk-spolia-"
VARIABLE, TOKEN = "SPOLIA_TOKEN", "serve.token"
_LENGTH = len(PREFIX) + 51
"""The length of a token with its checksum of eight characters; tokens of earlier versions have no checksum."""
_NAME = re.compile(r"[\w.@-]+")
_SETTINGS: dict[str, Any] = {
    "sha256": str,
    "principal": str,
    "groups": list,
    "requests_per_minute": int,
    "requests_per_day": int,
    "tokens_per_day": int,
    "usd_per_day": (int, float),
    "expires": datetime,
    "writes": bool,
    "admin": bool,
}


DAY_S = 86_400
REMEDY = "It counts what keys have used today. Restore it from a backup, or move it away: then their day begins again."


@dataclass
class Quota:
    """Requests of a key: a minute's worth immediately, then as many a minute.

    >>> quota = Quota(60, started=0.0)
    >>> {quota.wait(0.0) for _ in range(60)}, quota.wait(0.0), quota.wait(0.5), quota.wait(1.0)
    ({0.0}, 1.0, 0.5, 0.0)
    """

    per_minute: int = 0
    started: float = field(default_factory=monotonic)
    left: float = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.per_minute

    def wait(self, now: float) -> float:
        """Return the seconds until a request is allowed; 0 if it is allowed now, and then it counts."""
        if not self.per_minute:
            return 0.0
        interval_s = 60 / self.per_minute
        self.left = min(self.per_minute, self.left + (now - self.started) / interval_s)
        self.started = now
        if self.left < 1:
            return (1 - self.left) * interval_s
        self.left -= 1
        return 0.0


@dataclass(frozen=True)
class DailyQuota(Value):
    """Limits of a key in a day (UTC); 0 for none. `usd` holds for models with a known price."""

    requests: int = 0
    tokens: int = 0
    usd: float = 0.0

    @property
    def is_limited(self) -> bool:
        return bool(self.requests or self.tokens or self.usd)

    def reached_limit(self, requests: int, tokens: int, usd: float) -> str:
        """Return the limit that is reached, in words; empty for none."""
        used = ((self.requests, requests, "requests"), (self.tokens, tokens, "tokens"), (self.usd, usd, "US dollars"))
        return next((f"{limit:,} {unit}" for limit, amount, unit in used if limit and amount >= limit), "")


class UsageLedger:
    """Ledger of what each key has used today, in a file: it survives a restart and counts for all servers of a store.

    >>> import tempfile
    >>> from spolia.types import Usage
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger, quota = UsageLedger(Path(folder) / "usage.db"), DailyQuota(tokens=100)
    ...     ledger.add("ann", Usage(input_tokens=60))
    ...     first, second = ledger.limiter("ann", quota), ledger.limiter("ann", quota)
    ...     first.reserve(Usage(output_tokens=40), optional=False), second.take(Usage(output_tokens=1), optional=False)
    ...     UsageLedger(Path(folder) / "usage.db").count_request("ann", quota)
    ('', '100 of 100 tokens are spent, the call may take up to 1')
    '100 tokens'
    """

    def __init__(self, file: Path) -> None:
        self._lock = RLock()  # `DailyLimiter.take` adds inside of `lock`
        self._connection, self._file = connect(file, REMEDY, timeout_s=10, isolation_level=None), file
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = OFF")  # a killed process loses nothing; a power cut may
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS usage (key TEXT, day INTEGER, requests INTEGER, tokens INTEGER, usd REAL, "
            "PRIMARY KEY (key, day)) WITHOUT ROWID"
        )
        with self.lock():
            guard(self._connection)

    def add(self, key: str, usage: Usage, requests: int = 0, day: float = 0) -> None:
        """Count what a request has used.

        Args:
            day: since the epoch; 0 for today.
        """
        row = (key, day or time() // DAY_S, requests, usage.input_tokens + usage.output_tokens, usage.cost_usd)
        with self._lock, translate_damage(self._file, REMEDY):
            self._connection.execute(
                "INSERT INTO usage (key, day, requests, tokens, usd) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET requests = requests + "
                "excluded.requests, tokens = tokens + excluded.tokens, usd = usd + excluded.usd",
                row,
            )

    def used(self, key: str, day: float = 0) -> tuple[int, int, float]:
        """Return requests, tokens and US dollars, including what calls in progress may take."""
        with self._lock, translate_damage(self._file, REMEDY):
            rows = self._connection.execute(
                "SELECT requests, tokens, usd FROM usage WHERE key = ? AND day = ?", (key, day or time() // DAY_S)
            )
            return next(rows, (0, 0, 0.0))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the ledger, so that no other server of the store counts meanwhile."""
        with self._lock, translate_damage(self._file, REMEDY):
            self._connection.execute("BEGIN IMMEDIATE")  # not even a reader may start to count between `used` and `add`
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def count_request(self, key: str, quota: DailyQuota) -> str:
        """Count a request and return an empty text; return the limit instead if the key has reached one."""
        if not quota.is_limited:  # keys without limits write nothing
            return ""
        if not (reached := quota.reached_limit(*self.used(key))):
            self.add(key, Usage(), 1)
        return reached

    def limiter(self, key: str, quota: DailyQuota) -> Limiter | None:
        """Return the limiter of one run of the key; None for no limit."""
        return DailyLimiter(self, key, quota) if quota.tokens or quota.usd else None


class DailyLimiter(Limiter):
    """Rest of a key's day, shared by all its runs in all servers of a store. A call in progress counts at its bound;
    after a kill it stays counted so."""

    def __init__(self, ledger: UsageLedger, key: str, quota: DailyQuota) -> None:
        budget = Budget(tokens=quota.tokens or None, cost_usd=quota.usd or None)
        super().__init__(budget, f"the key {key!r} for today")
        # The day stays: a run that passes midnight counts where it began.
        self.ledger, self.key, self.day = ledger, key, time() // DAY_S

    def take(self, requested: Usage, *, optional: bool) -> str:
        with self.ledger.lock():
            _, tokens, usd = self.ledger.used(self.key, self.day)
            spent_usage = Usage(input_tokens=tokens, cost_usd=usd)
            if not (reason := self.budget.refuses(spent_usage, requested, optional=optional)):
                self.ledger.add(self.key, requested, day=self.day)
            return reason

    def release(self, reserved: Usage) -> None:
        super().release(reserved)
        # The bound is free again; `charge` counts what the call has taken.
        self.ledger.add(self.key, Usage() - reserved, day=self.day)

    def charge(self, usage: Usage) -> None:
        super().charge(usage)
        self.ledger.add(self.key, usage, day=self.day)


def seconds_until_tomorrow() -> float:
    """Return the seconds until the day of quotas ends."""
    return DAY_S - time() % DAY_S


@dataclass(frozen=True)
class KeyHolder:
    """Holder of a key: the access lists of the store decide by `principal` and `groups` what a search finds.

    `writes`: may add documents, and change its own. `admin`: may change those of all, too.
    """

    name: str
    principal: str = ""
    groups: tuple[str, ...] = ()
    quota: Quota = field(default_factory=Quota)
    daily: DailyQuota = field(default_factory=DailyQuota)
    expires: datetime | None = None
    writes: bool = False
    admin: bool = False

    @property
    def principals(self) -> frozenset[str]:
        return frozenset((self.principal, *self.groups)) - {""}  # a key without a user

    def owns(self, askers: frozenset[str]) -> bool:
        """Return whether a run of these principals was asked by this user."""
        # Also a run from before the key got another group.
        return askers == self.principals or (self.principal in askers and askers <= self.principals)

    @property
    def is_expired(self) -> bool:
        return self.expires is not None and self.expires.timestamp() <= time()


class ApiKeys:
    """Holders by the SHA-256 of their key."""

    def __init__(self, holders: Mapping[str, KeyHolder]) -> None:
        self._holders = dict(holders)

    @classmethod
    def from_token(cls, token: str, access: tuple[str, ...] = ()) -> Self:
        """Make the keys of a server with one token, whose holder asks for these users and groups."""
        return cls({hash_key(token): KeyHolder("token", groups=access, writes=True, admin=True)})

    def holder(self, authorization: str) -> KeyHolder | None:
        """Return the holder of the key in an `Authorization` header; None if it is unknown or expired."""
        scheme, _, key = authorization.partition(" ")
        # Only hashes are compared, so the time it takes tells nothing of keys.
        holder = self._holders.get(hash_key(key.strip())) if scheme.lower() == "bearer" else None
        return None if holder is None or holder.is_expired else holder

    async def refresh(self, authorization: str) -> bool:
        """Return whether a second look at an unknown header may find a holder now."""
        return False


class KeysInFile(ApiKeys):
    """Keys of a TOML file, as `spolia keys` writes it. A change holds from the next request on. Old keys hold while the
    file cannot be read, and the old key of each wrong entry.

    Raises:
        QueryError: it cannot be read, or is wrong.
    """

    def __init__(self, file: Path) -> None:
        self.file, self._state = file, _file_state(file)
        super().__init__(_load_holders(file))

    def holder(self, authorization: str) -> KeyHolder | None:
        if (state := _file_state(self.file)) != self._state:
            self._state = state  # before the reload: a wrong file is read again only when it changes
            self._reload()
        return super().holder(authorization)

    def _reload(self) -> None:
        log = logging.getLogger(__name__)
        try:
            tables = _tables(self.file)
        except QueryError as error:
            log.warning("The keys of before still hold. %s", error)
            return
        holders: dict[str, KeyHolder] = {}
        for name, table in tables.items():
            try:
                holders.update([_parse_holder(self.file, name, table)])
            except QueryError as error:
                log.warning("The key of before of %s still holds. %s", name, error)
                holders |= {key: old_holder for key, old_holder in self._holders.items() if old_holder.name == name}
        for key, old_holder in self._holders.items():
            if key in holders and holders[key].quota.per_minute == old_holder.quota.per_minute:
                holders[key] = replace(holders[key], quota=old_holder.quota)  # what is spent stays spent
        self._holders = holders


def _file_state(file: Path) -> tuple[int, ...]:
    """Return a value that differs after a change of the file."""
    try:
        status = file.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _load_holders(file: Path) -> dict[str, KeyHolder]:
    return dict(_parse_holder(file, name, table) for name, table in _tables(file).items())


def hash_key(key: str) -> str:
    # A token from the environment may hold bytes that are not UTF-8.
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def new_key() -> str:
    key = PREFIX + secrets.token_urlsafe(32)
    return key + checksum_of(key)


def load_token(folder: Path) -> str:
    """Load the token of a server on this machine: `SPOLIA_TOKEN`, else the one made at the first start, which only the
    user can read."""
    if token := os.environ.get(VARIABLE):
        return token
    file = folder / TOKEN
    if not file.exists():
        make_folder(folder)
        _write(file, new_key())
    if damage := token_damage(file):
        raise StoreCorrupt(damage)
    return file.read_text("ascii").strip()


def token_damage(file: Path) -> str:
    """Describe how Spolia's own token was changed; empty if intact. A user's own token has no checksum."""
    token = file.read_bytes().decode("ascii", "replace")
    is_own = token.strip() and not token.startswith(PREFIX) and len(token) != _LENGTH
    if is_own or len(token) == _LENGTH - 8 or (len(token) == _LENGTH and token[-8:] == checksum_of(token[:-8])):
        return ""
    return f"{file} is damaged: it is not the token that was written. Remove it; the next server makes another one."


def add_key(file: Path, holder: KeyHolder) -> str:
    """Add a key to a file, which is made if it is not there; the key itself is returned and nowhere kept.

    Raises:
        QueryError: the file has a key of this name.
    """
    if not _NAME.fullmatch(holder.name):
        raise QueryError(f"{holder.name!r:.60} is not a name of a key. Write letters, digits, '.', '@', '_' or '-'.")
    if file.exists() and holder.name in _tables(file):
        raise QueryError(f"{file} has a key named {holder.name!r}. Choose another name, or delete its lines first.")
    key = new_key()
    lines = [f'["{holder.name}"]', f'sha256 = "{hash_key(key)}"']
    lines += [f"principal = {_quoted(holder.principal)}"] if holder.principal else []
    lines += [f"groups = [{', '.join(map(_quoted, holder.groups))}]"] if holder.groups else []
    lines += [f"requests_per_minute = {holder.quota.per_minute}"] if holder.quota.per_minute else []
    lines += [f"{name}_per_day = {limit}" for name, limit in asdict(holder.daily).items() if limit]
    lines += [f"expires = {holder.expires.isoformat(timespec='seconds')}"] if holder.expires else []
    lines += [f"{name} = true" for name in ("writes", "admin") if getattr(holder, name)]
    old_text = file.read_text("utf-8").rstrip("\n") + "\n\n" if file.exists() else ""
    _write(file, old_text + "\n".join(lines) + "\n")
    return key


def _write(file: Path, text: str) -> None:
    """Replace a file in one go; only the user can read it."""
    new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    with open(new, "x", encoding="utf-8", opener=private) as out:
        out.write(text)
    new.replace(file)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _tables(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise QueryError(
            f"The keys in {file} cannot be read: {error}. Make the file with: spolia keys NAME."
        ) from error


def _parse_holder(file: Path, name: str, table: Any) -> tuple[str, KeyHolder]:
    is_table = isinstance(table, dict) and all(
        isinstance(table[setting], _SETTINGS.get(setting, ())) for setting in table
    )
    if (
        not is_table
        # Without a zone the server's local time would count.
        or ("expires" in table and table["expires"].tzinfo is None)
        or not re.fullmatch("[0-9a-f]{64}", table.get("sha256", ""))
    ):
        raise QueryError(
            f"{file}: [{name}] is not a key. It has sha256, and may have principal, groups, requests_per_minute, "
            "requests_per_day, tokens_per_day, usd_per_day, writes, admin and expires (a time with its zone); "
            "`spolia keys` writes it."
        )
    groups, quota = tuple(map(str, table.get("groups", ()))), Quota(table.get("requests_per_minute", 0))
    daily = DailyQuota(*(table.get(f"{setting}_per_day", 0) for setting in ("requests", "tokens", "usd")))
    admin = table.get("admin", False)
    writes = admin or table.get("writes", False)
    return table["sha256"], KeyHolder(
        name, table.get("principal", ""), groups, quota, daily, table.get("expires"), writes, admin
    )

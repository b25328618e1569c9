"""Keys: who asks, and how much: requests in a minute, and requests, tokens and money in a day. Of a key only its
SHA-256 is kept."""

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
        """Seconds until a request is allowed; 0 for now, and then it counts."""
        if not self.per_minute:
            return 0.0
        each = 60 / self.per_minute
        self.left = min(self.per_minute, self.left + (now - self.started) / each)
        self.started = now
        if self.left < 1:
            return (1 - self.left) * each
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

    def spent(self, requests: int, tokens: int, usd: float) -> str:
        """Which limit is reached, in words; empty for none."""
        used = ((self.requests, requests, "requests"), (self.tokens, tokens, "tokens"), (self.usd, usd, "US dollars"))
        return next((f"{limit:,} {what}" for limit, found, what in used if limit and found >= limit), "")


class UsageLedger:
    """What each key has used today, in a file, so that it counts after a restart and for all servers of a store.

    >>> import tempfile
    >>> from spolia.types import Usage
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger, quota = UsageLedger(Path(folder) / "usage.db"), DailyQuota(tokens=100)
    ...     ledger.add("ann", Usage(input_tokens=60))
    ...     first, second = ledger.limiter("ann", quota), ledger.limiter("ann", quota)
    ...     first.reserve(Usage(output_tokens=40), optional=False), second.take(Usage(output_tokens=1), optional=False)
    ...     UsageLedger(Path(folder) / "usage.db").refusal("ann", quota)
    ('', '100 of 100 tokens are spent, the call may take up to 1')
    '100 tokens'
    """

    def __init__(self, file: Path) -> None:
        self._lock = RLock()
        self._connection, self._file = connect(file, REMEDY, timeout_s=10, isolation_level=None), file
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = OFF")  # a killed process loses nothing; a power cut may
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS usage (key TEXT, day INTEGER, requests INTEGER, tokens INTEGER, usd REAL, "
            "PRIMARY KEY (key, day)) WITHOUT ROWID"
        )
        with self.alone():
            guard(self._connection)

    def add(self, key: str, spent: Usage, requests: int = 0, day: float = 0) -> None:
        """Count what a request has used.

        Args:
            day: since the epoch; 0 for today.
        """
        row = (key, day or time() // DAY_S, requests, spent.input_tokens + spent.output_tokens, spent.cost_usd)
        with self._lock, translate_damage(self._file, REMEDY):
            self._connection.execute(
                "INSERT INTO usage (key, day, requests, tokens, usd) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET requests = requests + "
                "excluded.requests, tokens = tokens + excluded.tokens, usd = usd + excluded.usd",
                row,
            )

    def used(self, key: str, day: float = 0) -> tuple[int, int, float]:
        """Requests, tokens and US dollars; what calls in progress may take counts, too."""
        with self._lock, translate_damage(self._file, REMEDY):
            rows = self._connection.execute(
                "SELECT requests, tokens, usd FROM usage WHERE key = ? AND day = ?", (key, day or time() // DAY_S)
            )
            return next(rows, (0, 0, 0.0))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While inside, no other server of the store counts."""
        with self._lock, translate_damage(self._file, REMEDY):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def refusal(self, key: str, quota: DailyQuota) -> str:
        """Which limit a key has reached; empty if it may go on, and then the request counts."""
        if not quota.is_limited:
            return ""
        if not (said := quota.spent(*self.used(key))):
            self.add(key, Usage(), 1)
        return said

    def limiter(self, key: str, quota: DailyQuota) -> Limiter | None:
        """What one run of the key may spend; None for no limit."""
        return DailyLimiter(self, key, quota) if quota.tokens or quota.usd else None


class DailyLimiter(Limiter):
    """What is left of the day of a key, for all its runs together, in all servers of a store. A call in progress
    counts at its bound; of a killed server it stays counted so."""

    def __init__(self, ledger: UsageLedger, key: str, quota: DailyQuota) -> None:
        budget = Budget(tokens=quota.tokens or None, cost_usd=quota.usd or None)
        super().__init__(budget, f"the key {key!r} for today")
        self.ledger, self.key, self.day = ledger, key, time() // DAY_S

    def take(self, wanted: Usage, *, optional: bool) -> str:
        with self.ledger.alone():
            _, tokens, usd = self.ledger.used(self.key, self.day)
            spent = Usage(input_tokens=tokens, cost_usd=usd)
            if not (why := self.budget.refuses(spent, wanted, optional=optional)):
                self.ledger.add(self.key, wanted, day=self.day)
            return why

    def release(self, held: Usage) -> None:
        super().release(held)
        self.ledger.add(self.key, Usage() - held, day=self.day)

    def charge(self, spent: Usage) -> None:
        super().charge(spent)
        self.ledger.add(self.key, spent, day=self.day)


def until_tomorrow() -> float:
    """Seconds until the day of quotas ends."""
    return DAY_S - time() % DAY_S


@dataclass(frozen=True)
class KeyHolder:
    """Who has a key: the access lists of the store decide by `principal` and `groups` what a search finds.

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
        return frozenset((self.principal, *self.groups)) - {""}

    def owns(self, askers: frozenset[str]) -> bool:
        """Whether a run of these principals was asked by this user."""
        return askers == self.principals or (self.principal in askers and askers <= self.principals)

    @property
    def is_expired(self) -> bool:
        return self.expires is not None and self.expires.timestamp() <= time()


class ApiKeys:
    """Holders by the SHA-256 of their key."""

    def __init__(self, holders: Mapping[str, KeyHolder]) -> None:
        self._holders = dict(holders)

    @classmethod
    def of_token(cls, token: str, access: tuple[str, ...] = ()) -> Self:
        """One key, whose holder asks for these users and groups."""
        return cls({hashed(token): KeyHolder("token", groups=access, writes=True, admin=True)})

    def holder(self, authorization: str) -> KeyHolder | None:
        """Who has the key of an `Authorization` header; None if nobody has, or no longer."""
        scheme, _, key = authorization.partition(" ")
        found = self._holders.get(hashed(key.strip())) if scheme.lower() == "bearer" else None
        return None if found is None or found.is_expired else found

    async def refreshed(self, authorization: str) -> bool:
        """Whether another look at a header that nobody has may find a holder now."""
        return False


class KeysInFile(ApiKeys):
    """The keys of a TOML file, as `spolia keys` writes it. A changed file holds from the next request on; while it
    cannot be read, the keys before it hold. If one entry is wrong, its key before holds; all others are as written.

    Raises:
        QueryError: it cannot be read, or is wrong.
    """

    def __init__(self, file: Path) -> None:
        self.file, self._state = file, _state(file)
        super().__init__(_holders_in(file))

    def holder(self, authorization: str) -> KeyHolder | None:
        if (state := _state(self.file)) != self._state:
            self._state = state
            self._read_again()
        return super().holder(authorization)

    def _read_again(self) -> None:
        log = logging.getLogger(__name__)
        try:
            tables = _tables(self.file)
        except QueryError as error:
            log.warning("The keys of before still hold. %s", error)
            return
        found: dict[str, KeyHolder] = {}
        for name, said in tables.items():
            try:
                found.update([_asker(self.file, name, said)])
            except QueryError as error:
                log.warning("The key of before of %s still holds. %s", name, error)
                found |= {key: before for key, before in self._holders.items() if before.name == name}
        for key, before in self._holders.items():
            if key in found and found[key].quota.per_minute == before.quota.per_minute:
                found[key] = replace(found[key], quota=before.quota)  # what is spent stays spent
        self._holders = found


def _state(file: Path) -> tuple[int, ...]:
    """Differs after a change of a file."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _holders_in(file: Path) -> dict[str, KeyHolder]:
    return dict(_asker(file, name, said) for name, said in _tables(file).items())


def hashed(key: str) -> str:
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def new_key() -> str:
    key = PREFIX + secrets.token_urlsafe(32)
    return key + checksum_of(key)


def token_in(folder: Path) -> str:
    """The token of a server on this machine: `SPOLIA_TOKEN`, else the one made at the first start, which only the
    user can read."""
    if given := os.environ.get(VARIABLE):
        return given
    file = folder / TOKEN
    if not file.exists():
        make_folder(folder)
        _write(file, new_key())
    if damage := token_damage(file):
        raise StoreCorrupt(damage)
    return file.read_text("ascii").strip()


def token_damage(file: Path) -> str:
    """How the token that Spolia has made was changed, in words; one of the user's own has no checksum."""
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
    lines = [f'["{holder.name}"]', f'sha256 = "{hashed(key)}"']
    lines += [f"principal = {_quoted(holder.principal)}"] if holder.principal else []
    lines += [f"groups = [{', '.join(map(_quoted, holder.groups))}]"] if holder.groups else []
    lines += [f"requests_per_minute = {holder.quota.per_minute}"] if holder.quota.per_minute else []
    lines += [f"{name}_per_day = {limit}" for name, limit in asdict(holder.daily).items() if limit]
    lines += [f"expires = {holder.expires.isoformat(timespec='seconds')}"] if holder.expires else []
    lines += [f"{name} = true" for name in ("writes", "admin") if getattr(holder, name)]
    before = file.read_text("utf-8").rstrip("\n") + "\n\n" if file.exists() else ""
    _write(file, before + "\n".join(lines) + "\n")
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


def _asker(file: Path, name: str, said: Any) -> tuple[str, KeyHolder]:
    is_table = isinstance(said, dict) and all(isinstance(said[one], _SETTINGS.get(one, ())) for one in said)
    if (
        not is_table
        or ("expires" in said and said["expires"].tzinfo is None)
        or not re.fullmatch("[0-9a-f]{64}", said.get("sha256", ""))
    ):
        raise QueryError(
            f"{file}: [{name}] is not a key. It has sha256, and may have principal, groups, requests_per_minute, "
            "requests_per_day, tokens_per_day, usd_per_day, writes, admin and expires (a time with its zone); "
            "`spolia keys` writes it."
        )
    groups, quota = tuple(map(str, said.get("groups", ()))), Quota(said.get("requests_per_minute", 0))
    daily = DailyQuota(*(said.get(f"{one}_per_day", 0) for one in ("requests", "tokens", "usd")))
    admin = said.get("admin", False)
    writes = admin or said.get("writes", False)
    return said["sha256"], KeyHolder(
        name, said.get("principal", ""), groups, quota, daily, said.get("expires"), writes, admin
    )

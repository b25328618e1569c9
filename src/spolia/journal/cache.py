"""Results worth keeping, by content: in memory, and in the file when there is one."""

import json
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import dataclass
from hashlib import blake2b
from math import nan
from typing import TYPE_CHECKING, Any

from spolia.core.codec import decode, encode
from spolia.errors import CodecError, SpoliaError
from spolia.journal.database import JournalFile
from spolia.journal.values import redact_json
from spolia.types import Usage

if TYPE_CHECKING:
    from spolia.core.operator import Operator

MARK, DIGEST_BYTES = b"#", 8
"""What the value of an entry begins with: no JSON does; then comes a digest of key, value and usage."""
PUT = "INSERT OR REPLACE INTO cache (key, value, usage, used, size) VALUES (?,?,?,?,?)"


@dataclass(frozen=True)
class CacheEntry:
    """Result without provenance, its cost when computed, its bytes where they count, and the seconds it took; NaN if
    another process computed it."""

    value: Any
    usage: Usage
    size: int = 0
    seconds: float = nan

    def restore(self, op: "Operator[Any, Any]", value: Any) -> Any:
        """Return the result of a step for a value, with that value's provenance."""
        return op.attach(copy_mutable(self.value), value)


def copy_mutable(value: Any) -> Any:
    """Copy a result that a step could change: a list, dict or set."""
    return deepcopy(value) if isinstance(value, (list, dict, set)) else value


def _digest(key: bytes, raw: bytes, cost: str) -> bytes:
    return blake2b(b"\0".join((key, raw, cost.encode())), digest_size=DIGEST_BYTES).digest()


class Cache:
    """Results under keys; computations of one key at the same time happen once.

    An entry holds only what belongs to a value's identity: it is encoded when it is put, so that provenance
    (`compare=False`) can never reach another question.

    Args:
        database: the file; without one the cache lives in memory.
        entries: how many are kept in memory.
        replace: ignore and replace the entries that the file holds.
        redact: values in which this changes something are kept in memory only.
    """

    needs_fingerprint = True
    salt = b""
    """Goes into the key of each entry."""

    def __init__(
        self,
        database: JournalFile | None = None,
        *,
        entries: int = 10_000,
        replace: bool = False,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self.database, self.entries, self.replace, self.redact = database, entries, replace, redact
        self._entries: OrderedDict[bytes, CacheEntry] = OrderedDict()
        self._claims: dict[bytes, threading.Event] = {}
        self._lock = threading.Lock()  # for both dicts, which the threads of a run share

    def seeded(self, seed: int) -> "Cache":
        """Return a view of this cache with entries of its own, so that what has another seed is computed again."""
        view = copy(self)  # shallow: entries, claims and the file are shared, and the salt keeps the keys apart
        view.salt = str(seed).encode()
        return view

    def get(self, key: bytes) -> CacheEntry | None:
        """Return the entry of a key, if any."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry
        return self._read_entry(key)  # outside the lock: a slow disk must not hold up what is in memory

    def save(
        self,
        key: bytes,
        value: Any,
        usage: Usage,
        *,
        seconds: float = nan,
        comes_back: Callable[[Any], bool] | None = None,
    ) -> None:
        """Keep a result; CodecError if it has no plain form, or would come back changed (`comes_back`)."""
        plain = encode(value)
        entry = CacheEntry(decode(plain, object), usage, seconds=seconds)
        if comes_back is not None and not comes_back(entry.value):
            raise CodecError("the value would come back from the cache changed. Write attach and reads for it.")
        self._keep_entry(key, entry)
        if self.database is not None:
            text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
            # Redacted it would come back changed, so it is kept in memory only.
            if self.redact is not None and redact_json(text, self.redact) != text:
                return
            raw = text.encode("utf-8", "surrogatepass")
            cost = json.dumps(encode(usage))
            row = (key, MARK + _digest(key, raw, cost) + raw, cost, time.time(), len(raw))
            self.database.write(PUT, lambda: [row])

    def claim(self, key: bytes) -> bool:
        """Return whether the caller is to compute this key; otherwise another thread does, see `wait`."""
        with self._lock:
            if key in self._claims:
                return False
            self._claims[key] = threading.Event()
            return True

    def release(self, key: bytes) -> None:
        """Mark the computation as ended, well or not."""
        with self._lock:
            self._claims.pop(key).set()

    def wait(self, key: bytes, timeout_s: float) -> None:
        """Wait until the holder of the key has released it, or the time is over."""
        with self._lock:
            claim = self._claims.get(key)
        if claim is not None:
            claim.wait(timeout_s)

    def prune(self, max_bytes: int) -> None:
        """Drop the oldest entries until the values in the file take less than `max_bytes`."""
        if self.database is not None:
            statement = """DELETE FROM cache WHERE key IN (SELECT key FROM (
                SELECT key, sum(size) OVER (ORDER BY used DESC) AS total FROM cache) WHERE total > ?)"""
            self.database.write(statement, lambda: [(max_bytes,)])

    def _keep_entry(self, key: bytes, entry: CacheEntry) -> None:
        with self._lock:
            self._entries[key] = entry
            if len(self._entries) > self.entries:
                self._entries.popitem(last=False)

    def _read_entry(self, key: bytes) -> CacheEntry | None:
        if self.database is None or self.replace:
            return None
        try:
            rows = self.database.read("SELECT value, usage FROM cache WHERE key = ?", (key,))
            if not rows:
                return None
            value, usage = rows[0]
            if value[:1] == MARK:  # entries of before have no digest
                stored_digest, value = value[1 : 1 + DIGEST_BYTES], value[1 + DIGEST_BYTES :]
                if stored_digest != _digest(key, value, usage):
                    raise ValueError("an entry is not as it was written")
            entry = CacheEntry(decode(json.loads(value), object), decode(json.loads(usage), Usage))
        # damaged, hostile, or of a class that has changed
        except (
            sqlite3.Error,
            SpoliaError,
            ValueError,
            TypeError,
            AttributeError,
            RecursionError,
            MemoryError,
        ) as error:
            self.database.problem = f"{self.database.path} could not be read: {error}"
            return None
        self._keep_entry(key, entry)
        return entry

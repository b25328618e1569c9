"""Results that equal steps share within one run."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from spolia.core.codec import decode, encode
from spolia.core.operator import Operator
from spolia.errors import CodecError
from spolia.journal.cache import Cache, CacheEntry, unshared
from spolia.types import Query, Ranking, Usage, Value

MOST_BYTES = 512 * 2**20


@dataclass(frozen=True)
class SharedEntry(CacheEntry):
    """A result as it is, the value that it was made of, and what the retrievers inside the step found."""

    given: Any = None
    retrievals: Sequence[Ranking] = ()
    plain: dict[str, Any] = field(default_factory=dict)

    def result(self, op: Operator[Any, Any], value: Any) -> Any:
        """The very result for a value of the same provenance; for others what a cache would give, or `CodecError`."""
        if is_same(self.given, value):
            return unshared(self.value)
        if not (op.cached or op.resources or isinstance(value, Query)):
            raise CodecError(f"{op.short} is cheap, and its value was made in another way.")
        if not self.plain:
            bare = decode(encode(self.value), object)
            again = op.attach(bare, self.given)
            if not (again == self.value if op.cached else is_same(again, self.value)):
                raise CodecError(
                    "what another step would be given is not what was made. Write attach and reads for it."
                )
            self.plain["value"] = bare
        return op.attach(unshared(self.plain["value"]), value)


class SharedResults(Cache):
    """Results of one run as they are, in memory, `most_bytes` about; the ones used longest ago are dropped first."""

    needs_fingerprint = False

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        super().__init__()
        self.most_bytes, self.bytes = most_bytes, 0

    def share(self, key: bytes, value: Any, out: Any, usage: Usage, retrievals: Sequence[Ranking]) -> None:
        """Hold the result for a value, with what the retrievers inside the step found."""
        size = bytes_of(out) + bytes_of(value) + sum(map(bytes_of, retrievals)) + 500
        with self._lock:
            if key in self._kept:
                self.bytes -= self._kept.pop(key).size
            self._kept[key] = SharedEntry(unshared(out), usage, size, value, tuple(retrievals))
            self.bytes += size
            while self.bytes > self.most_bytes:
                self.bytes -= self._kept.popitem(last=False)[1].size


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal in their provenance too."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, Value):
        return all(is_same(getattr(one, name), getattr(other, name)) for name in _names(type(one)))  # type: ignore[arg-type]
    return bool(one == other)


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls))


def bytes_of(value: Any) -> int:
    """What a value takes in memory, about; a text that stands in it twice counts twice."""
    if isinstance(value, Value):
        kept: dict[str, Any] = value.__dict__
        if "_bytes" not in kept:
            kept["_bytes"] = 300 + sum(map(bytes_of, list(kept.values())))
        return int(kept["_bytes"])
    whole = sys.getsizeof(value)
    return whole + sum(map(bytes_of, value)) if isinstance(value, (tuple, list)) else whole

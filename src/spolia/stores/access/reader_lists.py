"""Reader lists, each kept once: nodes and indexes hold the number of one, so that a long list costs no more."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from hashlib import blake2b

from spolia.stores.tables import sql
from spolia.stores.truth import Connection
from spolia.types import principals

EVERYBODY = 0
"""The audience of what has no readers."""
_LISTS_KEPT = 1_024

Readers = tuple[str, ...]


class Audiences:
    """Numbers for reader lists, as a writer gives them.

    A number holds for one change only: when that is taken back, another list may get it. How a list is written does not
    change, so that it is sorted and hashed once, however many documents have it.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._written: dict[Readers, tuple[bytes, str]] = {}
        self.begin()

    def begin(self) -> None:
        """Another change begins."""
        self._known: dict[bytes, int] = {}
        self._last: tuple[Sequence[str], int] = ((), EVERYBODY)

    def number(self, readers: Sequence[str]) -> int:
        """The number of a list, whatever its order and repetitions.

        Raises:
            StoreError: it is no list of principals.
        """
        if type(readers) is tuple and not readers:
            return EVERYBODY
        if readers is not self._last[0]:  # nodes of a document have one list, and to look a long one up takes time
            listed = _listed(readers)
            self._last = (readers, self._number(*self._as_written(listed)) if listed else EVERYBODY)
        return self._last[1]

    def digest(self, readers: Sequence[str]) -> bytes:
        """16 bytes that tell a list apart, whatever its order and repetitions."""
        return self._as_written(_listed(readers))[0]

    def _number(self, digest: bytes, written: str) -> int:
        found = self._known.get(digest)
        if found is None:
            row = self.connection.execute(sql.AUDIENCE, (digest,)).fetchone()
            if row is None:
                self.connection.execute(sql.ADD_AUDIENCE, (digest, written))
                row = self.connection.execute(sql.AUDIENCE, (digest,)).fetchone()
            found = self._known[digest] = int(row[0])
        return found

    def _as_written(self, readers: Readers) -> tuple[bytes, str]:
        found = self._written.get(readers)
        if found is None:
            if len(self._written) >= _LISTS_KEPT:
                self._written = {}
            written = _written(_checked(readers))
            found = self._written[readers] = (_digest(written), written)
        return found


def _listed(readers: Sequence[str]) -> Readers:
    return readers if type(readers) is tuple else _checked(readers)


def _checked(readers: Sequence[str]) -> Readers:
    return principals(readers, "A reader list is")


def digest_of_list(readers: Sequence[str]) -> bytes:
    """`Audiences.digest` of a list, without a store."""
    return _digest(_written(readers))


def _written(readers: Sequence[str]) -> str:
    return json.dumps(sorted(set(readers)), ensure_ascii=False)


def _digest(written: str) -> bytes:
    return blake2b(written.encode(), digest_size=16).digest()


class StoredLists(dict[int, Readers]):
    """Reader lists by their numbers, each read when it is asked for."""

    def __init__(self, connection: Connection) -> None:
        super().__init__({EVERYBODY: ()})
        self._connection = connection

    def __missing__(self, number: int) -> Readers:
        (written,) = self._connection.execute(sql.READERS, (number,)).fetchone()
        found = self[number] = tuple(json.loads(written))
        return found


class ReaderLists:
    """The published reader lists of a store. They are never changed, only more are added, so that all snapshots of a
    process share them; a snapshot knows at least those that its rows have.

    Attributes:
        lists: by number.
    """

    def __init__(self) -> None:
        self.lists: dict[int, Readers] = {EVERYBODY: ()}
        self._names: dict[str, str] = {}
        self._numbers: dict[str, list[int]] = {}
        self._last = EVERYBODY
        self._lock = threading.Lock()

    def take_in(self, connection: Connection) -> None:
        """Read the lists that were added since the last time."""
        with self._lock:
            for number, written in connection.execute(sql.AUDIENCES, (self._last,)).fetchall():
                names = tuple(self._names.setdefault(name, name) for name in json.loads(written))
                for name in names:
                    self._numbers.setdefault(name, []).append(number)
                self.lists[number], self._last = names, number

    def open_to(self, access: frozenset[str]) -> frozenset[int]:
        """The audiences to which somebody with these principals belongs; everybody's is one of them."""
        return frozenset((EVERYBODY,)).union(*(self._numbers[name] for name in access if name in self._numbers))

    @property
    def restricted(self) -> bool:
        """Whether anything may be read by some only."""
        return len(self.lists) > 1

"""Reader lists, each kept once: nodes and indexes hold the number of one, so that a long list costs no more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from spolia.stores.tables import sql
from spolia.stores.truth import Connection

EVERYBODY = 0
"""The audience of what has no readers."""


class Audiences:
    """Numbers for reader lists, as a writer gives them.

    A number holds for one change only: when that is taken back, another list may get it.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.begin()

    def begin(self) -> None:
        """Another change begins."""
        self._known: dict[tuple[str, ...], int] = {(): EVERYBODY}

    def number(self, readers: Sequence[str]) -> int:
        """The number of a list, whatever its order and repetitions."""
        found = self._known.get(key := tuple(readers))
        if found is None:
            written = json.dumps(sorted(set(key)), ensure_ascii=False)
            digest = blake2b(written.encode(), digest_size=16).digest()
            self.connection.execute(sql.ADD_AUDIENCE, (digest, written))
            found = self._known[key] = int(self.connection.execute(sql.AUDIENCE, (digest,)).fetchone()[0])
        return found


class ReaderLists:
    """The reader lists of a store, as its readers see them: they are never changed, only more are added."""

    def __init__(self, connection: Connection) -> None:
        rows = connection.execute(sql.AUDIENCES).fetchall()
        self.lists: Mapping[int, tuple[str, ...]] = {EVERYBODY: ()} | {
            number: tuple(json.loads(readers)) for number, readers in rows
        }
        self._open: dict[frozenset[str], frozenset[int]] = {}

    def open_to(self, access: frozenset[str]) -> frozenset[int]:
        """The audiences to which somebody with these principals belongs; everybody's is one of them."""
        found = self._open.get(access)
        if found is None:
            ours = (number for number, readers in self.lists.items() if not readers or not access.isdisjoint(readers))
            found = self._open[access] = frozenset(ours)
        return found

    @property
    def restricted(self) -> bool:
        """Whether anything may be read by some only."""
        return len(self.lists) > 1

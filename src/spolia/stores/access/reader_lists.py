"""Rights to read: reader lists, each stored once under a number, which nodes and indexes hold in place of it."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from spolia.errors import StoreUnavailable
from spolia.stores.backends import sql
from spolia.stores.backends.rows import EVERYBODY, StoreVersion
from spolia.stores.open_store import OpenStore


class ReaderLists:
    """The published reader lists of a store. Lists are only added, so all snapshots of a process share them."""

    def __init__(self) -> None:
        self.lists: dict[int, tuple[str, ...]] = {EVERYBODY: ()}
        self._names: dict[str, str] = {}
        self._numbers: dict[str, list[int]] = {}
        self._last_number = EVERYBODY
        self._lock = threading.Lock()

    def load_new(self, open_store: OpenStore) -> None:
        with self._lock:
            for number, text in open_store.rows(sql.AUDIENCES, (self._last_number,)):
                # Equal names share one string: many lists hold the same ones.
                names = tuple(self._names.setdefault(name, name) for name in json.loads(text))
                for name in names:
                    self._numbers.setdefault(name, []).append(number)
                self.lists[number], self._last_number = names, number

    def audiences_of(self, access: frozenset[str]) -> frozenset[int]:
        """Return the audiences that somebody with these principals belongs to; everybody's is always among them."""
        return frozenset((EVERYBODY,)).union(*(self._numbers[name] for name in access if name in self._numbers))

    @property
    def is_restricted(self) -> bool:
        return len(self.lists) > 1


# Sets of principals whose audiences are kept.
ASKERS_KEPT = 1_024

Changed = Mapping[tuple[str, int], frozenset[int]]
"""By a document and its audience at a generation, the audiences to which one has to belong since."""


@dataclass(frozen=True, eq=False)
class Asker:
    audiences: frozenset[int]
    changed: Changed

    def may_read(self, document: str, audience: int) -> bool:
        """Return whether the asker may read an item with this audience, by the generation's lists and by today's."""
        return audience in self.audiences and self.changed.get((document, audience), self.audiences) <= self.audiences


@dataclass(frozen=True, eq=False)
class _CurrentLists:
    """State of the lists since a version was published; `askers` are those that have asked since then."""

    version: StoreVersion
    changed: Changed
    askers: dict[frozenset[str], Asker] = field(default_factory=dict)


class Rights:
    """Rights to read a generation: indexes use its own lists; a text also needs the lists in force now."""

    def __init__(self, open_store: OpenStore, version: StoreVersion, readers: ReaderLists) -> None:
        self._open_store, self._version, self._readers = open_store, version, readers
        self._current_lists = _CurrentLists(version, {})

    def searchable_audiences(self, access: frozenset[str]) -> frozenset[int] | None:
        """Return the audiences of these principals, for an index; None if everybody may read everything."""
        return self._cached_asker(self._current_lists, access).audiences if self._readers.is_restricted else None

    def asker(self, access: frozenset[str]) -> Asker:
        """Return the asker with these principals, under the lists in force now."""
        return self._cached_asker(self._current(), access)

    @property
    def changed_at(self) -> StoreVersion | None:
        """Return the version since which others may read a document of this generation; None without a change."""
        now = self._current()
        return now.version if now.changed else None

    def _current(self) -> _CurrentLists:
        current = self._current_lists
        published = StoreVersion(*self._open_store.row(sql.PUBLISHED))
        if published != current.version:
            if not self._open_store.was_published(current.version):
                raise StoreUnavailable(
                    f"{self._open_store.store} was restored from a backup during this read. Repeat: a new snapshot "
                    "is taken of it then."
                )
            # New lists are loaded first: the askers of the new state are built from them.
            self._readers.load_new(self._open_store)
            current = self._current_lists = _CurrentLists(published, self._read_changes())
        return current

    def _read_changes(self) -> Changed:
        changed: dict[tuple[str, int], frozenset[int]] = {}
        for document, old_audience, new_audience in self._open_store.rows(
            sql.CHANGED_READERS, {"at": self._version.generation}
        ):
            changed[document, old_audience] = changed.get((document, old_audience), frozenset()) | {new_audience}
        return changed

    def _cached_asker(self, current: _CurrentLists, access: frozenset[str]) -> Asker:
        asker = current.askers.get(access)
        if asker is None:
            # Each new set of principals adds an entry, so the cache is bounded.
            if len(current.askers) >= ASKERS_KEPT:
                current.askers.clear()
            asker = current.askers[access] = Asker(self._readers.audiences_of(access), current.changed)
        return asker

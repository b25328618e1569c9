"""Reader lists, each kept once: nodes and indexes hold the number of one, so that a long list costs no more."""

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
        self._last = EVERYBODY
        self._lock = threading.Lock()

    def take_in(self, opened: OpenStore) -> None:
        with self._lock:
            for number, written in opened.rows(sql.AUDIENCES, (self._last,)):
                names = tuple(self._names.setdefault(name, name) for name in json.loads(written))
                for name in names:
                    self._numbers.setdefault(name, []).append(number)
                self.lists[number], self._last = names, number

    def open_to(self, access: frozenset[str]) -> frozenset[int]:
        """The audiences to which somebody with these principals belongs; everybody's is one of them."""
        return frozenset((EVERYBODY,)).union(*(self._numbers[name] for name in access if name in self._numbers))

    @property
    def restricted(self) -> bool:
        return len(self.lists) > 1


ASKERS_KEPT = 1_024

Changed = Mapping[tuple[str, int], frozenset[int]]
"""By a document and its audience at a generation, the audiences to which one has to belong since."""


@dataclass(frozen=True, eq=False)
class Asker:
    audiences: frozenset[int]
    changed: Changed

    def may_read(self, document: str, audience: int) -> bool:
        """Whether they may read what is of a document and has this audience at the generation, then and now."""
        return audience in self.audiences and self.changed.get((document, audience), self.audiences) <= self.audiences


@dataclass(frozen=True, eq=False)
class _Now:
    """What holds since a version was published; `askers` are those that have asked meanwhile."""

    version: StoreVersion
    changed: Changed
    askers: dict[frozenset[str], Asker] = field(default_factory=dict)


class Rights:
    """Who may read what of a generation: indexes use its lists, a text is fetched by these and by those in force."""

    def __init__(self, opened: OpenStore, version: StoreVersion, readers: ReaderLists) -> None:
        self._opened, self._version, self._readers = opened, version, readers
        self._now = _Now(version, {})

    def narrowed(self, access: frozenset[str]) -> frozenset[int] | None:
        """The audiences that these principals belong to, for an index; None where everything is everybody's."""
        return self._asker(self._now, access).audiences if self._readers.restricted else None

    def asker(self, access: frozenset[str]) -> Asker:
        """Who has these principals, as the lists are now."""
        return self._asker(self._current(), access)

    @property
    def changed_at(self) -> StoreVersion | None:
        """The version by which a list is another one, of a document that can be read here; None where none is."""
        now = self._current()
        return now.version if now.changed else None

    def _current(self) -> _Now:
        now = self._now
        published = StoreVersion(*self._opened.row(sql.PUBLISHED))
        if published != now.version:
            if not self._opened.was_published(now.version):
                raise StoreUnavailable(
                    f"{self._opened.store} was restored from a backup during this read. Repeat: a new snapshot "
                    "is taken of it then."
                )
            self._readers.take_in(self._opened)
            now = self._now = _Now(published, self._changed())
        return now

    def _changed(self) -> Changed:
        found: dict[tuple[str, int], frozenset[int]] = {}
        for document, then, since in self._opened.rows(sql.CHANGED_READERS, {"at": self._version.generation}):
            found[document, then] = found.get((document, then), frozenset()) | {since}
        return found

    def _asker(self, now: _Now, access: frozenset[str]) -> Asker:
        found = now.askers.get(access)
        if found is None:
            if len(now.askers) >= ASKERS_KEPT:
                now.askers.clear()
            found = now.askers[access] = Asker(self._readers.open_to(access), now.changed)
        return found

"""Who may read what of a generation: by the reader lists that it was published with, and by those that hold now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spolia.errors import StoreUnavailable
from spolia.stores.access.reader_lists import ReaderLists
from spolia.stores.opened import OpenStore
from spolia.stores.tables import sql
from spolia.stores.tables.rows import StoreVersion

ASKERS_KEPT = 1_024

Changed = Mapping[tuple[str, int], frozenset[int]]
"""By a document and its audience at a generation, the audiences to which one has to belong since."""


@dataclass(frozen=True, eq=False)
class Asker:
    """Somebody who asks.

    Args:
        audiences: to which they belong; everybody's is one of them.
        changed: the reader lists that others have taken the place of.
    """

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
    """Who may read what of a generation.

    Indexes go by the lists of their generation; what they find is fetched by these and by those that hold now. So a
    reader who was struck off a list reads no more, whatever a run has pinned, and whoever was added to one reads with
    the next run. What was deleted since had its last list.

    Args:
        opened: the store.
        version: that is read.
        readers: all lists of the store, those of the generation at least.
    """

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
                    f"{self._opened.store} was put back from a backup while it was being read. Repeat: a new snapshot "
                    "is taken of it then."
                )
            self._readers.take_in(self._opened.connection)
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

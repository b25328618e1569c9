"""Who may read what the sources of a store hold, as far as a run over them has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

from spolia.types import Document

Readers: TypeAlias = tuple[str, ...]


class Held:
    """The documents that sources hold, and their reader lists.

    A document keeps its id when its list is changed, though the id was made of the list that it had before. So what is
    added with that older list needs another id, or it would give the document its old readers back; and a list is
    changed in place only where one source alone holds the document.

    Args:
        there: reader list of documents that sources hold, and how many hold each, by id.
        ask: the same of a document that is not among them; None for one that no source holds.
    """

    def __init__(
        self, there: Mapping[str, tuple[Readers, int]], ask: Callable[[str], tuple[Readers, int] | None]
    ) -> None:
        self._lists: dict[str, Readers | None] = {id: readers for id, (readers, _) in there.items()}
        self._holders = Counter({id: holders for id, (_, holders) in there.items()})
        self._ask = ask

    def readers(self, id: str) -> Readers:
        """Who may read a document that a source holds."""
        return self._list(id) or ()

    def is_free(self, id: str, readers: Readers) -> bool:
        """Whether a document with this list may have this id: it is new, or that of the same list."""
        return self._list(id) in (None, readers)

    def add(self, document: Document) -> None:
        """Another source is going to hold it."""
        self.change(document.id, document.readers)
        self._holders[document.id] += 1

    def is_shared(self, id: str) -> bool:
        """Whether several sources hold it."""
        return self._list(id) is not None and self._holders[id] > 1

    def change(self, id: str, readers: Readers) -> None:
        """It has another list now."""
        self._list(id)
        self._lists[id] = readers

    def _list(self, id: str) -> Readers | None:
        """As the store had it when it was asked for the first time, with all changes since."""
        if id not in self._lists:
            readers, holders = self._ask(id) or (None, 0)
            self._lists[id], self._holders[id] = readers, holders
        return self._lists[id]

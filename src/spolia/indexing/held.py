"""Who may read what the sources of a store hold, as far as a run over them has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from spolia.types import Document


class Held:
    """The documents that sources hold, and their reader lists.

    A document keeps its id when its list is changed, though the id was made of the list that it had before. So what is
    added with that older list needs another id, or it would give the document its old readers back; and a list is
    changed in place only where one source alone holds the document.

    Args:
        by_source: id and reader list of the document that each source holds, by uri.
    """

    def __init__(self, by_source: Mapping[str, tuple[str, tuple[str, ...]]]) -> None:
        self._by_source = by_source
        self._lists = dict(by_source.values())
        self._holders = Counter(document for document, _ in by_source.values())

    def readers(self, uri: str) -> tuple[str, ...]:
        """Who may read what a source held when the run began."""
        return self._lists[self._by_source[uri][0]]

    def is_free(self, id: str, readers: tuple[str, ...]) -> bool:
        """Whether a document with this list may have this id: it is new, or that of the same list."""
        return self._lists.get(id, readers) == readers

    def add(self, document: Document) -> None:
        """Another source is going to hold it."""
        self._lists[document.id] = document.readers
        self._holders[document.id] += 1

    def is_shared(self, document: str) -> bool:
        """Whether several sources hold it."""
        return self._holders[document] > 1

    def change(self, document: str, readers: tuple[str, ...]) -> None:
        """It has another list now."""
        self._lists[document] = readers

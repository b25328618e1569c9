"""What a source is: it tells what has changed in it since a store looked the last time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from spolia.indexing.files import Lot
from spolia.indexing.readers.reading import Reader
from spolia.stores.tables.rows import Stamp
from spolia.types import Value


class Memory(Protocol):
    """What a store has of a source.

    Attributes:
        cursors: how far it was read, by what that is said of.
        afresh: whether all of it is to be read again.
    """

    @property
    def cursors(self) -> Mapping[str, str]: ...
    @property
    def afresh(self) -> bool: ...

    def stamps(self, uris: list[str]) -> Mapping[str, Stamp]:
        """Of these documents those that are as they should be, unless they have changed at their source."""
        ...

    def is_labelled(self, prefix: str) -> bool:
        """Whether the caller says the same as before of all documents whose uri begins like this."""
        ...

    def uris(self, prefix: str) -> Iterator[str]:
        """All documents whose uri begins like this, in order."""
        ...


@dataclass(frozen=True)
class Source(Value):
    """A place with documents, described by plain data: a file can hold it, and two that say the same are equal.

    What it gives has uris with `://` in them, so that several sources, texts and a folder live in one store.
    """

    @property
    @abstractmethod
    def id(self) -> str:
        """The name under which a store remembers how far it was read."""

    @abstractmethod
    def lots(self, memory: Memory, readers: Mapping[str, Reader]) -> Iterator[Lot]:
        """What has changed, some at a time; each lot is published before the next is asked for.

        Args:
            memory: what the store has of it.
            readers: of formats, by suffix and pattern.

        Raises:
            SourceError: it cannot be read as it is described.
            SourceUnavailable: it cannot be read now. What was given before stays.
        """

"""A plain function as a reader, for files whose names match a pattern."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from spolia.core.function import untold
from spolia.errors import GroupError
from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Document, Value, kept

Reads: TypeAlias = Callable[[Blob], "str | Document | Reading"]


@dataclass(frozen=True)
class FunctionReader(Value):
    """Reads files by a function.

    Args:
        function: takes the `Blob` (its name, bytes, or the file to open) and gives the text, a `Document`, of which all
            but `id` and `uri` count, or a whole `Reading`.
        suffixes: suffixes or patterns of the names that it reads.
        version: count it up when the function gives another text for the same bytes.
        media_type: what its documents are.

    Raises:
        GroupError: for a lambda, or a function that depends on names of the function around it: a store remembers by
            what its documents were read, and could not tell it from another one.

    >>> def shouted(blob: Blob) -> str:
    ...     return blob.data.decode().upper()
    >>> FunctionReader(shouted, ("*.foo",)).read(Blob("a.foo", b"stones")).document.text
    'STONES'
    """

    function: Reads = field(compare=False)
    suffixes: tuple[str, ...]
    version: int = 1
    media_type: str = "text/plain"
    place: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        if reason := untold(self.function):
            raise GroupError(f"A store cannot remember that its documents were read by this function: {reason}")
        object.__setattr__(self, "place", f"{self.function.__module__}:{self.function.__qualname__}")

    @kept
    def name(self) -> str:
        """The function's name; ids of documents end with it."""
        return self.function.__name__

    def read(self, blob: Blob, /) -> Reading:
        found = self.function(blob)
        if isinstance(found, Reading):
            return found.but(document=self._own(found.document, blob))
        if isinstance(found, Document):
            return Reading(self._own(found, blob))
        if isinstance(found, str):
            return Reading(blob.document(self, found))
        raise TypeError(f"{self.name} gave {type(found).__name__}. Give a text, a Document or a Reading.")

    def _own(self, document: Document, blob: Blob) -> Document:
        """The document under the id that says from which bytes and how it was read."""
        own = blob.document(self, "")
        return document.but(id=own.id, uri=own.uri)

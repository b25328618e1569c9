"""What is asked of a search engine of the web."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from spolia.types import Addressed, Value


@dataclass(frozen=True)
class WebResult(Value):
    """A page that an engine has found, in plain text.

    Args:
        url: where it is.
        title: its title.
        text: what the engine quotes of it.
    """

    url: str
    title: str
    text: str


@runtime_checkable
class SearchEngine(Addressed, Protocol):
    """Finds pages of the web.

    Its `fingerprint()` is None where nobody knows what it will find tomorrow, so that nothing that it gives is cached.

    Attributes:
        name: tells it apart from others in traces.
    """

    @property
    def name(self) -> str: ...

    def search(self, query: str, count: int) -> tuple[WebResult, ...]:
        """At most `count` pages, best first.

        Raises:
            SourceUnavailable: the same call may succeed later.
            SourceError: it will not.
        """
        ...

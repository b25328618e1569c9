"""Pages of the web as a source: asked politely, and only for what has changed since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spolia.egress.fetching import LARGEST_BYTES
from spolia.errors import SourceError
from spolia.indexing.files import Lot
from spolia.indexing.readers.reading import Reader
from spolia.indexing.sources.crawling import Crawl
from spolia.indexing.sources.pages import normal
from spolia.indexing.sources.source import Memory, Source


@dataclass(frozen=True)
class WebPages(Source):
    """Pages of the web: those that are named, those that a sitemap lists, and those that they lead to.

    A page that the server says has not changed is not sent again (`ETag`, `Last-Modified`); one that it says is gone
    (404, 410) is removed, and so is one that nothing leads to any more; one that fails stays as it was. `robots.txt` is
    respected, and so is the delay that it asks for. Only public addresses are asked.

    Args:
        start: addresses of pages.
        sitemap: address of a sitemap; what it lists on its own host is read.
        depth: how many links away from the first pages others are read; 0 reads no others.
        below: how the addresses of these others begin; by default like that of the first page up to its last slash.
            They are on the host of the page that leads to them.
        most: number of pages, at most.
        name: under which a store remembers it; by default the first address.
        allow: hosts whose addresses need not be public, as `wiki.internal` or `localhost:8000`.
        headers: sent with every request; `${NAME}` stands for the environment variable.
        delay_s: seconds between two requests to one host; more where `robots.txt` asks for it.
        at_once: number of requests at the same time.
        largest_bytes: of a page.
        timeout_s: without a byte from the server.
        deadline_s: for one page.

    Raises:
        SourceError: an address is none.

    >>> WebPages(("https://example.org/docs/",), depth=2).id
    'web:https://example.org/docs/'
    """

    start: tuple[str, ...] = ()
    sitemap: str = ""
    depth: int = 0
    below: str = ""
    most: int = 1_000
    name: str = ""
    allow: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    delay_s: float = 1.0
    at_once: int = 4
    largest_bytes: int = LARGEST_BYTES
    timeout_s: float = 30.0
    deadline_s: float = 120.0

    def __post_init__(self) -> None:
        addresses = [*self.start, *filter(None, (self.sitemap, self.below))]
        if not self.start and not self.sitemap:
            raise SourceError(
                "No page is named. Write start: [https://HOST/PATH], or sitemap: https://HOST/sitemap.xml."
            )
        for address in addresses:
            if not normal(address):
                raise SourceError(f"{address!r} is no address of a page. Write https://HOST/PATH, without a password.")
        if self.depth < 0 or self.most < 1 or self.at_once < 1 or self.delay_s < 0:
            raise SourceError("A number is too small. Write depth and delay_s from 0, most and at_once from 1.")

    @property
    def id(self) -> str:
        return f"web:{self.name or normal((*self.start, self.sitemap)[0])}"

    @property
    def within(self) -> str:
        """How the addresses of pages begin that are not named."""
        if self.below or not self.start:
            return normal(self.below) if self.below else ""
        first = normal(self.start[0]).partition("?")[0]
        return first[: first.rindex("/") + 1]

    def lots(self, memory: Memory, readers: Mapping[str, Reader]) -> Iterator[Lot]:
        yield from Crawl(self, memory, readers).lots()

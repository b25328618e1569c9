"""Sitemaps (sitemaps.org): lists of pages, and of other lists."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterator

from spolia.egress.fetching import Fetched
from spolia.errors import SourceError
from spolia.indexing.readers.xml_parsing import characters, events
from spolia.indexing.sources.pages import host_of, normal

MOST_SITEMAPS, MOST_LOCATIONS, LARGEST_SITEMAP = 100, 50_000, 60_000_000


def listed(url: str, fetched: Callable[[str], Fetched]) -> Iterator[str]:
    """Addresses of pages that a sitemap lists, and those that it names, on its own host.

    Args:
        fetched: what is at an address.
    """
    todo, seen = deque([url]), set[str]()
    while todo:
        if (at := todo.popleft()) in seen:
            continue
        seen.add(at)
        for is_sitemap, location in locations(_unpacked(fetched(at), at), at):
            if host_of(location) != host_of(url):
                continue
            if not is_sitemap:
                yield location
            elif len(seen) + len(todo) < MOST_SITEMAPS:
                todo.append(location)


def locations(data: bytes, url: str) -> Iterator[tuple[bool, str]]:
    """What a sitemap lists (sitemaps.org): whether it is another sitemap, and its address.

    Raises:
        SourceError: it is no XML that can be read.
    """
    found: list[tuple[bool, str]] = []
    text: list[str] | None = None
    within = ""

    def start(name: str, said: dict[str, str]) -> None:
        nonlocal text, within
        plain = name.rpartition("}")[2]
        if plain in ("url", "sitemap"):
            within = plain
        text = [] if plain == "loc" else text

    def end(name: str) -> None:
        nonlocal text
        if name.rpartition("}")[2] == "loc" and text is not None:
            if (location := normal("".join(text), url)) and len(found) < MOST_LOCATIONS:
                found.append((within == "sitemap", location))
            text = None

    events(characters(data, url).text, url, start, end, lambda words: text.append(words) if text is not None else None)
    if not found and b"<" not in data[:1000]:
        raise SourceError(f"{url} is no sitemap.")
    yield from found


def _unpacked(found: Fetched, url: str) -> bytes:
    """A sitemap as it is before it was packed, which many are."""
    if not found.data.startswith(b"\x1f\x8b"):
        return found.data
    unpacking = zlib.decompressobj(31)
    try:
        data = unpacking.decompress(found.data, LARGEST_SITEMAP)
    except zlib.error as error:
        raise SourceError(f"{url} is damaged: {error}.") from error
    if unpacking.unconsumed_tail:
        raise SourceError(f"{url} unpacks to more than {LARGEST_SITEMAP} bytes, more than a sitemap may have.")
    return data

"""Crawl of web pages: which are fetched, what is remembered of them, and which are gone."""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from spolia.core.environment import without_password
from spolia.egress.download import LARGEST_BYTES, Fetched, fetch
from spolia.egress.retry import retry
from spolia.errors import EgressError, EgressFailed, EgressRefused, SourceError
from spolia.indexing.readers.reader import FileReader
from spolia.indexing.sources.source import ChangeCollector, Memory, Source, with_secrets
from spolia.indexing.sources.web_pages import (
    LARGEST_ROBOTS_BYTES,
    Robots,
    Turns,
    find_links,
    host_of,
    last_modified_s,
    list_sitemap,
    normalize_url,
    page_bytes,
    page_reader,
)
from spolia.indexing.sync.files import SourceChanges
from spolia.stores.backends.rows import Stamp

AT_A_TIME = 64
"""Pages that are published together, at most."""
GONE = (404, 410)


class Crawl:
    """One run over pages; `memory` holds of each page its ETag, the time of its last change, and its links."""

    def __init__(self, source: "WebPages", memory: Memory, readers: Mapping[str, FileReader]) -> None:
        self.source, self.memory, self.readers = source, memory, readers
        self.collector = ChangeCollector(source.id, readers)
        self.bound = {name: with_secrets(value) for name, value in source.headers}
        self.states: dict[str, dict[str, Any]] = {url: json.loads(state) for url, state in memory.cursors.items()}
        self.turns = Turns()
        self.robots: dict[str, Robots | EgressFailed] = {}
        self.seen: dict[str, None] = {}
        self.todo: deque[tuple[str, int]] = deque()
        self.is_whole = True
        """Whether all was seen that is there, so that what was not is gone."""

    def change_batches(self) -> Iterator[SourceChanges]:
        sitemap_urls = (
            list_sitemap(normalize_url(self.source.sitemap), lambda url: self._fetch(url, {}))
            if self.source.sitemap
            else ()
        )
        allowed_urls = [url for url in sitemap_urls if url.startswith(self.source.prefix)]
        for url in (*map(normalize_url, self.source.start), *allowed_urls):
            self._enqueue(url, 0)
        while self.todo:
            batch = [self.todo.popleft() for _ in range(min(len(self.todo), AT_A_TIME))]
            yield self.collector.take_batch(self._read_pages(batch))
        unseen = [url for url in self.states if url not in self.seen] if self.is_whole else []
        self.collector.gone.update(unseen)
        yield self.collector.take_batch(dict.fromkeys(unseen, ""))

    def _enqueue(self, url: str, depth: int) -> None:
        if url not in self.seen:
            if len(self.seen) >= self.source.most:
                self.is_whole = False
                return
            self.seen[url] = None
            self.todo.append((url, depth))

    def _read_pages(self, pages: Sequence[tuple[str, int]]) -> dict[str, str]:
        """Fetch some pages at the same time and collect what they hold; return what to remember of each.

        Of large pages no more are asked for than a lot holds; the others are asked for next.
        """
        allowed = deque((url, depth) for url, depth in pages if self._is_allowed(url))
        stamps = self.memory.stamps([url for url, _ in allowed])
        waiting = deque[tuple[str, int, Future[Fetched | EgressError]]]()
        remembered: dict[str, str] = {}
        with ThreadPoolExecutor(self.source.at_once) as threads:
            try:
                while waiting or (allowed and not self.collector.is_full):
                    while allowed and len(waiting) < 2 * self.source.at_once and not self.collector.is_full:
                        url, depth = allowed.popleft()
                        ask = partial(copy_context().run, self._fetch_page, url, stamps.get(url))
                        waiting.append((url, depth, threads.submit(ask)))
                    url, depth, future = waiting.popleft()
                    self._add_page(url, depth, future.result(), remembered, is_stored=url in stamps)
            except BaseException:  # else leaving the block would first fetch all pages that wait
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        self.todo.extendleft(reversed(allowed))  # reversed twice: the order stays
        return remembered

    def _add_page(
        self, url: str, depth: int, page: Fetched | EgressError, remembered: dict[str, str], *, is_stored: bool
    ) -> None:
        """Collect what a page holds, and enqueue where it leads to."""
        state = self._collect_page(url, page, is_start=depth == 0, is_stored=is_stored)
        if state is not None:
            remembered[url] = json.dumps(state) if state else ""
        for link in (state if state is not None else self.states.get(url, {})).get("links", ()):
            if depth < self.source.depth and link.startswith(self.source.prefix):
                self._enqueue(link, depth + 1)

    def _is_allowed(self, url: str) -> bool:
        rules = self._rules(host_of(url))
        if isinstance(rules, EgressFailed):
            self._fail(url, EgressFailed(f"What its site allows is not known: {rules}"))
        elif not rules.allows(url):
            self.collector.skip(url, "robots.txt of its site asks not to read it.")
            del self.seen[url]  # so that it counts as gone if it was stored
        else:
            return True
        return False

    def _rules(self, host: str) -> Robots | EgressFailed:
        if host not in self.robots:
            try:
                response = self._fetch(f"{host}/robots.txt", {})
                self.robots[host] = Robots(response.data[:LARGEST_ROBOTS_BYTES].decode("utf-8", "replace"))
            except EgressRefused:  # there is none; an address that is not allowed refuses its pages too
                self.robots[host] = Robots()
            except EgressFailed as error:
                self.robots[host] = error
        return self.robots[host]

    def _fetch_page(self, url: str, stamp: Stamp | None) -> Fetched | EgressError:
        state = self.states.get(url, {})
        headers = {}
        # A page that is not sent again must be known in all: its document, and its links where these are followed.
        if stamp is not None and stamp[2] == "indexed" and (not self.source.depth or "links" in state):
            conditions = {"If-None-Match": state.get("etag"), "If-Modified-Since": state.get("modified")}
            headers = {name: value for name, value in conditions.items() if value}
        try:
            return self._fetch(url, headers)
        except EgressError as error:
            return error

    def _fetch(self, url: str, headers: Mapping[str, str]) -> Fetched:
        source, host = self.source, host_of(url)
        rules = self.robots.get(host)
        delay_s = max(source.delay_s, rules.delay_s if isinstance(rules, Robots) else 0.0)

        def ask() -> Fetched:
            self.turns.wait(host, delay_s)
            return fetch(
                url,
                allow=source.allow,
                headers={"User-Agent": "spolia", **headers},
                bound=self.bound,
                origins=[*source.start, *filter(None, [source.sitemap])],
                largest_bytes=source.largest_bytes,
                timeout_s=source.timeout_s,
                deadline_s=source.deadline_s,
            )

        return retry(ask, retries=2)

    def _collect_page(
        self, url: str, page: Fetched | EgressError, *, is_start: bool, is_stored: bool
    ) -> dict[str, Any] | None:
        """Collect what a page holds; return what to remember: nothing if it is gone, None if it has not changed."""
        if isinstance(page, EgressError):
            if page.status not in GONE:
                self._fail(url, page)
                return None
            return self._lose(url, f"The page does not exist ({page.status}).", is_reported=is_start and not is_stored)
        if page.status == 304:
            return None
        if self._is_other(url, page, is_start=is_start):
            return self._lose(
                url, f"It leads to {page.url}, which is read itself or not to be read.", is_reported=is_start
            )
        if (reader := page_reader(page, self.readers)) is None:
            self.collector.unread[page.header("content-type").partition(";")[0] or "without type"] += 1
            return self._lose(url, "", is_reported=False)
        self.collector.add(url, page_bytes(page), last_modified_s(page), reader)
        state: dict[str, Any] = {"etag": page.header("etag"), "modified": page.header("last-modified")}
        if self.source.depth:
            state["links"] = [link for link in find_links(page) if host_of(link) == host_of(page.url)]
        return state

    def _is_other(self, url: str, page: Fetched, *, is_start: bool) -> bool:
        """Return whether a redirect led to a page that is read itself, or out of what is to be read."""
        if (end := normalize_url(page.url)) == url:
            return False
        if end in self.seen:
            return True
        rules = self._rules(host_of(end)) if host_of(end) in self.robots else Robots()
        if not is_start and (host_of(end) != host_of(url) or not end.startswith(self.source.prefix)):
            return True
        self.seen[end] = None
        return isinstance(rules, Robots) and not rules.allows(end)

    def _fail(self, url: str, error: EgressError) -> None:
        self.collector.fail(url, error)
        self.is_whole = False

    def _lose(self, url: str, reason: str, *, is_reported: bool) -> dict[str, Any]:
        self.collector.lose(url)
        if is_reported:
            self.collector.skip(url, reason)
        return {}


@dataclass(frozen=True)
class WebPages(Source):
    """Web pages: named ones, pages of a sitemap, and pages that these link to.

    A page that the server says has not changed is not sent again (`ETag`, `Last-Modified`); one that was deleted
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
        headers: sent to the servers that `start` and `sitemap` name, and to no other that a redirect leads to;
            `${NAME}` stands for the environment variable.
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
            if not normalize_url(address):
                safe_address = without_password(address)
                raise SourceError(
                    f"{safe_address!r} is not a page address. Write https://HOST/PATH, without a password."
                )
        if self.depth < 0 or self.most < 1 or self.at_once < 1 or self.delay_s < 0:
            raise SourceError("A number is too small. Write depth and delay_s from 0, most and at_once from 1.")

    @property
    def id(self) -> str:
        return f"web:{self.name or normalize_url((*self.start, self.sitemap)[0])}"

    @property
    def prefix(self) -> str:
        """Return how the addresses of pages begin that are not named."""
        if self.below or not self.start:
            return normalize_url(self.below) if self.below else ""
        first = normalize_url(self.start[0]).partition("?")[0]
        return first[: first.rindex("/") + 1]

    def change_batches(self, memory: Memory, readers: Mapping[str, FileReader]) -> Iterator[SourceChanges]:
        yield from Crawl(self, memory, readers).change_batches()

"""Items that an HTTP API gives in pages: how they are asked for, and how one page leads to the next."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urljoin

from spolia.core.run_context import check_cancelled
from spolia.egress.download import Fetched, fetch, origin
from spolia.egress.retry import retry
from spolia.errors import DocumentError, EgressError, EgressFailed, SourceError, SourceUnavailable
from spolia.indexing.readers.reader import FileReader
from spolia.indexing.sources.records import RecordCollector, seconds_of, uri_of, value_at
from spolia.indexing.sources.source import Memory, Source, refuse_name, with_secrets, without_secrets
from spolia.indexing.sources.web_pages import normalize_url
from spolia.indexing.sync.files import SourceChanges

CURSOR, PAGE = "{cursor}", "{page}"
_LEFT_OUT = ("headers", "allow", "most_pages", "largest_bytes", "retries", "timeout_s", "deadline_s")
"""Fields that do not change the documents."""
_NEXT = re.compile(r"<([^<>]*)>\s*;[^<>]*?\brel\s*=\s*\"?next\b", re.IGNORECASE)
_STAYS = "Published data stays."


@dataclass(frozen=True)
class APIItems(Source):
    """Items that an HTTP API gives as JSON, each a document with the uri `api://NAME/KEY`.

    With `{cursor}` in the address each run asks only for items that changed since the last one; the cursor
    is the latest time or number that the API has given, so its answer should include items that changed at that very
    moment too. Without it each run reads all items, and removes documents that are not among them.

    Further pages are found at a link or by a token in the answer (`next`), by their number (`{page}` without `next`),
    or by the header `Link`.

    Args:
        name: of the source, in the uris.
        url: address, with `{cursor}` and `{page}` in their places.
        items: path of the list in the answer, as `data.items`; empty where the answer is the list.
        key: path in an item of what tells items apart.
        text: path of the text, or a template: `"{question}\\n\\n{answer.text}"`.
        title: path of the title, or a template.
        metadata: names, each with the path of its value.
        updated: path of what grows when an item is changed: a time or a number.
        deleted: path of the value that says that an item was deleted.
        since: cursor of the first run.
        next: path in the answer of a link to the next page, or of a token that belongs into `{page}`.
        format: of the texts: `.txt`, `.md`, `.html`.
        headers: sent to the server that `url` names and to no other that a redirect or a next page leads to; `${NAME}`
            stands for the environment variable.
        allow: hosts whose addresses need not be public.
        most_pages: in one run.
        largest_bytes: of one page.
        retries: further attempts where the server is overloaded or fails; it is waited for as long as it asks for, at
            most a minute.
        timeout_s: without a byte from the server.
        deadline_s: for one page.

    Raises:
        SourceError: the name or the address is none, or fields do not go together.

    >>> APIItems("faq", "https://example.org/faq?since={cursor}", key="id", text="answer", updated="changed").id
    'api://faq/'
    """

    name: str
    url: str
    key: str
    text: str
    items: str = ""
    title: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    updated: str = ""
    deleted: str = ""
    since: str = ""
    next: str = ""
    format: str = ".txt"
    headers: tuple[tuple[str, str], ...] = ()
    allow: tuple[str, ...] = ()
    most_pages: int = 1_000
    largest_bytes: int = 50_000_000
    retries: int = 3
    timeout_s: float = 30.0
    deadline_s: float = 120.0

    def __post_init__(self) -> None:
        refuse_name(self.name)
        if not normalize_url(self.url.replace(CURSOR, "0").replace(PAGE, "0")):
            raise SourceError(f"{self.url!r} is not an address. Write https://HOST/PATH?since={CURSOR}")
        if CURSOR in self.url and not self.updated:
            raise SourceError(f"The address has {CURSOR}, and nothing says what it is. Write updated: PATH.")

    @property
    def id(self) -> str:
        return f"api://{self.name}/"

    def change_batches(self, memory: Memory, readers: Mapping[str, FileReader]) -> Iterator[SourceChanges]:
        yield from _ItemStream(self, memory, readers).change_batches()


class _ItemStream:
    def __init__(self, source: APIItems, memory: Memory, readers: Mapping[str, FileReader]) -> None:
        self.source, self.memory = source, memory
        self.collector = RecordCollector(source.id, source.format, readers)
        self.bound = {name: with_secrets(value) for name, value in source.headers}
        self.cursor = "" if memory.reread or not memory.is_labelled(source.id) else _read_cursor(memory, source)
        self.latest: Any = None
        self.seen_uris: set[str] | None = set() if CURSOR not in source.url else None
        """Uris of all items, where all are read."""

    def change_batches(self) -> Iterator[SourceChanges]:
        for items in self._fetch_pages():
            for item in items:
                self._add_item(item)
                if self.collector.is_full:
                    # No cursor yet: items may come in any order, and a later page may hold earlier ones.
                    yield self.collector.take_batch({})
        if self.seen_uris is not None:
            unseen = (uri for uri in self.memory.uris(self.source.id) if uri not in self.seen_uris)
            yield from self.collector.lose_all(unseen, {})
        yield self.collector.take_batch(self._cursors())

    def _fetch_pages(self) -> Iterator[list[Any]]:
        """Yield the lists of items, page by page."""
        source, seen_urls = self.source, set[str]()
        page, url = "" if source.next else "1", self._address("" if source.next else "1")
        while url:
            if url in seen_urls:
                raise SourceError(f"{self._description}: its pages lead in a circle, to {url!r} again. {_STAYS}")
            if len(seen_urls) >= source.most_pages:
                raise SourceError(
                    f"{self._description}: it has more than {source.most_pages} pages. "
                    f"Write a larger most_pages. {_STAYS}"
                )
            seen_urls.add(url)
            check_cancelled()
            answer, response = self._fetch_json(url)
            items = value_at(answer, source.items)
            if not isinstance(items, list):
                raise SourceError(
                    f"{self._description}: at {source.items or 'its top'!r} of page {len(seen_urls)} stands "
                    f"{type(items).__name__}, no list. Write items: PATH. {_STAYS}"
                )
            yield items
            page, url = self._next_page(answer, response, items, page)

    def _address(self, page: str) -> str:
        with_cursor = self.source.url.replace(CURSOR, quote(self.cursor or self.source.since, safe=""))
        return with_cursor.replace(PAGE, quote(page, safe=""))

    def _next_page(self, answer: Any, response: Fetched, items: list[Any], page: str) -> tuple[str, str]:
        """Return token or number of the next page, and its address; empty for none."""
        source = self.source
        if source.next:
            token = value_at(answer, source.next)
            if token is None or token is False or token == "":
                return "", ""
            if PAGE in source.url:
                return str(token), self._address(str(token))
            return "", self._resolve_link(str(token), response)
        if PAGE in source.url:
            next_number = str(int(page) + 1)
            return next_number, self._address(next_number) if items else ""
        link = _NEXT.search(response.header("link"))
        return "", self._resolve_link(link[1], response) if link else ""

    def _resolve_link(self, link: str, response: Fetched) -> str:
        """Return a link to the next page, on the named server or the one that answered; only the first gets keys."""
        url = urljoin(response.url, link)
        if not normalize_url(url) or origin(url) not in (origin(self.source.url), origin(response.url)):
            raise SourceError(f"{self._description}: its next page is on another host, {url!r:.200}. {_STAYS}")
        return url

    def _fetch_json(self, url: str) -> tuple[Any, Fetched]:
        source = self.source
        ask = partial(
            fetch,
            url,
            allow=source.allow,
            headers={"Accept": "application/json", "User-Agent": "spolia"},
            bound=self.bound,
            origins=(source.url,),
            largest_bytes=source.largest_bytes,
            timeout_s=source.timeout_s,
            deadline_s=source.deadline_s,
        )
        try:
            response = retry(ask, retries=source.retries)
        except EgressError as error:
            kind = SourceUnavailable if isinstance(error, EgressFailed) else SourceError
            reason = without_secrets(str(error), *(value for _, value in source.headers))
            raise kind(f"{self._description}: {reason} {_STAYS}") from error
        try:
            return json.loads(response.data), response
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"{self._description}: its answer is not JSON ({error}); "
                f"it begins with {response.data[:60]!r}. {_STAYS}"
            ) from error

    @property
    def _description(self) -> str:
        return f"The API of {self.source.name!r}"

    def _add_item(self, item: Any) -> None:
        source = self.source
        try:
            uri = uri_of(source.id, value_at(item, source.key) if value_at(item, source.key) is not None else "")
        except DocumentError as error:
            self.collector.skip(source.id, f"An item has no key at {source.key!r}: {error}")
            return
        changed = value_at(item, source.updated) if source.updated else None
        if changed is not None and (self.latest is None or _order_key(changed) > _order_key(self.latest)):
            self.latest = changed
        if source.deleted and value_at(item, source.deleted):
            self.collector.lose(uri)
            return
        if self.seen_uris is not None:
            self.seen_uris.add(uri)
        self.collector.add_record(uri, partial(value_at, item), source.text, source.title, source.metadata, changed)

    def _cursors(self) -> dict[str, str]:
        if CURSOR not in self.source.url:  # all items are read each time: nothing is to be remembered
            return {}
        latest = self.cursor if self.latest is None else str(self.latest)
        # An answer may hold older items only: the cursor never goes back.
        if self.cursor and self.latest is not None and _order_key(self.cursor) > _order_key(self.latest):
            latest = self.cursor
        return {"": json.dumps([self.source.definition(*_LEFT_OUT), latest]) if latest else ""}


def _order_key(value: Any) -> tuple[float, str]:
    """Return a sort key: by time or number where it is one, else as text."""
    seconds = seconds_of(value)
    if seconds is None:
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            seconds = float("-inf")
    return seconds, str(value)


def _read_cursor(memory: Memory, source: APIItems) -> str:
    definition, latest = json.loads(memory.cursors.get("") or '["", ""]')
    return str(latest) if definition == source.definition(*_LEFT_OUT) else ""

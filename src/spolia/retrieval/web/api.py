"""What the engines have in common that answer over HTTP with JSON."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from spolia.egress.fetching import fetch
from spolia.egress.patience import patiently
from spolia.errors import EgressError, EgressFailed, SourceError, SourceUnavailable
from spolia.retrieval.web.engine import WebResult
from spolia.retrieval.web.markup import plain
from spolia.types import Value

LONGEST_URL = 2_000


class SearchAPI(Value):
    """Base of the addresses of search engines: frozen dataclasses with these fields, which write `request` and `rows`.

    An answer is bounded in size, a page in what is quoted of it; what is no address of the web is left out, and so is a
    page that comes again.

    Fields:
        base_url: where the API is.
        allow: hosts whose addresses need not be public, as `searx.internal` or `localhost:8080`.
        timeout_s: seconds without a byte from it.
        deadline_s: seconds for an answer, with redirects.
        retries: further attempts where it is overloaded or fails.
        largest_bytes: of an answer.
    """

    base_url: str
    allow: tuple[str, ...]
    timeout_s: float
    deadline_s: float
    retries: int
    largest_bytes: int

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise SourceError(f"base_url is {self.base_url!r:.200}, no plain web address. Write https://HOST.")
        if not (self.timeout_s > 0 and self.deadline_s > 0 and self.retries >= 0 and self.largest_bytes > 0):
            raise SourceError(f"{type(self).__name__} has a number that is too small. Write numbers above 0.")

    @property
    def name(self) -> str:
        return f"{type(self).__name__} at {self.base_url}"

    @property
    def scoped(self) -> bool:
        return False

    def fingerprint(self) -> None:
        """Nobody knows what the web holds tomorrow."""

    @abstractmethod
    def request(self, query: str, count: int) -> tuple[str, Mapping[str, str]]:
        """The address to ask, and what goes with the request."""

    @abstractmethod
    def rows(self, answer: Any) -> Iterator[tuple[object, object, object]]:
        """Address, title and quote of each page in an answer; nothing where it has another form."""

    def search(self, query: str, count: int) -> tuple[WebResult, ...]:
        """At most `count` pages, best first.

        Raises:
            SourceUnavailable: it cannot be reached, is overloaded, fell silent or took too long.
            SourceError: it refuses, leads elsewhere, or answers with what is no JSON.
        """
        url, headers = self.request(query, count)
        found: dict[str, WebResult] = {}
        for address, title, quote in self.rows(self._asked(url, headers)):
            if isinstance(address, str) and _is_page(address):
                found.setdefault(address, WebResult(address, plain(title), plain(quote)))
        return tuple(found.values())[:count]

    def _asked(self, url: str, headers: Mapping[str, str]) -> Any:
        ask = partial(
            fetch,
            url,
            allow=self.allow,
            headers={"Accept": "application/json", "User-Agent": "spolia", **headers},
            largest_bytes=self.largest_bytes,
            timeout_s=self.timeout_s,
            deadline_s=self.deadline_s,
        )
        try:
            data = patiently(ask, retries=self.retries).data
        except EgressError as error:
            kind = SourceUnavailable if isinstance(error, EgressFailed) else SourceError
            raise kind(f"{self.name}: {error}") from error
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{self.name}: its answer is no JSON; it begins with {data[:60]!r}.") from error


def listed(answer: Any, *steps: str) -> Iterator[Mapping[str, Any]]:
    """The objects of the list that stands at some place of an answer.

    >>> list(listed({"web": {"results": [{"url": "a"}, 7]}}, "web", "results"))
    [{'url': 'a'}]
    """
    for step in steps:
        answer = answer.get(step) if isinstance(answer, dict) else None
    yield from (row for row in answer if isinstance(row, dict)) if isinstance(answer, list) else ()


def _is_page(address: str) -> bool:
    if len(address) > LONGEST_URL or not address.isprintable():
        return False
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False

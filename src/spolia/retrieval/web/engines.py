"""Search engines of the web: their APIs, and their quotes as plain text."""

import html
import json
import os
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

from spolia.core.environment import without_password
from spolia.core.run_context import note, record_access
from spolia.egress.download import fetch
from spolia.egress.retry import retry
from spolia.errors import EgressError, EgressFailed, SourceError, SourceUnavailable
from spolia.retrieval.web.search import WebResult
from spolia.types import Value

LONGEST = 20_000  # characters of a quote that are looked at
_HIDDEN = re.compile(r"<(script|style)\b.*?(?:</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[/!?a-zA-Z][^<>]*(?:>|\Z)")
_UNWRITABLE = re.compile("[\ud800-\udfff\x00-\x08\x0b-\x1f]")


def plain_text(quote: object) -> str:
    """Turn a quote into plain text: no tags, entities as characters, white space as blanks."""
    if not isinstance(quote, str):
        return ""
    # The engine is not trusted: the expressions never see more than this.
    text = _TAG.sub("", _HIDDEN.sub(" ", quote[:LONGEST]))
    return " ".join(_UNWRITABLE.sub(" ", html.unescape(text)).split())


# Longer addresses are tracking or attacks; browsers and servers cut them at about this length.
LONGEST_URL = 2_000


class SearchAPI(Value):
    """Base of the addresses of search engines: frozen dataclasses with these fields, which write `request` and `rows`.

    An answer is bounded in size, a page in what is quoted of it; invalid addresses and repeated pages are left out.

    Args:
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
            address = without_password(self.base_url)
            raise SourceError(f"base_url is {address!r:.200}, no plain web address. Write https://HOST.")
        if not (self.timeout_s > 0 and self.deadline_s > 0 and self.retries >= 0 and self.largest_bytes > 0):
            raise SourceError(f"{type(self).__name__} has a number that is too small. Write numbers above 0.")

    @property
    def name(self) -> str:
        return f"{type(self).__name__} at {self.base_url}"

    @property
    def scoped(self) -> bool:
        return False

    def fingerprint(self) -> None:
        """Return None: nobody knows what the web holds tomorrow."""

    @abstractmethod
    def request(self, query: str, count: int) -> tuple[str, Mapping[str, str]]:
        """Return the address to ask, and the headers of the request."""

    @abstractmethod
    def rows(self, answer: Any) -> Iterator[tuple[object, object, object]]:
        """Yield address, title and quote of each page in an answer; nothing where it has another form."""

    def search(self, query: str, count: int) -> tuple[WebResult, ...]:
        """Return at most `count` pages, best first; raise SourceUnavailable if the same call may succeed later, else
        SourceError."""
        record_access(self)
        url, headers = self.request(query, count)
        results: dict[str, WebResult] = {}
        for address, title, quote in self.rows(self._fetch_answer(url, headers)):
            if isinstance(address, str) and _is_page(address):
                results.setdefault(address, WebResult(address, plain_text(title), plain_text(quote)))
        return tuple(results.values())[:count]

    def _fetch_answer(self, url: str, headers: Mapping[str, str]) -> Any:
        ask = partial(
            fetch,
            url,
            allow=self.allow,
            headers={"Accept": "application/json", "User-Agent": "spolia"},
            # The key is sent to this origin only, never to where a redirect leads.
            bound=headers,
            origins=(self.base_url,),
            largest_bytes=self.largest_bytes,
            timeout_s=self.timeout_s,
            deadline_s=self.deadline_s,
        )
        try:
            data = retry(ask, retries=self.retries).data
        except EgressError as error:
            kind = SourceUnavailable if isinstance(error, EgressFailed) else SourceError
            raise kind(f"{self.name}: {error}") from error
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{self.name}: its answer is not JSON; it begins with {data[:60]!r}.") from error


def rows_at(answer: Any, *steps: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of the list at some place of an answer."""
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


CHARACTERS, WORDS, PAGES = 400, 50, 20  # what it takes of a query, and the pages that it gives at once


@dataclass(frozen=True)
class Brave(SearchAPI):
    """The address of Brave's web search. It holds no secret: the key is read from the environment at each call.

    A query is cut to the 50 words and 400 characters that it takes, which is recorded. It gives 20 pages at most.

    Args:
        api_key_env: name of the environment variable with the key.
        base_url: where it is.
        allow: hosts whose addresses need not be public.
        timeout_s, deadline_s, retries, largest_bytes: as for every `SearchAPI`.

    Raises:
        SourceError: the address is none; when it is asked, there is no key.

    >>> Brave().name
    'Brave at https://api.search.brave.com'
    """

    api_key_env: str = "BRAVE_API_KEY"
    base_url: str = "https://api.search.brave.com"
    allow: tuple[str, ...] = ()
    timeout_s: float = 10.0
    deadline_s: float = 20.0
    retries: int = 1
    largest_bytes: int = 4_000_000

    def request(self, query: str, count: int) -> tuple[str, Mapping[str, str]]:
        # Read at each call, so that no operator, journal or error message holds the key.
        key = os.environ.get(self.api_key_env, "").strip()
        if not key or not (key.isascii() and key.isprintable()):
            raise SourceError(f"{self.name}: there is no key in {self.api_key_env}. Set that environment variable.")
        short = " ".join(query.split()[:WORDS])[:CHARACTERS]
        if len(short) < len(" ".join(query.split())):
            note(f"{self.name} is asked the first {len(short)} characters of the query.")
        parameters = urlencode({"q": short, "count": min(count, PAGES)})
        return f"{self.base_url.rstrip('/')}/res/v1/web/search?{parameters}", {"X-Subscription-Token": key}

    def rows(self, answer: Any) -> Iterator[tuple[object, object, object]]:
        for row in rows_at(answer, "web", "results"):
            yield row.get("url"), row.get("title"), row.get("description")


@dataclass(frozen=True)
class SearXNG(SearchAPI):
    """The address of a SearXNG server that answers with JSON (`search.formats` in its settings).

    Args:
        base_url: where it is, for example `http://localhost:8080`.
        language: of the pages; empty for all.
        allow, timeout_s, deadline_s, retries, largest_bytes: as for every `SearchAPI`.

    Raises:
        SourceError: the address is none.

    >>> SearXNG("https://searx.example.org").request("pull of the moon", 5)[0]
    'https://searx.example.org/search?q=pull+of+the+moon&format=json'
    """

    base_url: str
    language: str = ""
    allow: tuple[str, ...] = ()
    timeout_s: float = 10.0
    deadline_s: float = 20.0
    retries: int = 1
    largest_bytes: int = 4_000_000

    def request(self, query: str, count: int) -> tuple[str, Mapping[str, str]]:
        parameters = {"q": query, "format": "json"} | ({"language": self.language} if self.language else {})
        return f"{self.base_url.rstrip('/')}/search?{urlencode(parameters)}", {}

    def rows(self, answer: Any) -> Iterator[tuple[object, object, object]]:
        for row in rows_at(answer, "results"):
            yield row.get("url"), row.get("title"), row.get("content")

"""Brave Search: an engine with an index of its own.

https://api-dashboard.search.brave.com/app/documentation/web-search
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from spolia.errors import SourceError
from spolia.retrieval.web.api import SearchAPI, listed
from spolia.surrounding import note

CHARACTERS, WORDS, PAGES = 400, 50, 20
"""What it takes of a query, and the pages that it gives at once."""


@dataclass(frozen=True)
class Brave(SearchAPI):
    """The address of Brave's web search. It holds no secret: the key is read from the environment at each call.

    A query is cut to the 50 words and 400 characters that it takes, which is recorded. It gives 20 pages at most.

    Args:
        api_key_env: name of the environment variable with the key.
        base_url: where it is.
        allow: hosts whose addresses need not be public.
        timeout_s: seconds without a byte from it.
        deadline_s: seconds for an answer, with redirects.
        retries: further attempts where it is overloaded or fails.
        largest_bytes: of an answer.

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
        import os

        key = os.environ.get(self.api_key_env, "").strip()
        if not key or not (key.isascii() and key.isprintable()):
            raise SourceError(f"{self.name}: there is no key in {self.api_key_env}. Set that environment variable.")
        short = " ".join(query.split()[:WORDS])[:CHARACTERS]
        if len(short) < len(" ".join(query.split())):
            note(f"{self.name} is asked the first {len(short)} characters of the query.")
        asked = urlencode({"q": short, "count": min(count, PAGES)})
        return f"{self.base_url.rstrip('/')}/res/v1/web/search?{asked}", {"X-Subscription-Token": key}

    def rows(self, answer: Any) -> Iterator[tuple[object, object, object]]:
        for row in listed(answer, "web", "results"):
            yield row.get("url"), row.get("title"), row.get("description")

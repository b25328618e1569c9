"""SearXNG: an engine that one runs oneself, and that asks others.

https://docs.searxng.org/dev/search_api.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from spolia.retrieval.web.api import SearchAPI, listed


@dataclass(frozen=True)
class SearXNG(SearchAPI):
    """The address of a SearXNG server that answers with JSON (`search.formats` in its settings).

    Args:
        base_url: where it is, for example `http://localhost:8080`.
        language: of the pages; empty for all.
        allow: hosts whose addresses need not be public, as `searx.internal` or `localhost:8080`.
        timeout_s: seconds without a byte from it.
        deadline_s: seconds for an answer, with redirects.
        retries: further attempts where it is overloaded or fails.
        largest_bytes: of an answer.

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
        asked = {"q": query, "format": "json"} | ({"language": self.language} if self.language else {})
        return f"{self.base_url.rstrip('/')}/search?{urlencode(asked)}", {}

    def rows(self, answer: Any) -> Iterator[tuple[object, object, object]]:
        for row in listed(answer, "results"):
            yield row.get("url"), row.get("title"), row.get("content")

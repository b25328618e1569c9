"""The interface of a web search engine."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol, runtime_checkable

from spolia.core.operator import Operator
from spolia.core.type_compatibility import refuse_counts
from spolia.retrieval.group_search import search_text
from spolia.types import Addressed, Hit, Node, Query, Ranking, Value


@dataclass(frozen=True)
class WebResult(Value):
    """A page that an engine has found, in plain text; `text` is what the engine quotes of it."""

    url: str
    title: str
    text: str


@runtime_checkable
class SearchEngine(Addressed, Protocol):
    """Finds pages of the web. `name` tells it apart from others in traces.

    Its `fingerprint()` is None where nobody knows what it will find tomorrow, so that nothing that it gives is cached.
    """

    @property
    def name(self) -> str: ...

    def search(self, query: str, count: int) -> tuple[WebResult, ...]:
        """Return at most `count` pages, best first; raise SourceUnavailable if the same call may succeed later, else
        SourceError."""
        ...


GROUP = "web"


@dataclass(frozen=True)
class WebSearch(Operator[Query, Ranking]):
    """The quotes that a search engine gives of its pages, in its order; score = 1 / rank.

    Each page is a node: the quote is its text, the title its context, its address is `uri`. Filters and readers are
    of stores, and the web has none. Nothing is cached, since the web may say something else tomorrow.

    Args:
        engine: which engine: `SearXNG`, `Brave`, or your own (`SearchEngine`).
        top_k: hits to return, at most.
        source: name of the ranking, for weights when it is fused and for counts of calls.

    Raises:
        QueryError: for an empty query.
        SourceUnavailable: the engine cannot be reached, is overloaded, or fell silent.
        SourceError: it refuses, leads elsewhere, or answers with something else.

    Source: web search beside a corpus as in Yan, Gu, Zhu, Ling, "Corrective retrieval augmented generation", 2024.

    >>> from spolia.retrieval.web.engines import SearXNG
    >>> WebSearch(SearXNG("https://searx.example.org"), top_k=5).short
    "WebSearch(top_k=5, source='web')"
    """

    engine: SearchEngine
    top_k: int = 10
    source: str = "web"

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k")

    def apply(self, value: Query, /) -> Ranking:
        results = self.engine.search(search_text(value), self.top_k)[: self.top_k]
        return Ranking(value, tuple(Hit(_node(page), 1 / rank) for rank, page in enumerate(results, 1)), self.source)


def _node(page: WebResult) -> Node:
    # The id is of the address, so that the same page is the same node in every search.
    id = blake2b(page.url.encode("utf-8", "replace"), digest_size=12).hexdigest()
    return Node(f"web:{id}", page.text, document=page.url, group=GROUP, context=page.title, uri=page.url)

"""Rankings and answers as they are printed: places, quotes, what is cited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spolia.cli.plain import one_line, visible
from spolia.types import Answer, Box, Citation, Hit, Ranking, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import RenderableType
    from rich.padding import Padding

SHOWN_CHARACTERS = 300


def place_of(hit: Hit) -> str:
    """File and page or lines of a hit, for people."""
    node = hit.node
    return Citation("", node.id, node.document, node.uri or node.document, "", node.span).place


def ranking_lines(ranking: Ranking) -> Iterator[RenderableType]:
    """The hits, numbered, each with its place, its score and how its text begins."""
    from rich.text import Text

    for number, hit in enumerate(ranking.hits, start=1):
        place, score = (one_line(place_of(hit)), "bold"), (f"  {hit.score:.3f}", "dim")
        yield Text.assemble((f"{number:>3}  ", "bold cyan"), place, score)
        if hit.node.context:
            yield indented(one_line(hit.node.context, 150), 5, "dim")
        yield indented(one_line(hit.node.text, SHOWN_CHARACTERS), 5)


def citation_lines(answer: Answer) -> Iterator[RenderableType]:
    """What an answer cites: the place, then the passage as it stands there."""
    from rich.text import Text

    for citation in answer.citations:
        yield Text.assemble((f"\n[{visible(citation.marker)}] ", "bold cyan"), (one_line(citation.place), "bold"))
        yield indented(f"“{one_line(citation.quote)}”", 4, "dim")


def indented(text: str, columns: int, style: str = "") -> Padding:
    """A paragraph that begins, and goes on in every line, some columns from the left."""
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(text, style), (0, 0, 0, columns), expand=False)


def hit_data(hit: Hit) -> dict[str, Any]:
    """A hit as plain data."""
    node = hit.node
    where = {"place": place_of(hit), "uri": node.uri, "document": node.document, "node": node.id}
    found = {"score": hit.score, "parts": dict(hit.parts), "text": node.text, "context": node.context}
    return where | {"span": span_data(node.span)} | found


def answer_data(answer: Answer, boxes: Callable[[Citation], Iterable[Box]] = lambda citation: ()) -> dict[str, Any]:
    """An answer as plain data.

    Args:
        boxes: where what is cited stands on its pages.
    """
    from dataclasses import asdict

    return {
        "answer": answer.text,
        "stop_reason": answer.stop_reason,
        "citations": [
            {
                "marker": citation.marker,
                "place": citation.place,
                "uri": citation.uri,
                "document": citation.document,
                "node": citation.node,
                "quote": citation.quote,
                "span": span_data(citation.span),
                "boxes": [asdict(box) for box in boxes(citation)],
            }
            for citation in answer.citations
        ],
    }


def span_data(span: Span | None) -> dict[str, Any] | None:
    """Offsets, pages and lines as plain data."""
    if span is None:
        return None
    return {"start": span.start, "end": span.end, "pages": span.pages, "lines": span.lines}

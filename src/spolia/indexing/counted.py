"""What a person should know of a document's nodes: how many there are, and how they suit the embedder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from spolia.indexing.report import DocumentReport
from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.types import Document, Node

_SAMPLE = 2_000
_KNOWN_SHARE = 0.95
_EMPTY = "It has no text."
_LONG = "chunks are longer than the embedder's window."
_STRANGE = "The embedder knows"


class Counted:
    """Counts a document's nodes and their tokens, as the embedder counts them.

    Args:
        embedder: of the nodes; None where they are searched by words only.
    """

    def __init__(self, embedder: Embedder | SparseEmbedder | None) -> None:
        self.embedder = embedder
        self.nodes = self.tokens = self.beyond_window = 0

    def over(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """Count nodes as they pass."""
        for node in nodes:
            self.count([node])
            yield node

    def count(self, nodes: Sequence[Node]) -> None:
        """Count nodes."""
        self.nodes += len(nodes)
        if self.embedder is not None:
            lengths = self.embedder.tokens([node.indexed_text for node in nodes])
            self.tokens += sum(lengths)
            self.beyond_window += sum(tokens > self.embedder.window for tokens in lengths)

    def on(self, report: DocumentReport, document: Document) -> DocumentReport:
        """A document's report with these numbers in the place of those that it had."""
        kept = (said for said in report.warnings if not _is_of_nodes(said))
        return report.but(
            chunks=self.nodes,
            tokens=self.tokens if self.embedder else None,
            beyond_window=self.beyond_window,
            warnings=(*kept, *self._warnings(document, report.parts)),
        )

    def _warnings(self, document: Document, parts: int) -> Iterator[str]:
        if not self.nodes and not parts:
            yield _EMPTY
        if self.embedder is None:
            return
        if self.beyond_window:
            yield f"{self.beyond_window} of {self.nodes} {_LONG}"
        if (known := self.embedder.covers(document.text[:_SAMPLE])) < _KNOWN_SHARE:
            yield f"{_STRANGE} {known:.0%} of its characters; words are the better way to search it."


def _is_of_nodes(warning: str) -> bool:
    return warning == _EMPTY or warning.endswith(_LONG) or warning.startswith(_STRANGE)

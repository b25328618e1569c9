"""Showing what a metadata field holds in place of the text that was found."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.operator import Operator
from spolia.post_retrieval.shown import showing
from spolia.types import Hit, Ranking


@dataclass(frozen=True)
class WindowReplacement(Operator[Ranking, Ranking]):
    """Show the window around each hit, as a metadata field holds it, in place of the hit's text.

    For corpora that were cut into sentences elsewhere and keep the text around each beside it. `SentenceWindow` reads
    that from the store instead. A hit without the field stays as it is. Citations point to the hit.

    Args:
        field: name of the metadata field.

    Source: `window_replacement` in Kim et al., "AutoRAG: Automated Framework for optimization of Retrieval Augmented
    Generation Pipeline", 2024.

    >>> from spolia.types import Node, Query
    >>> node = Node("n", "It rises.", meta=(("window", "Ships wait for the tide. It rises."),))
    >>> (hit,) = WindowReplacement()(Ranking(Query("tide"), (Hit(node, 1.0),)))
    >>> hit.node.text, hit.found[0].text
    ('Ships wait for the tide. It rises.', 'It rises.')
    """

    field: str = "window"

    def apply(self, value: Ranking, /) -> Ranking:
        return value.but(hits=tuple(map(self._shown, value.hits)))

    def _shown(self, hit: Hit) -> Hit:
        window = next((str(value) for name, value in hit.node.meta if name == self.field and value), "")
        return showing(hit, window) if window else hit

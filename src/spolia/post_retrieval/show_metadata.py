"""Metadata in what a reader is shown."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.operator import Operator
from spolia.stores.reading.described import described
from spolia.types import Hit, Ranking


@dataclass(frozen=True)
class ShowMetadata(Operator[Ranking, Ranking]):
    """Put metadata above the text that a reader is shown, a line `name: value` for each field; it is never quoted.

    It was not searched. `AttachMetadata` puts it into what is searched as well.

    Args:
        fields: which, in this order; one that a node does not have is left out.

    >>> from spolia.types import Node, Query
    >>> node = Node("n", "Stones were reused.", context="Rome", meta=(("year", 1999), ("author", "Ann")))
    >>> (hit,) = ShowMetadata(("author", "year"))(Ranking(Query("reuse"), (Hit(node, 1.0),)))
    >>> hit.node.shown_text
    'Rome\\nauthor: Ann\\nyear: 1999\\nStones were reused.'
    """

    fields: tuple[str, ...]

    def apply(self, value: Ranking, /) -> Ranking:
        return value.but(hits=tuple(map(self._shown, value.hits)))

    def _shown(self, hit: Hit) -> Hit:
        node = hit.node
        context = "\n".join(filter(None, (node.context, described(node.meta, self.fields))))
        return hit.but(node=node.but(context=context))

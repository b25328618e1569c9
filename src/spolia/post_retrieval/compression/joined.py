"""One hit in the place of several."""

from __future__ import annotations

from collections.abc import Sequence

from spolia.types import Hit, Node


def joined(hits: Sequence[Hit], text: str) -> Hit:
    """A text that was made of some hits, as a hit: with the best one's id and score; citations point to all of them.

    >>> hit = joined([Hit(Node("a", "One."), 2.0), Hit(Node("b", "Two."), 1.0)], "One and two.")
    >>> hit.node.id, hit.node.text, hit.score, [node.id for node in hit.found]
    ('a', 'One and two.', 2.0, ['a', 'b'])
    """
    found = dict.fromkeys(node for hit in hits for node in hit.found or (hit.node,))
    best = hits[0]
    node = Node(best.node.id, text, best.node.document, best.node.group, uri=best.node.uri)
    return Hit(node, best.score, best.parts, tuple(found))

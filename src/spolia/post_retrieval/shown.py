"""What was found, where something else is shown in its place."""

from __future__ import annotations

from collections.abc import Iterator

from spolia.types import Hit, Node


def found_in(shown: Node, hit: Hit) -> Iterator[Node]:
    """What a citation of `shown` points to: the smaller stretches of its document that were found in it.

    >>> from spolia.types import Span
    >>> whole = Node("n", "One. Two.", "d", span=Span(0, 9))
    >>> [node.text for node in found_in(whole, Hit(Node("s", "Two.", "d", span=Span(5, 9)), 1.0))]
    ['Two.']
    >>> list(found_in(whole, Hit(Node("q", "What?", "d", span=Span(0, 9)), 1.0)))
    []
    """
    for node in hit.found or (hit.node,):
        if is_cut(node) and _holds(shown, node):
            yield node


def is_cut(node: Node) -> bool:
    """Whether its text is a stretch of its document, not written about one."""
    return node.span is not None and node.span.end - node.span.start == len(node.text)


def _holds(large: Node, small: Node) -> bool:
    if large.span is None or small.span is None or large.document != small.document:
        return False
    inside = large.span.start <= small.span.start and small.span.end <= large.span.end
    return inside and len(small.text) < len(large.text)


def showing(hit: Hit, text: str, parts: tuple[Node, ...] = ()) -> Hit:
    """The hit with another text shown in the place of its node's; citations point to what was found all the same.

    Args:
        parts: the stretches of the node that the text is made of, where that is known.

    >>> hit = showing(Hit(Node("n", "One. Two."), 1.0), "Two.")
    >>> hit.node.text, [node.text for node in hit.found]
    ('Two.', ['One. Two.'])
    """
    return hit.but(node=hit.node.but(text=text, search_text=""), found=parts or hit.found or (hit.node,))

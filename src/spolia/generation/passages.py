"""Which passages of a ranking stand in a prompt, and how."""

from __future__ import annotations

from spolia.surrounding import note
from spolia.types import Citation, Node, Ranking


def fitting(ranking: Ranking, passages: int, characters: int) -> Ranking:
    """The best passages that fit together; the first one in any case.

    >>> from spolia.types import Hit, Query
    >>> found = Ranking(Query("?"), tuple(Hit(Node(text, text), 1.0) for text in ("aaaa", "bbbb", "cccc")))
    >>> [node.text for node in fitting(found, 5, 9).nodes]
    ['aaaa', 'bbbb']
    """
    best = ranking.cut(passages)
    room = characters
    for number, node in enumerate(best.nodes):
        room -= len(node.shown_text)
        if room < 0:
            return best.cut(max(1, number))
    return best


def numbered(number: int, node: Node, characters: int) -> str:
    """A passage with its number and its place, cut where it is longer than a prompt may be."""
    text = node.shown_text
    if len(text) > characters:
        note(
            f"Passage {number} has {len(text)} characters; the prompt holds the first {characters}. "
            "Write a larger max_characters, or split the documents into smaller pieces."
        )
        text = text[:characters]
    place = " ".join(cited(number, node).place.split())  # a file name may hold line breaks
    return f"[{number}] {place}\n{text}" if place else f"[{number}] {text}"


def cited(number: int, node: Node) -> Citation:
    """The citation of a whole passage."""
    return Citation(str(number), node.id, node.document, node.uri, node.text, node.span)

"""How flows show passages to a model, and cite those that its reply names."""

from spolia.generation.prompt import cited, fitting, numbered
from spolia.models.parsers.tags import Markers
from spolia.types import Answer, Query, Ranking

Places = dict[str, str | tuple[str, ...]]
"""What a prompt shows, by place."""

CHARACTERS = 20_000
"""Of all passages in a prompt together."""


def shown(found: Ranking, best_last: bool = False) -> tuple[str, ...]:
    """The passages that fit into a prompt, numbered by rank, each with its place."""
    texts = numbered(fitting(found, len(found) or 1, CHARACTERS), CHARACTERS)
    return texts[::-1] if best_last else texts


def citing(said: str, found: Ranking) -> Answer:
    """The answer that a reply is: its marks `[1]` become citations of the passages that were shown.

    >>> from spolia.types import Hit, Node
    >>> found = Ranking(Query("Who?"), (Hit(Node("n", "Olsen.", uri="a.txt"), 1.0),))
    >>> citing("Olsen [1][7]", found).citations[0].uri, citing("Olsen [1][7]", found).text
    ('a.txt', 'Olsen [1]')
    """
    marks = Markers(len(found))
    text = marks.feed(said) + marks.end()
    citations = tuple(cited(number, found.nodes[number - 1]) for number in marks.used)
    return Answer(text, citations, evidence=found, faults=marks.faults())


def nothing(query: Query) -> Ranking:
    """No passage yet."""
    return Ranking(query, ())

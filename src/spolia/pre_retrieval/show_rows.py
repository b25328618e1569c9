"""Rows as evidence."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.operator import Operator
from spolia.stores.outside.rows import Rows
from spolia.types import Hit, Node, Query, Ranking


@dataclass(frozen=True)
class ShowRows(Operator[Rows, Ranking]):
    """The rows of a database as one passage: the table, with the statement above it as its source.

    What a statement found nothing for is a passage too, that says so. Without a statement there is no hit.

    Args:
        source: name of the ranking, for weights when it is fused.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024, query
    construction.

    >>> rows = Rows(("born",), ((1968,),), "SELECT born FROM person", query=Query("When?"), uri="people.db")
    >>> found = ShowRows()(rows)
    >>> print(found.nodes[0].text)
    | born |
    |---|
    | 1968 |
    >>> found.nodes[0].context, found.nodes[0].uri
    ('SELECT born FROM person', 'people.db')
    """

    source: str = "rows"

    def apply(self, value: Rows, /) -> Ranking:
        query = value.query or Query("")
        if not value.statement:
            return Ranking(query, (), self.source)
        more = "\n(There are more rows.)" if value.cut else ""
        text = value.written() + more if value.rows else "(The statement found no rows.)"
        id = f"rows-{value.but(query=None).digest.hex()}"
        return Ranking(
            query, (Hit(Node(id, text, id, "rows", context=value.statement, uri=value.uri), 1.0),), self.source
        )

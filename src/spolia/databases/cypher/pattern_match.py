"""The ways in which patterns are in a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from spolia.databases.cypher.functions import compared
from spolia.databases.cypher.meter import Meter
from spolia.databases.cypher.syntax import Expression, LinkPattern, NodePattern, Pattern, Wanted
from spolia.databases.property_graph import Entity, PropertyGraph, Relation
from spolia.errors import StatementError

Row = dict[str, Any]
Used = frozenset[Relation]


class Matcher:
    """Finds patterns by going along the relationships of a graph; no relationship twice within one MATCH."""

    def __init__(self, graph: PropertyGraph, meter: Meter) -> None:
        self.graph, self.meter = graph, meter
        self.value: Callable[[Expression, Row], Any] = lambda of, row: None

    def found(self, patterns: tuple[Pattern, ...], row: Row, used: Used = frozenset()) -> Iterator[Row]:
        """The row with the variables of the patterns, once for each way."""
        if not patterns:
            yield row
            return
        for further, taken in self._begun(patterns[0], row, used):
            yield from self.found(patterns[1:], further, taken)

    def _begun(self, pattern: Pattern, row: Row, used: Used) -> Iterator[tuple[Row, Used]]:
        first = pattern.nodes[0]
        bound = row.get(first.name) if first.name else None
        if first.name in row and not isinstance(bound, Entity):
            if bound is not None:
                raise StatementError(f"{first.name!r} is no node. Write another name for the node.")
            return
        for entity in (bound,) if isinstance(bound, Entity) else self.graph.entities:
            self.meter.step()
            if self._fits(first, entity, row):
                yield from self._further(pattern, 0, entity, _with(row, first.name, entity), used)

    def _further(self, pattern: Pattern, at: int, entity: Entity, row: Row, used: Used) -> Iterator[tuple[Row, Used]]:
        """From the node at a place of the pattern along its links."""
        if at == len(pattern.links):
            yield row, used
            return
        link, node = pattern.links[at], pattern.nodes[at + 1]
        for path, end in self._paths(link, entity, row, used):
            if node.name in row and row[node.name] != end:
                continue
            if self._fits(node, end, row):
                held = path if link.lengths else path[0]
                further = _with(_with(row, link.name, held), node.name, end)
                yield from self._further(pattern, at + 1, end, further, used | frozenset(path))

    def _paths(
        self, link: LinkPattern, entity: Entity, row: Row, used: Used
    ) -> Iterator[tuple[list[Relation], Entity]]:
        """Relationships in a row that a link stands for, with the node at their end."""
        least, most = link.lengths or (1, 1)
        open_: list[tuple[list[Relation], Entity]] = [([], entity)]
        while open_:
            path, end = open_.pop()
            if len(path) >= least:
                yield path, end
            if len(path) < most:
                found = list(self.graph.around(end.id, link.direction))
                for relation, other in reversed(found):
                    self.meter.step()
                    if self._links(link, relation, row) and relation not in used and relation not in path:
                        open_.append(([*path, relation], other))

    def _fits(self, node: NodePattern, entity: Entity, row: Row) -> bool:
        return set(node.labels) <= set(entity.labels) and self._holds(node.properties, entity, row)

    def _links(self, link: LinkPattern, relation: Relation, row: Row) -> bool:
        return (not link.types or relation.type in link.types) and self._holds(link.properties, relation, row)

    def _holds(self, wanted: Wanted, holder: Entity | Relation, row: Row) -> bool:
        has = dict(holder.properties)
        return all(compared("=", has.get(key), self.value(of, row)) is True for key, of in wanted)


def _with(row: Row, name: str, value: Any) -> Row:
    return {**row, name: value} if name else row

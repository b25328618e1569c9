"""Nodes with labels, relationships with types, and properties of both: a knowledge graph in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from spolia.errors import StoreError
from spolia.types import Scalar, Value, kept

Properties = tuple[tuple[str, Scalar], ...]


@dataclass(frozen=True)
class Entity(Value):
    """A node of a graph: its id, its labels, its properties."""

    id: str
    labels: tuple[str, ...] = ()
    properties: Properties = ()

    @property
    def name(self) -> str:
        """Its property `name` or `title`, else its id."""
        found = dict(self.properties)
        return str(found.get("name") or found.get("title") or self.id)


@dataclass(frozen=True)
class Relation(Value):
    """A relationship of a graph, from one node to another."""

    type: str
    start: str
    end: str
    properties: Properties = ()


@dataclass(frozen=True)
class PropertyGraph(Value):
    """All nodes and relationships.

    Raises:
        StoreError: two nodes of one id, or a relationship of a node that is not there.

    >>> graph = PropertyGraph((Entity("o", ("Person",)), Entity("n", ("Firm",))), (Relation("WORKS_AT", "o", "n"),))
    >>> [(relation.type, other.id) for relation, other in graph.around("n", -1)]
    [('WORKS_AT', 'o')]
    """

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...] = ()

    def __post_init__(self) -> None:
        if len(self.by_id) < len(self.entities):
            raise StoreError("Two nodes of the graph have one id. Give every node its own.")
        for relation in self.relations:
            if missing := {relation.start, relation.end} - self.by_id.keys():
                raise StoreError(
                    f"{relation!r:.100} is of the node {min(missing)!r}, which is not there. Add the node."
                )

    @classmethod
    def of(cls, plain: Any) -> PropertyGraph:
        """The graph that plain data describe; see `GraphFile`."""
        try:
            nodes = [(str(one["id"]), one.get("labels", ()), one.get("properties", {})) for one in plain["nodes"]]
            links = [(one["type"], one["from"], one["to"], one.get("properties", {})) for one in plain["relationships"]]
            return cls(
                tuple(Entity(id, tuple(map(str, labels)), _properties(held)) for id, labels, held in nodes),
                tuple(Relation(str(kind), str(a), str(b), _properties(held)) for kind, a, b, held in links),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                f"This describes no graph ({type(error).__name__}: {error}). Write "
                '{"nodes": [{"id", "labels", "properties"}], "relationships": [{"type", "from", "to", "properties"}]}.'
            ) from error

    @kept
    def by_id(self) -> Mapping[str, Entity]:
        return {entity.id: entity for entity in self.entities}

    @kept
    def _out(self) -> Mapping[str, tuple[Relation, ...]]:
        return _grouped((relation.start, relation) for relation in self.relations)

    @kept
    def _in(self) -> Mapping[str, tuple[Relation, ...]]:
        return _grouped((relation.end, relation) for relation in self.relations)

    @kept
    def types(self) -> tuple[str, ...]:
        """Types of relationships, by name."""
        return tuple(sorted({relation.type for relation in self.relations}))

    def around(self, id: str, direction: int = 0) -> Iterator[tuple[Relation, Entity]]:
        """Relationships of a node, with the node at their other end.

        Args:
            direction: 1 for those that begin at it, -1 for those that end there, 0 for both.
        """
        if direction >= 0:
            for relation in self._out.get(id, ()):
                yield relation, self.by_id[relation.end]
        if direction <= 0:
            for relation in self._in.get(id, ()):
                if direction or relation.start != relation.end:
                    yield relation, self.by_id[relation.start]


@lru_cache(maxsize=8)
def read_graph(path: str, mtime_ns: int, size: int) -> PropertyGraph:
    """The graph in a file, read once for each of its states."""
    try:
        return PropertyGraph.of(json.loads(Path(path).read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} holds no JSON ({error}). Write nodes and relationships in JSON.") from error


def _grouped(pairs: Iterable[tuple[str, Relation]]) -> Mapping[str, tuple[Relation, ...]]:
    found: dict[str, list[Relation]] = {}
    for key, relation in pairs:
        found.setdefault(key, []).append(relation)
    return {key: tuple(relations) for key, relations in found.items()}


def _properties(plain: Mapping[str, Any]) -> Properties:
    kinds = (str, int, float, bool, type(None))
    return tuple((str(key), value if isinstance(value, kinds) else json.dumps(value)) for key, value in plain.items())

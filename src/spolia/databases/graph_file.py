"""A property graph in a file of JSON, which is asked in Cypher."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from spolia.core.run_context import reach
from spolia.databases import cypher
from spolia.databases.database import SAMPLES, QueryLimits, QueryRows, ask_worker
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
    """All nodes and relationships. StoreError if two nodes share an id, or a relationship lacks a node.

    >>> graph = PropertyGraph((Entity("o", ("Person",)), Entity("n", ("Firm",))), (Relation("WORKS_AT", "o", "n"),))
    >>> [(relation.type, other.id) for relation, other in graph.around("n", -1)]
    [('WORKS_AT', 'o')]
    """

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...] = ()

    def __post_init__(self) -> None:
        known = self.by_id
        if len(known) < len(self.entities):
            raise StoreError("Two nodes of the graph have one id. Give every node its own.")
        for relation in self.relations:
            for id in (relation.start, relation.end):
                if id not in known:
                    raise StoreError(f"{relation!r:.100} is of the node {id!r}, which is not there. Add the node.")

    @classmethod
    def of(cls, plain: Any) -> "PropertyGraph":
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
        """Relationships of a node with the node at their other end: those out of it (1), into it (-1) or both (0)."""
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
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}). Write the path of a graph.") from error
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


_KINDS = 100


@dataclass(frozen=True)
class GraphFile(Value):
    """A knowledge graph in a file of JSON, which is asked in a reading subset of Cypher (needs the extra `graph`).

    The file holds `{"nodes": [{"id", "labels", "properties"}], "relationships": [{"type", "from", "to",
    "properties"}]}`. It is read again when it changes. `spolia.databases.cypher` says what can be asked.

    Args:
        path: the file.

    >>> GraphFile("people.json").language
    'Cypher'
    """

    path: str

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False
    language: ClassVar[str] = "Cypher"

    @property
    def place(self) -> str:
        return self.path

    def fingerprint(self) -> str | None:
        try:
            found = Path(self.path).expanduser().stat()
        except OSError:
            return None
        return f"{found.st_mtime_ns}-{found.st_size}"

    def graph(self) -> PropertyGraph:
        """The graph as the file has it now.

        Raises:
            StoreError: the file does not exist, or has no graph in it.
        """
        reach(self)
        return read_graph(*self._state)

    @property
    def _state(self) -> tuple[str, int, int]:
        try:
            found = Path(self.path).expanduser().stat()
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read ({error.strerror}). Write the path of a graph.") from error
        return str(Path(self.path).expanduser().absolute()), found.st_mtime_ns, found.st_size

    def described(self) -> str:
        return described(self.graph())

    def ask(self, statement: str, limits: QueryLimits) -> QueryRows:
        reach(self)
        state = self._state
        self.graph()  # says what is wrong with the file
        return ask_worker(
            cypher.ask, *state, statement=statement, limits=limits, load=(cypher.load, *state), alone=True
        )


def described(graph: PropertyGraph) -> str:
    """What there is in a graph: labels with their properties and some names, and which types link which labels.

    >>> from spolia.databases.graph_file import Entity, Relation
    >>> firm = Entity("n", ("Firm",), (("name", "Nokia"), ("since", 1865)))
    >>> graph = PropertyGraph((Entity("o", ("Person",), (("name", "Olsen"),)), firm), (Relation("WORKS_AT", "o", "n"),))
    >>> print(described(graph))
    (:Firm {name, since}), for example Nokia
    (:Person {name}), for example Olsen
    (:Person)-[:WORKS_AT]->(:Firm)
    """
    properties: dict[str, dict[str, None]] = {}
    names: dict[str, list[str]] = {}
    for entity in graph.entities:
        for label in entity.labels:
            properties.setdefault(label, {}).update(dict.fromkeys(key for key, _ in entity.properties))
            names.setdefault(label, []).append(entity.name)
    links = Counter(
        f"(:{':'.join(graph.by_id[r.start].labels)})-[:{r.type}{_held(r.properties)}]->(:{':'.join(graph.by_id[r.end].labels)})"
        for r in graph.relations
    )
    lines = [
        f"(:{label} {{{', '.join(held)}}}), for example {', '.join(names[label][:SAMPLES])}"
        for label, held in sorted(properties.items())
    ]
    return "\n".join([*lines[:_KINDS], *(link for link, _ in sorted(links.most_common(_KINDS)))])


def _held(properties: tuple[tuple[str, object], ...]) -> str:
    return f" {{{', '.join(key for key, _ in properties)}}}" if properties else ""

"""Property graphs in JSON files, queried in Cypher."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from spolia.core.run_context import record_access
from spolia.databases import cypher
from spolia.databases.database import SAMPLES, QueryLimits, QueryRows, ask_worker
from spolia.errors import StoreError
from spolia.types import Scalar, Value, lazy_property

Properties = tuple[tuple[str, Scalar], ...]


@dataclass(frozen=True)
class Entity(Value):
    """A node of a graph: its id, its labels, its properties."""

    id: str
    labels: tuple[str, ...] = ()
    properties: Properties = ()

    @property
    def name(self) -> str:
        """Return its property `name` or `title`, else its id."""
        properties = dict(self.properties)
        return str(properties.get("name") or properties.get("title") or self.id)


@dataclass(frozen=True)
class Relation(Value):
    """A relationship of a graph, from one node to another."""

    type: str
    start: str
    end: str
    properties: Properties = ()


@dataclass(frozen=True)
class PropertyGraph(Value):
    """A graph of nodes and relationships. StoreError if two nodes share an id, or a relationship lacks a node.

    >>> graph = PropertyGraph((Entity("o", ("Person",)), Entity("n", ("Firm",))), (Relation("WORKS_AT", "o", "n"),))
    >>> [(relation.type, other.id) for relation, other in graph.neighbours("n", -1)]
    [('WORKS_AT', 'o')]
    """

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...] = ()

    def __post_init__(self) -> None:
        entities_by_id = self.by_id
        if len(entities_by_id) < len(self.entities):
            raise StoreError("Two nodes of the graph have one id. Give every node its own.")
        for relation in self.relations:
            for id in (relation.start, relation.end):
                if id not in entities_by_id:
                    raise StoreError(f"{relation!r:.100} is of the node {id!r}, which is not there. Add the node.")

    @classmethod
    def from_plain(cls, plain: Any) -> "PropertyGraph":
        """Build the graph that plain data describe; see `GraphFile`."""
        try:
            nodes = [
                (str(entry["id"]), entry.get("labels", ()), entry.get("properties", {})) for entry in plain["nodes"]
            ]
            links = [
                (entry["type"], entry["from"], entry["to"], entry.get("properties", {}))
                for entry in plain["relationships"]
            ]
            return cls(
                tuple(Entity(id, tuple(map(str, labels)), _properties(properties)) for id, labels, properties in nodes),
                tuple(Relation(str(kind), str(a), str(b), _properties(properties)) for kind, a, b, properties in links),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                f"This describes no graph ({type(error).__name__}: {error}). Write "
                '{"nodes": [{"id", "labels", "properties"}], "relationships": [{"type", "from", "to", "properties"}]}.'
            ) from error

    @lazy_property
    def by_id(self) -> Mapping[str, Entity]:
        return {entity.id: entity for entity in self.entities}

    @lazy_property
    def _out(self) -> Mapping[str, tuple[Relation, ...]]:
        return _group_by_key((relation.start, relation) for relation in self.relations)

    @lazy_property
    def _in(self) -> Mapping[str, tuple[Relation, ...]]:
        return _group_by_key((relation.end, relation) for relation in self.relations)

    @lazy_property
    def types(self) -> tuple[str, ...]:
        """Return the types of relationships, sorted by name."""
        return tuple(sorted({relation.type for relation in self.relations}))

    def neighbours(self, id: str, direction: int = 0) -> Iterator[tuple[Relation, Entity]]:
        """Yield the relationships of a node, each with its other end: out of it (1), into it (-1) or both (0)."""
        if direction >= 0:
            for relation in self._out.get(id, ()):
                yield relation, self.by_id[relation.end]
        if direction <= 0:
            for relation in self._in.get(id, ()):
                if direction or relation.start != relation.end:  # one from a node to itself was given above
                    yield relation, self.by_id[relation.start]


@lru_cache(maxsize=8)
def read_graph(path: str, mtime_ns: int, size: int) -> PropertyGraph:
    """Read the graph in a file, once for each state of the file."""
    try:
        return PropertyGraph.from_plain(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}). Write the path of a graph.") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} holds no JSON ({error}). Write nodes and relationships in JSON.") from error


def _group_by_key(pairs: Iterable[tuple[str, Relation]]) -> Mapping[str, tuple[Relation, ...]]:
    groups: dict[str, list[Relation]] = {}
    for key, relation in pairs:
        groups.setdefault(key, []).append(relation)
    return {key: tuple(relations) for key, relations in groups.items()}


def _properties(plain: Mapping[str, Any]) -> Properties:
    kinds = (str, int, float, bool, type(None))
    return tuple((str(key), value if isinstance(value, kinds) else json.dumps(value)) for key, value in plain.items())


_KINDS = 100  # labels, and links, that a model is shown: a prompt has no room for thousands


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
            stat = Path(self.path).expanduser().stat()
        except OSError:
            return None
        return f"{stat.st_mtime_ns}-{stat.st_size}"

    def graph(self) -> PropertyGraph:
        """Return the graph as the file has it now.

        Raises:
            StoreError: the file does not exist, or has no graph in it.
        """
        record_access(self)
        return read_graph(*self._state)

    @property
    def _state(self) -> tuple[str, int, int]:
        try:
            stat = Path(self.path).expanduser().stat()
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read ({error.strerror}). Write the path of a graph.") from error
        return str(Path(self.path).expanduser().absolute()), stat.st_mtime_ns, stat.st_size

    def described(self) -> str:
        return describe_graph(self.graph())

    def ask(self, statement: str, limits: QueryLimits) -> QueryRows:
        record_access(self)
        state = self._state
        self.graph()  # says what is wrong with the file
        return ask_worker(
            cypher.ask, *state, statement=statement, limits=limits, load=(cypher.load, *state), alone=True
        )


def describe_graph(graph: PropertyGraph) -> str:
    """Describe a graph: labels with their properties and some names, and which types link which labels.

    >>> from spolia.databases.graph_file import Entity, Relation
    >>> firm = Entity("n", ("Firm",), (("name", "Nokia"), ("since", 1865)))
    >>> graph = PropertyGraph((Entity("o", ("Person",), (("name", "Olsen"),)), firm), (Relation("WORKS_AT", "o", "n"),))
    >>> print(describe_graph(graph))
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
        f"(:{':'.join(graph.by_id[r.start].labels)})-[:{r.type}{_format_keys(r.properties)}]->(:{':'.join(graph.by_id[r.end].labels)})"
        for r in graph.relations
    )
    lines = [
        f"(:{label} {{{', '.join(keys)}}}), for example {', '.join(names[label][:SAMPLES])}"
        for label, keys in sorted(properties.items())
    ]
    return "\n".join([*lines[:_KINDS], *(link for link, _ in sorted(links.most_common(_KINDS)))])


def _format_keys(properties: tuple[tuple[str, object], ...]) -> str:
    return f" {{{', '.join(key for key, _ in properties)}}}" if properties else ""

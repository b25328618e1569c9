"""A graph in a file that is asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from spolia.core.run_context import reach
from spolia.databases.database import SAMPLES, QueryLimits, QueryRows
from spolia.databases.property_graph import PropertyGraph, read_graph
from spolia.errors import StoreError
from spolia.types import Value

_KINDS = 100


@dataclass(frozen=True)
class GraphFile(Value):
    """A knowledge graph in a file of JSON, held in memory, which is asked in a reading subset of Cypher.

    The file holds `{"nodes": [{"id", "labels", "properties"}], "relationships": [{"type", "from", "to",
    "properties"}]}`. It is read again when it changes. `spolia.databases.cypher` says what can be asked.

    Args:
        path: the file.

    >>> GraphFile("people.json").language
    'Cypher'
    """

    path: str

    waits: ClassVar[bool] = False

    @property
    def scoped(self) -> bool:
        return False

    @property
    def language(self) -> str:
        return "Cypher"

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
            StoreError: there is no such file, or no graph in it.
        """
        path = Path(self.path).expanduser()
        reach(self)
        try:
            found = path.stat()
            return read_graph(str(path.absolute()), found.st_mtime_ns, found.st_size)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read ({error.strerror}). Write the path of a graph.") from error

    def described(self) -> str:
        return described(self.graph())

    def ask(self, statement: str, limits: QueryLimits) -> QueryRows:
        from spolia.databases.cypher.execution import answered

        return answered(statement, self.graph(), limits)


def described(graph: PropertyGraph) -> str:
    """What there is in a graph: labels with their properties and some names, and which types link which labels.

    >>> from spolia.databases.property_graph import Entity, Relation
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

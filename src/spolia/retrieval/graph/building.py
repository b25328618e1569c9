"""Building the links of a graph from what a snapshot holds; the same snapshot gives the same links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from spolia.errors import GroupError, WiringError
from spolia.retrieval.graph.edges import Belonging, Edges, InOrder, SharedEntities, Similar
from spolia.retrieval.graph.links import Links, Pairs, Positions
from spolia.retrieval.graph.sharing import Having, sharing
from spolia.retrieval.graph.similarity import similar
from spolia.stores import sql
from spolia.stores.located import located
from spolia.stores.rows import unpacked
from spolia.stores.snapshot import Snapshot


class Row(NamedTuple):
    """What the truth says of a node, as far as links are made of it."""

    key: int
    id: str
    document: int
    number: int
    parent: str
    meta: str


@dataclass(frozen=True, eq=False)
class Building:
    """Makes the links between the nodes of a group.

    Args:
        snapshot: which generation.
        group: of the nodes.
    """

    snapshot: Snapshot
    group: str

    def links(self, edges: tuple[Edges, ...]) -> Links:
        """The links of these kinds.

        Raises:
            GroupError: entities that are not of the nodes, or a group that they do not belong to.
            WiringError: similarity in a group without vectors.
        """
        return Links.of(self.keys, [self._weighed(kind) for kind in edges])

    def _weighed(self, kind: Edges) -> Pairs:
        pairs = self._pairs(kind)
        return pairs._replace(weight=(pairs.weight * np.float32(kind.weight)).astype(np.float32))

    def _pairs(self, kind: Edges) -> Pairs:
        if isinstance(kind, Similar):
            return self._similar(kind)
        if isinstance(kind, SharedEntities):
            return sharing(self._speaking(kind), len(self.keys), kind.neighbours, kind.most)
        if isinstance(kind, Belonging):
            return sharing(self._belonging(kind), len(self.keys), kind.neighbours, kind.most)
        if isinstance(kind, InOrder):
            return self._in_order()
        raise WiringError(
            f"{kind!r} is no kind of links that is known. Write Similar, SharedEntities, Belonging, InOrder."
        )

    # Where things are.

    @cached_property
    def rows(self) -> list[Row]:
        """The nodes, in the order of their keys."""
        return list(self._rows(self.group))

    @cached_property
    def keys(self) -> Positions:
        return np.array([row.key for row in self.rows], dtype=np.int64)

    @cached_property
    def positions(self) -> dict[str, int]:
        """By id."""
        return {row.id: at for at, row in enumerate(self.rows)}

    def _rows(self, group: str) -> Iterator[Row]:
        self.snapshot.manifest(group)
        values = {"grp": group, "at": self.snapshot.generation}
        return (Row(*row) for row in self.snapshot.opened.each(sql.LINEAGE, values))

    # Kinds of links.

    def _similar(self, kind: Similar) -> Pairs:
        embedder = kind.embedder or self.snapshot.manifest(self.group).embedder
        if not embedder:
            raise WiringError(
                f"Group {self.group!r} has no vectors, so that nothing says what is similar. "
                "Index it with an embedder, or leave Similar out of the graph's edges."
            )
        placed, _ = located(self.snapshot.opened, self.snapshot.generation, self.group, embedder)
        return similar(placed, kind.neighbours, kind.at_least)

    def _speaking(self, kind: SharedEntities) -> Having:
        numbers: dict[object, int] = {}
        nodes, labels = [], []
        for row, node in self._made_from_nodes(kind.group):
            for name, value in unpacked(row.meta):
                if name == kind.field and value is not None:
                    nodes.append(node)
                    labels.append(numbers.setdefault(value, len(numbers)))
        return Having(np.array(nodes, dtype=np.int64), np.array(labels, dtype=np.int64))

    def _made_from_nodes(self, group: str) -> Iterator[tuple[Row, int]]:
        """The nodes of a group below, and the position of the node that each was made from."""
        climbing = self._climbing(group, self.group)
        for row in self._rows(group):
            if (at := self.positions.get(self._climbed(row.parent, climbing))) is not None:
                yield row, at

    def _belonging(self, kind: Belonging) -> Having:
        climbing = self._climbing(self.group, kind.to)
        numbers: dict[str, int] = {}
        above = [self._climbed(row.parent, climbing) for row in self.rows]
        labels = [numbers.setdefault(id, len(numbers)) for id in above]
        return Having(np.arange(len(above)), np.array(labels, dtype=np.int64))

    def _in_order(self) -> Pairs:
        places = np.array([(row.document, row.number) for row in self.rows], dtype=np.int64).reshape(-1, 2)
        order = np.lexsort((places[:, 1], places[:, 0]))
        one, other = order[:-1], order[1:]
        step = places[other] - places[one]
        beside = (step[:, 0] == 0) & (step[:, 1] == 1)
        return Pairs(one[beside], other[beside], np.ones(int(beside.sum()), np.float32))

    def _climbing(self, group: str, to: str) -> list[dict[str, str]]:
        """For each group between the two the parent of each node, from below."""
        above = self.snapshot.above(group)
        if to not in above[1:]:
            raise GroupError(
                f"Group {group!r} is not made from {to!r}; above it there are: {', '.join(above[1:])}. "
                "Write a group that stands above the other."
            )
        return [{row.id: row.parent for row in self._rows(name)} for name in above[1 : above.index(to)]]

    def _climbed(self, id: str, climbing: list[dict[str, str]]) -> str:
        for parents in climbing:
            id = parents.get(id, "")
        return id

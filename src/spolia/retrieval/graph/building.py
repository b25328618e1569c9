"""Building the links of a graph from what a snapshot holds; the same snapshot gives the same links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from spolia.errors import WiringError
from spolia.retrieval.graph.edges import Belonging, Edges, InOrder, SharedEntities, Similar
from spolia.retrieval.graph.links import Links, Pairs, Positions
from spolia.retrieval.graph.sharing import Having, sharing
from spolia.retrieval.graph.similarity import Neighbours, nearest
from spolia.stores.reading.lineage import Climbing, Row, rows_of
from spolia.stores.snapshot import Snapshot
from spolia.stores.tables.rows import unpacked


@dataclass(frozen=True, eq=False)
class Building:
    """Makes the links between the nodes of a group.

    Args:
        snapshot: which generation.
        group: of the nodes.
        before: the nearest neighbours at an earlier generation, by the kind of links that they make.

    Attributes:
        neighbours: those at this one, of which links were made.
    """

    snapshot: Snapshot
    group: str
    before: Mapping[Edges, Neighbours] = field(default_factory=dict)
    neighbours: dict[Edges, Neighbours] = field(default_factory=dict, init=False)

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
        """The nodes, by key."""
        return list(rows_of(self.snapshot, self.group))

    @cached_property
    def keys(self) -> Positions:
        return np.array([row.key for row in self.rows], dtype=np.int64)

    @cached_property
    def positions(self) -> dict[object, int]:
        """By id."""
        return {row.id: at for at, row in enumerate(self.rows)}

    # Kinds of links.

    def _similar(self, kind: Similar) -> Pairs:
        embedder = kind.embedder or self.snapshot.manifest(self.group).embedder
        if not embedder:
            raise WiringError(
                f"Group {self.group!r} has no vectors, so that nothing says what is similar. "
                "Index it with an embedder, or leave Similar out of the graph's edges."
            )
        stored = self.snapshot.stored(self.group, embedder)
        found = nearest(stored, self.keys, kind.neighbours, self.before.get(kind))
        self.neighbours[kind] = found
        return found.pairs(kind.at_least)

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
        climbing = Climbing(self.snapshot, group, self.group)
        for row in rows_of(self.snapshot, group):
            if (at := self.positions.get(climbing.of(row))) is not None:
                yield row, at

    def _belonging(self, kind: Belonging) -> Having:
        climbing = Climbing(self.snapshot, self.group, kind.to)
        numbers: dict[object, int] = {}
        labels = [numbers.setdefault(climbing.of(row), len(numbers)) for row in self.rows]
        return Having(np.arange(len(labels)), np.array(labels, dtype=np.int64))

    def _in_order(self) -> Pairs:
        places = np.array([(row.document, row.number) for row in self.rows], dtype=np.int64).reshape(-1, 2)
        order = np.lexsort((places[:, 1], places[:, 0]))
        one, other = order[:-1], order[1:]
        step = places[other] - places[one]
        beside = (step[:, 0] == 0) & (step[:, 1] == 1)
        return Pairs(one[beside], other[beside], np.ones(int(beside.sum()), np.float32))

"""Address of a graph over the nodes of a group."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia import retrieval
from spolia.core.validation import validate
from spolia.errors import WiringError
from spolia.retrieval import graph
from spolia.retrieval.graph.edges import Edges, SharedEntities
from spolia.stores.backends import sql
from spolia.stores.corpus import NodeGroup, refuse_no_group
from spolia.stores.files import links_folder
from spolia.types import Value, digest_of

if TYPE_CHECKING:
    from spolia.retrieval.graph.links import Links, NearestNeighbours
    from spolia.stores.snapshot.snapshot import Snapshot

# One thread builds a graph; the others wait and read its file.
_building = threading.Lock()
MADE = 2  # counts up when the same edges give other links


@dataclass(frozen=True)
class NodeGraph(Value):
    """Graph over the nodes of a group, with the kinds of links between them: a knowledge graph index.

    It is built at its first use for the generation that is searched, and kept in a file beside the store's indexes,
    named by the generation and the edges; a damaged file is built again. The same generation gives the same graph.
    Comparing 100,000 vectors of 384 numbers takes five minutes of a processor, and some 200 MB of memory; at a later
    generation only new nodes are compared, and those that have lost a neighbour. Links by what nodes have in common are
    rebuilt, since the rarity of each thing depends on all nodes.

    A search follows the links of a graph of the nodes that the asker may read, as if there were no others. In a store
    with access lists that graph is made at the first use for each set of lists, and the last 32 are kept in memory: of
    most nodes enough neighbours are known, and the others are compared again. Filters do not change which links there
    are; only those between nodes that may be found are followed.

    Args:
        group: its nodes.
        edges: what links them; links of several kinds between two nodes add up.

    Raises:
        WiringError: without any edges.

    >>> from spolia.retrieval.graph.edges import InOrder, Similar
    >>> from spolia.stores.corpus import Corpus
    >>> NodeGraph(Corpus("notes.spolia").group(), (Similar(neighbours=5), InOrder(weight=0.5))).edges[0].neighbours
    5
    """

    group: NodeGroup
    edges: tuple[Edges, ...]

    def __post_init__(self) -> None:
        refuse_no_group(self.group, "NodeGraph")
        validate(self)
        if not self.edges:
            raise WiringError(
                "A graph without edges links nothing. "
                "Write some of Similar(), SharedEntities(), Belonging(), InOrder()."
            )

    waits: ClassVar[bool] = False

    @property
    def scoped(self) -> bool:
        """Return True: the links depend on who asks."""
        return True

    def fingerprint(self) -> str | None:
        """Return the fingerprint of its store."""
        return self.group.fingerprint()

    def snapshot(self) -> Snapshot:
        """Return the generation that the run has pinned, with its group and those that its edges name built."""
        for edges in self.edges:
            if isinstance(edges, SharedEntities):
                self.group.corpus.group(edges.group).snapshot()
        return self.group.snapshot()

    def links(self, snapshot: Snapshot, access: frozenset[str] | None = None) -> Links:
        """Return the links at a generation between nodes that `access` may read, as if there were no others; None for
        all."""
        groups = self.group.name, *(edge.group for edge in self.edges if isinstance(edge, SharedEntities))
        derived = snapshot.derived if access is None else snapshot.derived_of(access, *groups)
        key = ("links", self.group.name, self.edges)
        links: Links | None = derived.get(key)
        if links is None and derived is not snapshot.derived:
            self.links(snapshot)  # whose neighbours spare comparing all nodes for each asker
        if links is None:
            with _building:
                # Asked again under the lock: another thread may have built them meanwhile.
                links = derived.get(key) or self._build_links(snapshot, None if derived is snapshot.derived else access)
                derived[key] = links
        return links

    def _build_links(self, snapshot: Snapshot, access: frozenset[str] | None) -> Links:
        folder = links_folder(snapshot.open_store.folder, self.group.name)
        path = folder / f"g{snapshot.version}-{digest_of((MADE, *self.edges)).hex()[:16]}{retrieval.array_files.SUFFIX}"
        # The links of one audience are kept in memory only: there may be many audiences.
        if access is not None:
            return graph.build.GraphBuild(
                snapshot, self.group.name, graph.build.read_neighbours([path], self.edges), access
            ).links(self.edges)
        graph.build.drop_removed_versions(
            folder, snapshot.open_store.was_published
        )  # of what a backup has taken the place of

        def build() -> tuple[Links, dict[Edges, NearestNeighbours]]:
            # Neighbours of an earlier generation spare comparing all old nodes again.
            building = graph.build.GraphBuild(
                snapshot, self.group.name, graph.build.earlier_neighbours(path, self.edges)
            )
            return building.links(self.edges), building.neighbours

        links = graph.build.load_or_build(path, build, self.edges)
        graph.build.drop_removed_versions(
            folder, lambda version: bool(snapshot.open_store.row(sql.IS_KEPT, version[:1]))
        )
        return links

"""Builder of links, and their file, which is derived: a missing or damaged file is written again."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from spolia.errors import WiringError
from spolia.retrieval.array_files import DAMAGED, SUFFIX, read_arrays, write_arrays
from spolia.retrieval.graph.edges import Belonging, Edges, InOrder, SharedEntities, Similar
from spolia.retrieval.graph.links import (
    Having,
    Links,
    NearestNeighbours,
    NodePairs,
    Positions,
    link_sharing_nodes,
    nearest,
)
from spolia.stores.backends.rows import StoreVersion, unpack_values
from spolia.stores.backends.searches import StoredVectors
from spolia.stores.snapshot.lineage import AncestorPath, LineageRow, rows_of
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.stores.vectors.dense import Vectors

Nearest = dict[Edges, NearestNeighbours]

_PARTS = {"keys": np.int64, "starts": np.int64, "targets": np.int32, "weights": np.float32}


def load_or_build(path: Path, build: Callable[[], tuple[Links, Nearest]], edges: Sequence[Edges]) -> Links:
    """Return the links in a file; build them, and write them where possible, if no readable file exists."""
    try:
        return _read(path)
    except DAMAGED:
        links, nearest = build()
    parts = {name: getattr(links, name) for name in _PARTS}
    for place, kind in enumerate(edges):
        if kind in nearest:
            parts |= {f"near{place}": nearest[kind].near, f"cosines{place}": nearest[kind].cosines}
    with suppress(OSError):  # a store that may only be read, or a full disk: the next process builds them again
        write_arrays(path, parts)
    return links


def earlier_neighbours(path: Path, edges: Sequence[Edges]) -> Nearest:
    """Return the nearest neighbours of the latest other generation whose file can be read; else none."""
    candidates = [candidate for candidate in path.parent.glob(f"g*-{path.name.partition('-')[2]}") if candidate != path]
    return read_neighbours(sorted(candidates, key=_version, reverse=True), edges)


def read_neighbours(paths: Iterable[Path], edges: Sequence[Edges]) -> Nearest:
    """Return the nearest neighbours in the first of some files that can be read; else none."""
    for path in paths:
        # A damaged file only costs that all nodes are compared again.
        with suppress(*DAMAGED), read_arrays(path) as parts:
            keys, neighbours = parts["keys"], Nearest()
            for place, kind in enumerate(edges):
                if isinstance(kind, Similar):
                    near, cosines = parts[f"near{place}"], parts[f"cosines{place}"]
                    if not (
                        (keys.dtype, near.dtype, cosines.dtype) == (np.int64, np.int64, np.float64)
                        and near.shape == cosines.shape
                        and len(near) == len(keys)
                        and near.shape[1] >= kind.neighbours
                    ):
                        raise ValueError(f"The sizes in {path} do not fit.")
                    neighbours[kind] = NearestNeighbours(keys, near, cosines)
            return neighbours
    return {}


def drop_removed_versions(folder: Path, is_kept: Callable[[StoreVersion], bool]) -> None:
    """Remove the files of versions that the store no longer keeps."""
    for path in folder.glob(f"g*{SUFFIX}"):
        if (version := _version(path)).generation >= 0 and not is_kept(version):
            path.unlink(missing_ok=True)


def _version(path: Path) -> StoreVersion:
    """Return the version that a file belongs to; generation -1 for none."""
    number, _, id = path.name[1:].partition("-")[0].partition(".")
    return StoreVersion(int(number), id) if number.isdecimal() else StoreVersion(-1, "")


def _read(path: Path) -> Links:
    """Read the links of a file and compare the checksum of each part."""
    with read_arrays(path) as arrays:
        links = Links(**{name: arrays[name] for name in _PARTS})
    if any((part := getattr(links, name)).ndim != 1 or part.dtype != kind for name, kind in _PARTS.items()):
        raise ValueError(f"The kinds of numbers in {path} do not fit.")
    count, starts = len(links.keys), links.starts
    if len(starts) != count + 1 or not len(links.targets) == len(links.weights) == starts[-1]:
        raise ValueError(f"The sizes in {path} do not fit.")
    is_valid = (links.targets >= 0) & (links.targets < count) & np.isfinite(links.weights)
    # Targets become indices of arrays: a damaged file must not lead outside them.
    if starts[0] or (np.diff(starts) < 0).any() or (np.diff(links.keys) <= 0).any() or not is_valid.all():
        raise ValueError(f"The links in {path} lead to no nodes.")
    return links


SPARE = 4  # times as many nearest neighbours as are linked are kept where access lists hide some of them from some


@dataclass(frozen=True, eq=False)
class _ReadableVectors:
    """Vectors of the nodes that somebody may read, by their places among all of the group."""

    stored: StoredVectors
    places: Positions

    def vectors_at(self, positions: Positions) -> Vectors:
        return self.stored.vectors_at(self.places[positions])


@dataclass(frozen=True, eq=False)
class GraphBuild:
    """Builder of the links between the nodes of a group."""

    snapshot: Snapshot
    group: str
    earlier: Mapping[Edges, NearestNeighbours] = field(default_factory=dict)  # of an earlier generation, or more nodes
    access: frozenset[str] | None = None  # only nodes that these may read, as if there were no others; None for all
    neighbours: dict[Edges, NearestNeighbours] = field(default_factory=dict, init=False)  # that links were made of

    def links(self, edges: tuple[Edges, ...]) -> Links:
        """Build the links of these kinds; raise GroupError or WiringError where they need something that is missing."""
        return Links.from_pairs(self.keys, [self._weighed(kind) for kind in edges])

    def _weighed(self, kind: Edges) -> NodePairs:
        pairs = self._pairs(kind)
        return pairs._replace(weight=(pairs.weight * np.float32(kind.weight)).astype(np.float32))

    def _pairs(self, kind: Edges) -> NodePairs:
        if isinstance(kind, Similar):
            return self._link_similar(kind)
        if isinstance(kind, SharedEntities):
            return link_sharing_nodes(self._label_by_entity(kind), len(self.keys), kind.neighbours, kind.most)
        if isinstance(kind, Belonging):
            return link_sharing_nodes(self._label_by_ancestor(kind), len(self.keys), kind.neighbours, kind.most)
        if isinstance(kind, InOrder):
            return self._link_in_order()
        raise WiringError(f"{kind!r} is not a known kind of links. Write Similar, SharedEntities, Belonging, InOrder.")

    # Where things are.

    @cached_property
    def rows(self) -> list[LineageRow]:
        """Return the nodes, by key."""
        return list(rows_of(self.snapshot, self.group, self.access))

    @cached_property
    def keys(self) -> Positions:
        return np.array([row.key for row in self.rows], dtype=np.int64)

    @cached_property
    def positions(self) -> dict[object, int]:
        """Return positions by the identity that nodes share with nodes made from them."""
        itself = AncestorPath(self.snapshot, self.group, self.group)
        return {itself.ancestor_id(row): position for position, row in enumerate(self.rows)}

    # Kinds of links.

    def _link_similar(self, kind: Similar) -> NodePairs:
        embedder = kind.embedder or self.snapshot.manifest(self.group).embedder
        if not embedder:
            raise WiringError(
                f"Group {self.group!r} has no vectors, so that nothing says what is similar. "
                "Index it with an embedder, or leave Similar out of the graph's edges."
            )
        stored, neighbours = self.snapshot.open.stored_vectors(self.group, embedder), kind.neighbours
        if self.access is not None:
            stored = _ReadableVectors(stored, self.snapshot.allowed(self.group, self.access).positions())
        elif self.snapshot.readers.is_restricted:
            neighbours *= SPARE
        nearest_nodes = nearest(stored, self.keys, neighbours, self.earlier.get(kind))
        self.neighbours[kind] = nearest_nodes
        return nearest_nodes.pairs(kind.at_least, kind.neighbours)

    def _label_by_entity(self, kind: SharedEntities) -> Having:
        numbers: dict[object, int] = {}
        nodes, labels = [], []
        for row, node in self._derived_rows(kind.group):
            for name, value in unpack_values(row.meta):
                if name == kind.field and value is not None:
                    nodes.append(node)
                    labels.append(numbers.setdefault(value, len(numbers)))
        return Having(np.array(nodes, dtype=np.int64), np.array(labels, dtype=np.int64))

    def _derived_rows(self, group: str) -> Iterator[tuple[LineageRow, int]]:
        """Yield the nodes of a group below, each with the position of the node that it was made from."""
        climbing = AncestorPath(self.snapshot, group, self.group)
        for row in rows_of(self.snapshot, group, self.access):
            if (position := self.positions.get(climbing.ancestor_id(row))) is not None:
                yield row, position

    def _label_by_ancestor(self, kind: Belonging) -> Having:
        climbing = AncestorPath(self.snapshot, self.group, kind.to)
        numbers: dict[object, int] = {}
        labels = [numbers.setdefault(climbing.ancestor_id(row), len(numbers)) for row in self.rows]
        return Having(np.arange(len(labels)), np.array(labels, dtype=np.int64))

    def _link_in_order(self) -> NodePairs:
        places = np.array([(row.document, row.number) for row in self.rows], dtype=np.int64).reshape(-1, 2)
        order = np.lexsort((places[:, 1], places[:, 0]))
        earlier, later = order[:-1], order[1:]
        step = places[later] - places[earlier]
        is_next = (step[:, 0] == 0) & (step[:, 1] == 1)
        return NodePairs(earlier[is_next], later[is_next], np.ones(int(is_next.sum()), np.float32))

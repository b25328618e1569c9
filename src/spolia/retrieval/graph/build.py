"""Links in a file of their own: derived, so that a file that is missing or damaged is only written again."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from spolia.errors import WiringError
from spolia.retrieval.array_files import DAMAGED, SUFFIX, read_arrays, write_arrays
from spolia.retrieval.graph.edges import Belonging, Edges, InOrder, SharedEntities, Similar
from spolia.retrieval.graph.links import Having, Links, NearestNeighbours, NodePairs, Positions, nearest, sharing
from spolia.stores.backends.backend import Stored
from spolia.stores.backends.rows import StoreVersion, unpacked
from spolia.stores.snapshot.lineage import AncestorPath, LineageRow, rows_of
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.stores.vectors.dense import Vectors

Nearest = dict[Edges, NearestNeighbours]

_PARTS = {"keys": np.int64, "starts": np.int64, "targets": np.int32, "weights": np.float32}


def kept(path: Path, build: Callable[[], tuple[Links, Nearest]], edges: Sequence[Edges]) -> Links:
    """The links in a file; they are built, and written if that is possible, if no readable file exists."""
    try:
        return _read(path)
    except DAMAGED:
        found, nearest = build()
    parts = {name: getattr(found, name) for name in _PARTS}
    for place, kind in enumerate(edges):
        if kind in nearest:
            parts |= {f"near{place}": nearest[kind].near, f"cosines{place}": nearest[kind].cosines}
    with suppress(OSError):  # a store that may only be read, or a full disk: the next process builds them again
        write_arrays(path, parts)
    return found


def earlier(path: Path, edges: Sequence[Edges]) -> Nearest:
    """The nearest neighbours in a file like this of the latest other generation that can be read; else none."""
    there = [other for other in path.parent.glob(f"g*-{path.name.partition('-')[2]}") if other != path]
    return nearest_of(sorted(there, key=_version, reverse=True), edges)


def nearest_of(paths: Iterable[Path], edges: Sequence[Edges]) -> Nearest:
    """The nearest neighbours in the first of some files that can be read; else none."""
    for path in paths:
        with suppress(*DAMAGED), read_arrays(path) as parts:
            keys, found = parts["keys"], Nearest()
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
                    found[kind] = NearestNeighbours(keys, near, cosines)
            return found
    return {}


def drop_others(folder: Path, is_kept: Callable[[StoreVersion], bool]) -> None:
    """Remove the files of versions that are gone."""
    for path in folder.glob(f"g*{SUFFIX}"):
        if (version := _version(path)).generation >= 0 and not is_kept(version):
            path.unlink(missing_ok=True)


def _version(path: Path) -> StoreVersion:
    """That a file is of; -1 for none."""
    number, _, id = path.name[1:].partition("-")[0].partition(".")
    return StoreVersion(int(number), id) if number.isdecimal() else StoreVersion(-1, "")


def _read(path: Path) -> Links:
    """The links of a file; each part has a checksum, which is compared."""
    with read_arrays(path) as found:
        links = Links(**{name: found[name] for name in _PARTS})
    if any((part := getattr(links, name)).ndim != 1 or part.dtype != kind for name, kind in _PARTS.items()):
        raise ValueError(f"The kinds of numbers in {path} do not fit.")
    count, at = len(links.keys), links.starts
    if len(at) != count + 1 or not len(links.targets) == len(links.weights) == at[-1]:
        raise ValueError(f"The sizes in {path} do not fit.")
    reach = (links.targets >= 0) & (links.targets < count) & np.isfinite(links.weights)
    if at[0] or (np.diff(at) < 0).any() or (np.diff(links.keys) <= 0).any() or not reach.all():
        raise ValueError(f"The links in {path} lead to no nodes.")
    return links


SPARE = 4  # times as many nearest neighbours as are linked are kept where access lists hide some of them from some


@dataclass(frozen=True, eq=False)
class _ReadableVectors:
    """The vectors of some nodes, by their places among all of the group."""

    stored: Stored
    places: Positions

    def at(self, positions: Positions) -> Vectors:
        return self.stored.at(self.places[positions])


@dataclass(frozen=True, eq=False)
class GraphBuild:
    """Makes the links between the nodes of a group."""

    snapshot: Snapshot
    group: str
    before: Mapping[Edges, NearestNeighbours] = field(default_factory=dict)  # of an earlier generation, or more nodes
    access: frozenset[str] | None = None  # only nodes that these may read, as if there were no others; None for all
    neighbours: dict[Edges, NearestNeighbours] = field(default_factory=dict, init=False)  # that links were made of

    def links(self, edges: tuple[Edges, ...]) -> Links:
        """The links of these kinds; GroupError or WiringError where what they need is not there."""
        return Links.of(self.keys, [self._weighed(kind) for kind in edges])

    def _weighed(self, kind: Edges) -> NodePairs:
        pairs = self._pairs(kind)
        return pairs._replace(weight=(pairs.weight * np.float32(kind.weight)).astype(np.float32))

    def _pairs(self, kind: Edges) -> NodePairs:
        if isinstance(kind, Similar):
            return self._similar(kind)
        if isinstance(kind, SharedEntities):
            return sharing(self._speaking(kind), len(self.keys), kind.neighbours, kind.most)
        if isinstance(kind, Belonging):
            return sharing(self._belonging(kind), len(self.keys), kind.neighbours, kind.most)
        if isinstance(kind, InOrder):
            return self._in_order()
        raise WiringError(f"{kind!r} is not a known kind of links. Write Similar, SharedEntities, Belonging, InOrder.")

    # Where things are.

    @cached_property
    def rows(self) -> list[LineageRow]:
        """The nodes, by key."""
        return list(rows_of(self.snapshot, self.group, self.access))

    @cached_property
    def keys(self) -> Positions:
        return np.array([row.key for row in self.rows], dtype=np.int64)

    @cached_property
    def positions(self) -> dict[object, int]:
        """Positions by the identity that nodes share with nodes made from them."""
        itself = AncestorPath(self.snapshot, self.group, self.group)
        return {itself.of(row): at for at, row in enumerate(self.rows)}

    # Kinds of links.

    def _similar(self, kind: Similar) -> NodePairs:
        embedder = kind.embedder or self.snapshot.manifest(self.group).embedder
        if not embedder:
            raise WiringError(
                f"Group {self.group!r} has no vectors, so that nothing says what is similar. "
                "Index it with an embedder, or leave Similar out of the graph's edges."
            )
        stored, wanted = self.snapshot.open.stored(self.group, embedder), kind.neighbours
        if self.access is not None:
            stored = _ReadableVectors(stored, self.snapshot.allowed(self.group, self.access).positions())
        elif self.snapshot.readers.restricted:
            wanted *= SPARE
        found = nearest(stored, self.keys, wanted, self.before.get(kind))
        self.neighbours[kind] = found
        return found.pairs(kind.at_least, kind.neighbours)

    def _speaking(self, kind: SharedEntities) -> Having:
        numbers: dict[object, int] = {}
        nodes, labels = [], []
        for row, node in self._made_from_nodes(kind.group):
            for name, value in unpacked(row.meta):
                if name == kind.field and value is not None:
                    nodes.append(node)
                    labels.append(numbers.setdefault(value, len(numbers)))
        return Having(np.array(nodes, dtype=np.int64), np.array(labels, dtype=np.int64))

    def _made_from_nodes(self, group: str) -> Iterator[tuple[LineageRow, int]]:
        """The nodes of a group below, and the position of the node that each was made from."""
        climbing = AncestorPath(self.snapshot, group, self.group)
        for row in rows_of(self.snapshot, group, self.access):
            if (at := self.positions.get(climbing.of(row))) is not None:
                yield row, at

    def _belonging(self, kind: Belonging) -> Having:
        climbing = AncestorPath(self.snapshot, self.group, kind.to)
        numbers: dict[object, int] = {}
        labels = [numbers.setdefault(climbing.of(row), len(numbers)) for row in self.rows]
        return Having(np.arange(len(labels)), np.array(labels, dtype=np.int64))

    def _in_order(self) -> NodePairs:
        places = np.array([(row.document, row.number) for row in self.rows], dtype=np.int64).reshape(-1, 2)
        order = np.lexsort((places[:, 1], places[:, 0]))
        one, other = order[:-1], order[1:]
        step = places[other] - places[one]
        beside = (step[:, 0] == 0) & (step[:, 1] == 1)
        return NodePairs(one[beside], other[beside], np.ones(int(beside.sum()), np.float32))

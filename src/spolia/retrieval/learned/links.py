"""What links nodes to others: titles that occur in texts, names that texts share.

They are read once for each generation of a store, and kept in a file beside its graphs. It is derived: where it is
missing or damaged, the texts are read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from spolia.core.run_context import check_cancelled
from spolia.retrieval.array_files import DAMAGED, SUFFIX, read_arrays, write_arrays
from spolia.retrieval.graph.build import drop_others
from spolia.retrieval.graph.links import SparseLabelRows
from spolia.retrieval.term_counts import CONTEXT, TEXT, derived, texts_of
from spolia.stores.backends import sql
from spolia.stores.backends.rows import unpacked
from spolia.stores.files import links_folder
from spolia.stores.snapshot.lineage import AncestorPath, rows_of
from spolia.types import digest_of

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.types.arrays import Mask, Positions

LONGEST = 8
"""Words of a title or a name that is looked for in texts, at most."""
SHORTEST = 3
"""Characters of a title that is looked for in texts, at least."""
NAMESAKES = 40
"""Nodes that share a title or a name, at most, for it to link them."""
LITTLE = frozenset(
    ["the", "and", "for", "his", "her", "its", "was", "are", "not", "you", "all", "who", "she", "had", "has"]
)
"""Words that are no titles to look for in texts."""
MADE = "text links 1"
"""Counts up when the same texts give other links."""
_WORD = re.compile(r"\w+")
_BETWEEN_CHECKS = 1_024


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, as titles and names are compared."""
    return _WORD.findall(text.casefold())


def title_keys(title: str) -> frozenset[str]:
    """What a title is called in texts: itself, without a parenthesis at its end, and up to its first comma.

    >>> sorted(title_keys("Springfield, Illinois (city)"))
    ['springfield', 'springfield illinois', 'springfield illinois city']
    """
    plain = re.sub(r"\s*\([^()]*\)\s*\Z", "", title)
    written = (" ".join(words_of(one)) for one in (title, plain, plain.partition(",")[0]))
    return frozenset(key for key in written if len(key) >= SHORTEST and key not in LITTLE)


class KeyFinder:
    """Finds the longest and all shorter keys in texts, on borders of words."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self.numbers = numbers
        self._lengths: dict[str, tuple[int, ...]] = {}
        for key in numbers:
            words = key.split(" ")
            known = self._lengths.get(words[0], ())
            if len(words) <= LONGEST and len(words) not in known:
                self._lengths[words[0]] = (*known, len(words))

    def found(self, words: Sequence[str]) -> Iterator[tuple[int, int]]:
        """The number of each key that occurs, and how many words it has; a key may come several times."""
        for at, word in enumerate(words):
            for length in self._lengths.get(word, ()):
                number = self.numbers.get(word if length == 1 else " ".join(words[at : at + length]))
                if number is not None and at + length <= len(words):
                    yield number, length


@dataclass(frozen=True, eq=False)
class NodeLabels:
    """Which node has which label, by positions of the nodes and numbers of the labels."""

    nodes: Positions
    labels: Positions

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> NodeLabels:
        array = np.array(sorted(set(pairs)), dtype=np.int64).reshape(-1, 2)
        return cls(array[:, 0], array[:, 1])

    @classmethod
    def checked(cls, rows: Any, nodes: int, labels: int) -> NodeLabels:
        """From an array of pairs; ValueError where it names nodes or labels that are not there."""
        if rows.dtype != np.int64 or rows.ndim != 2 or len(rows) != 2:
            raise ValueError("Pairs are two rows of whole numbers.")
        if rows.size and (rows.min() < 0 or (rows.max(axis=1) >= (nodes, labels)).any()):
            raise ValueError("The links lead to no nodes.")
        return cls(*rows)

    def within(self, readable: Mask | None) -> NodeLabels:
        if readable is None:
            return self
        kept = readable[self.nodes]
        return NodeLabels(self.nodes[kept], self.labels[kept])


@dataclass(frozen=True, eq=False)
class TextLinks:
    """Links in the texts of a group, for every asker."""

    count: int
    titles: KeyFinder
    titled: NodeLabels  # nodes and the keys of their titles
    mentions: NodeLabels  # nodes and the title keys that occur in their texts
    names: KeyFinder
    named: NodeLabels  # nodes and the names in their texts

    @classmethod
    def of(cls, count: int, parts: Mapping[str, Any]) -> TextLinks:
        """The links in the arrays of a file, for a group with this many nodes; ValueError where they do not fit."""
        titles, names = ({key: at for at, key in enumerate(_lines(parts[name]))} for name in ("titles", "names"))
        pairs = (("titled", titles), ("mentions", titles), ("named", names))
        titled, mentions, named = (NodeLabels.checked(parts[name], count, len(keys)) for name, keys in pairs)
        return cls(count, KeyFinder(titles), titled, mentions, KeyFinder(names), named)

    def arrays(self) -> dict[str, Any]:
        """What `of` reads."""
        keys = {"titles": self.titles, "names": self.names}
        pairs = {"titled": self.titled, "mentions": self.mentions, "named": self.named}
        texts = {name: np.frombuffer("\n".join(found.numbers).encode(), np.uint8) for name, found in keys.items()}
        return texts | {name: np.stack([one.nodes, one.labels]) for name, one in pairs.items()}


@dataclass(frozen=True, eq=False)
class NodeLinks:
    """The links between the nodes that somebody may read, as if there were no others."""

    texts: TextLinks
    readable: Mask | None

    @property
    def count(self) -> int:
        """Nodes that may be read."""
        return self.texts.count if self.readable is None else int(np.count_nonzero(self.readable))

    @cached_property
    def nodes_of_title(self) -> SparseLabelRows:
        titled = self.texts.titled.within(self.readable)
        return SparseLabelRows.of(titled.labels, titled.nodes, len(self.texts.titles.numbers))

    @cached_property
    def keys_of_node(self) -> SparseLabelRows:
        titled = self.texts.titled.within(self.readable)
        return SparseLabelRows.of(titled.nodes, titled.labels, self.texts.count)

    @cached_property
    def leads_to(self) -> SparseLabelRows:
        """For each node, those whose title occurs in its text."""
        return SparseLabelRows.of(*self._links, self.texts.count)

    @cached_property
    def led_to_by(self) -> SparseLabelRows:
        """For each node, those in whose text its title occurs."""
        return SparseLabelRows.of(*self._links[::-1], self.texts.count)

    @cached_property
    def _links(self) -> tuple[Positions, Positions]:
        mentions, to = self.texts.mentions.within(self.readable), self.nodes_of_title
        sizes = np.diff(to.starts)[mentions.labels]
        kept = sizes <= NAMESAKES
        nodes, labels, sizes = mentions.nodes[kept], mentions.labels[kept], sizes[kept]
        sources = np.repeat(nodes, sizes)
        at = np.arange(len(sources)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(to.starts[labels], sizes)
        pairs = np.unique(sources * self.texts.count + to.columns[at])
        one, other = np.divmod(pairs, max(1, self.texts.count))
        apart = one != other
        return one[apart], other[apart]

    @cached_property
    def _shared(self) -> NodeLabels:
        """Names that two nodes share, or more, up to `NAMESAKES`."""
        named = self.texts.named.within(self.readable)
        spread = np.bincount(named.labels, minlength=len(self.texts.names.numbers))
        kept = (spread[named.labels] > 1) & (spread[named.labels] <= NAMESAKES)
        return NodeLabels(named.nodes[kept], named.labels[kept])

    @cached_property
    def names_of_node(self) -> SparseLabelRows:
        return SparseLabelRows.of(self._shared.nodes, self._shared.labels, self.texts.count)

    @cached_property
    def nodes_of_name(self) -> SparseLabelRows:
        return SparseLabelRows.of(self._shared.labels, self._shared.nodes, len(self.texts.names.numbers))


def node_links(snapshot: Snapshot, group: str, names: str, who: frozenset[str]) -> NodeLinks:
    """The links of a group; `names` is the group with a node for each name, empty for none."""
    texts = derived(snapshot.derived, ("text links", group, names), lambda: _kept(snapshot, group, names))
    readable, kept = snapshot.allowed(group, who).mask, snapshot.derived_of(who, group)
    return derived(kept, ("node links", group, names), lambda: NodeLinks(texts, readable))


def _kept(snapshot: Snapshot, group: str, names: str) -> TextLinks:
    """The links in the file of this generation; they are read from the texts, and written, if it is missing."""
    opened, folder = snapshot.opened, links_folder(snapshot.opened.folder, group)
    path = folder / f"g{snapshot.version}-{digest_of((MADE, names)).hex()[:16]}{SUFFIX}"
    with suppress(*DAMAGED), read_arrays(path) as parts:
        return TextLinks.of(len(snapshot.open.records(group).keys), parts)
    found = _read(snapshot, group, names)
    with suppress(OSError):  # a store that may only be read, or a full disk: the next process reads them again
        write_arrays(path, found.arrays())
    drop_others(folder, lambda version: opened.was_published(version) and bool(opened.row(sql.IS_KEPT, version[:1])))
    return found


def _lines(text: Any) -> list[str]:
    return text.tobytes().decode().split("\n") if text.size else []


def _read(snapshot: Snapshot, group: str, names: str) -> TextLinks:
    keys = snapshot.open.records(group).keys
    numbers: dict[str, int] = {}
    titled = [
        (at, numbers.setdefault(key, len(numbers)))
        for at, context in enumerate(texts_of(snapshot, keys, CONTEXT))
        for key in sorted(title_keys(context.partition("\n")[0]))
    ]
    titles = KeyFinder(numbers)
    mentions = set[tuple[int, int]]()
    for at, text in enumerate(texts_of(snapshot, keys, TEXT) if numbers else ()):
        if at % _BETWEEN_CHECKS == 0:
            check_cancelled()
        mentions.update((at, number) for number, _ in titles.found(words_of(text)))
    named, names_found = _names(snapshot, group, names) if names else ([], {})
    if names:  # a node has its own titles for names too
        keys_by_number = list(numbers)
        named += [(at, names_found.setdefault(key, len(names_found))) for at, key in _spelt(titled, keys_by_number)]
    return TextLinks(
        len(keys), titles, NodeLabels.of(titled), NodeLabels.of(mentions), KeyFinder(names_found), NodeLabels.of(named)
    )


def _spelt(labels: Iterable[tuple[int, int]], keys: Sequence[str]) -> Iterator[tuple[int, str]]:
    return ((at, keys[number]) for at, number in labels)


NAMING = ("name", "acronym", "quote")
"""Types of entities that are names: the same year or number says little."""


def _names(snapshot: Snapshot, group: str, names: str) -> tuple[list[tuple[int, int]], dict[str, int]]:
    """Which node has which name, by the nodes of a group below."""
    itself, climbing = AncestorPath(snapshot, group, group), AncestorPath(snapshot, names, group)
    positions = {itself.of(row): at for at, row in enumerate(rows_of(snapshot, group))}
    numbers: dict[str, int] = {}
    found = []
    for row in rows_of(snapshot, names):
        meta = dict(unpacked(row.meta))
        key = " ".join(words_of(str(meta.get("entity", ""))))
        if meta.get("type") in NAMING and len(key) > SHORTEST and (at := positions.get(climbing.of(row))) is not None:
            found.append((at, numbers.setdefault(key, len(numbers))))
    return found, numbers

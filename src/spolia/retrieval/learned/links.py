"""Links between nodes by titles that occur in texts, and by names that texts share.

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
from spolia.retrieval.graph.build import drop_removed_versions
from spolia.retrieval.graph.links import SparseLabelRows
from spolia.retrieval.term_counts import CONTEXT, TEXT, derived, texts_of
from spolia.stores.backends import sql
from spolia.stores.backends.rows import unpack_values
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
# Texts between two looks at whether the run was cancelled.
_BETWEEN_CHECKS = 1_024


def split_words(text: str) -> list[str]:
    """Split a text into words in lower case, as titles and names are compared."""
    return _WORD.findall(text.casefold())


def title_keys(title: str) -> frozenset[str]:
    """Return how texts spell a title: in full, without a parenthesis at its end, and up to its first comma.

    >>> sorted(title_keys("Springfield, Illinois (city)"))
    ['springfield', 'springfield illinois', 'springfield illinois city']
    """
    plain = re.sub(r"\s*\([^()]*\)\s*\Z", "", title)
    spellings = (" ".join(split_words(form)) for form in (title, plain, plain.partition(",")[0]))
    return frozenset(key for key in spellings if len(key) >= SHORTEST and key not in LITTLE)


class KeyFinder:
    """Finder of the longest and all shorter keys in texts, on borders of words."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self.numbers = numbers
        self._lengths: dict[str, tuple[int, ...]] = {}
        for key in numbers:
            words = key.split(" ")
            lengths = self._lengths.get(words[0], ())
            # By first word, only the lengths that occur are tried: a text is read once, whatever the
            # number of keys.
            if len(words) <= LONGEST and len(words) not in lengths:
                self._lengths[words[0]] = (*lengths, len(words))

    def find_keys(self, words: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield the number of each key that occurs, and how many words it has; a key may come several times."""
        for place, word in enumerate(words):
            for length in self._lengths.get(word, ()):
                number = self.numbers.get(word if length == 1 else " ".join(words[place : place + length]))
                if number is not None and place + length <= len(words):
                    yield number, length


@dataclass(frozen=True, eq=False)
class NodeLabels:
    """Pairs of node and label, by positions of the nodes and numbers of the labels."""

    nodes: Positions
    labels: Positions

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[int, int]]) -> NodeLabels:
        array = np.array(sorted(set(pairs)), dtype=np.int64).reshape(-1, 2)
        return cls(array[:, 0], array[:, 1])

    @classmethod
    def from_rows(cls, rows: Any, nodes: int, labels: int) -> NodeLabels:
        """Build from an array of pairs; raise ValueError where it names nodes or labels that do not exist."""
        if rows.dtype != np.int64 or rows.ndim != 2 or len(rows) != 2:
            raise ValueError("Pairs are two rows of whole numbers.")
        if rows.size and (rows.min() < 0 or (rows.max(axis=1) >= (nodes, labels)).any()):
            raise ValueError("The links lead to no nodes.")
        return cls(*rows)

    def restrict_to(self, readable: Mask | None) -> NodeLabels:
        if readable is None:
            return self
        is_inside = readable[self.nodes]
        return NodeLabels(self.nodes[is_inside], self.labels[is_inside])


@dataclass(frozen=True, eq=False)
class TextLinks:
    """Links in the texts of a group, for every asker."""

    count: int
    titles: KeyFinder
    title_labels: NodeLabels  # nodes and the keys of their titles
    mentions: NodeLabels  # nodes and the title keys that occur in their texts
    names: KeyFinder
    name_labels: NodeLabels  # nodes and the names in their texts

    @classmethod
    def from_arrays(cls, count: int, parts: Mapping[str, Any]) -> TextLinks:
        """Read the links from the arrays of a file, for a group with this many nodes; raise ValueError where they do
        not fit."""
        titles, names = (
            {key: number for number, key in enumerate(_lines(parts[name]))} for name in ("titles", "names")
        )
        pairs = (("titled", titles), ("mentions", titles), ("named", names))
        title_labels, mentions, name_labels = (
            NodeLabels.from_rows(parts[name], count, len(keys)) for name, keys in pairs
        )
        return cls(count, KeyFinder(titles), title_labels, mentions, KeyFinder(names), name_labels)

    def arrays(self) -> dict[str, Any]:
        """Return the arrays that `from_arrays` reads."""
        keys = {"titles": self.titles, "names": self.names}
        pairs = {"titled": self.title_labels, "mentions": self.mentions, "named": self.name_labels}
        texts = {name: np.frombuffer("\n".join(finder.numbers).encode(), np.uint8) for name, finder in keys.items()}
        return texts | {name: np.stack([labels.nodes, labels.labels]) for name, labels in pairs.items()}


@dataclass(frozen=True, eq=False)
class NodeLinks:
    """Links between the nodes that somebody may read, as if there were no others."""

    texts: TextLinks
    readable: Mask | None

    @property
    def count(self) -> int:
        """Return the number of nodes that may be read."""
        return self.texts.count if self.readable is None else int(np.count_nonzero(self.readable))

    @cached_property
    def nodes_of_title(self) -> SparseLabelRows:
        titled = self.texts.title_labels.restrict_to(self.readable)
        return SparseLabelRows.from_pairs(titled.labels, titled.nodes, len(self.texts.titles.numbers))

    @cached_property
    def keys_of_node(self) -> SparseLabelRows:
        titled = self.texts.title_labels.restrict_to(self.readable)
        return SparseLabelRows.from_pairs(titled.nodes, titled.labels, self.texts.count)

    @cached_property
    def leads_to(self) -> SparseLabelRows:
        """Return for each node those whose title occurs in its text."""
        return SparseLabelRows.from_pairs(*self._links, self.texts.count)

    @cached_property
    def led_to_by(self) -> SparseLabelRows:
        """Return for each node those in whose text its title occurs."""
        return SparseLabelRows.from_pairs(*self._links[::-1], self.texts.count)

    @cached_property
    def _links(self) -> tuple[Positions, Positions]:
        mentions, to = self.texts.mentions.restrict_to(self.readable), self.nodes_of_title
        sizes = np.diff(to.starts)[mentions.labels]
        # A title that many nodes share says little, and would link each of them with all.
        is_rare = sizes <= NAMESAKES
        nodes, labels, sizes = mentions.nodes[is_rare], mentions.labels[is_rare], sizes[is_rare]
        sources = np.repeat(nodes, sizes)
        entries = (
            np.arange(len(sources)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(to.starts[labels], sizes)
        )
        pairs = np.unique(sources * self.texts.count + to.columns[entries])
        source, target = np.divmod(pairs, max(1, self.texts.count))
        is_link = source != target
        return source[is_link], target[is_link]

    @cached_property
    def _shared(self) -> NodeLabels:
        """Return names that two nodes share, or more, up to `NAMESAKES`."""
        name_labels = self.texts.name_labels.restrict_to(self.readable)
        spread = np.bincount(name_labels.labels, minlength=len(self.texts.names.numbers))
        is_shared = (spread[name_labels.labels] > 1) & (spread[name_labels.labels] <= NAMESAKES)
        return NodeLabels(name_labels.nodes[is_shared], name_labels.labels[is_shared])

    @cached_property
    def names_of_node(self) -> SparseLabelRows:
        return SparseLabelRows.from_pairs(self._shared.nodes, self._shared.labels, self.texts.count)

    @cached_property
    def nodes_of_name(self) -> SparseLabelRows:
        return SparseLabelRows.from_pairs(self._shared.labels, self._shared.nodes, len(self.texts.names.numbers))


def node_links(snapshot: Snapshot, group: str, names: str, principals: frozenset[str]) -> NodeLinks:
    """Return the links of a group; `names` is the group with a node for each name, empty for none."""
    texts = derived(snapshot.derived, ("text links", group, names), lambda: _load_or_read(snapshot, group, names))
    readable, cache = snapshot.allowed(group, principals).mask, snapshot.derived_of(principals, group)
    return derived(cache, ("node links", group, names), lambda: NodeLinks(texts, readable))


def _load_or_read(snapshot: Snapshot, group: str, names: str) -> TextLinks:
    """Return the links in the file of this generation; read them from the texts, and write them, if it is missing."""
    open_store, folder = snapshot.open_store, links_folder(snapshot.open_store.folder, group)
    path = folder / f"g{snapshot.version}-{digest_of((MADE, names)).hex()[:16]}{SUFFIX}"
    with suppress(*DAMAGED), read_arrays(path) as parts:
        return TextLinks.from_arrays(len(snapshot.open.records(group).keys), parts)
    links = _read_texts(snapshot, group, names)
    with suppress(OSError):  # a store that may only be read, or a full disk: the next process reads them again
        write_arrays(path, links.arrays())
    drop_removed_versions(
        folder, lambda version: open_store.was_published(version) and bool(open_store.row(sql.IS_KEPT, version[:1]))
    )
    return links


def _lines(text: Any) -> list[str]:
    return text.tobytes().decode().split("\n") if text.size else []


def _read_texts(snapshot: Snapshot, group: str, names: str) -> TextLinks:
    keys = snapshot.open.records(group).keys
    numbers: dict[str, int] = {}
    title_pairs = [
        (position, numbers.setdefault(key, len(numbers)))
        for position, context in enumerate(texts_of(snapshot, keys, CONTEXT))
        for key in sorted(title_keys(context.partition("\n")[0]))
    ]
    titles = KeyFinder(numbers)
    mentions = set[tuple[int, int]]()
    for position, text in enumerate(texts_of(snapshot, keys, TEXT) if numbers else ()):
        if position % _BETWEEN_CHECKS == 0:
            check_cancelled()
        mentions.update((position, number) for number, _ in titles.find_keys(split_words(text)))
    name_pairs, names_found = _read_names(snapshot, group, names) if names else ([], {})
    if names:  # a node has its own titles for names too
        keys_by_number = list(numbers)
        name_pairs += [
            (position, names_found.setdefault(key, len(names_found)))
            for position, key in _spell_titles(title_pairs, keys_by_number)
        ]
    return TextLinks(
        len(keys),
        titles,
        NodeLabels.from_pairs(title_pairs),
        NodeLabels.from_pairs(mentions),
        KeyFinder(names_found),
        NodeLabels.from_pairs(name_pairs),
    )


def _spell_titles(labels: Iterable[tuple[int, int]], keys: Sequence[str]) -> Iterator[tuple[int, str]]:
    return ((node, keys[number]) for node, number in labels)


NAMING = ("name", "acronym", "quote")
"""Types of entities that are names: the same year or number says little."""


def _read_names(snapshot: Snapshot, group: str, names: str) -> tuple[list[tuple[int, int]], dict[str, int]]:
    """Return which node has which name, by the nodes of a group below."""
    itself, climbing = AncestorPath(snapshot, group, group), AncestorPath(snapshot, names, group)
    positions = {itself.ancestor_id(row): node for node, row in enumerate(rows_of(snapshot, group))}
    numbers: dict[str, int] = {}
    pairs = []
    for row in rows_of(snapshot, names):
        meta = dict(unpack_values(row.meta))
        key = " ".join(split_words(str(meta.get("entity", ""))))
        if (
            meta.get("type") in NAMING
            and len(key) > SHORTEST
            and (node := positions.get(climbing.ancestor_id(row))) is not None
        ):
            pairs.append((node, numbers.setdefault(key, len(numbers))))
    return pairs, numbers

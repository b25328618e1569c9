"""Chains of passages: what links each passage to the next."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations

from spolia.indexing.transforms.rule_entities import RuleEntities
from spolia.stores.definition import Part
from spolia.types import Document, Node, Value

_NAMES = RuleEntities(("name", "acronym", "quote"))


def place_in_order(seed: int, *ids: str) -> bytes:
    """Return the place of an item in the order of a seed, independent of other items."""
    # Ids can hold half characters.
    return blake2b("\0".join((str(seed), *ids)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(frozen=True)
class PassageChain(Value):
    """Passages by their ids, and what each has in common with the next one; empty where no rule finds a name."""

    ids: tuple[str, ...]
    links: tuple[str, ...]


class ChainWalk:
    """Walk from passage to passage along what links them, in the order of a seed.

    Where a passage names the title of another document, that document tells what the passage only names: a question can
    go on there. Passages that share any other name may each say of it what leads nowhere. So titles come first.

    Args:
        nodes: the passages by id.
        linked: pairs of ids, the smaller first, that share a name or are linked otherwise.
        titles: by the ids of a passage and of another document's first passage, the title that the passage names.
        seed: of the order.
        limit: chains with the same passage at most.
    """

    def __init__(
        self,
        nodes: Mapping[str, Node],
        linked: Iterable[tuple[str, str]],
        titles: Mapping[tuple[str, str], str],
        seed: int,
        limit: int,
    ) -> None:
        self._nodes, self._titles, self._seed, self._limit = nodes, titles, seed, limit
        titled_pairs = ((min(pair), max(pair)) for pair in titles)
        self._linked: list[tuple[str, str]] = sorted({*linked, *titled_pairs}, key=self._place)
        self._names: dict[str, frozenset[str]] = {}
        self._used = Counter[str]()

    def chains(self, length: int, titles_first: bool) -> Iterator[PassageChain]:
        """Yield chains of `length` passages of different documents; `titles_first`: first those that lead from title to
        title."""
        drawn_ids = set[frozenset[str]]()
        titled_pairs: list[tuple[str, str]] = sorted(self._titles, key=self._place) if titles_first else []
        titled_steps, linked_steps = (
            _neighbours(titled_pairs),
            _neighbours([*self._linked, *(pair[::-1] for pair in self._linked)]),
        )
        starts = [(pair, titled_steps) for pair in titled_pairs] + [
            (direction, linked_steps) for p in self._linked for direction in (p, p[::-1])
        ]
        for pair, steps in starts:
            chain = self._extend(pair, length, steps)
            if chain and frozenset(chain.ids) not in drawn_ids:
                drawn_ids.add(frozenset(chain.ids))
                self._used.update(chain.ids)
                yield chain

    def _extend(
        self, pair: tuple[str, str], length: int, neighbours: Mapping[str, Sequence[str]]
    ) -> PassageChain | None:
        """Return the chain that begins with a pair; None if none does."""
        if not self._may_join(pair):
            return None
        ids: tuple[str, ...] = pair
        links: tuple[str, ...] = (self._find_link(*pair),)
        # Without a common name at its beginning a chain asks for nothing.
        while len(ids) < length and links[0]:
            candidates = sorted(neighbours.get(ids[-1], ()), key=lambda id: self._place((*ids, id)))
            steps = ((id, self._find_link(ids[-1], id)) for id in candidates if self._may_join((*ids, id)))
            used_links = {link.casefold() for link in links}
            step = next((step for step in steps if step[1] and step[1].casefold() not in used_links), None)
            if step is None:
                return None
            ids, links = (*ids, step[0]), (*links, step[1])
        return PassageChain(ids, links) if len(ids) == length else None

    def _place(self, ids: Sequence[str]) -> bytes:
        return place_in_order(self._seed, *ids)

    def _may_join(self, ids: Sequence[str]) -> bool:
        """Return whether passages are of different documents, with different texts, and none was used too often."""
        nodes = [self._nodes[id] for id in ids]
        are_different = len({node.document for node in nodes}) == len({node.text for node in nodes}) == len(nodes)
        return are_different and all(self._used[id] < self._limit for id in ids)

    def _find_link(self, first: str, second: str) -> str:
        """Return what two passages share: the title of the other that one names, or the longest name in both."""
        title = self._titles.get((first, second)) or self._titles.get((second, first))
        # Sorted: of names of one length the first in the alphabet, since sets have no order.
        return title or max(sorted(self._cached_names(first) & self._cached_names(second)), key=len, default="")

    def _cached_names(self, id: str) -> frozenset[str]:
        if id not in self._names:
            self._names[id] = names_of(self._nodes[id])
        return self._names[id]


def _neighbours(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the passages that each passage leads to."""
    neighbours: dict[str, list[str]] = {}
    for first, second in pairs:
        neighbours.setdefault(first, []).append(second)
    return neighbours


def names_of(node: Node) -> frozenset[str]:
    """Return the names in a passage, by rule."""
    return frozenset(piece.text for piece in _NAMES(Part(node, Document(node.document, node.text))))


def pairs_sharing_names(nodes: Mapping[str, Node]) -> Iterator[tuple[str, str]]:
    """Yield pairs of passages in which the same name stands; a name in more than `MOST_NAMING` passages links none."""
    ids_by_name: dict[str, list[str]] = {}
    for id in sorted(nodes):
        for name in sorted(names_of(nodes[id])):
            ids_by_name.setdefault(name, []).append(id)
    for ids in ids_by_name.values():
        yield from combinations(ids, 2) if len(ids) <= MOST_NAMING else ()


SHORTEST_TITLE = 2
"""Characters of a title that is looked for in passages; of one in letters that have cases one more."""
MOST_NAMING = 50
"""A title or name that more passages name is a word like any other, such as "Introduction", and links none."""


def find_references(nodes: Mapping[str, Node], titles: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield passages that name the title of another document: its id, that of the other's first passage, and the title.

    Args:
        nodes: the passages by id.
        titles: by the ids of documents.

    >>> nodes = {"n": Node("n", "消息传到了长安城。", "a"), "m": Node("m", "它是唐朝的都城。", "b")}
    >>> list(find_references(nodes, {"a": "", "b": "长安城"}))
    [('n', 'm', '长安城')]
    """
    first: dict[str, Node] = {}
    for node in sorted(nodes.values(), key=lambda node: (node.number, node.id)):
        first.setdefault(node.document, node)
    beginning: dict[str, list[tuple[str, str]]] = {}
    count = Counter(titles.values())
    for document, title in sorted(titles.items()):
        # A title that several documents have leads to none.
        if len(title) >= SHORTEST_TITLE + (title.lower() != title.upper()) and document in first and count[title] == 1:
            # By their first characters, all titles are found in one pass over a text.
            beginning.setdefault(title[:SHORTEST_TITLE], []).append((title, document))
    mentions_of: dict[str, list[tuple[str, str, str]]] = {}
    for id, node in nodes.items():
        text, named_titles = node.text, dict[str, str]()
        for start in range(len(text) - SHORTEST_TITLE + 1):
            for title, document in beginning.get(text[start : start + SHORTEST_TITLE], ()):
                if (
                    document != node.document
                    and text.startswith(title, start)
                    and _is_whole_word(text, start, start + len(title))
                ):
                    named_titles[document] = title
        for document, title in named_titles.items():
            mentions_of.setdefault(document, []).append((id, first[document].id, title))
    for mentions in mentions_of.values():
        yield from mentions if len(mentions) <= MOST_NAMING else ()


def _is_whole_word(text: str, start: int, end: int) -> bool:
    """Return whether a stretch splits no word, in scripts that separate words by blanks and add nothing to them."""
    return not any(
        0 < end_index < len(text) and _is_inside_word(text[end_index - 1], text[end_index])
        for end_index in (start, end)
    )


def _is_inside_word(left: str, right: str) -> bool:
    return left.isalnum() and right.isalnum() and max(left, right) < _EAST_ASIA


_EAST_ASIA = "\u1100"
"""Scripts from here on write words without blanks between them, or add particles to them."""

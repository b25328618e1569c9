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
    """The place of an item in the order of a seed, independent of other items."""
    return blake2b("\0".join((str(seed), *ids)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(frozen=True)
class PassageChain(Value):
    """Passages by their ids, and what each has in common with the next one; empty where no rule finds a name."""

    ids: tuple[str, ...]
    links: tuple[str, ...]


class ChainWalk:
    """Walks from passage to passage along what links them, in the order of a seed.

    Where a passage names the title of another document, that document tells what the passage only names: a question can
    go on there. Passages that share any other name may each say of it what leads nowhere. So titles come first.

    Args:
        nodes: the passages by id.
        linked: pairs of ids, the smaller first, that share a name or are linked otherwise.
        titles: by the ids of a passage and of another document's first passage, the title that the passage names.
        seed: of the order.
        most: chains with the same passage at most.
    """

    def __init__(
        self,
        nodes: Mapping[str, Node],
        linked: Iterable[tuple[str, str]],
        titles: Mapping[tuple[str, str], str],
        seed: int,
        most: int,
    ) -> None:
        self._nodes, self._titles, self._seed, self._most = nodes, titles, seed, most
        named = ((min(pair), max(pair)) for pair in titles)
        self._linked: list[tuple[str, str]] = sorted({*linked, *named}, key=self._place)
        self._names: dict[str, frozenset[str]] = {}
        self._used = Counter[str]()

    def chains(self, length: int, titles_first: bool) -> Iterator[PassageChain]:
        """Chains of `length` passages of different documents; `titles_first`: those that lead from title to title."""
        seen = set[frozenset[str]]()
        named: list[tuple[str, str]] = sorted(self._titles, key=self._place) if titles_first else []
        onward, near = _neighbours(named), _neighbours([*self._linked, *(pair[::-1] for pair in self._linked)])
        begins = [(pair, onward) for pair in named] + [(way, near) for p in self._linked for way in (p, p[::-1])]
        for pair, steps in begins:
            found = self._from(pair, length, steps)
            if found and frozenset(found.ids) not in seen:
                seen.add(frozenset(found.ids))
                self._used.update(found.ids)
                yield found

    def _from(self, pair: tuple[str, str], length: int, near: Mapping[str, Sequence[str]]) -> PassageChain | None:
        """The chain that begins with a pair; None where none does."""
        if not self._may_join(pair):
            return None
        ids: tuple[str, ...] = pair
        links: tuple[str, ...] = (self._link(*pair),)
        while len(ids) < length and links[0]:
            further = sorted(near.get(ids[-1], ()), key=lambda id: self._place((*ids, id)))
            steps = ((id, self._link(ids[-1], id)) for id in further if self._may_join((*ids, id)))
            told = {link.casefold() for link in links}
            step = next((step for step in steps if step[1] and step[1].casefold() not in told), None)
            if step is None:
                return None
            ids, links = (*ids, step[0]), (*links, step[1])
        return PassageChain(ids, links) if len(ids) == length else None

    def _place(self, ids: Sequence[str]) -> bytes:
        return place_in_order(self._seed, *ids)

    def _may_join(self, ids: Sequence[str]) -> bool:
        """Whether passages are of different documents, with different texts, and none was used too often."""
        nodes = [self._nodes[id] for id in ids]
        differ = len({node.document for node in nodes}) == len({node.text for node in nodes}) == len(nodes)
        return differ and all(self._used[id] < self._most for id in ids)

    def _link(self, one: str, other: str) -> str:
        """What two passages have in common: the title that one names of the other, or the longest name in both."""
        title = self._titles.get((one, other)) or self._titles.get((other, one))
        return title or max(sorted(self._named(one) & self._named(other)), key=len, default="")

    def _named(self, id: str) -> frozenset[str]:
        if id not in self._names:
            self._names[id] = names_of(self._nodes[id])
        return self._names[id]


def _neighbours(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """What each passage leads to."""
    found: dict[str, list[str]] = {}
    for one, other in pairs:
        found.setdefault(one, []).append(other)
    return found


def names_of(node: Node) -> frozenset[str]:
    """The names in a passage, by rule."""
    return frozenset(piece.text for piece in _NAMES(Part(node, Document(node.document, node.text))))


def naming_the_same(nodes: Mapping[str, Node]) -> Iterator[tuple[str, str]]:
    """Pairs of passages in which the same name stands; a name in more than `MOST_NAMING` passages links none."""
    naming: dict[str, list[str]] = {}
    for id in sorted(nodes):
        for name in sorted(names_of(nodes[id])):
            naming.setdefault(name, []).append(id)
    for ids in naming.values():
        yield from combinations(ids, 2) if len(ids) <= MOST_NAMING else ()


SHORTEST_TITLE = 2
"""Characters of a title that is looked for in passages; of one in letters that have cases one more."""
MOST_NAMING = 50
"""A title or name that more passages name is a word like any other, such as "Introduction", and links none."""


def references(nodes: Mapping[str, Node], titles: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Passages that name the title of another document: its id, that of the other's first passage, and the title.

    Args:
        nodes: the passages by id.
        titles: by the ids of documents.

    >>> nodes = {"n": Node("n", "消息传到了长安城。", "a"), "m": Node("m", "它是唐朝的都城。", "b")}
    >>> list(references(nodes, {"a": "", "b": "长安城"}))
    [('n', 'm', '长安城')]
    """
    first: dict[str, Node] = {}
    for node in sorted(nodes.values(), key=lambda node: (node.number, node.id)):
        first.setdefault(node.document, node)
    beginning: dict[str, list[tuple[str, str]]] = {}
    count = Counter(titles.values())
    for document, title in sorted(titles.items()):
        if len(title) >= SHORTEST_TITLE + (title.lower() != title.upper()) and document in first and count[title] == 1:
            beginning.setdefault(title[:SHORTEST_TITLE], []).append((title, document))
    naming: dict[str, list[tuple[str, str, str]]] = {}
    for id, node in nodes.items():
        text, found = node.text, dict[str, str]()
        for at in range(len(text) - SHORTEST_TITLE + 1):
            for title, document in beginning.get(text[at : at + SHORTEST_TITLE], ()):
                if document != node.document and text.startswith(title, at) and _is_whole(text, at, at + len(title)):
                    found[document] = title
        for document, title in found.items():
            naming.setdefault(document, []).append((id, first[document].id, title))
    for named in naming.values():
        yield from named if len(named) <= MOST_NAMING else ()


def _is_whole(text: str, start: int, end: int) -> bool:
    """Whether a stretch cuts no word in two, in scripts that set words apart by blanks and add nothing to them."""
    return not any(0 < at < len(text) and _cuts(text[at - 1], text[at]) for at in (start, end))


def _cuts(before: str, after: str) -> bool:
    return before.isalnum() and after.isalnum() and max(before, after) < _EAST_ASIA


_EAST_ASIA = "\u1100"
"""Scripts from here on write words without blanks between them, or add particles to them."""

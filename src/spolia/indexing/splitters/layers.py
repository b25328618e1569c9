"""Cutting along the structure of a text: whole where it fits, else along the next finer layer.

A layer cuts a stretch of text into units. A unit that fits stays whole and shares a window with its neighbours; one
that does not is cut by the next layer, and its parts share windows with each other only. Each layer reads what it cuts
once, and there are few layers, so that the time is linear however deep a text is nested.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from spolia.core.sentences import each_sentence
from spolia.indexing.splitters.windows import Atom, may_cut, parts, stripped
from spolia.stores.definition import Part, places_in
from spolia.stores.groups.nodes import BETWEEN
from spolia.types import Heading

if TYPE_CHECKING:
    from spolia.indexing.splitters.sized_splitter import SizeBound

LABEL = 80
"""Characters of a label at most."""


class Unit(NamedTuple):
    """A stretch `text[start:end]` without blanks around it. If it is cut, `label` names what its parts belong to; one
    that is `alone` shares no window with its neighbours.
    """

    start: int
    end: int
    label: str = ""
    alone: bool = False


Layer = Callable[[str, int, int], Iterable[Unit]]


@dataclass(eq=False)
class Section:
    """Atoms that may share a window; its text is the labels of what they are parts of."""

    labels: str

    def __str__(self) -> str:
        return self.labels


class Layered:
    """Makes atoms of the units of a text.

    Args:
        layers: from coarse to fine; what is too long below the last one is cut after words.
        bound: of an atom; the labels above it have at most a quarter of its characters.
    """

    def __init__(self, text: str, layers: Sequence[Layer], bound: "SizeBound") -> None:
        self.text, self.layers, self.bound = text, layers, bound

    def atoms(self, units: Iterable[Unit], depth: int = 0, labels: str = "") -> Iterator[Atom]:
        """The units in order, those that are too long in parts."""
        section = Section(labels)
        for unit in _whole(self.text, units):
            if (span := stripped(self.text, unit.start, unit.end)) is None:
                continue
            tokens = self.bound.measured(self.text, *span)
            if tokens is None:
                below = BETWEEN.join(filter(None, (labels, unit.label[:LABEL].strip())))
                yield from self._cut(span, unit.end, depth, below[: self.bound.characters // 4])
                section = Section(labels)
                continue
            if unit.alone:
                section = Section(labels)
            yield Atom(*span, section, tokens, True)
            if unit.alone:
                section = Section(labels)

    def _cut(self, span: tuple[int, int], end: int, depth: int, labels: str) -> Iterator[Atom]:
        if depth == len(self.layers):
            return parts(self.text, *span, Section(labels), self.bound)
        return self.atoms(self.layers[depth](self.text, span[0], end), depth + 1, labels)


def _whole(text: str, units: Iterable[Unit]) -> Iterator[Unit]:
    """Units of which none begins inside what a reader sees as one character: there it goes on with the one before."""
    held: Unit | None = None
    for unit in units:
        if held is None or unit.start != held.end or may_cut(text, unit.start):
            if held is not None:
                yield held
            held = unit
        else:
            held = held._replace(end=unit.end)
    if held is not None:
        yield held


def by_sentence(text: str, start: int, end: int) -> Iterator[Unit]:
    """A unit for each sentence."""
    for left, right in each_sentence(text[start:end]):
        yield Unit(start + left, start + right)


def by_line(text: str, start: int, end: int) -> Iterator[Unit]:
    """A unit for each line."""
    while start < end:
        after = text.find("\n", start, end) + 1 or end
        yield Unit(start, after)
        start = after


def at_places(places: Sequence[int], labels: Mapping[int, str] | None = None) -> Layer:
    """A layer that cuts at these places. `places`: in order. `labels`: of the units that end there."""
    said = labels or {}

    def layer(text: str, start: int, end: int) -> Iterator[Unit]:
        for number in range(bisect_right(places, start), len(places)):
            place = places[number]
            if place >= end:
                break
            yield Unit(start, place, said.get(place, ""))
            start = place
        yield Unit(start, end, said.get(end, ""))

    return layer


def alone(units: Iterable[Unit]) -> Iterator[Unit]:
    """The same units, each for itself."""
    return (unit._replace(alone=True) for unit in units)


def sections_of(part: Part, level: int, seen: Iterable[Heading] = ()) -> tuple[Iterator[Unit], Layer]:
    """The sections of a part, each alone, down to headings of a level, and the layer that cuts them at deeper ones.
    `seen`: headings in the text of the part, for a document that has none noted."""
    noted, text = part.document.headings, part.node.text
    found = noted or list(seen)
    coarse, fine = ([one.start for one in found if (one.level > level) is deep] for deep in (False, True))
    if noted:
        coarse, fine = places_in(part, coarse), places_in(part, fine)
    return alone(at_places(coarse)(text, 0, len(text))), at_places(fine)

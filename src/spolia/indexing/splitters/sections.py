"""Sections of a document: what stands below a heading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spolia.indexing.splitters.layers import Layer, Unit, alone, at_places
from spolia.indexing.splitters.places import places_in
from spolia.stores.definition import Part
from spolia.types import Heading


class Sections(NamedTuple):
    """Where sections begin: those that a piece never goes across, and those below them."""

    coarse: list[int]
    fine: list[int]

    def units(self, text: str) -> Iterator[Unit]:
        """The coarse sections, each alone."""
        return alone(at_places(self.coarse)(text, 0, len(text)))

    @property
    def layer(self) -> Layer:
        """Cuts a coarse section into the finer ones."""
        return at_places(self.fine)


def sections_of(part: Part, headings: Sequence[Heading], level: int) -> Sections:
    """The sections of a part of a document.

    Args:
        headings: of the document.
        level: the deepest heading that begins a coarse section.
    """
    coarse = [heading.start for heading in headings if heading.level <= level]
    fine = [heading.start for heading in headings if heading.level > level]
    return Sections(places_in(part, coarse), places_in(part, fine))

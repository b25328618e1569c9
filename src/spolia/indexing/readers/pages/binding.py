"""Binding pages to a document: broken words decided with all pages, places counted through the whole text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from spolia.indexing.readers.hyphens import joints
from spolia.indexing.readers.pages.headings import by_style
from spolia.indexing.readers.pages.leaf import Leaf, Spot
from spolia.indexing.readers.pages.outline import Bookmark, outlined
from spolia.indexing.readers.pages.writing import Written, moved
from spolia.indexing.readers.reading import Blob
from spolia.types import Box, Boxes, Heading, Region


@dataclass(frozen=True)
class Bound:
    """A whole document.

    Args:
        text: of all pages, with a line end between them.
        starts: where each page starts.
        title: the largest line of the first page, where it is clearly one; empty where the file has an outline.
        headings, boxes: as in `Document`.
        spots: page, from 1, with each table or picture on it; their places count in the text of the document.
    """

    text: str
    starts: tuple[int, ...]
    title: str
    headings: tuple[Heading, ...]
    boxes: Boxes
    spots: tuple[tuple[int, Spot], ...]

    def regions(self, folder: str) -> tuple[Region, ...]:
        """Tables and pictures; `folder` is what the uris of pictures begin with."""
        return tuple(
            Region(
                spot.kind,
                spot.start,
                spot.end,
                spot.rows,
                image=picture.content_hash if (picture := _blob(folder, page, spot)) else "",
                caption=spot.caption,
                box=Box(page, *spot.area),
            )
            for page, spot in self.spots
        )

    def images(self, folder: str) -> tuple[Blob, ...]:
        """The pictures whose bytes were read, each once."""
        found = [blob for page, spot in self.spots if (blob := _blob(folder, page, spot))]
        return tuple({blob.content_hash: blob for blob in reversed(found)}.values())[::-1]


def bound(leaves: Sequence[Leaf], marks: Sequence[Bookmark]) -> Bound:
    """The document of some pages and an outline."""
    changes = joints([leaf.written.text for leaf in leaves])
    pages = [leaf.written.after(change) for leaf, change in zip(leaves, changes, strict=True)]
    starts = tuple(accumulate((len(page.text) + 1 for page in pages[:-1]), initial=0))

    def place(page: int, at: int) -> int:
        return starts[page] + moved(at, changes[page])

    spots = tuple(
        (number + 1, spot.at(place(number, spot.start), place(number, spot.end)))
        for number, leaf in enumerate(leaves)
        for spot in leaf.spots
    )
    headings, title = outlined(marks, [page.text for page in pages], starts), ""
    if not headings:
        styled = [line for leaf in leaves for line in leaf.styled]
        title, found = by_style(styled, _sizes(leaves), sum(len(page.places) for page in pages))
        headings = tuple(Heading(place(page, at), level, said) for page, at, level, said in found)
    text = "\n".join(page.text for page in pages)
    return Bound(text, starts, title, headings, Boxes(b"".join(_packed(pages, starts))), spots)


def _sizes(leaves: Sequence[Leaf]) -> Counter[float]:
    found: Counter[float] = Counter()
    for leaf in leaves:
        found.update(leaf.sizes)
    return found


def _packed(pages: Sequence[Written], starts: Sequence[int]) -> Iterator[bytes]:
    for page, start in zip(pages, starts, strict=True):
        places: Any = page.places.copy()
        places["start"] += np.int32(start)
        places["end"] += np.int32(start)
        yield places.tobytes()


def _blob(folder: str, page: int, spot: Spot) -> Blob | None:
    picture = spot.picture
    if picture is None or not picture.data:
        return None
    left, top = (max(0, round(side)) for side in picture.area[:2])
    return Blob(f"{folder}page-{page}-{left}-{top}{picture.suffix}", picture.data)

"""Where a part stands in its document, and what of the document lies in it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from spolia.stores.definition import Part
from spolia.types import Region, Span


def offset_of(part: Part) -> int | None:
    """Where the part begins in its document; None where it is no stretch of it."""
    if (offset := part.offset) is not None:
        return offset
    return 0 if part.node.text == part.document.text else None


def places_in(part: Part, places: Sequence[int]) -> list[int]:
    """Those places of the document that lie in the part, counted from the part's beginning."""
    offset = offset_of(part) if places else None
    if offset is None:
        return []
    first = bisect_left(places, offset)
    last = bisect_left(places, offset + len(part.node.text), first)
    return [place - offset for place in places[first:last]]


def regions_in(part: Part, kind: str) -> list[Region]:
    """The outermost regions of a kind that lie wholly in the part, counted from the part's beginning."""
    offset = offset_of(part) if part.document.regions else None
    found: list[Region] = []
    for region in part.document.regions if offset is not None else ():
        start, end = region.start - (offset or 0), region.end - (offset or 0)
        is_within = bool(found) and start < found[-1].end
        if region.kind == kind and 0 <= start <= end <= len(part.node.text) and not is_within:
            found.append(region.but(start=start, end=end))
    return found


def stretch(part: Part, start: int, end: int) -> Part:
    """A part of a part."""
    offset = offset_of(part)
    span = None if offset is None else Span(offset + start, offset + end)
    return part.but(node=part.node.but(text=part.node.text[start:end], span=span))

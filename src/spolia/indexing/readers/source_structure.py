"""Readings whose text is the source itself: a failure to find the structure never costs the text."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from spolia.indexing.readers.reader import Blob, FileReader, Reading
from spolia.indexing.readers.text import DecodedText
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Heading, Meta, Region


class Structure(NamedTuple):
    """Headings, regions and metadata that a reader finds in a text."""

    title: str = ""
    headings: Iterable[Heading] = ()
    regions: Iterable[Region] = ()
    meta: Meta = ()
    dropped: Mapping[str, int] = {}
    images: Iterable[Blob] = ()
    linked_images: tuple[tuple[int, str], ...] = ()
    warnings: tuple[str, ...] = ()


def read_structured(
    source: DecodedText, reader: FileReader, blob: Blob, find_structure: Callable[[str], Structure]
) -> Reading:
    """Return the reading of a text with its structure; if finding that fails, with a warning instead."""
    failures = UnitFailures()

    def read() -> Structure:
        structure = find_structure(source.text)
        # Made now: they may be generators, whose failure would come outside of the attempt.
        return structure._replace(headings=tuple(structure.headings), regions=tuple(structure.regions))

    structure = failures.attempt("structure", read, Structure())
    reading = source.build_reading(
        reader,
        blob,
        title=structure.title,
        headings=structure.headings,
        regions=structure.regions,
        meta=structure.meta,
        dropped={**structure.dropped, **failures.dropped()},
    )
    warnings = (*reading.warnings, *structure.warnings, *failures.warnings())
    return reading.but(images=tuple(structure.images), linked_images=structure.linked_images, warnings=warnings)

"""Documents whose text is the source itself: what stands where in it is noted, and never costs the text."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from spolia.indexing.readers.reader import Blob, FileReader, Reading
from spolia.indexing.readers.text import Decoded
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Heading, Meta, Region


class Structure(NamedTuple):
    """What a reader notes of a text beside its words."""

    title: str = ""
    headings: Iterable[Heading] = ()
    regions: Iterable[Region] = ()
    meta: Meta = ()
    dropped: Mapping[str, int] = {}
    images: Iterable[Blob] = ()
    beside: tuple[tuple[int, str], ...] = ()
    warnings: tuple[str, ...] = ()


def structured(source: Decoded, reader: FileReader, blob: Blob, note: Callable[[str], Structure]) -> Reading:
    """The reading of a text with its structure; without it, and a warning, if noting it fails."""
    failures = UnitFailures()

    def read() -> Structure:
        found = note(source.text)
        return found._replace(headings=tuple(found.headings), regions=tuple(found.regions))

    found = failures.attempt("structure", read, Structure())
    reading = source.reading(
        reader,
        blob,
        title=found.title,
        headings=found.headings,
        regions=found.regions,
        meta=found.meta,
        dropped={**found.dropped, **failures.dropped()},
    )
    warnings = (*reading.warnings, *found.warnings, *failures.warnings())
    return reading.but(images=tuple(found.images), beside=found.beside, warnings=warnings)

"""What a worker that reads files may use, and how readings are sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spolia.indexing.readers.reader import Blob, Reading
from spolia.stores.definition import Piece, Pieces
from spolia.stores.groups.nodes import CutPieces
from spolia.types import Box, Boxes, Document, Heading, Region, Value


@dataclass(frozen=True)
class WorkerLimits(Value):
    """Limits for reading one file.

    Args:
        seconds: of wall-clock time, and one more for each megabyte of the file; then the worker is killed.
        memory_mb: megabytes of memory of its own, with what Python and the reader's package take. Enforced where the
            system can (Linux).
        written_mb: megabytes of each file that it writes, for programs that it calls.
        attempts: how often a file that kills its worker is tried; a file whose reader says what is wrong is read once.
    """

    seconds: float = 120.0
    memory_mb: int = 2_048
    written_mb: int = 512
    attempts: int = 2

    def seconds_for(self, size: int) -> float:
        """How long a file of this size may take: 5,000 pages may, also where the machine has much else to do.

        >>> WorkerLimits().seconds_for(1_000), WorkerLimits().seconds_for(170_000_000)
        (120.0, 290.0)
        """
        return self.seconds + size // 1_000_000


_OF_DOCUMENT = ("id", "text", "uri", "title", "media_type", "pages", "meta")
_OF_READING = ("encoding", "empty_pages", "ocr_pages", "dropped", "beside", "warnings", "lacks")


def plain(reading: Reading) -> tuple[dict[str, Any], list[bytes]]:
    """A reading as what JSON has, and its bytes apart."""
    document = reading.document
    said = {name: getattr(document, name) for name in _OF_DOCUMENT}
    said |= {name: getattr(reading, name) for name in _OF_READING}
    said["headings"] = [(heading.start, heading.level, heading.text) for heading in document.headings]
    said["regions"] = [_region(region) for region in document.regions]
    said["images"] = [image.uri for image in reading.images]
    return said, [document.boxes.packed, *(image.data for image in reading.images)]


def reading_of(said: Mapping[str, Any], attached: Sequence[bytes]) -> Reading:
    """The reading that was sent. Raises KeyError, TypeError, ValueError where it is none."""
    document = Document(
        id=str(said["id"]),
        text=str(said["text"]),
        uri=str(said["uri"]),
        title=str(said["title"]),
        media_type=str(said["media_type"]),
        pages=tuple(map(int, said["pages"])),
        headings=tuple(Heading(int(start), int(level), str(text)) for start, level, text in said["headings"]),
        meta=tuple((str(name), value) for name, value in said["meta"]),
        regions=tuple(map(_region_of, said["regions"])),
        boxes=Boxes(attached[0]),
    )
    return Reading(
        document,
        encoding=str(said["encoding"]),
        empty_pages=tuple(map(int, said["empty_pages"])),
        ocr_pages=tuple(map(int, said["ocr_pages"])),
        dropped=tuple((str(what), int(count)) for what, count in said["dropped"]),
        images=tuple(Blob(str(uri), data) for uri, data in zip(said["images"], attached[1:], strict=True)),
        beside=tuple(_named(said["beside"], len(document.regions))),
        warnings=tuple(map(str, said["warnings"])),
        lacks=str(said["lacks"]),
    )


def plain_pieces(found: CutPieces) -> dict[str, Any]:
    """Pieces as what JSON has."""
    return {
        group: [[[p.text, p.start, p.context, p.search_text, p.meta] for p in part] for part in parts]
        for group, parts in found.items()
    }


def pieces_of(said: Mapping[str, Any]) -> dict[str, list[Pieces]]:
    """The pieces that were sent; whether they are of the document is found when nodes are made of them."""
    return {str(group): [tuple(_piece_of(*piece) for piece in part) for part in parts] for group, parts in said.items()}


def _piece_of(text: Any, start: Any, context: Any, search_text: Any, meta: Any) -> Piece:
    named = tuple((str(name), value) for name, value in meta)
    return Piece(str(text), None if start is None else int(start), str(context), str(search_text), named)


def _named(said: Sequence[Any], regions: int) -> Iterator[tuple[int, str]]:
    """Names of regions by number; a number must be one of the `regions`."""
    for number, name in said:
        if not 0 <= int(number) < regions:
            raise ValueError(f"there is no region {number}")
        yield int(number), str(name)


def _region(region: Region) -> list[Any]:
    box = region.box
    sides = None if box is None else (box.page, box.left, box.top, box.right, box.bottom)
    return [region.kind, region.start, region.end, region.rows, region.image, region.caption, sides, region.seconds]


def _region_of(said: Sequence[Any]) -> Region:
    kind, start, end, rows, image, caption, sides, seconds = said
    box = None if sides is None else Box(int(sides[0]), *map(float, sides[1:]))
    cells = tuple(tuple(map(str, row)) for row in rows)
    time = None if seconds is None else (float(seconds[0]), float(seconds[1]))
    return Region(str(kind), int(start), int(end), cells, str(image), str(caption), box, time)

"""A worker that reads files or embeds texts: what it may use, how its results are sent, and its process."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from spolia.core.run_context import charge
from spolia.deferred import numpy as np
from spolia.indexing.readers.reader import Blob, Container, Reading
from spolia.indexing.workers.prepare import Prepared, prepare
from spolia.stores.definition import Piece, Pieces
from spolia.stores.groups.nodes import CutPieces
from spolia.types import Box, Boxes, Document, Heading, Region, Usage, Value
from spolia.worker_process import WireFrame, die_with_parent, read_frame, serve, write_frame

if TYPE_CHECKING:
    from spolia.types.arrays import Vectors


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
_OF_READING = ("encoding", "empty_pages", "ocr_pages", "dropped", "linked_images", "warnings", "lacks")


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
        linked_images=tuple(_named(said["linked_images"], len(document.regions))),
        warnings=tuple(map(str, said["warnings"])),
        lacks=str(said["lacks"]),
    )


def plain_prepared(found: Prepared) -> WireFrame:
    """A source after reading and splitting, as a frame."""
    reading, images = plain(found.reading)
    return {**reading, "pieces": plain_pieces(found.pieces), "has_parts": found.has_parts}, images


def prepared_of(said: Mapping[str, Any], attached: Sequence[bytes]) -> Prepared:
    """What was sent. Raises KeyError, TypeError, ValueError where it is nothing of the kind."""
    has_parts = said["has_parts"]
    return Prepared(
        reading_of(said, attached), pieces_of(said["pieces"]), None if has_parts is None else bool(has_parts)
    )


def embedded(embed: Callable[[], Vectors]) -> WireFrame:
    """The vectors that a call gives, and what it charges."""
    from spolia.run import Run

    with Run() as run:
        vectors = embed()
    used = run.usage
    usage = used.calls, used.input_tokens, used.output_tokens, used.embedded
    return {"usage": usage, "cost_usd": used.cost_usd}, [vectors.astype("<f4").tobytes()]


def vectors_of(said: Mapping[str, Any], attached: Sequence[bytes], rows: int, dimension: int) -> Vectors:
    """The vectors that were sent; they are charged to the run. Raises as `prepared_of`."""
    usage = Usage(*map(int, said["usage"])).but(cost_usd=float(said["cost_usd"]))
    found = np.frombuffer(attached[0], "<f4").reshape(rows, dimension)
    if not np.isfinite(found).all():
        raise ValueError("they are not finite")
    charge(usage)
    return found


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


def main() -> None:
    """Serve the process that started this one."""
    die_with_parent()
    serve(_answer)


def _answer(said: dict[str, Any], attached: list[bytes], requests: BinaryIO, replies: BinaryIO) -> None:
    """One request. A reply that began is ended, whatever happens."""
    reader: Any = pickle.loads(attached[0])  # from the process that started this one
    if said["task"] == "embed":
        write_frame(replies, *embedded(lambda: reader.embed(said["texts"], kind="passage")))
        return
    blob = Blob(said["uri"], Path(said["path"]) if said["path"] else attached[1])
    if said["task"] == "parts":
        assert isinstance(reader, Container)
        for number, part in enumerate(reader.parts(blob)):
            if isinstance(part.content, Path) and said["spool"]:
                name = f"{os.getpid()}-{number}"
                _link(part.content, Path(said["spool"], name))
                write_frame(replies, {"part": part.uri, "file": name})
                read_frame(requests)  # the next one is wanted
            else:
                write_frame(replies, {"part": part.uri}, [part.data])
        write_frame(replies, {"end": True})
    else:
        found = prepare(reader, blob, pickle.loads(attached[2]))
        write_frame(replies, *plain_prepared(replace(found, has_parts=_has_parts(reader, blob))))


def _has_parts(reader: Any, blob: Blob) -> bool:
    """Whether it is worth while to open a blob that was read; errors are reported when it is opened."""
    try:
        return isinstance(reader, Container) and next(iter(reader.parts(blob)), None) is not None
    except Exception:
        return True


def _link(there: Path, name: Path) -> None:
    """Another name for a file: the reader takes its own back when it goes on."""
    try:
        os.link(there, name)
    except OSError:  # on another device
        shutil.copyfile(there, name)

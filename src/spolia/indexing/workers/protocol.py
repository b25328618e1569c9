"""Worker that reads files or embeds texts: what it may use, how its results are sent, and its process."""

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
        """Return the seconds that a file of this size may take: enough for 5,000 pages on a busy machine.

        >>> WorkerLimits().seconds_for(1_000), WorkerLimits().seconds_for(170_000_000)
        (120.0, 290.0)
        """
        return self.seconds + size // 1_000_000


_DOCUMENT_FIELDS = ("id", "text", "uri", "title", "media_type", "pages", "meta")
_READING_FIELDS = ("encoding", "empty_pages", "ocr_pages", "dropped", "linked_images", "warnings", "lacks")


def encode_reading(reading: Reading) -> tuple[dict[str, Any], list[bytes]]:
    """Encode a reading as JSON data, and its bytes apart."""
    document = reading.document
    fields = {name: getattr(document, name) for name in _DOCUMENT_FIELDS}
    fields |= {name: getattr(reading, name) for name in _READING_FIELDS}
    fields["headings"] = [(heading.start, heading.level, heading.text) for heading in document.headings]
    fields["regions"] = [_encode_region(region) for region in document.regions]
    fields["images"] = [image.uri for image in reading.images]
    return fields, [document.boxes.packed, *(image.data for image in reading.images)]


def decode_reading(fields: Mapping[str, Any], attached: Sequence[bytes]) -> Reading:
    """Decode a reading. Raises KeyError, TypeError, ValueError for anything else."""
    document = Document(
        id=str(fields["id"]),
        text=str(fields["text"]),
        uri=str(fields["uri"]),
        title=str(fields["title"]),
        media_type=str(fields["media_type"]),
        pages=tuple(map(int, fields["pages"])),
        headings=tuple(Heading(int(start), int(level), str(text)) for start, level, text in fields["headings"]),
        meta=tuple((str(name), value) for name, value in fields["meta"]),
        regions=tuple(map(_decode_region, fields["regions"])),
        boxes=Boxes(attached[0]),
    )
    return Reading(
        document,
        encoding=str(fields["encoding"]),
        empty_pages=tuple(map(int, fields["empty_pages"])),
        ocr_pages=tuple(map(int, fields["ocr_pages"])),
        dropped=tuple((str(part), int(count)) for part, count in fields["dropped"]),
        images=tuple(Blob(str(uri), data) for uri, data in zip(fields["images"], attached[1:], strict=True)),
        linked_images=tuple(_decode_names(fields["linked_images"], len(document.regions))),
        warnings=tuple(map(str, fields["warnings"])),
        lacks=str(fields["lacks"]),
    )


def encode_prepared(prepared: Prepared) -> WireFrame:
    """Encode a source after reading and splitting as a frame."""
    reading, images = encode_reading(prepared.reading)
    return {**reading, "pieces": encode_pieces(prepared.pieces), "has_parts": prepared.has_parts}, images


def decode_prepared(fields: Mapping[str, Any], attached: Sequence[bytes]) -> Prepared:
    """Decode a prepared source. Raises KeyError, TypeError, ValueError for anything else."""
    has_parts = fields["has_parts"]
    return Prepared(
        decode_reading(fields, attached),
        decode_pieces(fields["pieces"]),
        None if has_parts is None else bool(has_parts),
    )


def encode_vectors(embed: Callable[[], Vectors]) -> WireFrame:
    """Encode the vectors that a call gives, and what it charges."""
    from spolia.run import Run

    with Run() as run:
        vectors = embed()
    used = run.usage
    usage = used.calls, used.input_tokens, used.output_tokens, used.embedded
    return {"usage": usage, "cost_usd": used.cost_usd}, [vectors.astype("<f4").tobytes()]


def decode_vectors(fields: Mapping[str, Any], attached: Sequence[bytes], rows: int, dimension: int) -> Vectors:
    """Decode vectors and charge their cost to the run. Raises as `decode_prepared`."""
    usage = Usage(*map(int, fields["usage"])).but(cost_usd=float(fields["cost_usd"]))
    vectors = np.frombuffer(attached[0], "<f4").reshape(rows, dimension)
    if not np.isfinite(vectors).all():
        raise ValueError("they are not finite")
    charge(usage)
    return vectors


def encode_pieces(pieces: CutPieces) -> dict[str, Any]:
    """Encode pieces as JSON data."""
    return {
        group: [[[p.text, p.start, p.context, p.search_text, p.meta] for p in part] for part in parts]
        for group, parts in pieces.items()
    }


def decode_pieces(groups: Mapping[str, Any]) -> dict[str, list[Pieces]]:
    """Decode pieces; making nodes of them shows whether they are of the document."""
    return {
        str(group): [tuple(_decode_piece(*piece) for piece in part) for part in parts]
        for group, parts in groups.items()
    }


def _decode_piece(text: Any, start: Any, context: Any, search_text: Any, meta: Any) -> Piece:
    pairs = tuple((str(name), value) for name, value in meta)
    return Piece(str(text), None if start is None else int(start), str(context), str(search_text), pairs)


def _decode_names(pairs: Sequence[Any], regions: int) -> Iterator[tuple[int, str]]:
    """Yield names of regions by number; a number must be one of the `regions`."""
    for number, name in pairs:
        if not 0 <= int(number) < regions:
            raise ValueError(f"there is no region {number}")
        yield int(number), str(name)


def _encode_region(region: Region) -> list[Any]:
    box = region.box
    sides = None if box is None else (box.page, box.left, box.top, box.right, box.bottom)
    return [region.kind, region.start, region.end, region.rows, region.image, region.caption, sides, region.seconds]


def _decode_region(values: Sequence[Any]) -> Region:
    kind, start, end, rows, image, caption, sides, seconds = values
    box = None if sides is None else Box(int(sides[0]), *map(float, sides[1:]))
    cells = tuple(tuple(map(str, row)) for row in rows)
    time = None if seconds is None else (float(seconds[0]), float(seconds[1]))
    return Region(str(kind), int(start), int(end), cells, str(image), str(caption), box, time)


def main() -> None:
    """Serve the process that started this one."""
    die_with_parent()
    serve(_answer_request)


def _answer_request(request: dict[str, Any], attached: list[bytes], requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer one request. A reply that began is ended, whatever happens."""
    reader: Any = pickle.loads(attached[0])  # from the process that started this one
    if request["task"] == "embed":
        write_frame(replies, *encode_vectors(lambda: reader.embed(request["texts"], kind="passage")))
        return
    blob = Blob(request["uri"], Path(request["path"]) if request["path"] else attached[1])
    if request["task"] == "parts":
        assert isinstance(reader, Container)
        for number, part in enumerate(reader.parts(blob)):
            if isinstance(part.content, Path) and request["spool"]:
                name = f"{os.getpid()}-{number}"
                _link_file(part.content, Path(request["spool"], name))
                write_frame(replies, {"part": part.uri, "file": name})
                read_frame(requests)  # the next one is wanted
            else:
                write_frame(replies, {"part": part.uri}, [part.data])
        write_frame(replies, {"end": True})
    else:
        prepared = prepare(reader, blob, pickle.loads(attached[2]))
        write_frame(replies, *encode_prepared(replace(prepared, has_parts=_has_parts(reader, blob))))


def _has_parts(reader: Any, blob: Blob) -> bool:
    """Return whether a blob that was read is worth opening; errors are reported when it is opened."""
    try:
        return isinstance(reader, Container) and next(iter(reader.parts(blob)), None) is not None
    except Exception:
        return True


def _link_file(source: Path, target: Path) -> None:
    """Give a file another name: the reader takes its own back when it goes on."""
    try:
        os.link(source, target)
    except OSError:  # on another device
        shutil.copyfile(source, target)

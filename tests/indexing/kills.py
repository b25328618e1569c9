"""Kills runs of `sync` over a folder of files: `python -m tests.indexing.kills`, as `tests.stores.kills`."""

from __future__ import annotations

import io
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spolia.indexing.readers.reader import FileReader
from spolia.indexing.sources.source import Memory, Source
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.sync.files import Files, SourceChanges
from spolia.indexing.sync.sync import sync
from spolia.stores.corpus import Corpus
from spolia.stores.vectors import segments
from spolia.types import Value
from tests.stores.kills import Ingestion, Step, main
from tests.stores.scenario import DIMENSION, EMBEDDER, embed, leave_vectors_behind

BINARY = bytes(range(256))
PARTS = "The first part of a chapter is about arches and piers. The second part is about walls and wolves. "
PAGE = b"On the first day a stone was set."


def packed(files: Mapping[str, bytes]) -> bytes:
    """A ZIP archive, with the same bytes for the same files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return out.getvalue()


BOXES: tuple[Mapping[str, bytes], ...] = (
    {"kept.txt": b"What stays in the box.", "gone.txt": b"What is taken out.", "page.html": b"<p>A page in a box."},
    {"kept.txt": b"What stays in the box.", "page.html": b"<p>Another page in a box.", "new.txt": b"Put in late."},
)
FIRST: Mapping[str, bytes] = {
    "a.txt": b"Carsten Olsen built bridges. He was employed by the city.",
    "b.md": b"# Temples\n\nStones of old temples\n\n## Walls\n\nwere set into new walls.",
    "same.txt": b"One text under two names.",
    "also.txt": b"One text under two names.",
    "chapters/1.txt": (PARTS * 4).encode(),
    "box.zip": packed(BOXES[0]),
}
SECOND: Mapping[str, bytes] = {
    "a.txt": b"Carsten Olsen built bridges. He retired in 1931. Nobody knows where.",
    "moved/b.md": FIRST["b.md"],
    "also.txt": FIRST["also.txt"],
    "chapters/1.txt": (PARTS * 3).encode(),
    "d.txt": b"",
    "box.zip": packed(BOXES[1]),
}
THIRD: Mapping[str, bytes] = {**SECOND, "e.html": b"<title>Late</title><p>A late arrival.", "broken.txt": BINARY}
FOURTH: Mapping[str, bytes] = {**THIRD, "a.txt": b"Carsten Olsen is back.", "broken.txt": b"Mended."}
STATES = (FIRST, SECOND, THIRD, FOURTH)


@dataclass(frozen=True)
class Hashing(Value):
    """The embedder of the store's scenario."""

    name: str = EMBEDDER
    dimension: int = DIMENSION
    window: int = 64
    scoped = False

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Sequence[str], *, kind: str) -> Any:
        return embed(texts)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def covers(self, text: str) -> float:
        return 1.0


@dataclass(frozen=True)
class Diary(Source):
    """A source with one page, which is asked only for what is new."""

    id = "diary"

    def change_batches(self, memory: Memory, readers: Mapping[str, FileReader]) -> Iterator[SourceChanges]:
        if "pages" not in memory.cursors:
            files = Files(readers)
            files.add_bytes("diary://1.txt", PAGE, 1)
            yield SourceChanges(files, source=self.id, cursors={"pages": "1"})


def lay(folder: Path, state: Mapping[str, bytes], hour: int) -> Path:
    """Make a folder hold these files; their times depend on the state only, so that a repetition is the same."""
    shutil.rmtree(folder, ignore_errors=True)
    for uri, content in state.items():
        path = folder / uri
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (3600 * hour, 3600 * hour))
    return folder


def sync_state(corpus: Corpus, state: Mapping[str, bytes], hour: int, log: Path | None = None) -> int:
    folder = lay(Path(corpus.path + ".files"), state, hour)
    report = sync(
        [folder, Diary()], corpus, splitter=SlidingWindow(size=30, overlap=5), embedder=Hashing(), batch=2, workers=0
    )
    if log is not None:  # a kill from here on may not lose this generation
        log.write_text(str(report.generation))
    return report.embedded


def _begin(corpus: Corpus, said: Path | None) -> None:
    segments.SMALL_SEGMENTS = 4
    sync_state(corpus, FIRST, 1, said)
    leave_vectors_behind(corpus, ["Nobody knows where."])


def make_step(state: Mapping[str, bytes], hour: int) -> Step:
    return lambda corpus, message: sync_state(corpus, state, hour, message)


STEPS = (_begin, make_step(SECOND, 2), make_step(SECOND, 3), make_step(THIRD, 4), make_step(FOURTH, 5))
"""One state comes twice, with other times."""


def sync_last_state(corpus: Corpus) -> int:
    return sync_state(corpus, FOURTH, 5)


def problems_of_sources(corpus: Corpus) -> list[str]:
    """Sources whose document is not what the file held in any state, and documents that are not whole."""
    readable = {(uri, len(content)) for state in STATES for uri, content in state.items()}
    readable |= {(f"box.zip/{name}", len(content)) for box in BOXES for name, content in box.items()}
    snapshot = corpus.snapshot()
    readable.add(("diary://1.txt", len(PAGE)))
    sources = snapshot.sources()
    wrong = [uri for uri, row in sources.items() if (uri, row.size) not in readable]
    ids = {row.document for row in sources.values() if row.document}
    return wrong + sorted(ids ^ {document.id for document in snapshot.documents()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:], Ingestion(STEPS, sync_last_state, problems_of_sources))

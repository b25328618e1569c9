"""The shape of the code, in numbers."""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

SRC = Path(__file__).resolve().parents[1] / "src"


def sync_files() -> list[str]:
    """The files of the package in which a function runs while `sync` puts one text file into a new store.

    The file has 32 bytes. What is imported at the first use is imported before, by another run; that includes the
    files that only define something.
    """
    from spolia.indexing.sync.sync import sync
    from spolia.stores.corpus import Corpus

    found: set[str] = set()

    def note(frame: FrameType, event: str, given: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_code.co_filename)

    with tempfile.TemporaryDirectory() as place:
        for name in ("imports", "counted"):
            folder = Path(place, name)
            folder.mkdir()
            (folder / "notes.txt").write_bytes(b"Spolia are stones of old walls.\n")
            if name == "counted":
                threading.setprofile(note)
                sys.setprofile(note)
            try:
                sync(folder, Corpus(str(folder / "notes.spolia")))
            finally:
                sys.setprofile(None)
                threading.setprofile(None)  # type: ignore[arg-type]
    return sorted(str(Path(path).relative_to(SRC)) for path in found if Path(path).is_relative_to(SRC))


if __name__ == "__main__":
    files = sync_files()
    print("\n".join([*files, str(len(files))]))

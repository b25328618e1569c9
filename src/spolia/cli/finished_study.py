"""A study that ended, found again by all that its result depends on: the same command then reads one file."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

import spolia
from spolia import checksums
from spolia.cli.measuring_options import MeasuringOptions

FINISHED = "finished.json"
PACKAGE = Path(spolia.__file__).parent
PROFILE = "spolia.toml"
OUTSIDE = ("store", "known", "prompts", "web", "allow_env", "keep_values", "weights")
"""Options that name what may change without a trace in a file that is looked at here, or ask for more than a result."""
ELSE_ALIKE = ("json", "build_groups", "workers", "processes", "estimate")
"""Options with which the result is the same."""
NAMED_BY_OPTIONS = (
    "MiniLM(",
    "EmbeddingModel(",
    "ChatModel(",
    "RerankModel(",
    "SimulatedReader(",
    "PromptFile(place='spolia:",
)
"""What a flow may read beside the passages of the data."""
PIECE = 1 << 20


class FinishedStudy:
    """The result of a study beside what it was made of: options, files of space and data, and Spolia's own code.

    Args:
        folder: of the study.
        given: the options of the command; `ELSE_ALIKE` make no difference.
        files: what is read: the space, the data, earlier studies.
    """

    def __init__(self, folder: Path, given: MeasuringOptions, files: Sequence[Path]) -> None:
        self.path, self._given = folder / FINISHED, given
        options = asdict(given) | {"out": folder.resolve()}
        self._options = {name: str(value) for name, value in options.items() if name not in ELSE_ALIKE}
        self._files = [path for path in (*files, given.profile_file or Path(PROFILE)) if path.exists()]

    @property
    def can_be_known(self) -> bool:
        """Whether all that the result depends on is looked at here."""
        return not any(getattr(self._given, name) for name in OUTSIDE)

    def read(self) -> dict[str, Any] | None:
        """What was written, if nothing has changed since; None otherwise."""
        if not self.can_be_known or not self.path.is_file():
            return None
        try:
            found = checksums.recall(self.path) or {}
            if found["key"] == self._key() and found["written"] == _contents(map(Path, found["files"])):
                return dict(found["result"])
        except (OSError, ValueError, LookupError, TypeError):  # written by another version, or cut off
            return None
        return None

    def write(self, result: Mapping[str, Any], reads: Iterable[str], store: Path, written: Sequence[Path]) -> None:
        """Keep a result with the files that hold it, unless its flows read what is not looked at here.

        Args:
            reads: what flows read, as the study's file names it.
            store: the folder of the stores that are made of data sets.
        """
        known = (*NAMED_BY_OPTIONS, f"NodeGroup(corpus=Corpus(path='{store}", f"Corpus(path='{store}")
        self.path.unlink(missing_ok=True)
        if not self.can_be_known or not all(one.startswith(known) for one in reads):
            return
        files = [str(path.resolve()) for path in written]
        whole = {"key": self._key(), "files": files, "written": _contents(map(Path, files)), "result": dict(result)}
        checksums.write(self.path, whole)

    def _key(self) -> str:
        variables = {name: value for name, value in os.environ.items() if name.startswith("SPOLIA_")}
        about = {"options": self._options, "variables": variables, "files": _contents(self._files), "Spolia": _code()}
        return blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()


def _contents(paths: Iterable[Path]) -> str:
    """A hash of files, and of all files in folders, by their names."""
    found = blake2b(digest_size=16)
    for path in paths:
        for one in _inside(path) if path.is_dir() else [path]:
            found.update(f"{one}\0".encode())
            with one.open("rb") as file:
                while piece := file.read(PIECE):
                    found.update(piece)
            found.update(b"\0")
    return found.hexdigest()


def _inside(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(place, name) for name in sorted(files))


def _code() -> str:
    """Which files of Spolia there are, how long and how old."""
    found = blake2b(f"{spolia.__version__}\0".encode(), digest_size=16)
    for place, folders, files in os.walk(PACKAGE):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            about = os.stat(os.path.join(place, name))
            found.update(f"{place}/{name} {about.st_size} {about.st_mtime_ns}\0".encode())
    return found.hexdigest()

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
# Files are hashed in pieces, so that a large data set never fills the memory.
PIECE = 1 << 20


class FinishedStudy:
    """The result of a study beside what it was made of: options, files of space and data, and Spolia's own code.

    Args:
        folder: of the study.
        options: the options of the command; `ELSE_ALIKE` make no difference.
        files: what is read: the space, the data, earlier studies.
    """

    def __init__(self, folder: Path, options: MeasuringOptions, files: Sequence[Path]) -> None:
        self.path, self._arguments = folder / FINISHED, options
        values = asdict(options) | {"out": folder.resolve()}
        self._option_texts = {name: str(value) for name, value in values.items() if name not in ELSE_ALIKE}
        self._files = [path for path in (*files, options.profile_file or Path(PROFILE)) if path.exists()]

    @property
    def is_traceable(self) -> bool:
        """Return whether everything that the result depends on is compared here."""
        return not any(getattr(self._arguments, name) for name in OUTSIDE)

    def read(self) -> dict[str, Any] | None:
        """Read the saved result if nothing has changed since; None otherwise."""
        if not self.is_traceable or not self.path.is_file():
            return None
        try:
            saved = checksums.recall(self.path) or {}
            if saved["key"] == self._key() and saved["written"] == _hash_files(map(Path, saved["files"])):
                return dict(saved["result"])
        except (OSError, ValueError, LookupError, TypeError):  # written by another version, or cut off
            return None
        return None

    def write(self, result: Mapping[str, Any], reads: Iterable[str], store: Path, result_files: Sequence[Path]) -> None:
        """Keep a result with the files that hold it, unless its flows read what is not looked at here.

        Args:
            reads: what flows read, as the study's file names it.
            store: the folder of the stores that are made of data sets.
        """
        known_reads = (*NAMED_BY_OPTIONS, f"NodeGroup(corpus=Corpus(path='{store}", f"Corpus(path='{store}")
        # An old result is removed first, so that a study which cannot be kept leaves none behind.
        self.path.unlink(missing_ok=True)
        if not self.is_traceable or not all(name.startswith(known_reads) for name in reads):
            return
        files = [str(path.resolve()) for path in result_files]
        record = {"key": self._key(), "files": files, "written": _hash_files(map(Path, files)), "result": dict(result)}
        checksums.write(self.path, record)

    def _key(self) -> str:
        variables = {name: value for name, value in os.environ.items() if name.startswith("SPOLIA_")}
        about = {
            "options": self._option_texts,
            "variables": variables,
            "files": _hash_files(self._files),
            "Spolia": _hash_code(),
        }
        return blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()


def _hash_files(paths: Iterable[Path]) -> str:
    """Hash files, and all files in folders, with their names."""
    digest = blake2b(digest_size=16)
    for path in paths:
        for file_path in _walk(path) if path.is_dir() else [path]:
            digest.update(f"{file_path}\0".encode())
            with file_path.open("rb") as file:
                while piece := file.read(PIECE):
                    digest.update(piece)
            digest.update(b"\0")
    return digest.hexdigest()


def _walk(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        # File systems list folders in any order; sorted, the hash is stable.
        folders.sort()
        yield from (Path(place, name) for name in sorted(files))


def _hash_code() -> str:
    """Hash the paths, sizes and times of Spolia's own files."""
    digest = blake2b(f"{spolia.__version__}\0".encode(), digest_size=16)
    for place, folders, files in os.walk(PACKAGE):
        # Bytecode is written at import and says nothing of the code; sorted, the hash is stable.
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            about = os.stat(os.path.join(place, name))  # sizes and times in place of the contents, for speed
            digest.update(f"{place}/{name} {about.st_size} {about.st_mtime_ns}\0".encode())
    return digest.hexdigest()

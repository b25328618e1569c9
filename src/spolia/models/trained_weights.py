"""Address of weights that were trained on this machine, or that are shipped."""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from spolia import checksums
from spolia.errors import WeightsError
from spolia.models.onnx import safetensors
from spolia.types import Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CARD, JSON, TENSORS = "card.json", "weights.json", "weights.safetensors"
RANKER, RERANKER, SUFFICIENCY = "ranker", "reranker", "sufficiency"
EMBEDDER, BI_ENCODER, CONTEXT = "embedder", "bi-encoder", "context"
"""Parts of flows that are trained, as their cards name them."""
TENSORS_SUFFIX = ".safetensors"
LOADED = (TENSORS_SUFFIX, ".json", ".jinja", ".txt", ".model")
SHIPPED = Path(__file__).with_name("shipped")
LARGEST_JSON = 1 << 24
"""Bytes of weights in JSON, at most: 16 MiB. Larger ones are tensors."""


@dataclass(frozen=True)
class TrainedWeights(Value):
    """Address of weights that `spolia train` wrote: numbers in JSON or safetensors, and a card that has their hash.

    Nothing in such a folder is run. The card's hash is compared with the file whenever it is opened.

    Args:
        folder: that `spolia train` wrote, or the name of one that is shipped.
        sha256: of the weights; other weights in that folder raise. Empty for any.

    Raises:
        WeightsError: on first use, when there are no weights, they are damaged, or of another part.

    >>> TrainedWeights("notes").fingerprint() is None
    True
    """

    folder: str
    sha256: str = ""

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str | None:
        """Return the hash of the weights; None without weights."""
        try:
            return str(_read_card(self.place)["sha256"])
        except WeightsError:
            return None

    @property
    def place(self) -> Path:
        """Return the folder; a name alone may be a shipped one."""
        shipped = SHIPPED / self.folder
        return shipped if Path(self.folder).name == self.folder and shipped.is_dir() else Path(self.folder)

    def card(self, part: str) -> Mapping[str, Any]:
        """Return the card of the weights of a part: what they were trained on, and what they scored."""
        card = _read_card(self.place)
        if card["part"] != part:
            raise WeightsError(
                f"{self.place} holds weights of a {card['part']}, and a {part} is needed. Name a folder that "
                f"`spolia train {part}` wrote."
            )
        if self.sha256 not in ("", card["sha256"]):
            raise WeightsError(
                f"{self.place} holds the weights {card['sha256'][:12]}, and the flow was made with "
                f"{self.sha256[:12]}. Name the folder that it was made with, or leave sha256 out."
            )
        return card

    def was_trained_on(self, question: str) -> bool:
        """Return whether the card names a question, however it is spaced; False without a card, or if it names none."""
        try:
            question_hashes = _read_card(self.place).get("trained_on", "")
        except WeightsError:
            return False
        return _question_hash(question) in _question_hashes(str(question_hashes))

    def plain(self, part: str) -> Mapping[str, Any]:
        """Read the weights of a part that are written in JSON."""
        path = self._file(part, JSON)
        if path.stat().st_size > LARGEST_JSON:
            raise WeightsError(f"{path} has more than {LARGEST_JSON >> 20} MiB, which weights in JSON never have.")
        try:
            values = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise WeightsError(f"{path} is not JSON ({error}). {_AGAIN}") from error
        if not isinstance(values, dict):
            raise WeightsError(f"{path} holds a {type(values).__name__}, not an object. {_AGAIN}")
        return values

    def tensors(self, part: str) -> Mapping[str, npt.NDArray[np.float32]]:
        """Map the weights of a part that are written as safetensors into memory."""
        return safetensors.read(self._file(part, TENSORS))

    def _file(self, part: str, name: str) -> Path:
        card = self.card(part)
        return _check_hash(self.place / name, card["sha256"])


_AGAIN = "Train it again, or fetch the folder again."
MARK_BYTES = 6
"""Of the hash of a question: of a million others, one in 500,000 cards of 540 questions seems to name one."""


def question_marks(questions: Iterable[str]) -> str:
    """Return the hashes of questions, by which a card names the questions that its weights were trained on."""
    return b64encode(b"".join(sorted(set(map(_question_hash, questions))))).decode()


def _question_hash(question: str) -> bytes:
    return hashlib.sha256(" ".join(question.casefold().split()).encode()).digest()[:MARK_BYTES]


@lru_cache(maxsize=64)
def _question_hashes(encoded: str) -> frozenset[bytes]:
    try:
        data = b64decode(encoded, validate=True)
    except ValueError:
        return frozenset()
    return frozenset(data[start : start + MARK_BYTES] for start in range(0, len(data), MARK_BYTES))


def refuse_changed(folder: Path, name: str) -> None:
    """Raise WeightsError if files of weights differ from those that the card of a folder describes.

    The card of a language model has `files`, and the folder nothing else that is loaded; the card of another part has
    the hash of one file, here of this name. A folder without a card passes: its model was not trained here.
    """
    if not os.path.lexists(folder / CARD):
        return
    card = _read_card(folder)
    files = card.get("files", {name: card["sha256"]})
    if not isinstance(files, dict) or not files:
        raise WeightsError(f"{folder / CARD} is not a card of trained weights (it names no files). {_AGAIN}")
    for file, expected in files.items():
        _check_hash(folder / file, expected)
    if "files" in card:
        names_tensors_only = all(file.endswith(TENSORS_SUFFIX) for file in files)  # its card names tensors only
        for loaded_name in list_loaded(folder):
            if loaded_name not in files and (loaded_name.endswith(TENSORS_SUFFIX) or not names_tensors_only):
                raise WeightsError(
                    f"{folder / loaded_name} is not named in the card of its folder. Delete the file. {_AGAIN}"
                )


def list_loaded(folder: Path) -> list[str]:
    """List the files of a language model that are read when it is loaded, by their place in its folder."""
    files = (
        file for pattern in ("*", "additional_chat_templates/*") for file in folder.glob(pattern) if file.is_file()
    )
    return sorted(file.relative_to(folder).as_posix() for file in files if file.suffix in LOADED and file.name != CARD)


def _check_hash(path: Path, expected: str) -> Path:
    if not path.is_file():
        raise WeightsError(f"{path} does not exist. {_AGAIN}")
    if hash_of(path) != expected:
        raise WeightsError(f"{path} is not the file that its card describes: their hashes differ. {_AGAIN}")
    return path


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file; computed once for each state of it."""
    stat = path.stat()
    return _hash(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=64)
def _hash(path: Path, modified: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_card(folder: Path) -> Mapping[str, Any]:
    path = folder / CARD
    try:
        card = checksums.read(path)
        if not (isinstance(card["part"], str) and isinstance(card["sha256"], str)):
            raise TypeError("part and sha256 are texts")
    except OSError as error:
        raise WeightsError(
            f"{folder} holds no trained weights: {CARD} cannot be read ({error.strerror or error}). Write the folder "
            "that `spolia train` wrote."
        ) from error
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise WeightsError(f"{path} is not a card of trained weights ({error}). {_AGAIN}") from error
    return card

"""Where the files of a local model are, and what tells their content apart."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from spolia.errors import ModelError, WeightsError
from spolia.models.hub import download
from spolia.models.pinned import hash_of

KINDS = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
"""What is read of a model; nothing else is fetched. Weights are safetensors alone, which hold no code."""
_ENDINGS = tuple(kind.removeprefix("*") for kind in KINDS)
_COMMIT = re.compile(r"[0-9a-f]{40}")


def checked_revision(model: str, revision: str) -> None:
    """Refuse a revision that may be another one tomorrow, and a model of no name.

    Raises:
        ModelError: and what to write.
    """
    if not model:
        raise ModelError("The local model has no name. Write a folder, or a repository of the hub with its revision.")
    if revision and not _COMMIT.fullmatch(revision):
        raise ModelError(
            f"revision is {revision!r}, which may mean other weights tomorrow. Write the commit, 40 hexadecimal digits."
        )


def folder_of(model: str, revision: str) -> Path:
    """The folder with a model's files, which are fetched from the hub if they are not there.

    Args:
        model: a folder; with a revision a repository of the hub.
        revision: the commit; empty for a folder.

    Raises:
        WeightsError: there is no such folder, it has no config.json, or the hub does not give it.
    """
    if not revision:
        found = Path(model).expanduser()
        if not (found / "config.json").is_file():
            raise WeightsError(
                f"{model!r} is no folder with a config.json. Write the path of a model that was saved by transformers, "
                "or a repository of the hub with revision=COMMIT."
            )
        return found
    held = _hub() / f"models--{model.replace('/', '--')}" / "snapshots" / revision
    if any(held.glob("*.safetensors")) and (held / "config.json").is_file():
        return held
    fetched = download(model, KINDS, revision)
    if isinstance(fetched, Path):
        return fetched
    raise WeightsError(
        f"{model} at {revision} is not in the hub's cache {_hub()}, and the hub was {fetched}. Put its files into a "
        "folder, and write that as model."
    )


def content_of(model: str, revision: str) -> str | None:
    """What tells the files apart from others: the revision, or a hash of all of them; None where there are none."""
    if revision:
        return revision
    folder = Path(model).expanduser()
    try:
        files = sorted((file.name, file.stat()) for file in os.scandir(folder) if file.name.endswith(_ENDINGS))
    except OSError:
        return None
    if not any(name.endswith(".safetensors") for name, _ in files):
        return None
    return _hash(folder, tuple((name, found.st_size, found.st_mtime_ns, found.st_ctime_ns) for name, found in files))


@lru_cache(maxsize=64)
def _hash(folder: Path, files: tuple[tuple[str, int, int, int], ...]) -> str:
    """Of the files in a folder, computed once for files of these sizes and times."""
    digest = blake2b(digest_size=16)
    for name, *_ in files:
        digest.update(f"{name}:{hash_of(folder / name)}\n".encode())
    return digest.hexdigest()


def _hub() -> Path:
    if named := os.environ.get("HF_HUB_CACHE"):
        return Path(named).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"

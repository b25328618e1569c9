"""Hashes of large files, cached on disk so that a cold start does not read 90 MB again."""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from spolia import checksums
from spolia.private_files import make_folder


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return _cached_hash("bytes", path, _bytes)


def vocabulary_hash_of(path: Path) -> str:
    """Return the SHA-256 of the tokens of a `tokenizer.json` in the order of their numbers, each followed by a newline.

    The rest of the file differs between copies of one model (truncation, padding) and does not change what is read.
    """
    return _cached_hash("vocabulary", path, _vocabulary)


def cache_folder() -> Path:
    """Return the folder for data that can be made again: `$SPOLIA_CACHE`, else `$XDG_CACHE_HOME/spolia`. `make_folder`
    makes it."""
    if folder := os.environ.get("SPOLIA_CACHE"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "spolia"


def hub_cache() -> Path:
    """Return the folder where the model hub's client keeps its downloads."""
    if folder := os.environ.get("HF_HUB_CACHE"):
        return Path(folder).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"


def _bytes(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _vocabulary(path: Path) -> str:
    try:
        vocabulary = json.loads(path.read_bytes())["model"]["vocab"]
        tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "of no vocabulary"  # equals no pinned hash, so that the caller names the file
    return hashlib.sha256("".join(f"{token}\n" for token in tokens).encode()).hexdigest()


def _cached_hash(kind: str, path: Path, compute: Callable[[Path], str]) -> str:
    status = path.stat()  # the change time too: a copy that keeps the modification time is still noticed
    stamp = [str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    # A path may hold bytes that are no UTF-8.
    name = hashlib.blake2b(f"{kind}|{stamp[0]}".encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    note = cache_folder() / "file_hashes" / f"{name}.json"
    record = checksums.recall(note) or {}
    if record.get("stamp") == stamp:
        return str(record["hash"])
    fresh = compute(path)
    with suppress(OSError):  # a folder that cannot be written costs a hash
        make_folder(note.parent)
        checksums.write(note, {"stamp": stamp, "hash": fresh})
    return fresh

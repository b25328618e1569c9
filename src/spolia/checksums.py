"""Checksums in text that Spolia writes: JSON with a digest of itself, tokens that end with one."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

from spolia.private_files import set_aside

DIGEST = "digest"


def sign(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Add the digest of an object of JSON as its last value.

    >>> sign({"a": 1})
    {'a': 1, 'digest': '165b44bb3d3e0923'}
    """
    return {**plain, DIGEST: _digest(plain)}


def check(plain: Any) -> dict[str, Any]:
    """Return an object without its digest, which those of earlier versions lack.

    Raises:
        ValueError: it is not as it was written, or no object.
    """
    if not isinstance(plain, dict):
        raise ValueError(f"it holds {type(plain).__name__}, not an object")
    rest = {name: value for name, value in plain.items() if name != DIGEST}
    if len(rest) < len(plain) and plain[DIGEST] != _digest(rest):
        raise ValueError("it changed since it was written")
    return rest


def read(path: Path) -> dict[str, Any]:
    """Read an object of JSON that `write` wrote.

    Raises:
        ValueError: it is damaged.
    """
    try:
        return check(json.loads(path.read_bytes()))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def recall(path: Path) -> dict[str, Any] | None:
    """Read an object that can be made again: None if it is not there, or damaged; a damaged file is set aside."""
    try:
        return read(path)
    except ValueError:
        with suppress(OSError):  # it may be somebody else's, who can make it again too
            set_aside(path)
    except OSError:
        pass  # none yet, or it may not be read: made again, which costs time and loses nothing
    return None


def write(path: Path, plain: Mapping[str, Any], indent: int | None = None) -> None:
    """Write an object of JSON with its digest; a reader sees all of it or nothing."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(sign(plain), indent=indent), "utf-8")
        # A rename is atomic, so a reader or a kill never sees half a file.
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def damage(path: Path) -> str:
    """Return what is wrong with a file of JSON, in words; empty if nothing is."""
    try:
        read(path)
    except (OSError, ValueError) as error:
        return f"{path} is damaged: {error}"
    return ""


def _digest(plain: Mapping[str, Any]) -> str:
    # Sorted, since the order of an object's names is no change.
    return blake2b(json.dumps(plain, sort_keys=True).encode(), digest_size=8).hexdigest()


def checksum_of(token: str) -> str:
    """Return the eight characters that a token ends with."""
    return f"{crc32(token.encode()):08x}"

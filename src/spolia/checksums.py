"""Checksums in text that Spolia writes: JSON with a digest of itself, tokens that end with one."""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any
from zlib import crc32

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


def _digest(plain: Mapping[str, Any]) -> str:
    return blake2b(json.dumps(plain, sort_keys=True).encode(), digest_size=8).hexdigest()


def checksum_of(token: str) -> str:
    """The eight characters that a token ends with."""
    return f"{crc32(token.encode()):08x}"

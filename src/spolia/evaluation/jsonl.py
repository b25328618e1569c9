"""JSON lines, plain or gzipped, one row at a time, with errors that name the line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, cast

from spolia.errors import DataError


def jsonl_file(folder: Path, name: str) -> Path | None:
    """`<name>.jsonl` in a folder, else `<name>.jsonl.gz`, else None."""
    for path in (folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz"):
        if path.is_file():
            return path
    return None


def rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file with their line numbers, from 1; blank lines are passed over.

    Raises:
        DataError: the file is unreadable or cut short, or a line is not a JSON object in UTF-8.
    """
    number = 0
    try:
        with closing(_opened(path)) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, _object(path, number, line)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path} is cut short or damaged after {number} whole lines: {error}. Fetch or write the file again."
        ) from error
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}. Check the file and its permissions."
        ) from error


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} line {number} is not UTF-8: {error}. Convert the file to UTF-8.") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path} line {number} is not JSON: {error}. Write one JSON object per line.") from error
    if not isinstance(found, dict):
        raise DataError(
            f"{path} line {number} holds {type(found).__name__}, not an object. Write one JSON object per line."
        )
    return found

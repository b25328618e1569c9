"""JSON lines, plain or gzipped, one row at a time, with errors that name the line."""

import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from spolia.errors import DataError

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_HALF_TEXT = re.compile("[\ud800-\udfff]")
LONGEST = 1 << 26
"""Bytes of a line, at most: 64 MiB, more than any book."""


def jsonl_file(folder: Path, name: str) -> Path | None:
    """`<name>.jsonl` in a folder, else `<name>.jsonl.gz`, else None."""
    for path in (folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz"):
        if path.is_file():
            return path
    return None


def rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file, each with its place; blank lines are skipped."""
    number = 0
    try:
        with closing(opened(path)) as lines:
            for number, line in enumerate(iter(lambda: lines.readline(LONGEST + 1), b""), start=1):
                if len(line) > LONGEST:
                    raise DataError(
                        f"{path} line {number} is longer than {LONGEST >> 20} MiB. Write one JSON object per line."
                    )
                if line.strip():
                    yield f"{path} line {number}", _object(path, number, line)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path} is cut short or damaged after {number} whole lines: {error}. Fetch or write the file again."
        ) from error
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}. Check the file and its permissions."
        ) from error


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with whole_files(path) as (part,), part.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


@contextmanager
def whole_files(*paths: Path) -> Iterator[list[Path]]:
    """Give a path beside each file to write to; once all are written, each replaces its file, so none is cut short.

    A device or a pipe is written to itself.

    Raises:
        DataError: one cannot be written, naming it and why; no file has changed then.
    """
    whole = [path.resolve() for path in paths]
    parts = [
        path if path.exists() and not path.is_file() else path.with_name(f".{path.name[:40]}.{at}-{os.getpid()}.part")
        for at, path in enumerate(whole)
    ]
    try:
        for path in whole:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield parts
        for part, path in zip(parts, whole, strict=True):
            if part != path:
                part.replace(path)
    except OSError as error:
        raise DataError(
            f"{' and '.join(map(str, paths))} cannot be written: {error.strerror or error}. Check the path, its "
            "permissions and the free space; nothing there was changed."
        ) from error
    finally:
        for part, path in zip(parts, whole, strict=True):
            with suppress(OSError):  # its folder may be what cannot be written
                if part != path:
                    part.unlink(missing_ok=True)


def records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file that is one JSON array, or JSON lines, each with where it stands."""
    if not _is_array(path):
        yield from rows(path)
        return
    for number, row in enumerate(_array(path), start=1):
        place = f"{path} object {number}"
        if not isinstance(row, dict):
            raise DataError(f"{place} is {type(row).__name__}. Write an array of objects.")
        yield place, row


def first_record(path: Path) -> Mapping[str, Any]:
    """The first object of such a file; empty if it cannot be read."""
    try:
        if not _is_array(path):
            return next((row for _, row in rows(path)), {})
        with closing(opened(path)) as file:
            text = file.read(LONGEST).decode("utf-8-sig", "ignore").lstrip()[1:].lstrip()
        found = json.JSONDecoder().raw_decode(text)[0]
    except (DataError, OSError, EOFError, zlib.error, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_array(path: Path) -> bool:
    try:
        with closing(opened(path)) as file:
            return file.read(1 << 12).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["
    except (OSError, EOFError, zlib.error):
        return False


def _array(path: Path) -> list[Any]:
    try:
        with closing(opened(path)) as file:
            found = _decoded(file.read(), str(path), "utf-8-sig", "Fetch or write the file again")
    except (EOFError, zlib.error, OSError) as error:
        raise DataError(f"{path} is damaged or cannot be read: {error}. Fetch or write the file again.") from error
    return list(found)


def opened(path: Path) -> BinaryIO:
    """A file to read bytes of, unpacked where it ends in `.gz`."""
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _decoded(raw: bytes, place: str, encoding: str, mend: str) -> Any:
    try:
        return json.loads(raw.decode(encoding))
    except UnicodeDecodeError as error:
        raise DataError(f"{place} is not UTF-8: {error}. Convert the file to UTF-8.") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{place} is not JSON: {error}. {mend}.") from error


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    place, encoding = f"{path} line {number}", "utf-8-sig" if number == 1 else "utf-8"
    found = _decoded(line, place, encoding, "Write one JSON object per line")
    if not isinstance(found, dict):
        raise DataError(f"{place} holds {type(found).__name__}, not an object. Write one JSON object per line.")
    if _HALF.search(line) and _HALF_TEXT.search(json.dumps(found, ensure_ascii=False)):
        raise DataError(
            f"{place} has half of a character (a lone surrogate, \\ud800 to \\udfff), which no text can "
            "hold. Write the character whole."
        )
    return found

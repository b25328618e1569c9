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
    """Return `<name>.jsonl` in a folder, else `<name>.jsonl.gz`, else None."""
    for path in (folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz"):
        if path.is_file():
            return path
    return None


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a file, each with its place; blank lines are skipped."""
    number = 0
    try:
        with closing(open_bytes(path)) as lines:
            # A file without ends of lines is not read into memory as a whole.
            for number, line in enumerate(iter(lambda: lines.readline(LONGEST + 1), b""), start=1):
                if len(line) > LONGEST:
                    raise DataError(
                        f"{path} line {number} is longer than {LONGEST >> 20} MiB. Write one JSON object per line."
                    )
                if line.strip():
                    yield f"{path} line {number}", _parse_object(path, number, line)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path} is cut short or damaged after {number} whole lines: {error}. Fetch or write the file again."
        ) from error
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}. Check the file and its permissions."
        ) from error


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with replace_files(path) as (part,), part.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


@contextmanager
def replace_files(*paths: Path) -> Iterator[list[Path]]:
    """Give a path beside each file to write to; once all are written, each replaces its file, so none is cut short.

    A device or a pipe is written to itself.

    Raises:
        DataError: one cannot be written, naming it and why; no file has changed then.
    """
    targets = [path.resolve() for path in paths]
    parts = [
        # A cut name fits every file system, and the process's id keeps two writers apart.
        path
        if path.exists() and not path.is_file()
        else path.with_name(f".{path.name[:40]}.{number}-{os.getpid()}.part")
        for number, path in enumerate(targets)
    ]
    try:
        for path in targets:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield parts
        for part, path in zip(parts, targets, strict=True):
            if part != path:
                # A rename is atomic: readers see the old file or the new one.
                part.replace(path)
    except OSError as error:
        raise DataError(
            f"{' and '.join(map(str, paths))} cannot be written: {error.strerror or error}. Check the path, its "
            "permissions and the free space; nothing there was changed."
        ) from error
    finally:
        for part, path in zip(parts, targets, strict=True):
            with suppress(OSError):  # its folder may be what cannot be written
                if part != path:
                    part.unlink(missing_ok=True)


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a file that is one JSON array, or JSON lines, each with where it stands."""
    if not _is_array(path):
        yield from read_rows(path)
        return
    for number, row in enumerate(_read_array(path), start=1):
        place = f"{path} object {number}"
        if not isinstance(row, dict):
            raise DataError(f"{place} is {type(row).__name__}. Write an array of objects.")
        yield place, row


def read_first_record(path: Path) -> Mapping[str, Any]:
    """Return the first object of such a file; empty if it cannot be read."""
    try:
        if not _is_array(path):
            return next((row for _, row in read_rows(path)), {})
        with closing(open_bytes(path)) as file:
            # The end may cut a character in two.
            text = file.read(LONGEST).decode("utf-8-sig", "ignore").lstrip()[1:].lstrip()
        # The text may end within a later object, so only the first one is decoded.
        record = json.JSONDecoder().raw_decode(text)[0]
    # This only guesses the form of a file; reading it later reports what is wrong.
    except (DataError, OSError, EOFError, zlib.error, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _is_array(path: Path) -> bool:
    try:
        with closing(open_bytes(path)) as file:
            return file.read(1 << 12).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["
    except (OSError, EOFError, zlib.error):
        return False


def _read_array(path: Path) -> list[Any]:
    try:
        with closing(open_bytes(path)) as file:
            rows = _decode(file.read(), str(path), "utf-8-sig", "Fetch or write the file again")
    except (EOFError, zlib.error, OSError) as error:
        raise DataError(f"{path} is damaged or cannot be read: {error}. Fetch or write the file again.") from error
    return list(rows)


def open_bytes(path: Path) -> BinaryIO:
    """Open a file to read bytes of, unpacked if it ends in `.gz`."""
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _decode(raw: bytes, place: str, encoding: str, advice: str) -> Any:
    try:
        return json.loads(raw.decode(encoding))
    except UnicodeDecodeError as error:
        raise DataError(f"{place} is not UTF-8: {error}. Convert the file to UTF-8.") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{place} is not JSON: {error}. {advice}.") from error


def _parse_object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    place, encoding = f"{path} line {number}", "utf-8-sig" if number == 1 else "utf-8"
    row = _decode(line, place, encoding, "Write one JSON object per line")
    if not isinstance(row, dict):
        raise DataError(f"{place} holds {type(row).__name__}, not an object. Write one JSON object per line.")
    # The bytes are searched first, which is fast; two halves in a row make a character, which is fine.
    if _HALF.search(line) and _HALF_TEXT.search(json.dumps(row, ensure_ascii=False)):
        raise DataError(
            f"{place} has half of a character (a lone surrogate, \\ud800 to \\udfff), which no text can "
            "hold. Write the character whole."
        )
    return row

"""Append-only log of all requests: each row has a hash of itself and of the row before."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import sleep, time
from typing import Any

from spolia.errors import StoreCorrupt
from spolia.private_files import private

FILE = "audit.jsonl"
START = "0" * 64
"""Before the first row."""
_COMPLETE_ROW = re.compile(rb'"hash": "[^"]{64}')
TAIL_BYTES = 1 << 16  # longer than any row: a row has no texts
BATCH_S = 0.05
"""Seconds in which rows are collected, to be written together."""


class AuditLog:
    """Log of who asked when and how it ended: key, method, route, flow, status. No question, answer or document name.

    A thread of its own writes the rows of each 50 ms together; they are on the disk then. Several servers of a store
    may write to one file. A row says how many were lost, if the disk was full.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = AuditLog(Path(folder) / FILE)
    ...     log.add(key="ann", method="POST", route="/v1/answer", flow="naive", status=200)
    ...     log.close()
    ...     verify_log(Path(folder) / FILE)[0]
    1
    """

    def __init__(self, file: Path) -> None:
        # No file has the size -1: the first append reads the last hash.
        self.file, self._lost, self._end, self._last = file, 0, -1, START
        self._rows: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._thread = Thread(target=self._write_batches, daemon=True, name="spolia-audit")
        self._thread.start()

    def add(self, **row: Any) -> None:
        """Add a row; it gets the time."""
        self._rows.put({"at": time(), **row})

    def close(self) -> None:
        """Write what waits."""
        self._rows.put(None)
        self._thread.join()

    def _write_batches(self) -> None:
        is_open = True
        while is_open:
            rows = [self._rows.get()]
            if rows[0] is not None:
                sleep(BATCH_S)
            try:
                while True:
                    rows.append(self._rows.get_nowait())
            except Empty:
                pass  # these are all the rows that wait
            is_open = None not in rows
            new_rows = [{"at": time(), "lost": self._lost}] * bool(self._lost) + [
                row for row in rows if row is not None
            ]
            try:
                self._append(new_rows)
                self._lost = 0
            except OSError as error:
                self._lost += len(rows)
                logging.getLogger(__name__).error("%d rows of the audit log are lost: %s", self._lost, error)

    def _append(self, rows: list[dict[str, Any]]) -> None:
        descriptor = private(self.file, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        with open(descriptor, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # other servers of the store continue the same chain
            # Nobody has written since: the hash of the last row is known.
            last = self._last if file.seek(0, os.SEEK_END) == self._end else _read_last_hash(file)
            for row in rows:
                text = json.dumps(row, sort_keys=True)  # what `_hash` and `_line` make of it when it is read again
                last = sha256((last + text).encode()).hexdigest()
                file.write(f'{text[:-1]}, "hash": "{last}"}}\n'.encode())
            file.flush()
            os.fsync(descriptor)
            self._end, self._last = file.tell(), last


def _read_last_hash(file: Any) -> str:
    """Return the hash of the last row, and end a line that a full disk or a kill has cut short."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL_BYTES))
    lines = file.read().split(b"\n")
    if lines[-1]:
        file.write(b"\n")
    for line in reversed(lines):
        if row := _parse_row(line):
            return str(row.get("hash", ""))
    return START


def _parse_row(line: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _format_row(row: dict[str, Any], hash: str) -> bytes:
    """Return a row as bytes. Any other JSON with the same meaning, such as a repeated key, counts as changed."""
    return json.dumps(row | {"hash": hash}).encode()


def _hash_row(row: dict[str, Any], last: str) -> str:
    return sha256((last + json.dumps(row, sort_keys=True)).encode()).hexdigest()


def read_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Yield all rows, each checked against its hash.

    Raises:
        StoreCorrupt: a row was changed, moved, added or taken out.
    """
    last = START
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            row = _parse_row(line)
            if not row and not _COMPLETE_ROW.search(line):
                continue  # cut short by a full disk or a kill: the next row follows the one before it
            stored_hash = row.pop("hash", "")
            if stored_hash != _hash_row(row, last) or line.rstrip(b"\n") != _format_row(row, stored_hash):
                raise StoreCorrupt(
                    f"{file}, line {number}: the row or the one before it was changed. Compare it with a backup."
                )
            last = stored_hash
            yield row | {"hash": stored_hash}


def verify_log(file: Path, head: str = "") -> tuple[int, str]:
    """Verify an audit log; return the number of its rows and the hash of the last one.

    Args:
        head: the hash of a row that must be there. The hashes alone do not tell if the last rows are missing, or if all
            were computed again: keep this one elsewhere.

    Raises:
        StoreCorrupt: a row was changed, or `head` is missing.
    """
    count, last, is_there = 0, START, not head
    for row in read_rows(file) if file.exists() else ():
        count, last = count + 1, row["hash"]
        is_there |= last == head
    if not is_there:
        raise StoreCorrupt(f"{file} has no row with the hash {head}: rows are missing, or were computed again.")
    return count, last

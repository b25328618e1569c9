"""Names of flows that can be switched while they are served: `production`, and `candidate` for trials."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from time import time

from spolia.checksums import check, sign
from spolia.errors import FlowFileError, QueryError
from spolia.private_files import make_folder, private
from spolia.stores.files import fsync
from spolia.types import Value

PRODUCTION, CANDIDATE = ALIASES = ("production", "candidate")
MAX_PROMOTIONS = 100
"""Promotions of an alias that can be taken back."""


@dataclass(frozen=True)
class Promotion(Value):
    """Flow that has been promoted.

    Args:
        flow: the name of a built-in flow, or a copy of a flow file.
        sha256: of that file; empty for a built-in flow.
        promoted: seconds since the epoch.
        gate: what the gate said; empty without a gate.
    """

    flow: str
    sha256: str = ""
    promoted: float = 0.0
    gate: str = ""

    @property
    def name(self) -> str:
        return Path(self.flow).stem if self.sha256 else self.flow

    def is_same(self, promotion: Promotion) -> bool:
        return (self.flow, self.sha256) == (promotion.flow, promotion.sha256)

    def verify_flow(self) -> str:
        """Return the flow to load.

        Raises:
            FlowFileError: the file has changed since it was promoted.
        """
        if self.sha256 and _hash_file(Path(self.flow)) != self.sha256:
            raise FlowFileError(f"The store's copy of {self.name} was changed or removed. Promote the flow again.")
        return self.flow


class Aliases:
    """Aliases of a store: the flow that each one stands for, and the flows before.

    Promoted flow files are copied into the store's folder, by their SHA-256: what the gate measures is what is served.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     aliases = Aliases(Path(folder))
    ...     aliases.promote("production", Promotion("bm25"))
    ...     aliases.promote("production", Promotion("hybrid"))
    ...     aliases.promote("production", Promotion("hybrid"))
    ...     aliases.back("production").flow, aliases.current()["production"].flow
    ('bm25', 'bm25')
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "aliases.json"

    def state(self) -> object:
        """Return a value that differs after a switch."""
        try:
            status = self.file.stat()
        except OSError:  # nothing was promoted yet
            return None
        # each switch makes a new file, so the inode differs even within one tick of the clock
        return status.st_mtime_ns, status.st_size, status.st_ino

    def current(self) -> dict[str, Promotion]:
        """Return the promotion that each alias stands for."""
        return {alias: past[-1] for alias, past in self.history().items()}

    def history(self) -> dict[str, list[Promotion]]:
        """Return all promotions of each alias, the current one last.

        Raises:
            QueryError: the file is damaged.
        """
        try:
            plain = check(json.loads(self.file.read_text("utf-8")))
            return {alias: [Promotion(**fields) for fields in past] for alias, past in plain.items() if past}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise QueryError(
                f"The aliases in {self.file} cannot be read: {error}. Restore the file from a backup, or move it "
                "away and promote again."
            ) from error

    def copy_flow(self, file: Path, content: bytes) -> Promotion:
        """Copy a flow file for good; it is served from that copy."""
        digest = sha256(content).hexdigest()
        copy = self.folder / "flows" / digest[:16] / file.name
        if _hash_file(copy) != digest:  # also a damaged copy is written again
            make_folder(copy.parent)
            _replace(copy, content)
        return Promotion(str(copy), digest)

    def promote(self, alias: str, promotion: Promotion) -> None:
        """Switch an alias; readers see the old flow or the new one. `back` returns to a different flow."""
        with self._lock_history() as past:
            history = past.get(alias, [])
            if history and history[-1].is_same(promotion):  # else `back` would lead to the flow that is served already
                history = history[:-1]
            past[alias] = [*history, promotion.but(promoted=time())][-MAX_PROMOTIONS:]

    def back(self, alias: str) -> Promotion:
        """Switch an alias to the flow before.

        Raises:
            QueryError: no flow was promoted before.
        """
        with self._lock_history() as past:
            if len(past.get(alias, ())) < 2:
                raise QueryError(f"{alias} has no flow before this one. Promote one: spolia promote FLOW")
            past[alias] = past[alias][:-1]
            return past[alias][-1]

    @contextmanager
    def _lock_history(self) -> Iterator[dict[str, list[Promotion]]]:
        """Lock and yield the promotions, and save them afterwards."""
        with open(self.folder / "aliases.lock", "ab", opener=private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of two promotions at the same time one would be lost
            past = self.history()
            yield past
            plain = {alias: [asdict(promotion) for promotion in promotions] for alias, promotions in past.items()}
            _replace(self.file, json.dumps(sign(plain), indent=1).encode())


def _hash_file(file: Path) -> str:
    try:
        return sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def _replace(file: Path, content: bytes) -> None:
    """Replace a file in one go; it is on the disk afterwards."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")  # the process id: `copy_flow` writes without the lock
    with open(part, "wb", opener=private) as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())  # else a power cut could leave an empty file under the final name
    part.replace(file)
    fsync(file.parent)  # the rename lasts only when the folder is on the disk too

"""What this process has open. An embedded engine locks its folder, so that every index of it must share one client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from threading import Lock, RLock
from typing import Generic, TypeVar

from spolia.errors import StoreBusy

T = TypeVar("T")


@dataclass
class Shared(Generic[T]):
    """A client of a folder. `lock`: for engines whose clients are not safe to use from several threads."""

    client: T
    close: Callable[[], None]
    lock: RLock = field(default_factory=RLock)
    users: int = 0


class Opened(Generic[T]):
    """Clients by folder: opened for the first user, closed after the last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[Path, Shared[T]] = {}

    def take(self, place: Path, open: Callable[[], Shared[T]]) -> Shared[T]:
        """The client of a folder, which is given back once."""
        with self._lock:
            found = self._found.get(place.resolve()) or open()
            self._found[place.resolve()] = found
            found.users += 1
            return found

    def give_back(self, place: Path) -> None:
        with self._lock:
            found = self._found[place.resolve()]
            found.users -= 1
            if not found.users:
                del self._found[place.resolve()]
                found.close()

    def remove(self, place: Path) -> None:
        """Delete a folder, if it is there and nobody has it open."""
        with self._lock:
            if place.resolve() in self._found:
                raise StoreBusy(f"{place} is open in this process. Close its indexes, then repeat.")
            rmtree(place, ignore_errors=True)

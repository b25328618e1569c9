"""`spolia index --watch`: stays beside a folder, and brings the store in step whenever something changes there."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from spolia.cli.exits import Exit
from spolia.cli.plain import one_line
from spolia.cli.screen import Screen
from spolia.errors import FolderError, ModelUnavailable, QueryError, StoreBusy, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spolia.indexing.report import Progress, SyncReport

PASSING = (StoreBusy, StoreUnavailable, FolderError, ModelUnavailable, QueryError)
"""What may be over at the next look; the last is a file of readers that is being written."""
LONGEST_S = 3600.0
Sizes = dict[str, tuple[int, int]]


class Run(Protocol):
    """Brings the store in step once."""

    def __call__(self, *, retry: bool, tell: Callable[[Progress], None]) -> tuple[SyncReport, str]: ...


class Patience:
    """When files that cannot be read are tried again without having changed: after twice as long each time.

    Args:
        every: seconds until the first time.
    """

    def __init__(self, every: float) -> None:
        self.every = every
        self._failing: frozenset[str] = frozenset()
        self._wait, self._due = every, 0.0

    def failed(self, uris: Iterable[str], *, tried: bool) -> None:
        """These could not be read.

        Args:
            tried: whether all of them have just been tried.
        """
        failing = frozenset(uris)
        if failing - self._failing:
            self._wait = self.every
        elif tried:
            self._wait = min(self._wait * 2, LONGEST_S)
        if tried or failing - self._failing:
            self._due = time.monotonic() + self._wait
        self._failing = failing

    @property
    def is_over(self) -> bool:
        """Whether there is something to try again now."""
        return bool(self._failing) and self._due <= time.monotonic()


class Watch:
    """Looks at a folder again and again.

    Args:
        screen: for what is said.
        folder: the documents.
        run: brings the store in step.
        every: seconds between two looks.
        beside: another file that says what the store holds.
        follow_links: look where links lead too.
    """

    def __init__(
        self, screen: Screen, folder: Path, run: Run, every: float, *, beside: Path | None, follow_links: bool
    ) -> None:
        self.screen, self.folder, self.run, self.every = screen, folder, run, every
        self.beside, self.follow_links = beside, follow_links
        self.patience = Patience(every)
        self._said = ""

    def go_on(self, report: SyncReport) -> Exit:
        """Follow the folder until somebody stops it, from what was indexed last."""
        self.patience.failed(_lacking(report), tried=True)
        self.screen.say(f"watching {self.folder}, every {self.every:g} s; Ctrl-C ends it")
        seen: Sizes | None = None
        try:
            while True:
                seen = self._look(seen)
                time.sleep(self.every)
        except KeyboardInterrupt:
            self.screen.say("Watching ended. What was published stays.")
        return Exit.DONE

    def _look(self, seen: Sizes | None) -> Sizes | None:
        """Bring the store in step if something is not as it was seen; returns what is there."""
        try:
            there = self._sizes()
            if there != seen or self.patience.is_over:
                self._bring()
        except PASSING as error:
            if str(error) != self._said:
                self._said = str(error)
                self.screen.say(f"{self._said} Watching goes on.", "yellow")
            return seen
        self._said = ""
        return there

    def _sizes(self) -> Sizes:
        from spolia.indexing.readers.choosing import READERS, by_suffix
        from spolia.indexing.walking import walk

        found = walk(os.fspath(self.folder), by_suffix(READERS), follow_links=self.follow_links)
        sizes = found.files.sizes()
        if self.beside is not None and self.beside.exists():
            said = self.beside.stat()
            sizes["//beside"] = said.st_size, said.st_mtime_ns  # the name of no file in a folder
        return sizes

    def _bring(self) -> None:
        changes: list[tuple[str, str]] = []

        def tell(now: Progress) -> None:
            if now.change:
                changes.append((now.change, now.uri))

        retry = self.patience.is_over
        report, _ = self.run(retry=retry, tell=tell)
        reasons = dict(report.failed)
        self.patience.failed(_lacking(report), tried=retry)
        for change, uri in changes:
            why = f": {one_line(reasons[uri], 200)}" if change == "failed" else ""
            self.screen.show(f"{change:8} {one_line(uri)}{why}")
        if changes:
            told = [{"change": change, "uri": uri, "reason": reasons.get(uri, "")} for change, uri in changes]
            self.screen.give(generation=report.generation, changes=told)


def _lacking(report: SyncReport) -> list[str]:
    """What is worth another attempt: files that could not be read, documents that some group could not be made of."""
    return [*(uri for uri, _ in report.failed), *(f"{lack.uri}//{lack.group}" for lack in report.unmade)]

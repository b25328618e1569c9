"""`spolia index --watch`: stays beside folders and sources, and brings the store in step when something changes."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from spolia.cli.exit_codes import Exit
from spolia.cli.screen import Screen, one_line
from spolia.deferred import watchfiles
from spolia.errors import SpoliaError, StoreCorrupt, pip_install, without_name
from spolia.indexing.readers.registry import Readers, by_suffix
from spolia.indexing.sources.source import Source
from spolia.indexing.sync.files import walk
from spolia.indexing.sync.report import Progress, SyncReport

LONGEST_S = 3600.0
POLL_S = 60.0
"""Seconds between two looks at sources that are no folders, at least: others' servers are asked for them."""
LOOK_S = 60.0
"""Seconds between two scans of folders that report their changes: an event may get lost."""
Sizes = dict[str, tuple[int, int]]


class Patience:
    """When unchanged files that cannot be read are tried again: after `every` seconds, then twice as long each time."""

    def __init__(self, every: float) -> None:
        self.every = every
        self._failing: frozenset[str] = frozenset()
        self._wait, self._due = every, 0.0

    def failed(self, uris: Iterable[str], *, tried: bool) -> None:
        """These could not be read; `tried` if all of them were tried just now."""
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
    """Looks at folders, sources, and the files beside them that describe the store, when something changes or every few
    seconds; `run` brings the store in step once, given whether to `retry` failed files, and whom to `tell` of progress.
    """

    def __init__(
        self,
        screen: Screen,
        places: Sequence[Path | Source],
        run: Callable[..., tuple[SyncReport, str]],
        every: float,
        beside: Sequence[Path],
        *,
        follow_links: bool,
        readers: Readers,
    ) -> None:
        self.screen, self.places, self.run, self.every = screen, places, run, every
        self.folders = [place for place in places if isinstance(place, Path)]
        self._polled = self._looked = time.monotonic()
        self.beside, self.follow_links, self.readers = beside, follow_links, readers
        self.patience = Patience(every)
        self._said = ""
        self._failing: set[str] = set()

    def go_on(self, report: SyncReport) -> Exit:
        """Follow the folder until somebody stops it, from what was indexed last."""
        self.patience.failed(_lacking(report), tried=True)
        self._failing = {uri for uri, _ in report.failed}
        names = ", ".join(str(place) if isinstance(place, Path) else place.id for place in self.places)
        waits, how = self._events(), ""
        if (why := reason_to_poll(self.folders)) or not self.folders:
            waits, how = self._polls(), f", every {self.every:g} s{why and f' ({why})'}"
        seen: Sizes | None = None if self.folders else {}
        try:
            next(waits)  # what changes from here on is noticed
            self.screen.say(f"watching {names}{how}; Ctrl-C ends it")
            seen = self._look(seen)
            for is_changed in waits:
                if is_changed or self._is_due(seen):
                    seen = self._look(seen)
        except KeyboardInterrupt:
            self.screen.say("Watching ended. Published data stays.")
        return Exit.DONE

    def _polls(self) -> Iterator[bool]:
        while True:
            yield True
            time.sleep(self.every)

    def _events(self) -> Iterator[bool]:
        """Whether something changed in the folders; watches a folder again that is moved away or comes back."""
        while True:
            places = self._identities()
            try:
                for number, is_changed in enumerate(told(self.folders, self.every)):
                    yield is_changed or number == 0
                    if self._identities() != places:
                        break
            except FileNotFoundError:
                yield True
                time.sleep(self.every)
            except OSError as error:
                self.screen.say(
                    f"The system does not report changes: {error}. Spolia scans the folders instead.", "yellow"
                )
                yield from self._polls()

    def _identities(self) -> list[tuple[int, int] | None]:
        """What the folders are to the file system, whatever their names."""
        found = [folder.stat() if folder.exists() else None for folder in self.folders]
        return [said and (said.st_dev, said.st_ino) for said in found]

    def _is_due(self, seen: Sizes | None) -> bool:
        """Whether there is something to look at or to try again, although no folder changed."""
        is_late = time.monotonic() - self._looked >= LOOK_S
        if self._said or self.patience.is_over or self._is_time or is_late:
            return True
        return seen is not None and self._beside() != {uri: size for uri, size in seen.items() if uri.startswith("//")}

    @property
    def _is_time(self) -> bool:
        """Whether sources that are no folders are to be asked again."""
        polls = len(self.folders) < len(self.places)
        return polls and time.monotonic() - self._polled >= max(self.every, POLL_S)

    def _look(self, seen: Sizes | None) -> Sizes | None:
        """Bring the store in step if something has changed; returns the current files."""
        self._looked = time.monotonic()
        try:
            there = self._sizes()
            if there != seen or self.patience.is_over or self._is_time:
                self._bring()
        except StoreCorrupt:
            raise
        except SpoliaError as error:  # somebody may mend it: a file is half written, a server is down, a folder is away
            if str(error) != self._said:
                self._said = str(error)
                self.screen.say(f"{self._said} Watching goes on.", "yellow")
            return seen
        self._said = ""
        return there

    def _sizes(self) -> Sizes:
        sizes: Sizes = {}
        if self.folders:
            folders = self.folders[0] if len(self.places) == 1 else self.folders
            sizes = walk(folders, by_suffix(self.readers), follow_links=self.follow_links).files.sizes()
        return sizes | self._beside()

    def _beside(self) -> Sizes:
        sizes: Sizes = {}
        for path in self.beside:
            if path.exists():
                said = path.stat()
                sizes[f"//{path}"] = said.st_size, said.st_mtime_ns  # the name of no file in a folder
        return sizes

    def _bring(self) -> None:
        self._polled = time.monotonic()
        changes: list[tuple[str, str]] = []

        def tell(now: Progress) -> None:
            if now.change:
                changes.append((now.change, now.uri))

        retry = self.patience.is_over
        report, _ = self.run(retry=retry, tell=tell)
        reasons = dict(report.failed)
        self.patience.failed(_lacking(report), tried=retry)
        for change, uri in changes:
            why = f": {one_line(without_name(uri, reasons[uri]), 200)}" if change == "failed" else ""
            self.screen.show(f"{change:8} {one_line(uri)}{why}")
        for uri in reasons.keys() - self._failing - {uri for _, uri in changes}:
            self.screen.show(f"failed   {one_line(uri)}: {one_line(without_name(uri, reasons[uri]), 200)}")
        self._failing = set(reasons)
        if changes:
            told = [{"change": change, "uri": uri, "reason": reasons.get(uri, "")} for change, uri in changes]
            self.screen.give(generation=report.generation, changes=told)


def _lacking(report: SyncReport) -> list[str]:
    """What is worth another attempt: files that could not be read, documents that some group could not be made of."""
    return [*(uri for uri, _ in report.failed), *(f"{lack.uri}//{lack.group}" for lack in report.unmade)]


_SILENT = re.compile(r"(nfs\d?|cifs|smb\w*|9p|afs|ceph|drvfs|fuse\..+|fakeowner|virtiofs|vboxsf|prl_fs|davfs|lustre)\Z")
"""File systems whose files change on other machines, which Linux tells nobody of."""
_QUIET_MS = 50
"""Quiet time after a change before it is reported."""


def reason_to_poll(folders: Sequence[Path], mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Why changes have to be looked for again and again; empty if the file system reports them.

    Args:
        folders: that are watched, with all below them.
        mounts: where Linux lists what is mounted; without such a file nothing is known of it.
    """
    if find_spec("watchfiles") is None:
        return f"to get changes from the file system instead, write: {pip_install('watch')}"
    for folder in folders:
        if kind := _silent_mount(folder.resolve(), mounts):
            return f"{folder} is on {kind}, which does not report changes made elsewhere"
    return ""


def _silent_mount(folder: Path, mounts: Path) -> str:
    """The kind of a file system that holds a folder, or part of it, and reports no changes; else empty."""
    holding, around = "", Path()
    for line in mounts.read_text("utf-8", "replace").splitlines() if mounts.exists() else ():
        before, _, after = line.partition(" - ")
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split()[4]))
        kind = after.split()[0]
        if point.is_relative_to(folder) and point != folder and _SILENT.match(kind):
            return kind
        if folder.is_relative_to(point) and len(point.parts) >= len(around.parts):
            holding, around = kind, point  # of two at one place, the later one counts
    return holding if _SILENT.match(holding) else ""


def told(folders: Sequence[Path], every_s: float) -> Iterator[bool]:
    """True as soon as something changed in the folders, False after `every_s` seconds without; False first, when
    changes are noticed from then on.

    Raises:
        OSError: a folder is not there, or too many are watched.
        KeyboardInterrupt: a signal came.
    """
    every = max(1, int(every_s * 1000))
    try:
        with watchfiles.RustNotify([str(folder) for folder in folders], False, False, 0, True, True) as events:
            yield False
            while (found := events.watch(every, min(_QUIET_MS, every), every, None)) != "signal":
                yield found != "timeout"
    except watchfiles.WatchfilesRustInternalError as error:
        raise OSError(str(error)) from error
    raise KeyboardInterrupt

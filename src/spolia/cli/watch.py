"""`spolia index --watch`: follows folders and sources, and brings the store in step when something changes."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from spolia.cli.exit_codes import Exit
from spolia.cli.screen import Screen, one_line
from spolia.deferred import watchfiles
from spolia.errors import SpoliaError, StoreCorrupt, pip_install, strip_name
from spolia.indexing.readers.registry import Readers, by_suffix
from spolia.indexing.sources.source import Source
from spolia.indexing.sync.files import walk
from spolia.indexing.sync.report import Progress, SyncReport

LONGEST_S = 3600.0  # between two attempts on files that have not changed
POLL_S = 60.0
"""Seconds between two looks at sources that are no folders, at least: others' servers are asked for them."""
LOOK_S = 60.0
"""Seconds between two scans of folders that report their changes: an event may get lost."""
Sizes = dict[str, tuple[int, int]]


class Patience:
    """Times to retry unchanged files that cannot be read: after `interval_s` seconds, then twice as long each time."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._failing: frozenset[str] = frozenset()
        self._wait, self._due = interval_s, 0.0

    def record_failures(self, uris: Iterable[str], *, tried: bool) -> None:
        """Record which files could not be read; `tried` if all of them were tried just now."""
        failing = frozenset(uris)
        if failing - self._failing:
            self._wait = self.interval_s  # a file that has just failed may soon be whole
        elif tried:
            self._wait = min(self._wait * 2, LONGEST_S)
        if tried or failing - self._failing:
            self._due = time.monotonic() + self._wait
        self._failing = failing

    @property
    def is_retry_due(self) -> bool:
        """Return whether there is something to try again now."""
        return bool(self._failing) and self._due <= time.monotonic()


class Watch:
    """Watcher of folders, sources, and the files beside them that describe the store. `run` brings the store in step
    once, given whether to `retry` failed files, and whom to `tell` of progress."""

    def __init__(
        self,
        screen: Screen,
        places: Sequence[Path | Source],
        run: Callable[..., tuple[SyncReport, str]],
        interval_s: float,
        description_files: Sequence[Path],
        *,
        follow_links: bool,
        readers: Readers,
    ) -> None:
        self.screen, self.places, self.run, self.interval_s = screen, places, run, interval_s
        self.folders = [place for place in places if isinstance(place, Path)]
        self._last_poll_at = self._last_look_at = time.monotonic()
        self.description_files, self.follow_links, self.readers = description_files, follow_links, readers
        self.patience = Patience(interval_s)
        self._last_message = ""
        self._failing: set[str] = set()

    def follow(self, report: SyncReport) -> Exit:
        """Follow the folder until somebody stops it, from what was indexed last."""
        self.patience.record_failures(_list_failures(report), tried=True)
        self._failing = {uri for uri, _ in report.failed}
        names = ", ".join(str(place) if isinstance(place, Path) else place.id for place in self.places)
        events, interval_note = self._events(), ""
        if (reason := reason_to_poll(self.folders)) or not self.folders:
            events, interval_note = self._polls(), f", every {self.interval_s:g} s{reason and f' ({reason})'}"
        # None differs from whatever is there, so the first look syncs.
        sizes: Sizes | None = None if self.folders else {}
        try:
            next(events)  # what changes from here on is noticed
            self.screen.say(f"watching {names}{interval_note}; Ctrl-C ends it")
            sizes = self._update(sizes)
            for is_changed in events:
                if is_changed or self._is_due(sizes):
                    sizes = self._update(sizes)
        except KeyboardInterrupt:
            self.screen.say("Watching ended. Published data stays.")
        return Exit.DONE

    def _polls(self) -> Iterator[bool]:
        while True:
            yield True
            time.sleep(self.interval_s)

    def _events(self) -> Iterator[bool]:
        """Yield whether something changed in the folders; a folder that goes away or comes back is watched again."""
        while True:
            places = self._identities()
            try:
                for number, is_changed in enumerate(watch_folders(self.folders, self.interval_s)):
                    # Something may have changed before this watch began, so its first event
                    # counts as a change.
                    yield is_changed or number == 0
                    if self._identities() != places:
                        break
            except FileNotFoundError:
                yield True
                time.sleep(self.interval_s)
            except OSError as error:
                self.screen.say(
                    f"The system does not report changes: {error}. Spolia scans the folders instead.", "yellow"
                )
                yield from self._polls()

    def _identities(self) -> list[tuple[int, int] | None]:
        """Return device and inode of each folder, whatever its name; None for a missing one."""
        stats = [folder.stat() if folder.exists() else None for folder in self.folders]
        return [stat and (stat.st_dev, stat.st_ino) for stat in stats]

    def _is_due(self, sizes: Sizes | None) -> bool:
        """Check whether to look or to try again, although no folder changed."""
        is_late = time.monotonic() - self._last_look_at >= LOOK_S
        if self._last_message or self.patience.is_retry_due or self._is_poll_due or is_late:
            return True
        return sizes is not None and self._description_sizes() != {
            uri: size for uri, size in sizes.items() if uri.startswith("//")
        }

    @property
    def _is_poll_due(self) -> bool:
        """Return whether sources that are no folders are to be asked again."""
        polls = len(self.folders) < len(self.places)
        return polls and time.monotonic() - self._last_poll_at >= max(self.interval_s, POLL_S)

    def _update(self, old_sizes: Sizes | None) -> Sizes | None:
        """Bring the store in step if something has changed; returns the current files."""
        self._last_look_at = time.monotonic()
        try:
            current_sizes = self._read_sizes()
            if current_sizes != old_sizes or self.patience.is_retry_due or self._is_poll_due:
                self._sync()
        except StoreCorrupt:
            raise
        except SpoliaError as error:  # somebody may mend it: a file is half written, a server is down, a folder is away
            if str(error) != self._last_message:  # said once, not at each look
                self._last_message = str(error)
                self.screen.say(f"{self._last_message} Watching goes on.", "yellow")
            return old_sizes
        self._last_message = ""
        return current_sizes

    def _read_sizes(self) -> Sizes:
        sizes: Sizes = {}
        if self.folders:
            folders = self.folders[0] if len(self.places) == 1 else self.folders
            sizes = walk(folders, by_suffix(self.readers), follow_links=self.follow_links).files.sizes()
        return sizes | self._description_sizes()

    def _description_sizes(self) -> Sizes:
        sizes: Sizes = {}
        for path in self.description_files:
            if path.exists():
                stat = path.stat()
                sizes[f"//{path}"] = stat.st_size, stat.st_mtime_ns  # the name of no file in a folder
        return sizes

    def _sync(self) -> None:
        self._last_poll_at = time.monotonic()
        changes: list[tuple[str, str]] = []

        def tell(now: Progress) -> None:
            if now.change:
                changes.append((now.change, now.uri))

        retry = self.patience.is_retry_due
        report, _ = self.run(retry=retry, tell=tell)
        reasons = dict(report.failed)
        self.patience.record_failures(_list_failures(report), tried=retry)
        for change, uri in changes:
            cause = f": {one_line(strip_name(uri, reasons[uri]), 200)}" if change == "failed" else ""
            self.screen.show(f"{change:8} {one_line(uri)}{cause}")
        for uri in reasons.keys() - self._failing - {uri for _, uri in changes}:
            self.screen.show(f"failed   {one_line(uri)}: {one_line(strip_name(uri, reasons[uri]), 200)}")
        self._failing = set(reasons)
        if changes:
            change_rows = [{"change": change, "uri": uri, "reason": reasons.get(uri, "")} for change, uri in changes]
            self.screen.give(generation=report.generation, changes=change_rows)


def _list_failures(report: SyncReport) -> list[str]:
    """List what is worth another attempt: files that could not be read, documents that some group lacks."""
    return [*(uri for uri, _ in report.failed), *(f"{lack.uri}//{lack.group}" for lack in report.unmade)]


_SILENT = re.compile(r"(nfs\d?|cifs|smb\w*|9p|afs|ceph|drvfs|fuse\..+|fakeowner|virtiofs|vboxsf|prl_fs|davfs|lustre)\Z")
"""File systems whose files change on other machines, which Linux tells nobody of."""
_QUIET_MS = 50
"""Quiet time after a change before it is reported."""


def reason_to_poll(folders: Sequence[Path], mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Explain why changes must be polled; empty if the file system reports them.

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
    """Return the kind of a file system that holds a folder, or part of it, and reports no changes; else empty."""
    holding_type, mount_point = "", Path()
    for line in mounts.read_text("utf-8", "replace").splitlines() if mounts.exists() else ():
        head, _, tail = line.partition(" - ")
        # Linux writes spaces and backslashes of a path as octal numbers there.
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), head.split()[4]))
        kind = tail.split()[0]
        if point.is_relative_to(folder) and point != folder and _SILENT.match(kind):
            return kind
        if folder.is_relative_to(point) and len(point.parts) >= len(mount_point.parts):
            holding_type, mount_point = kind, point  # of two at one place, the later one counts
    return holding_type if _SILENT.match(holding_type) else ""


def watch_folders(folders: Sequence[Path], every_s: float) -> Iterator[bool]:
    """Yield True as soon as something changed in the folders, False after `every_s` seconds without; False first, when
    watching has begun.

    Raises:
        OSError: a folder is not there, or too many are watched.
        KeyboardInterrupt: a signal came.
    """
    interval_ms = max(1, int(every_s * 1000))
    try:
        # Neither debugging nor polling; with the folders inside, and without those that may not be read.
        with watchfiles.RustNotify([str(folder) for folder in folders], False, False, 0, True, True) as events:
            yield False
            while (result := events.watch(interval_ms, min(_QUIET_MS, interval_ms), interval_ms, None)) != "signal":
                yield result != "timeout"
    except watchfiles.WatchfilesRustInternalError as error:
        raise OSError(str(error)) from error
    raise KeyboardInterrupt

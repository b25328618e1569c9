"""One writer at a time, and leases by which readers keep the generation that they have pinned.

Both are advisory locks of the kernel (`flock`), so that they end with the process, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from spolia.stores.backends.sqlite.connection import translated
from spolia.stores.failpoints import fail_point
from spolia.stores.layout import LOCK, pin_path
from spolia.stores.truth import busy

_POLL_S = 0.02


class WriterLock:
    """The right to write to a store; whoever else wants it waits, then learns the pid of the holder.

    Raises:
        StoreBusy: it was not free within `timeout_s` seconds.
    """

    def __init__(self, store: Path, timeout_s: float) -> None:
        self._pid = os.getpid()
        with translated(store, "locked for writing"):
            self._descriptor = os.open(store / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._wait(store, timeout_s)
            with translated(store, "locked for writing"):
                fail_point("lock.write")
                os.pwrite(self._descriptor, b"%-12d\n" % os.getpid(), 0)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _wait(self, store: Path, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while not _locked(self._descriptor, fcntl.LOCK_EX):
            if time.monotonic() >= end:
                pid = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
                whose = "this process" if pid == str(os.getpid()) else "another process"
                raise busy(store, f"{whose}, pid {pid}", timeout_s)
            time.sleep(min(_POLL_S, max(0.0, end - time.monotonic())))

    def close(self) -> None:
        """Let the next one write. A child that was forked meanwhile has the lock too, so that closing is not enough."""
        if os.getpid() == self._pid:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


class FileLease:
    """Keeps a published generation from being swept as long as it lives; see `Lease`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def is_held(self) -> bool:
        return True

    def __del__(self) -> None:
        os.close(self._descriptor)


def leased(store: Path, generation: int) -> FileLease | None:
    """A lease on a generation; None when it is being swept or has been."""
    try:
        descriptor = os.open(pin_path(store, generation), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    if _locked(descriptor, fcntl.LOCK_SH):
        return FileLease(descriptor)
    os.close(descriptor)
    return None


def unleased(store: Path, generation: int) -> FileLease | None:
    """The exclusive lease on a generation that nobody reads, so that nobody begins to; None when somebody does."""
    descriptor = os.open(pin_path(store, generation), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if _locked(descriptor, fcntl.LOCK_EX):
        return FileLease(descriptor)
    os.close(descriptor)
    return None


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

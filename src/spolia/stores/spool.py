"""Folders of a store for what runs of `sync` copy while they read: each belongs to the process that holds its lock."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

SPOOL = "spool"
"""The folder with these folders, in that of the store."""


def claimed(store: Path) -> tuple[Path, int, bool]:
    """A new folder for one run, the descriptor of its lock, and whether it is the first of those that run now.

    The folders of killed runs go.

    Args:
        store: folder of the store.
    """
    spool = store / SPOOL
    made, lock = _made(spool)
    is_first = True
    for other in spool.iterdir():
        if not other.is_dir():
            other.unlink(missing_ok=True)
        elif other != made and (left := _locked(other)) is not None:
            shutil.rmtree(other, ignore_errors=True)
            os.close(left)
        else:
            is_first = is_first and other.name >= made.name
    return made, lock, is_first


def _made(spool: Path) -> tuple[Path, int]:
    while True:
        spool.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # a run that ended has removed it
            made = Path(mkdtemp(prefix=f"{time.time_ns():020}-{os.getpid()}-", dir=spool))
            if (lock := _locked(made)) is not None:
                if made.exists():
                    return made, lock
                os.close(lock)


def claimer(store: Path) -> str:
    """The process of a run that reads for a store now, in words; empty where there is none."""
    spool = store / SPOOL
    for folder in spool.iterdir() if spool.is_dir() else ():
        if (lock := _locked(folder)) is not None:
            os.close(lock)
        elif folder.exists():
            pid = folder.name.split("-")[1]
            return f"{'this' if pid == str(os.getpid()) else 'another'} process, pid {pid}"
    return ""


def _locked(folder: Path) -> int | None:
    """A lock on a folder, which ends with its process; None where another one has it, or the folder is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor

"""Changes of files as the file system tells them (https://watchfiles.helpmanual.io)."""

import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from spolia.errors import pip_install

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
    from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

    every = max(1, int(every_s * 1000))
    try:
        with RustNotify([str(folder) for folder in folders], False, False, 0, True, True) as events:
            yield False
            while (found := events.watch(every, min(_QUIET_MS, every), every, None)) != "signal":
                yield found != "timeout"
    except WatchfilesRustInternalError as error:
        raise OSError(str(error)) from error
    raise KeyboardInterrupt

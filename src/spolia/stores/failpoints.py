"""Named places at which a test can kill the process: before every write, fsync, rename, commit and publish."""

from __future__ import annotations

import os
import signal

FAIL_POINTS: tuple[str, ...] = (
    "create.write",
    "create.fsync",
    "create.rename",
    "create.fsync_folder",
    "migrate.step",
    "migrate.commit",
    "lock.write",
    "sweep.lexical",
    "sweep.pin",
    "sweep.segment",
    "adopt.write",
    "adopt.commit",
    "forget.write",
    "forget.commit",
    "define.write",
    "redefine.write",
    "drop.write",
    "declare.write",
    "put.document",
    "put.nodes",
    "put.source",
    "remember.write",
    "add.nodes",
    "unmade.write",
    "clear.nodes",
    "readers.document",
    "readers.nodes",
    "touch.write",
    "move.write",
    "remove.write",
    "fail.write",
    "vectors.write",
    "vectors.fsync",
    "vectors.rename",
    "vectors.fsync_folder",
    "vectors.register",
    "vectors.merge",
    "graphs.add",
    "graphs.save",
    "graphs.fsync",
    "graphs.rename",
    "graphs.fsync_folder",
    "graphs.sweep",
    "lexical.clone",
    "lexical.write",
    "lexical.commit",
    "lexical.merge",
    "lexical.checksums",
    "lexical.fsync",
    "lexical.rename",
    "lexical.fsync_folder",
    "databases.follow",
    "databases.followed",
    "databases.recovered",
    "publish.pin",
    "publish.fsync_pins",
    "publish.purge",
    "publish.row",
    "publish.commit",
    "publish.committed",
)

POSTGRES_FAIL_POINTS: tuple[str, ...] = (
    "postgres.create",
    "postgres.create_commit",
    "postgres.vectors",
    "postgres.vectors_written",
    "postgres.index",
    "postgres.indexed",
    "follow.build",
    "follow.sweep",
)
"""Those of a store in PostgreSQL, beside those that it shares with a folder."""

_name, _passes = "", 0


def arm(point: str) -> None:
    """Kill this process when it comes to `point`: a name, or `name@n` for the n-th time."""
    global _name, _passes
    _name, _, count = point.partition("@")
    _passes = int(count or 1)


def fail_point(name: str) -> None:
    """Kill this process with SIGKILL if `SPOLIA_FAIL_POINT` (read once) or `arm` names this place."""
    global _passes
    if name == _name:
        _passes -= 1
        if _passes == 0:
            os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get("SPOLIA_FAIL_POINT", ""))

"""Workers that a service starts, watches and starts again: on this machine, or by a command such as ssh or srun."""

from __future__ import annotations

import logging
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from spolia.errors import QueryError
from spolia.types import Value

WATCH_S = 0.5
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 60.0
"""Before a worker that has ended is started again; twice as long each time that it ends soon."""
END_S = 10.0


class Launcher(Protocol):
    """Starts workers."""

    def start(self, number: int, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """A process that lasts as long as the worker.

        Args:
            number: of the worker, from 1.
            arguments: of `spolia`.
        """


@dataclass(frozen=True)
class LocalProcesses(Value):
    """Processes on this machine."""

    def start(self, number: int, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        return _started([sys.executable, "-m", "spolia", *arguments])


@dataclass(frozen=True)
class LaunchCommand(Value):
    """A command that starts a worker and ends with it.

    Args:
        template: with `{arguments}` in the place of the arguments of `spolia`, and perhaps `{number}`, from 1. Inside
            quotes the arguments are quoted for another shell, as ssh needs it.

    >>> LaunchCommand("srun -n1 spolia {arguments}").words(1, ["worker", "--jobs", "my notes"])
    ['srun', '-n1', 'spolia', 'worker', '--jobs', 'my notes']
    >>> LaunchCommand("ssh node{number} 'spolia {arguments}'").words(2, ["worker", "--jobs", "my notes"])
    ['ssh', 'node2', "spolia worker --jobs 'my notes'"]
    """

    template: str

    def __post_init__(self) -> None:
        if "{arguments}" not in self.template:
            raise QueryError(f"--launch {self.template!r} lacks {{arguments}}. Write: srun spolia {{arguments}}")

    def words(self, number: int, arguments: Sequence[str]) -> list[str]:
        found: list[str] = []
        for word in shlex.split(self.template):
            word = word.replace("{number}", str(number))
            found += arguments if word == "{arguments}" else [word.replace("{arguments}", shlex.join(arguments))]
        return found

    def start(self, number: int, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        try:
            return _started(self.words(number, arguments))
        except OSError as error:
            raise QueryError(f"--launch {self.template!r} cannot be run: {error}. Correct the command.") from error


def _started(words: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sys.stderr)


@contextmanager
def watched(launcher: Launcher, count: int, arguments: Sequence[str]) -> Iterator[None]:
    """While inside, as many workers run; one that ends is started again."""
    ended = threading.Event()
    running = [launcher.start(number, arguments) for number in range(1, count + 1)]

    def watch(at: int) -> None:
        wait_s, began = FIRST_WAIT_S, time.monotonic()
        while not ended.wait(WATCH_S):
            if (code := running[at].poll()) is None:
                continue
            wait_s = FIRST_WAIT_S if time.monotonic() - began > LONGEST_WAIT_S else min(2 * wait_s, LONGEST_WAIT_S)
            log.warning("Worker %d ended with code %d; it is started again in %g s.", at + 1, code, wait_s)
            if ended.wait(wait_s):
                return
            began = time.monotonic()
            with suppress(QueryError):  # as at the start; it is tried again
                running[at] = launcher.start(at + 1, arguments)

    log = logging.getLogger(__name__)
    threads = [threading.Thread(target=watch, args=(at,), daemon=True, name="spolia-watch") for at in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        for process in running:
            process.terminate()
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
                continue
            process.kill()

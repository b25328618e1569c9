"""Real servers as processes of their own, that tests end and start again at the same port."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

STARTED_WITHIN_S = 120.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Ending(ABC):
    """What serves from `__enter__` to `__exit__`, any number of times at the same port, and keeps what it has."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *raised: object) -> None: ...

    @contextmanager
    def outage(self) -> Iterator[None]:
        """It is away for as long."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()


class Server(Ending):
    """A command that serves a port until it is killed.

    Args:
        command: with `{port}` where the port stands.
        folder: its working folder, where its output goes.
    """

    def __init__(self, command: list[str], folder: Path) -> None:
        self.port, self.folder = free_port(), folder
        self.command = [word.format(port=self.port) for word in command]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(self.command, cwd=self.folder, stdout=output, stderr=subprocess.STDOUT)
        until = time.monotonic() + STARTED_WITHIN_S
        while time.monotonic() < until and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.05)
        self.__exit__()
        raise AssertionError((self.folder / "output").read_text())

    def __exit__(self, *raised: object) -> None:
        self.process.kill()
        self.process.wait()


def script(name: str) -> str:
    """A command that is installed beside this Python."""
    return str(Path(sys.executable).with_name(name))

"""Where a command writes: results on stdout, everything else on stderr; with `--json`, one object on stdout."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from spolia.cli.plain import json_text, visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


ENDLESS = 100_000
EVERY_S = 30.0
"""Seconds between two lines that say how far a command is."""


class Progress(Protocol):
    """Tells how far a command is."""

    def __call__(self, done: int, total: int | None = None, label: str = "") -> None: ...


class Lines:
    """Progress where no bar can be drawn, as in the log of a server: a line every half minute.

    Args:
        screen: where they are written.
        label: what is done, until that is said.
    """

    def __init__(self, screen: Screen, label: str) -> None:
        self._screen, self._label = screen, label
        self._next = time.monotonic() + EVERY_S

    def __call__(self, done: int, total: int | None = None, label: str = "") -> None:
        self._label = label or self._label
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_S
            self._screen.say(f"{self._label}: {done:,}{f' of {total:,}' if total is not None else ''}")


class Screen:
    """The terminal of one command.

    Args:
        json: the result is one JSON object, and nothing else goes to stdout.
    """

    def __init__(self, *, json: bool = False) -> None:
        self.json = json
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None where the result goes elsewhere."""
        return self.out().width if sys.stdout.isatty() else None

    def out(self) -> Console:
        """Stdout, where what is printed is never taken for markup, and lines are broken in a terminal only."""
        from rich.console import Console

        width = None if sys.stdout.isatty() else ENDLESS
        return Console(highlight=False, markup=False, emoji=False, width=width)

    def show(self, *parts: RenderableType) -> None:
        """Print a part of the result for people; nothing with `--json`."""
        if not self.json:
            console = self.out()
            with console.capture() as found:
                console.print(*parts, sep="\n")
            text = found.get()
            if not sys.stdout.isatty():  # a table is as wide as its widest row
                text = "\n".join(line.rstrip(" ") for line in text.split("\n"))
            sys.stdout.write(text)
            sys.stdout.flush()

    def write(self, text: str) -> None:
        """Print a text that other programs read too, with its lines as they are; nothing with `--json`."""
        if not self.json:
            sys.stdout.write(visible(text).rstrip("\n") + "\n")
            sys.stdout.flush()

    def give(self, **result: Any) -> None:
        """Print the result for programs; nothing without `--json`."""
        if self.json:
            unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
            sys.stdout.write(json_text(result, ascii_only=not unicode) + "\n")

    def say(self, message: str, style: str = "dim") -> None:
        """Print a message to stderr."""
        if sys.stderr.isatty():
            from rich.console import Console

            Console(stderr=True, highlight=False, markup=False, emoji=False).print(visible(message), style=style)
        else:
            sys.stderr.write(visible(message) + "\n")

    def fail(self, message: str) -> None:
        """Print what went wrong in red."""
        flat = visible(" ".join(message.split()))
        red, plain = ("\x1b[31m", "\x1b[0m") if sys.stderr.isatty() else ("", "")
        sys.stderr.write(f"{red}error: {flat}{plain}\n")

    @contextmanager
    def progress(self, label: str) -> Iterator[Progress]:
        """A bar on stderr while inside, if that is a terminal; else a line from time to time."""
        if not sys.stderr.isatty():
            yield Lines(self, label)
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        # TimeElapsedColumn stands still once all files are read, while their passages are still being embedded.
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.elapsed:.0f} s"),
        )
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)

            def told(done: int, total: int | None = None, label: str = "") -> None:
                bar.update(task, completed=done, total=total, description=label or None)

            yield told

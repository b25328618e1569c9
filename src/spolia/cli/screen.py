"""Text from documents made safe to print: nothing in it can move the cursor or turn the direction of writing."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from spolia.deferred import rich

if TYPE_CHECKING:
    from rich.console import RenderableType

Renderable: TypeAlias = "RenderableType"
"""What a screen shows; rich, which has the type, is loaded when something is shown."""

UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Return the text with control, bidi and other invisible characters written out; line ends and tabs stay.

    >>> print(visible("a\\x1b[31mb\\u202ec\\r\\nd"))
    a\\x1b[31mb\\u202ec
    d
    """
    return UNSAFE.sub(_escape, text.replace("\r\n", "\n"))


def one_line(text: str, width: int = 0) -> str:
    """Return the text in one line, at most `width` characters where that is not 0.

    >>> one_line("two\\n  lines  and more", 12)
    'two lines a…'
    """
    flat = visible(" ".join(text.split()))
    return flat if not width or len(flat) <= width else flat[: width - 1] + "…"


def table(rows: Iterable[Sequence[RenderableType]], *head: str) -> rich.table.Table:
    """Build a table of rows in columns, without lines between them; long words of the last column are broken."""
    grid = rich.table.Table(*head, box=None, show_header=bool(head), header_style="dim", pad_edge=False)
    for row in rows:
        grid.add_row(*row)
    if not head and grid.columns:
        grid.columns[-1].overflow = "fold"
    return grid


class Line:
    """A text to show, continued in other styles; nothing in it is taken for markup.

    Only a terminal needs rich for it, which takes 50 ms to import.

    >>> Line("a", "bold", columns=2).append("  b\\nc").plain
    '  a  b\\n  c'
    """

    def __init__(self, content: str = "", style: str = "", columns: int = 0) -> None:
        self._parts, self._columns = [(content, style)], columns

    def append(self, content: str, style: str = "") -> Line:
        self._parts.append((content, style))
        return self

    @property
    def plain(self) -> str:
        margin = " " * self._columns
        lines = "".join(content for content, _ in self._parts).split("\n")
        return "\n".join(f"{margin}{line.expandtabs()}".rstrip(" ") for line in lines)

    def __rich__(self) -> RenderableType:
        first, *other_parts = self._parts
        styled = rich.text.Text(*first)
        for content, style in other_parts:
            styled.append(content, style)
        return rich.padding.Padding(styled, (0, 0, 0, self._columns), expand=False) if self._columns else styled


def text(content: str = "", style: str = "") -> Line:
    """Return a text to show, which may be continued in other styles."""
    return Line(content, style)


def indented(content: str, columns: int, style: str = "") -> Line:
    """Return a paragraph of which every line begins some columns from the left."""
    return Line(content, style, columns)


def json_text(value: Any, *, ascii_only: bool = False) -> str:
    """Return JSON in which every unsafe character is escaped; it means the same.

    >>> json_text({"quote": "é\\u202e"})
    '{"quote": "é\\\\u202e"}'
    """
    plain = json.dumps(value, ensure_ascii=ascii_only, allow_nan=False)
    return UNSAFE.sub(lambda match: json.dumps(match[0])[1:-1], plain)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("ascii", "backslashreplace").decode() if ord(match[0]) > 0x7F else f"\\x{ord(match[0]):02x}"


# Without a terminal no line is broken, so that other programs can read the output.
ENDLESS = 100_000
EVERY_S = 30.0
"""Seconds between two lines that say how far a command is."""


ProgressDisplay: TypeAlias = Callable[..., None]
"""Tells how far a command is: how much is done, of how much if that is known, and what it does now."""


class LogProgress:
    """Progress where no bar can be drawn, as in a log: a line every half minute, with rate and time left."""

    def __init__(self, screen: Screen, label: str) -> None:
        self._screen, self._label = screen, label
        self._began = time.monotonic()
        self._next, self._done, self._first = self._began + EVERY_S, 0, 0

    def __call__(self, done: int, total: int | None = None, label: str = "") -> None:
        now = time.monotonic()
        if done < self._done or (label and label != self._label):  # another count begins
            self._began, self._first = now, done
        self._label = label or self._label
        self._done = done
        if now >= self._next:
            self._next = now + EVERY_S
            self._screen.say(f"{self._label}: {_format_progress(done, total, done - self._first, now - self._began)}")


def _format_progress(done: int, total: int | None, done_since: int, seconds: float) -> str:
    """
    >>> _format_progress(300, 1_000, 300, 60), _format_progress(300, None, 0, 60)
    ('300 of 1,000, 5 a second, 2:20 left', '300')
    """
    line = f"{done:,}" if total is None else f"{done:,} of {total:,}"
    if done_since <= 0 or seconds <= 0:
        return line
    rate = done_since / seconds
    line += f", {rate:.3g} a second" if rate >= 1 else f", {1 / rate:.3g} s each"
    if total is None:
        return line
    minutes, seconds_left = divmod(round(max(0, total - done) / rate), 60)
    return f"{line}, {minutes}:{seconds_left:02} left"


class Screen:
    """The terminal of one command; with `json` only one JSON object goes to stdout."""

    def __init__(self, *, json: bool = False) -> None:
        self.json = json
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                # A character that the terminal's encoding lacks must not end the command.
                stream.reconfigure(errors="backslashreplace")

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None where the result goes elsewhere."""
        return self.out().width if sys.stdout.isatty() else None

    def out(self) -> rich.console.Console:
        """Stdout, where what is printed is never taken for markup, and lines are broken in a terminal only."""
        width = None if sys.stdout.isatty() else ENDLESS
        return rich.console.Console(highlight=False, markup=False, emoji=False, width=width)

    def show(self, *parts: RenderableType) -> None:
        """Print a part of the result for people; nothing with `--json`."""
        if self.json:
            return
        lines = [Line(part) if isinstance(part, str) else part for part in parts] or [Line()]
        if not sys.stdout.isatty() and all(isinstance(line, Line) for line in lines):
            output = "".join(f"{line.plain}\n" for line in lines if isinstance(line, Line))
        else:
            console = self.out()
            with console.capture() as capture:
                console.print(*parts, sep="\n")
            output = capture.get()
            if not sys.stdout.isatty():  # a table is as wide as its widest row
                output = "\n".join(line.rstrip(" ") for line in output.split("\n"))
        sys.stdout.write(output)
        sys.stdout.flush()

    def write(self, text: str) -> None:
        """Print a text that other programs read too, with its lines as they are; nothing with `--json`."""
        if not self.json:
            sys.stdout.write(visible(text).rstrip("\n") + "\n")
            sys.stdout.flush()

    def give(self, **result: Any) -> None:
        """Print the result for programs; nothing without `--json`."""
        self._give(result)

    def give_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Print a list for programs; nothing without `--json`."""
        self._give(list(rows))

    def _give(self, result: Any) -> None:
        if self.json:
            # Escaped JSON means the same, and can be printed in any encoding.
            unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
            sys.stdout.write(json_text(result, ascii_only=not unicode) + "\n")

    def say(self, message: str, style: str = "dim") -> None:
        """Print a message to stderr."""
        if sys.stderr.isatty():
            rich.console.Console(stderr=True, highlight=False, markup=False, emoji=False).print(
                visible(message), style=style
            )
        else:
            sys.stderr.write(visible(message) + "\n")

    def fail(self, message: str) -> None:
        flat = visible(" ".join(message.split()))
        red, plain = ("\x1b[31m", "\x1b[0m") if sys.stderr.isatty() else ("", "")
        sys.stderr.write(f"{red}error: {flat}{plain}\n")

    @contextmanager
    def progress(self, label: str) -> Iterator[ProgressDisplay]:
        """Show a progress bar on stderr while inside, if that is a terminal; else a line from time to time."""
        if not sys.stderr.isatty():
            yield LogProgress(self, label)
            return

        # TimeElapsedColumn stands still once all files are read, while their passages are still being embedded.
        columns = (
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TextColumn("{task.elapsed:.0f} s"),
        )
        with rich.progress.Progress(*columns, console=rich.console.Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)

            def update(done: int, total: int | None = None, label: str = "") -> None:
                bar.update(task, completed=done, total=total, description=label or None)

            yield update

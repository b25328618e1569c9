"""What a command says where no bar can be drawn, and shows where nobody looks at colours."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from spolia.cli import screen


def test_a_log_gets_a_line_from_time_to_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with screen.Screen().progress("indexing articles") as show_progress:
        show_progress(256, 5_183)
    assert capsys.readouterr().err == ""  # before half a minute is over
    monkeypatch.setattr(screen, "EVERY_S", 0.0)
    monkeypatch.setattr("time.monotonic", iter((0, 10, 20, 30, 40)).__next__)
    with screen.Screen(json=True).progress("indexing articles") as show_progress:
        show_progress(256, 5_183)
        show_progress(1_024)
        show_progress(3, 40, "asking bm25")
        show_progress(5, 40)
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        "indexing articles: 256 of 5,183, 25.6 a second, 3:12 left",
        "indexing articles: 1,024, 51.2 a second",
        "asking bm25: 3 of 40",
        "asking bm25: 5 of 40, 5 s each, 2:55 left",
    ]
    assert printed.out == ""


@pytest.mark.parametrize(
    "line",
    [
        screen.text("plain"),
        screen.text("  1  ", "bold").append("notes.md, line 3", "bold cyan").append("  0.123", "dim"),
        screen.indented("a paragraph\nof two lines  ", 5, "dim"),
        screen.text("a\ttab\n\nand [not] markup :smile:"),
        screen.text(),
    ],
)
def test_a_line_in_a_pipe_is_what_rich_prints_without_styles(line: screen.Line) -> None:
    console = Console(file=StringIO(), highlight=False, markup=False, emoji=False, width=200)
    console.print(line)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"{line.plain}\n" == "\n".join(line_printed.rstrip(" ") for line_printed in printed.split("\n"))


def test_progress_in_a_log_counts_each_activity_by_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.monotonic", iter((0, 10, 20, 40)).__next__)
    with screen.Screen().progress("reading files") as show_progress:
        show_progress(100, 100)
        show_progress(150, 1_000, "embedding passages")
        show_progress(250, 1_000, "embedding passages")
    assert "embedding passages: 250 of 1,000, 5 a second, 2:30 left" in capsys.readouterr().err

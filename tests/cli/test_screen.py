"""What a command says of its progress where no bar can be drawn."""

from __future__ import annotations

import pytest

from spolia.cli import screen


def test_a_log_gets_a_line_from_time_to_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with screen.Screen().progress("indexing articles") as told:
        told(256, 5_183)
    assert capsys.readouterr().err == ""  # before half a minute is over
    monkeypatch.setattr(screen, "EVERY_S", 0.0)
    monkeypatch.setattr("time.monotonic", iter((0, 10, 20, 30, 40)).__next__)
    with screen.Screen(json=True).progress("indexing articles") as told:
        told(256, 5_183)
        told(1_024)
        told(3, 40, "asking bm25")
        told(5, 40)
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "indexing articles: 256 of 5,183, 25.6 a second, 3:12 left",
        "indexing articles: 1,024, 51.2 a second",
        "asking bm25: 3 of 40",
        "asking bm25: 5 of 40, 5 s each, 2:55 left",
    ]
    assert said.out == ""

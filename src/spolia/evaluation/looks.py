"""Who looked at which questions: what was tuned on is not reported on, and what is reported on is looked at once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TUNED = ("tune", "select")
"""The parts on which flows are chosen."""


@dataclass(frozen=True)
class Looks:
    """A file with a line for each experiment on a part of a data set.

    Args:
        path: the file; made with the first line.

    >>> import tempfile
    >>> looks = Looks(Path(tempfile.mkdtemp()) / "looks.jsonl")
    >>> looks.note("notes", "tune", {"a": "1f"}, "experiment 1")
    >>> looks.tuned_on("notes", ["1f"]), looks.times("notes", "tune"), looks.tuned_on("notes", ["2e"])
    (('tune',), 1, ())
    """

    path: Path

    def note(self, data: str, part: str, flows: Mapping[str, str], experiment: str) -> None:
        """Write down that flows were measured on a part; each experiment once.

        Args:
            data: which data set, by its content.
            flows: content hashes by name.
            experiment: which one, by all that it depends on.
        """
        if any(line["experiment"] == experiment for line in self._lines(data)):
            return
        line = {"data": data, "part": part, "flows": dict(flows), "experiment": experiment, "at": time.time()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as file:  # one write, so that lines of two processes do not mix
            file.write(json.dumps(line).encode() + b"\n")

    def tuned_on(self, data: str, flows: Iterable[str]) -> tuple[str, ...]:
        """The parts that any of these flows was tuned on."""
        wanted = set(flows)
        seen = {line["part"] for line in self._lines(data) if wanted.intersection(line["flows"].values())}
        return tuple(part for part in TUNED if part in seen)

    def times(self, data: str, part: str) -> int:
        """How many experiments have looked at a part."""
        return sum(line["part"] == part for line in self._lines(data))

    def _lines(self, data: str) -> Iterator[dict[str, Any]]:
        if not self.path.is_file():
            return
        for text in self.path.read_text("utf-8", errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:  # the end of a line that a full disk cut off
                continue
            if line.get("data") == data:
                yield line

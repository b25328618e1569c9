"""Who looked at which questions: what was tuned on is not reported on, and what is reported on is looked at once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from spolia.types import Item, digest_of

TUNED = ("tune", "select")
"""The parts on which flows are chosen."""
MARKS = 256
Marks: TypeAlias = tuple[str, ...]
"""What tells a data set apart; see `marks_of`."""


@dataclass(frozen=True)
class Looks:
    """A file with a line for each experiment on a part of a data set.

    Args:
        path: the file; made with the first line.

    >>> import tempfile
    >>> looks = Looks(Path(tempfile.mkdtemp()) / "looks.jsonl")
    >>> data = marks_of([Item("q1", "What pulls the sea?")])
    >>> looks.note(data, "tune", {"a": "1f"}, "experiment 1")
    >>> looks.tuned_on(data, ["1f"]), looks.times(data, "tune"), looks.tuned_on(data, ["2e"])
    (('tune',), 1, ())
    """

    path: Path

    def note(self, data: Marks, part: str, flows: Mapping[str, str], experiment: str) -> None:
        """Write down that flows were measured on a part; each experiment once.

        Args:
            data: which data set, by its questions.
            flows: content hashes by name.
            experiment: which one, by all that it depends on.
        """
        if any(line["experiment"] == experiment for line in self._lines(data)):
            return
        line = {"data": data, "part": part, "flows": dict(flows), "experiment": experiment, "at": time.time()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as file:  # one write, so that lines of two processes do not mix
            file.write(json.dumps(line).encode() + b"\n")

    def tuned_on(self, data: Marks, flows: Iterable[str]) -> tuple[str, ...]:
        """The parts that any of these flows was tuned on."""
        wanted = set(flows)
        seen = {line["part"] for line in self._lines(data) if wanted.intersection(line["flows"].values())}
        return tuple(part for part in TUNED if part in seen)

    def times(self, data: Marks, part: str) -> int:
        """How many experiments have looked at a part."""
        return sum(line["part"] == part for line in self._lines(data))

    def _lines(self, data: Marks) -> Iterator[dict[str, Any]]:
        if not self.path.is_file():
            return
        for text in self.path.read_text("utf-8", errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:  # the end of a line that a full disk cut off
                continue
            if is_same(line.get("data"), data):
                yield line


def marks_of(items: Iterable[Item]) -> Marks:
    """What tells a data set apart by its questions, whatever becomes of its passages and its name: the smallest hashes
    of them, so that two sets with the same questions have the same, and sets that share many share many.

    Source: Broder 1997.
    """
    return tuple(sorted(digest_of((item.id, item.question)).hex()[:12] for item in items)[:MARKS])


def is_same(ours: object, theirs: Marks) -> bool:
    """Whether half of the questions of the smaller set are in the other, so far as marks tell: some may have been added
    since, or mended.

    >>> is_same(("1", "2", "3"), ("1", "2", "4")), is_same(("1",), ("2",)), is_same("1", ("1",))
    (True, False, False)
    """
    if not isinstance(ours, (list, tuple)) or not ours or not theirs:
        return False
    full = [max(one) for one in (ours, theirs) if len(one) == MARKS]  # beyond the last mark nothing is known
    one, other = ({mark for mark in marks if not full or mark <= min(full)} for marks in (ours, theirs))
    return 2 * len(one & other) >= min(len(one), len(other)) > 0

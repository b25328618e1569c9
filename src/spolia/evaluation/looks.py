"""Who looked at which questions: what was tuned on is not reported on, and what is reported on is looked at once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from spolia.evaluation.splits import PARTS, part_of
from spolia.types import Item, Value, digest_of

TUNED, REPORT = ("tune", "select"), "report"
"""The parts on which flows are chosen, and the one that others are told of."""
ALL = "all"
"""What is looked at where the questions are of several parts."""
MARKS = 256
Marks: TypeAlias = tuple[str, ...]
"""What tells a data set apart; see `marks_of`."""


@dataclass(frozen=True)
class Look(Value):
    """Some flows measured on some questions.

    Args:
        data: which data set, by its questions.
        part: the part that the questions are of; `all` where they are of several.
        flows: hashes of how they are written, by name.
        experiment: which one, by flows, questions and measures.
        declared: whether the part was asked for, and is not where the questions happen to be.
    """

    data: Marks
    part: str
    flows: tuple[tuple[str, str], ...]
    experiment: str
    declared: bool = False

    @property
    def chooses(self) -> bool:
        """Whether anything may be chosen by it: a single flow is compared with nothing, unless a part was asked for."""
        return self.declared or len(self.flows) > 1


@dataclass(frozen=True)
class Looks:
    """A file with a line for each experiment on a data set.

    Args:
        path: the file, made with the first line; None writes nothing down.
        data: which data set is looked at, where the questions that are asked are some of it.
        part: the part that was asked for.

    >>> import tempfile
    >>> looks = Looks(Path(tempfile.mkdtemp()) / "looks.jsonl")
    >>> data = marks_of([Item("q1", "What pulls the sea?")])
    >>> looks.note(Look(data, "tune", (("a", "1f"), ("b", "2e")), "experiment 1"))
    >>> looks.chosen_on(Look(data, "all", (("a", "1f"),), "experiment 2"))
    ('tune',)
    """

    path: Path | None = None
    data: Marks = ()
    part: str = ""

    @classmethod
    def beside(cls, rows: str | Path | None) -> Looks:
        """The file beside that of an experiment; in the folder where each has its own."""
        if rows is None:
            return cls()
        return cls((Path(rows) if Path(rows).is_dir() else Path(rows).parent) / "looks.jsonl")

    def at(self, items: Sequence[Item], flows: Mapping[str, str], measures: Sequence[str]) -> Look:
        """The look of an experiment.

        Args:
            flows: how they are written, by name.
        """
        parts = {part_of(item.id) for item in items}
        part = self.part or (parts.pop() if len(parts) == 1 else ALL)
        marks = marks_of(items)
        hashes = tuple((name, digest_of(text).hex()) for name, text in flows.items())
        which = digest_of((marks, part, tuple(sorted(hashed for _, hashed in hashes)), tuple(measures)))
        return Look(self.data or marks, part, hashes, which.hex(), bool(self.part))

    def note(self, look: Look) -> None:
        """Write down a look by which anything may be chosen; each experiment once."""
        if self.path is None or not look.chooses:
            return
        if any(line["experiment"] == look.experiment for line in self._lines(look.data)):
            return
        line = {name: getattr(look, name) for name in ("data", "part", "experiment")}
        line |= {"flows": dict(look.flows), "at": time.time()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as file:  # one write, so that lines of two processes do not mix
            file.write(json.dumps(line).encode() + b"\n")

    def chosen_on(self, look: Look) -> tuple[str, ...]:
        """The parts that must not be reported on: those on which any flow was tuned or selected, since the others are
        its variants; and `report` where one of these flows was compared with others on questions of all parts."""
        if look.part in TUNED:
            return ()
        lines, flows = list(self._lines(look.data)), {hashed for _, hashed in look.flows}
        found = {line["part"] for line in lines if line["part"] in TUNED}
        if look.part == REPORT and any(
            line["part"] == ALL and flows.intersection(line["flows"].values()) for line in lines
        ):
            found.add(REPORT)
        return tuple(part for part in PARTS if part in found)

    def before(self, look: Look) -> int:
        """How many other experiments have looked at the questions: at its part, or at all."""
        parts = {look.part, ALL} if look.part != ALL else {REPORT, ALL}
        lines = [line for line in self._lines(look.data) if line["experiment"] != look.experiment]
        return sum(line["part"] in parts for line in lines)

    def _lines(self, data: Marks) -> Iterator[dict[str, Any]]:
        if self.path is None or not self.path.is_file():
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

"""The log of uses of questions: no report on questions that a flow was tuned on; one look at questions to report on."""

import json
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from spolia.checksums import check, sign
from spolia.core.plurals import several
from spolia.evaluation.data.dataset import part_of, shared_id
from spolia.private_files import make_folder
from spolia.types import Item, Value, digest_of

TUNED, REPORT = ("tune", "select"), "report"
"""The parts on which flows are chosen, and the one whose score you publish."""
ALL = "all"
"""What is looked at where the questions are of several parts."""
MARKS = 256
LISTED = 2_000
"""Most questions of an entry that are listed one by one. An entry with more counts as one on its whole part."""
LOOKS = "looks.jsonl"
Marks: TypeAlias = tuple[str, ...]
"""What tells a data set apart; see `marks_of`."""


@dataclass(frozen=True)
class LogEntry(Value):
    """Some flows measured on some questions: a line of the usage log.

    `part` is `all` for questions of several parts, and `declared` if it was asked for. `asked` has hashes of the ids of
    the questions; none where these are too many to be written down. `chosen` has the hashes of the flows that the
    questions chose, as far as that is known.
    """

    data: Marks
    part: str
    flows: tuple[tuple[str, str], ...]
    experiment: str
    declared: bool = False
    asked: frozenset[str] = frozenset()
    at: float = 0.0
    chosen: tuple[str, ...] = ()

    @property
    def can_choose(self) -> bool:
        """Return whether anything may be chosen by it: a single flow is compared with nothing, unless a part was asked
        for."""
        return self.declared or len(self.flows) > 1

    def bars_question(self, id: str) -> bool:
        """Return whether a question must not be reported on; of a comparison on all parts, only those of `report`."""
        part = REPORT if self.part == ALL else self.part
        is_any = self.part == ALL and bool(self.chosen)
        return (is_any or part_of(id) == part) and (not self.asked or _short(id) in self.asked)

    def chosen_flows(self, entry: "LogEntry") -> tuple[str, ...]:
        """Return the names of another entry's flows that these questions chose, or may have chosen."""
        chosen = set(self.chosen or (hashed for _, hashed in self.flows))
        return tuple(name for name, hashed in entry.flows if hashed in chosen)

    def __str__(self) -> str:
        """Return when, at what and with which flows.

        >>> print(LogEntry((), "tune", (("a", "1f"), ("b", "2e")), "", asked=frozenset(("c4",))))
        1970-01-01 00:00 UTC, 1 question of the part tune: a, b
        """
        when = datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        part_text = "all parts" if self.part == ALL else f"the part {self.part}"
        questions = several(len(self.asked), "question") if self.asked else "all questions"
        return f"{when}, {questions} of {part_text}: {', '.join(name for name, _ in self.flows)}"


@dataclass(frozen=True)
class UsageLog:
    """A file with a line for each experiment on a data set.

    Args:
        path: the file, made with the first line; None writes nothing down.
        data: which data set is looked at, where the questions that are asked are some of it.
        part: the part that was asked for.
        also: another file whose entries count.

    >>> import tempfile
    >>> usage_log = UsageLog(Path(tempfile.mkdtemp()) / "looks.jsonl")
    >>> data = marks_of([Item("q1", "What pulls the sea?")])
    >>> usage_log.note(LogEntry(data, "tune", (("a", "1f"), ("b", "2e")), "experiment 1"))
    >>> print(*usage_log.choosing_entries(LogEntry(data, "all", (("a", "1f"),), "experiment 2")))
    1970-01-01 00:00 UTC, all questions of the part tune: a, b
    >>> usage_log.choosing_entries(LogEntry(data, "all", (("c", "3d"),), "experiment 3"))
    ()
    """

    path: Path | None = None
    data: Marks = ()
    part: str = ""
    also: Path | None = None
    of_path: Path | None = None

    @property
    def forget_command(self) -> str:
        """Return the command that deletes its entries."""
        return f"spolia data looks {shlex.quote(str(self.of_path)) if self.of_path else 'DATA'} --forget"

    @classmethod
    def for_data(cls, folder: Path, cache: Path, data: Marks, part: str = "") -> "UsageLog":
        """Return the log beside a data set; of data that cannot be written to, the one in a cache folder. Entries of
        both count."""
        own_file = folder / LOOKS if folder.is_dir() else folder.with_name(f"{folder.name}.{LOOKS}")
        paths = [own_file, cache / LOOKS]
        if not os.access(own_file if own_file.exists() else own_file.parent, os.W_OK):
            # Entries are added to the first file; those of the second only count.
            paths.reverse()
        return cls(paths[0], data, part, paths[1], folder)

    @classmethod
    def for_rows(cls, rows: str | Path | None) -> "UsageLog":
        """Return the log beside that of an experiment; in the folder where each has its own."""
        if rows is None:
            return cls()
        return cls((Path(rows) if Path(rows).is_dir() else Path(rows).parent) / LOOKS)

    def new_entry(
        self, items: Sequence[Item], flows: Mapping[str, str], measures: Sequence[str], chosen: Sequence[str] = ()
    ) -> LogEntry:
        """Return the entry for flows, by name as they are written, that are measured on questions.

        Args:
            chosen: the names of the flows that the questions chose.
        """
        parts = {part_of(item.id) for item in items}
        part = self.part or (parts.pop() if len(parts) == 1 else ALL)
        marks = marks_of(items)
        hashes = tuple((name, digest_of(text).hex()) for name, text in flows.items())
        experiment = digest_of((marks, part, tuple(sorted(hashed for _, hashed in hashes)), tuple(measures)))
        questions = frozenset(_short(item.id) for item in items) if len(items) <= LISTED else frozenset[str]()
        best = tuple(hashed for name, hashed in hashes if name in chosen)
        return LogEntry(
            self.data or marks, part, hashes, experiment.hex(), bool(self.part), questions, time.time(), best
        )

    def note(self, entry: LogEntry) -> None:
        """Add an entry by which anything may be chosen; each experiment once."""
        if self.path is None or not entry.can_choose:
            return
        if any(earlier.experiment == entry.experiment for earlier in self.entries(entry.data)):
            return
        line = {name: getattr(entry, name) for name in ("data", "part", "experiment", "at", "chosen")}
        line |= {"flows": dict(entry.flows), "asked": sorted(entry.asked)}
        make_folder(self.path.parent)
        is_cut = self.path.exists() and self.path.read_bytes()[-1:] not in (b"", b"\n")  # by a full disk
        with self.path.open("ab", buffering=0) as file:  # one write, so that lines of two processes do not mix
            file.write(b"\n" * is_cut + json.dumps(sign(line)).encode() + b"\n")

    def choosing_entries(self, entry: LogEntry) -> tuple[LogEntry, ...]:
        """Return the entries whose questions chose one of these flows: by a study, in a part to tune or select on, or,
        of questions to report on, by a comparison on all parts."""
        if entry.part in TUNED:
            return ()
        return tuple(
            earlier
            for earlier in self.entries(entry.data)
            if (earlier.part in TUNED or (earlier.part == ALL and (earlier.chosen or entry.part == REPORT)))
            and earlier.chosen_flows(entry)
        )

    def count_other_looks(self, entry: LogEntry) -> int:
        """Count the other experiments that have looked at the questions: at its part, or at all."""
        parts = {entry.part, ALL} if entry.part != ALL else {REPORT, ALL}
        return sum(
            earlier.part in parts for earlier in self.entries(entry.data) if earlier.experiment != entry.experiment
        )

    def entries(self, data: Marks) -> list[LogEntry]:
        all_entries = (entry for path in (self.also, self.path) for _, entry in _lines(path) if entry is not None)
        return sorted((entry for entry in all_entries if is_same(entry.data, data)), key=lambda entry: entry.at)

    def damage(self) -> str:
        """Return what is wrong with the files, in words: no warning knows of what their damaged lines say."""
        return " ".join(
            f"{path} is damaged: {count} of its lines changed since they were written. Restore it from a backup."
            for path in (self.path, self.also)
            if (count := sum(entry is None for text, entry in _lines(path) if text.strip()))
        )

    def forget(self, data: Marks) -> int:
        """Delete the entries of a data set; return how many there were."""
        count = len(self.entries(data))
        for path in (self.path, self.also):
            lines = list(_lines(path))
            remaining = [text for text, entry in lines if entry is None or not is_same(entry.data, data)]
            if path is not None and len(remaining) < len(lines):
                part = path.with_suffix(".part")
                part.write_text("".join(f"{text}\n" for text in remaining), "utf-8")
                # A rename is atomic: a kill leaves the old log or the new one.
                part.replace(path)
        return count


def _lines(path: Path | None) -> Iterator[tuple[str, LogEntry | None]]:
    if path is not None and path.is_file():
        for text in path.read_text("utf-8", errors="replace").splitlines():
            yield text, _parse_entry(text)


def _parse_entry(text: str) -> LogEntry | None:
    """Parse an entry from its line; None for a damaged line, for example one that a full disk cut off."""
    try:
        line = check(json.loads(text))
        flows = tuple((str(name), str(hashed)) for name, hashed in line["flows"].items())
        questions = frozenset(map(str, line.get("asked", ())))
        chosen = tuple(map(str, line.get("chosen", ())))  # not there before version 0.3
        moment = float(line["at"])
        return LogEntry(tuple(line["data"]), line["part"], flows, line["experiment"], False, questions, moment, chosen)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _short(id: str) -> str:
    return digest_of(shared_id(id)).hex()[:12]


def marks_of(items: Iterable[Item]) -> Marks:
    """Return what tells a data set apart: the smallest hashes of its questions, so that sets that share many share many
    of these.

    Source: Broder 1997.
    """
    return tuple(sorted(digest_of((item.id, item.question)).hex()[:12] for item in items)[:MARKS])


def is_same(ours: object, theirs: Marks) -> bool:
    """Return whether half of the questions of the smaller set are in the other, as far as marks tell: some may have
    been added or mended since.

    >>> is_same(("1", "2", "3"), ("1", "2", "4")), is_same(("1",), ("2",)), is_same("1", ("1",))
    (True, False, False)
    """
    if not isinstance(ours, (list, tuple)) or not ours or not theirs:
        return False
    full = [max(first) for first in (ours, theirs) if len(first) == MARKS]  # beyond the last mark nothing is known
    first, second = ({mark for mark in marks if not full or mark <= min(full)} for marks in (ours, theirs))
    return 2 * len(first & second) >= min(len(first), len(second)) > 0

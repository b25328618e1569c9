"""The file behind traces and cache: many threads, other processes, damage, ends."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from spolia.core.combinators import Identity
from spolia.core.operator import Operator
from spolia.errors import NotAStore, StoreBusy
from spolia.journal import Runs
from spolia.journal.database import JournalFile
from spolia.run import Run
from spolia.types import Query, Usage, Value
from tests.records import tamper
from tests.run.flows import COUNTER, Ask


@pytest.fixture(autouse=True)
def fresh() -> None:
    COUNTER.reset()


ROW: tuple[Any, ...] = (0, 0, 0, Identity(), 0.0, 0.0, False, 0, 0, 0, 0, 0.0, "", "", None)


def all_at_once(*calls: Any) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    previous_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(previous_interval)


@pytest.mark.slow
def test_no_span_is_lost_between_threads(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs:
        runs.journal.buffer = 3

        def record(first: int) -> None:
            for number in range(first, first + 3000):
                runs.journal.record(("run", number, *ROW[1:]))

        all_at_once(*(lambda first=first: record(first) for first in range(0, 12_000, 3000)))
        assert runs.journal.flush()
        assert len(runs.journal.spans("run")) + runs.database.dropped == 12_000


def test_a_result_that_left_memory_is_found_in_the_file(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db", entries=1) as runs:
        for key in (b"first", b"second"):
            runs.cache.save(key, key.decode(), Usage())
        assert runs.database.flush()
        assert list(runs.cache._entries) == [b"second"]
        entry = runs.cache.get(b"first")
    assert entry is not None
    assert entry.value == "first"


def test_flushing_waits_for_everything_that_was_queued(tmp_path: Path) -> None:
    database = JournalFile(tmp_path / "runs.db")
    database.write("CREATE TABLE seen (n)", lambda: [()])

    def write() -> None:
        for _ in range(200):
            database.write("INSERT INTO seen (n) VALUES (1)", lambda: [()])
            assert database.flush()
            assert database._waiting == 0 or threading.active_count() > 2

    all_at_once(write, write, write)
    assert database.flush()
    assert database.read("SELECT count(*) FROM seen") == [(600,)]
    assert database._waiting == 0
    database.close()


@dataclass(frozen=True)
class Unspeakable(Value):
    def __repr__(self) -> str:
        raise ValueError("no words")


def test_a_span_that_cannot_be_described_is_written_all_the_same(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs:
        runs.journal.record(("run", 1, *ROW[1:-1], Unspeakable()))
        runs.journal.record(("run", 2, *ROW[1:-3], "\ud800", "", None))
        runs.journal.record(("run", 3, *ROW[1:]))
        assert runs.journal.flush()
        assert [span.error for span in runs.journal.spans("run")] == ["", "?", ""]
        assert "cannot be shown" in runs.journal.spans("run")[0].result
        assert runs.database.dropped == 0


def test_a_row_that_cannot_be_written_is_dropped_alone(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs:
        runs.database.write("INSERT INTO spans (run) VALUES (?)", lambda: [("no such columns",)])
        runs.database.write("INSERT INTO spans (run) VALUES (?)", lambda: [("\ud800",)])
        runs.journal.record(("run", 3, *ROW[1:]))
        assert runs.journal.flush()
        assert [span.span for span in runs.journal.spans("run")] == [3]
        assert runs.database.dropped == 2
        assert "could not be written" in runs.database.problem


def test_many_spans_are_written_by_one_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that asks for its turn after every row gets too few turns while a run is busy."""
    with Runs(tmp_path / "runs.db") as runs:
        statements: list[int] = []
        write = runs.database.write

        def count_statement(statement: str, rows: Any, count: int = 1) -> None:
            statements.append(len(rows()))
            write(statement, rows, count)

        monkeypatch.setattr(runs.database, "write", count_statement)
        runs.journal.buffer = 2500
        for n in range(2500):
            runs.journal.record(("run", n, *ROW[1:]))
        assert runs.journal.flush()
        assert statements == [1, 1, 1]
        assert len(runs.journal.spans("run")) == 2500


def test_short_runs_are_written_together_without_being_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(tmp_path / "runs.db")
    counts: list[int] = []
    write = runs.database.write

    def count_statement(statement: str, rows: Any, count: int = 1) -> None:
        counts.append(count)
        write(statement, rows, count)

    monkeypatch.setattr(runs.database, "write", count_statement)
    for _ in range(20):
        with Run(journal=runs.journal):
            Ask()(Query("q"))
    ended = time.monotonic() + 20
    while len(runs.journal.runs(30)) < 20 and time.monotonic() < ended:
        time.sleep(0.01)
    assert len(runs.journal.runs(30)) == 20
    assert len(counts) < 10
    with Run(journal=runs.journal):
        Ask()(Query("last"))
    runs.close()
    with Runs(tmp_path / "runs.db") as second_runs:
        assert len(second_runs.journal.runs(30)) == 21, "closing writes what was to be written soon"


def test_a_run_that_ends_after_the_file_was_closed_counts_its_spans_as_dropped(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs:
        pass
    with Run(journal=runs.journal):
        Ask()(Query("late"))
    assert runs.database.dropped == 1


def test_run_ids_are_distinct_and_in_order_in_a_process() -> None:
    ids = [Run().id for _ in range(50)]
    assert len(set(ids)) == 50
    numbers = [int(id, 16) for id in ids]
    assert [(b - a) % 2**48 for a, b in itertools.pairwise(numbers)] == [1] * 49
    assert all(len(id) == 12 for id in ids)


def test_any_text_is_kept_and_comes_back(tmp_path: Path) -> None:
    query = Query("half a pair \ud800, \x00 and \u202e")
    for _ in range(2):
        with Runs(tmp_path / "runs.db") as runs, Run(journal=runs.journal, cache=runs.cache):
            assert Ask()(query).text == query.text + "a"
            runs.journal.flush()
            assert runs.database.problem == ""
    assert COUNTER.calls == 1


DEEP = b'{"Query": ' * 100_000


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(
            ("value", one)
            for one in (b'{"Query": {"no such field": 1}}', DEEP, b"#", b"", b"[" * 100_000, b"#12345678{}")
        ),
        ("usage", b"{}"),
    ],
)
def test_a_damaged_or_hostile_entry_is_computed_again(tmp_path: Path, column: str, value: bytes) -> None:
    with Runs(tmp_path / "runs.db") as runs, Run(cache=runs.cache):
        Ask()(Query("q"))
    with tamper(tmp_path / "runs.db") as raw:
        raw.execute(f"UPDATE cache SET {column} = ?", (value,))
    raw.close()
    for _ in range(2):
        with Runs(tmp_path / "runs.db") as runs, Run(cache=runs.cache):
            assert Ask()(Query("q")).text == "qa"
    assert COUNTER.calls == 2


def test_an_entry_of_which_a_byte_has_changed_is_computed_again(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs, Run(cache=runs.cache):
        Ask()(Query("q"))
    with tamper(tmp_path / "runs.db") as raw:
        ((value,),) = raw.execute("SELECT value FROM cache").fetchall()
        assert b"qa" in value
        raw.execute("UPDATE cache SET value = ?", (value.replace(b"qa", b"qx"),))
    raw.close()
    for _ in range(2):
        with Runs(tmp_path / "runs.db") as runs, Run(cache=runs.cache):
            assert Ask()(Query("q")).text == "qa"
    assert COUNTER.calls == 2


def test_an_entry_of_before_which_has_no_digest_is_taken(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs, Run(cache=runs.cache):
        Ask()(Query("q"))
    with tamper(tmp_path / "runs.db") as raw:
        raw.execute("UPDATE cache SET value = substr(value, 10)")
    raw.close()
    with Runs(tmp_path / "runs.db") as runs, Run(cache=runs.cache):
        assert Ask()(Query("q")).text == "qa"
    assert COUNTER.calls == 1


def test_a_file_that_vanishes_or_is_locked_never_fails_an_answer(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.db")
    for left in tmp_path.iterdir():
        left.unlink()
    tmp_path.rmdir()
    with Run(journal=runs.journal, cache=runs.cache):
        assert Ask()(Query("q")).text == "qa"
    runs.journal.flush()
    assert runs.database.dropped >= 2
    runs.close()


def test_a_locked_file_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **options: real(path, **options | {"timeout": 0.05}))
    holder = real(tmp_path / "runs.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreBusy, match="locked"):
        Runs(tmp_path / "runs.db")
    holder.close()
    (tmp_path / "other.db").write_bytes(b"something else entirely" * 100)
    with pytest.raises(NotAStore, match="Or name another file"):
        Runs(tmp_path / "other.db")


@pytest.mark.slow
def test_what_was_done_is_written_although_nobody_closed(tmp_path: Path) -> None:
    program = (
        "from spolia.journal import Runs; from spolia.run import Run; from tests.run.flows import Ask, Query\n"
        f"runs = Runs({str(tmp_path / 'runs.db')!r})\n"
        "with Run(journal=runs.journal, cache=runs.cache): Ask()(Query('q'))"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root)
    with Runs(tmp_path / "runs.db") as runs:
        assert len(runs.journal.runs()) == 1
        assert runs.database.read("SELECT count(*) FROM cache") == [(1,)]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_writes_and_reads_for_itself(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs:
        with Run(journal=runs.journal, cache=runs.cache):
            Ask()(Query("parent"))
        runs.journal.flush()
        assert len(runs.journal.runs()) == 1

        ids = {Run().id for _ in range(3)}

        def child() -> None:
            assert not ids & {Run().id for _ in range(9)}
            with Run(journal=runs.journal, cache=runs.cache):
                Ask()(Query("child"))
            assert runs.journal.flush()

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(600)
        assert process.exitcode == 0
        assert len(runs.journal.runs()) == 2


@pytest.mark.slow
def test_two_processes_share_one_file(tmp_path: Path) -> None:
    program = (
        "from spolia.journal import Runs; from spolia.run import Run; from tests.run.flows import *\n"
        f"with Runs({str(tmp_path / 'runs.db')!r}) as runs, Run(journal=runs.journal, cache=runs.cache):\n"
        "    for n in range(50): assert Ask()(Query(str(n))).text == f'{n}a'\n"
        "print(COUNTER.calls, runs.database.problem)"
    )
    root = Path(__file__).resolve().parents[2]
    processes = [subprocess.Popen([sys.executable, "-c", program], cwd=root, stdout=-1, text=True) for _ in range(2)]
    printed = [process.communicate(timeout=600)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert all(len(words) == 1 and int(words[0]) <= 50 for words in printed)
    with Runs(tmp_path / "runs.db") as runs:
        assert runs.database.read("SELECT count(*) FROM cache") == [(50,)]
        assert len(runs.journal.runs()) == 2


@dataclass(frozen=True)
class Long(Operator[Query, Query]):
    cached: ClassVar[bool] = True

    def apply(self, value: Query, /) -> Query:
        return value.rewritten(value.text * 10_000)


@pytest.mark.slow
def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    for start in range(4):
        with (
            Runs(tmp_path / "runs.db", max_bytes=400_000) as runs,
            Run(journal=runs.journal, cache=runs.cache),
        ):
            for n in range(10):
                Long()(Query(f"{start * 10 + n:04d}"))
            runs.journal.flush()
    with Runs(tmp_path / "runs.db") as runs:
        ((total, entries),) = runs.database.read("SELECT sum(size), count(*) FROM cache")
        assert total <= 400_000
        assert entries > 0
        assert runs.database.size() < 800_000


def test_threads_read_at_the_same_time(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs:
        for n in range(20):
            runs.cache.save(str(n).encode(), Query(str(n)), Usage())
        runs.journal.flush()
        runs.cache._entries.clear()
        wrong: list[int] = []

        def read_entries() -> None:
            for n in range(20):
                entry = runs.cache._read_entry(str(n).encode())
                if entry is None or entry.value != Query(str(n)):
                    wrong.append(n)

        all_at_once(*(read_entries for _ in range(8)))
        assert wrong == []
        assert runs.database.problem == ""

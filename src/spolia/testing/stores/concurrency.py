"""Contract of concurrency: one writer at a time and any number of readers, any of which may be killed."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import ClassVar

from spolia.errors import StoreBusy
from spolia.stores.corpus import Corpus
from spolia.testing.stores.fixtures import (
    ALL,
    DENSE,
    Contract,
    collect_answers,
    embed_missing,
    expect_error,
    fill_store,
    make_entries,
    put_entry,
    readable_ids,
)

HOLDER = """
import sys
from spolia.stores.corpus import Corpus
with Corpus(sys.argv[1]).writer() as writer:
    print("holding", flush=True)
    sys.stdin.readline()
"""
_WRITER = """
import sys
from spolia.stores.corpus import Corpus
from spolia.testing.stores.fixtures import embed_missing, make_entries, put_entry
with Corpus(sys.argv[1]).writer(60) as writer:
    while True:
        for entry in make_entries(12, writer.generation):
            put_entry(writer, entry)
            print("put", flush=True)
        embed_missing(writer)
        print("embedded", flush=True)
        print("published", writer.publish(), flush=True)
"""


class ConcurrencyContract(Contract):
    """Tests of several concurrent writers and readers, `kills` of them killed."""

    kills: ClassVar[int] = 10

    def test_a_second_writer_is_told_who_writes_and_writes_when_the_first_has_ended(self, tmp_path: Path) -> None:
        with self.store(tmp_path, make_entries(3)) as corpus:
            with corpus.writer():
                message = expect_error(StoreBusy, lambda: corpus.writer(timeout_s=0).__enter__())
                assert f"pid {os.getpid()}" in message
            holder = start_process(HOLDER, corpus)
            assert f"pid {holder.pid}" in expect_error(StoreBusy, lambda: corpus.writer(timeout_s=0.1).__enter__())
            ending = threading.Timer(0.2, holder.communicate, ["\n"])
            ending.start()
            with corpus.writer(timeout_s=30) as writer:
                assert writer.generation == 1
            ending.join()

    def test_a_killed_writer_leaves_no_lock(self, tmp_path: Path) -> None:
        with self.store(tmp_path, make_entries(3)) as corpus:
            holder = start_process(HOLDER, corpus)
            holder.kill()
            holder.communicate()
            with corpus.writer(timeout_s=10) as writer:
                assert writer.generation == 1

    def test_writers_killed_anywhere_lose_nothing_that_was_published_and_leave_nothing_half(
        self, tmp_path: Path
    ) -> None:
        draw = Random(5)
        with self.store(tmp_path, make_entries(12)) as corpus:
            for kill in range(self.kills):
                generation = _kill_writer(draw.randrange(1, 40), corpus)
                snapshot = corpus.latest()
                assert snapshot.generation >= generation, f"kill {kill}: published data is lost"
                shelf = make_entries(12, snapshot.generation - 1)
                for group in ("line", "word"):
                    assert {node.id for node in snapshot.all_nodes(group, ALL)} == readable_ids(shelf, group, ALL), kill
                assert snapshot.check() == [], kill
            expected = collect_answers(corpus.latest())
            fill_store(corpus, make_entries(12, corpus.latest().generation - 1))
            assert collect_answers(corpus.latest()) == expected
            assert corpus.latest().check() == []

    def test_vectors_outlive_a_writer_that_did_not_publish(self, tmp_path: Path) -> None:
        with self.store(tmp_path, make_entries(3)) as corpus:
            texts, many = list[int](), make_entries(1500, 7)

            def stopped() -> None:
                with corpus.writer() as writer:
                    for entry in many:
                        put_entry(writer, entry)
                    texts.append(embed_missing(writer))
                    raise StoreBusy("stop")

            expect_error(StoreBusy, stopped)
            with corpus.writer() as writer:
                for entry in many:
                    put_entry(writer, entry)
                assert embed_missing(writer) < texts[0] / 2
            assert corpus.latest().check() == []

    def test_threads_share_a_snapshot(self, tmp_path: Path) -> None:
        with self.store(tmp_path, make_entries()) as corpus, ThreadPoolExecutor(8) as pool:
            vector = DENSE.embed(["stone"], kind="query")[0]

            def ask(_: int) -> tuple[object, object]:
                snapshot = corpus.snapshot()
                pairs = snapshot.search("line", "stone", 50, ALL)
                near = snapshot.nearest("line", DENSE.name, vector, 50, ALL)
                return tuple(snapshot.hits(pairs, ALL)), tuple(near)

            assert len(set(pool.map(ask, range(64)))) == 1

    def test_a_forked_child_opens_its_own_connections(self, tmp_path: Path) -> None:
        with self.store(tmp_path, make_entries(6)) as corpus:
            mine = corpus.snapshot()
            if (pid := os.fork()) == 0:
                code = 1
                try:
                    theirs = corpus.snapshot()
                    code = 0 if theirs is not mine and theirs.check() == [] else 2
                finally:
                    os._exit(code)  # the child must not clean up what belongs to its parent
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert mine.check() == []
            fill_store(corpus, make_entries(6, 1))
            assert corpus.latest().check() == []

    def test_a_child_that_was_forked_while_writing_does_not_keep_the_lock(self, tmp_path: Path) -> None:
        with self.store(tmp_path, make_entries(3)) as corpus:
            ends = os.pipe()
            with corpus.writer():
                if (pid := os.fork()) == 0:
                    os.read(ends[0], 1)
                    os._exit(0)
            with corpus.writer(timeout_s=10) as writer:
                assert writer.generation == 1
            os.write(ends[1], b"x")
            os.waitpid(pid, 0)


def start_process(script: str, corpus: Corpus) -> subprocess.Popen[str]:
    """Start a process, and wait for its first line."""
    command = [sys.executable, "-c", script, corpus.path]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _kill_writer(lines: int, corpus: Corpus) -> int:
    """Kill a writer after it has printed `lines` lines; return the last generation that it reported as published."""
    process = start_process(_WRITER, corpus)
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    process.kill()
    output, _ = process.communicate()
    published = [int(line.split()[1]) for line in output.splitlines() if line.startswith("published")]
    return max(published, default=0)

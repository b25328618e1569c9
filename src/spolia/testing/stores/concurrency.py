"""One writer at a time and any number of readers, in processes and threads, any of which may be killed."""

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
from spolia.testing.stores.fixtures import ALL, DENSE, Contract, answers, embed, entries, fill, found_by, put, refused

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
from spolia.testing.stores.fixtures import embed, entries, put
with Corpus(sys.argv[1]).writer(60) as writer:
    while True:
        for entry in entries(12, writer.generation):
            put(writer, entry)
            print("put", flush=True)
        embed(writer)
        print("embedded", flush=True)
        print("published", writer.publish(), flush=True)
"""


class Sharing(Contract):
    """Tests of several concurrent writers and readers, `kills` of them killed."""

    kills: ClassVar[int] = 10

    def test_a_second_writer_is_told_who_writes_and_writes_when_the_first_has_ended(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(3)) as corpus:
            with corpus.writer():
                said = refused(StoreBusy, lambda: corpus.writer(timeout_s=0).__enter__())
                assert f"pid {os.getpid()}" in said
            holder = started(HOLDER, corpus)
            assert f"pid {holder.pid}" in refused(StoreBusy, lambda: corpus.writer(timeout_s=0.1).__enter__())
            ending = threading.Timer(0.2, holder.communicate, ["\n"])
            ending.start()
            with corpus.writer(timeout_s=30) as writer:
                assert writer.generation == 1
            ending.join()

    def test_a_killed_writer_leaves_no_lock(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(3)) as corpus:
            holder = started(HOLDER, corpus)
            holder.kill()
            holder.communicate()
            with corpus.writer(timeout_s=10) as writer:
                assert writer.generation == 1

    def test_writers_killed_anywhere_lose_nothing_that_was_published_and_leave_nothing_half(
        self, tmp_path: Path
    ) -> None:
        draw = Random(5)
        with self.store(tmp_path, entries(12)) as corpus:
            for kill in range(self.kills):
                said = _killed_after(draw.randrange(1, 40), corpus)
                snapshot = corpus.latest()
                assert snapshot.generation >= said, f"kill {kill}: published data is lost"
                shelf = entries(12, snapshot.generation - 1)
                for group in ("line", "word"):
                    assert {node.id for node in snapshot.all_nodes(group, ALL)} == found_by(shelf, group, ALL), kill
                assert snapshot.check() == [], kill
            before = answers(corpus.latest())
            fill(corpus, entries(12, corpus.latest().generation - 1))
            assert answers(corpus.latest()) == before
            assert corpus.latest().check() == []

    def test_vectors_outlive_a_writer_that_did_not_publish(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(3)) as corpus:
            texts, many = list[int](), entries(1500, 7)

            def stopped() -> None:
                with corpus.writer() as writer:
                    for entry in many:
                        put(writer, entry)
                    texts.append(embed(writer))
                    raise StoreBusy("stop")

            refused(StoreBusy, stopped)
            with corpus.writer() as writer:
                for entry in many:
                    put(writer, entry)
                assert embed(writer) < texts[0] / 2
            assert corpus.latest().check() == []

    def test_threads_share_a_snapshot(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries()) as corpus, ThreadPoolExecutor(8) as pool:
            vector = DENSE.embed(["stone"], kind="query")[0]

            def ask(_: int) -> tuple[object, object]:
                snapshot = corpus.snapshot()
                found = snapshot.search("line", "stone", 50, ALL)
                near = snapshot.nearest("line", DENSE.name, vector, 50, ALL)
                return tuple(snapshot.hits(found, ALL)), tuple(near)

            assert len(set(pool.map(ask, range(64)))) == 1

    def test_a_forked_child_opens_its_own_connections(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(6)) as corpus:
            mine = corpus.snapshot()
            if (pid := os.fork()) == 0:
                code = 1
                try:
                    theirs = corpus.snapshot()
                    code = 0 if theirs is not mine and theirs.check() == [] else 2
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert mine.check() == []
            fill(corpus, entries(6, 1))
            assert corpus.latest().check() == []

    def test_a_child_that_was_forked_while_writing_does_not_keep_the_lock(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(3)) as corpus:
            ends = os.pipe()
            with corpus.writer():
                if (pid := os.fork()) == 0:
                    os.read(ends[0], 1)
                    os._exit(0)
            with corpus.writer(timeout_s=10) as writer:
                assert writer.generation == 1
            os.write(ends[1], b"x")
            os.waitpid(pid, 0)


def started(script: str, corpus: Corpus) -> subprocess.Popen[str]:
    """A process that has said something."""
    command = [sys.executable, "-c", script, corpus.path]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _killed_after(lines: int, corpus: Corpus) -> int:
    """Kill a writer after it has printed `lines` lines; returns the last generation that it reported as published."""
    process = started(_WRITER, corpus)
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    process.kill()
    said, _ = process.communicate()
    published = [int(line.split()[1]) for line in said.splitlines() if line.startswith("published")]
    return max(published, default=0)

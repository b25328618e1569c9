"""One writer, any number of readers, in any number of processes and threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import StoreBusy
from spolia.stores.corpus import Corpus
from spolia.stores.truth import Lease
from tests.stores.scenario import EMBEDDER, add_missing_vectors, embed, put

ROOT = Path(__file__).resolve().parents[2]
TRUTHS = ("folder", "postgres")
NOBODY: frozenset[str] = frozenset()

READER = """
import sys
from spolia.stores.corpus import Corpus
from tests.stores.scenario import EMBEDDER, embed
corpus, nobody = Corpus(sys.argv[1]), frozenset()
print("ready", flush=True)
for line in sys.stdin:
    snapshot = corpus.snapshot()
    found = snapshot.search("chunk", "generation", 1000, nobody)
    hits = snapshot.hits(found, nobody)
    whole = len(hits) == len(found) == len(snapshot.nearest("chunk", EMBEDDER, embed(["x"])[0], 1000, nobody)) - 5
    same = {hit.node.text.split()[-1] for hit in hits} <= {str(snapshot.generation)}
    print(snapshot.generation, len(hits), whole and same and not snapshot.check(), flush=True)
"""
HOLDER = """
import sys
from spolia.stores.corpus import Corpus
with Corpus(sys.argv[1]).writer() as writer:
    print("holding", flush=True)
    sys.stdin.readline()
"""


def started(script: str, corpus: Corpus) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, corpus.path]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def asked(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().split()


def test_a_reader_in_another_process_sees_whole_generations_and_never_waits(corpus: Corpus) -> None:
    reader = started(READER, corpus)
    with corpus.writer() as writer:
        for generation in range(2, 6):
            for number in range(3):  # in the middle of a transaction, with the lock held
                put(writer, f"g{number}", f"{number} of generation {generation}")
                published = str(generation - 1)
                assert asked(reader) == [published, "0" if generation == 2 else "3", "True"]
            add_missing_vectors(writer)
            writer.publish()
            assert asked(reader) == [str(generation), "3", "True"]
    reader.communicate()


def test_a_second_writer_waits_then_learns_who_writes(corpus: Corpus) -> None:
    holder = started(HOLDER, corpus)
    with pytest.raises(StoreBusy, match=rf"another process, pid {holder.pid}; .* within 0.1 s.*timeout_s=60"):
        corpus.writer(timeout_s=0.1).__enter__()
    assert StoreBusy.transient
    timer = threading.Timer(0.2, holder.communicate, ["\n"])
    timer.start()
    with corpus.writer(timeout_s=30) as writer:
        assert writer.generation == 1
    timer.join()


def test_a_second_writer_in_this_process_is_told_so(corpus: Corpus) -> None:
    with corpus.writer(), pytest.raises(StoreBusy, match=f"this process, pid {os.getpid()}"):
        corpus.writer(timeout_s=0).__enter__()


def test_a_killed_writer_leaves_no_lock(corpus: Corpus) -> None:
    holder = started(HOLDER, corpus)
    holder.kill()
    holder.wait()
    with corpus.writer(timeout_s=0) as writer:
        assert writer.generation == 1


def test_threads_share_a_snapshot(corpus: Corpus) -> None:
    def search(number: int) -> tuple[int, int]:
        snapshot = corpus.snapshot()
        found = snapshot.search("chunk", "stones", 5, NOBODY)
        near = snapshot.nearest("chunk", EMBEDDER, embed(["stones"])[0], 5, NOBODY)
        return len(snapshot.hits(found, NOBODY)), len(snapshot.nodes([key for key, _ in near], NOBODY))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(search, range(80))) == {(2, 5)}


def test_a_forked_child_opens_its_own_connections(corpus: Corpus) -> None:
    mine = corpus.snapshot()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            theirs = corpus.snapshot()
            code = 0 if theirs is not mine and theirs.check() == [] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert mine.check() == []
    with corpus.writer(timeout_s=0) as writer:
        put(writer, "a.txt", "After the fork.")
        add_missing_vectors(writer)
    assert corpus.snapshot().check() == []


def test_a_child_that_was_forked_while_writing_does_not_keep_the_lock(corpus: Corpus) -> None:
    ends = os.pipe()
    with corpus.writer():
        pid = os.fork()
        if pid == 0:
            os.read(ends[0], 1)
            os._exit(0)
    with corpus.writer(timeout_s=0) as writer:
        assert writer.generation == 1
    os.write(ends[1], b"x")
    os.waitpid(pid, 0)


def test_a_reader_whose_generation_was_swept_before_it_held_it_reads_the_next(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased = type(corpus.truth).leased

    def late(store: Any, generation: int) -> Lease | None:
        if generation == 1:
            for number in range(3):
                with corpus.writer() as writer:
                    put(writer, "a.txt", f"Version {number}")
                    add_missing_vectors(writer)
        return leased(store, generation)

    monkeypatch.setattr(type(corpus.truth), "leased", late)
    assert corpus.snapshot().generation == 4
    assert corpus.snapshot().check() == []

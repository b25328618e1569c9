"""The first use of a group while somebody else writes: what is there is searched, what is not is waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spolia.errors import StoreBusy
from spolia.indexing.sync.texts import add_texts
from spolia.retrieval.bm25 import BM25
from spolia.stores.corpus import Corpus
from spolia.stores.groups.materialise import materialise
from spolia.types import Query

SEARCH = """
import sys
from spolia.retrieval.bm25 import BM25
from spolia.stores.corpus import Corpus
from spolia.types import Query
print(len(BM25(Corpus(sys.argv[1], wait_s=60).group("sentence"))(Query("stones"))), flush=True)
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    new_corpus = Corpus(str(tmp_path / "s.spolia"), wait_s=0.2)
    add_texts(new_corpus, {"a": "Spolia are stones. Builders take them.", "b": "Roads are of stones."})
    return new_corpus


@pytest.mark.slow
def test_what_is_there_is_searched_whoever_writes(corpus: Corpus) -> None:
    materialise([corpus.group("sentence")])
    with Corpus(corpus.path).writer():
        assert len(BM25(corpus.group("sentence"))(Query("stones"))) == 2


@pytest.mark.slow
def test_what_is_not_there_is_waited_for_and_it_is_said_for_whom(
    corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    message = (
        rf"'sentence' is built at its first use, and could not be within 0\.2 s, since this process, pid {os.getpid()} "
    )
    with Corpus(corpus.path).writer(), pytest.raises(StoreBusy, match=message) as busy:
        BM25(corpus.group("sentence"))(Query("stones"))
    assert f"spolia groups build sentence --store {corpus.path} --wait 600" in str(busy.value)
    assert f"Corpus({corpus.path!r}, wait_s=600)" in str(busy.value)
    (record,) = caplog.records
    assert record.getMessage().endswith(f"waits up to 0.2 s for this process, pid {os.getpid()}.")
    assert len(BM25(corpus.group("sentence"))(Query("stones"))) == 2


@pytest.mark.slow
def test_two_processes_build_it_once(corpus: Corpus) -> None:
    previous_generation = corpus.latest().generation
    command = [sys.executable, "-c", SEARCH, corpus.path]
    with Corpus(corpus.path).writer():
        processes = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
        ]
        for process in processes:  # both want to build it
            assert process.stderr is not None
            assert "has to be built first, and waits up to 60 s" in process.stderr.readline()
    assert [process.communicate()[0] for process in processes] == ["2\n", "2\n"]
    assert corpus.latest().generation == previous_generation + 1


def test_how_long_to_wait_is_no_part_of_what_a_store_is() -> None:
    assert Corpus("a.spolia", wait_s=1) == Corpus("a.spolia")
    assert Corpus("a.spolia", wait_s=1).group().corpus.wait_s == 1

"""BM25 on MuSiQue: from a query to a ranking with texts, beside bare tantivy in the same process.

    python benchmarks/bm25.py [--rounds 5] [--peers] [--out FILE]

5,021 passages, a file each, in a store made by a plain `sync` in batches of 1,000; 180 questions, no cache. Bare
tantivy has its own English analyser, one text field, and parses the question as its users do; it returns addresses
and scores, without texts. Each question is timed alone, all ways in turn, in CPU time of the thread; the median of
all rounds counts. In the first round, reported apart, the texts come from the database; later from memory. Apart from
the time it is counted how often the best ten are those of Lucene's formula, computed in plain Python over the same
terms. `--peers` installs bm25s, rank_bm25 and Haystack into a temporary environment (network) and times them in the
same call. Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tantivy
from results import publish

from spolia.evaluation.data.dataset import DataSet
from spolia.indexing.sync.sync import sync
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Whole
from spolia.stores.files import lexical_folder, small_segments
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Query

DATA = Path(os.environ.get("SPOLIA_DATASETS") or Path(__file__).resolve().parents[2] / "shared" / "datasets")
TOP_K = 10
PEERS = {"bm25s": "bm25s", "rank_bm25": "rank-bm25", "haystack": "haystack-ai"}
FAST = ("bm25s",)
PEER_CODE = Path(__file__).parent / "peers" / "bm25.py"


def ours(texts: dict[str, str], folder: Path) -> BM25:
    """A store as users make it: a folder of files and a plain `sync`, with its batches."""
    (folder / "files").mkdir()
    for number, text in enumerate(texts.values()):
        (folder / "files" / f"{number:05}.txt").write_text(text, encoding="utf-8")
    corpus = Corpus(str(folder / "musique.spolia"))
    sync(folder / "files", corpus, splitter=Whole())
    return BM25(corpus.group("chunk"), TOP_K)


def bare(texts: dict[str, str]) -> Callable[[str], Any]:
    schema = tantivy.SchemaBuilder().add_text_field("body", tokenizer_name="en_stem").build()
    index = tantivy.Index(schema)
    writer = index.writer(num_threads=1)
    for text in texts.values():
        writer.add_document(tantivy.Document(body=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(question: str) -> Any:
        plain = re.sub(r"\W+", " ", question)
        return searcher.search(index.parse_query(plain, ["body"]), TOP_K).hits

    return search


def time_ways(
    ways: dict[str, Callable[[str], Any]], questions: Sequence[str], rounds: int, peers: Peers | None = None
) -> dict[str, list[float]]:
    """CPU-ms of each way on each question, in all rounds; peers have theirs between ours, slow ones the first only."""
    times: dict[str, list[float]] = {name: [] for name in (*ways, *(PEERS if peers else ()))}
    for number in range(rounds):
        for question in questions:
            for name, search in ways.items():
                started = time.thread_time_ns()
                search(question)
                times[name].append((time.thread_time_ns() - started) / 1e6)
        for name in () if peers is None else PEERS if number == 0 else FAST:
            times[name] += peers.ask(name)
    return times


def share_of_lucene(flow: BM25, texts: dict[str, str], questions: Sequence[str]) -> float:
    """Share of the questions whose best ten score what the best ten by Lucene's formula score."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from tests.retrieval.lucene import Lucene

    terms, numbers = Analyzer().terms, {text: number for number, text in enumerate(texts.values())}
    reference = Lucene([terms(text) for text in texts.values()])
    same = 0
    for question in questions:
        scores = reference.scores(terms(question))
        best = sorted(scores.values(), reverse=True)[:TOP_K]
        lucene_scores = [scores.get(numbers[hit.node.text], 0.0) for hit in flow(Query(question)).hits]
        same += len(lucene_scores) == len(best) and all(
            abs(a - b) <= 1e-6 * b for a, b in zip(lucene_scores, best, strict=True)
        )
    return same / len(questions)


class Peers:
    """Answers by peers, in a process with an environment of its own, a round at a time."""

    def __init__(self, texts: Sequence[str], questions: Sequence[str], folder: Path) -> None:
        venv.create(folder / "peers", with_pip=True)
        python, data = folder / "peers" / "bin" / "python", folder / "peers.json"
        install = [python, "-m", "pip", "install", "-q", *PEERS.values()]
        subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
        data.write_text(json.dumps({"texts": texts, "questions": questions}))
        self.process = subprocess.Popen(
            [python, PEER_CODE, data], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.ask(FAST[0])  # the first round is no faster than the others

    def ask(self, name: str) -> list[float]:
        """CPU-ms of each question."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{name}\n")
        times: list[float] = json.loads(self.process.stdout.readline())
        return times

    def close(self) -> None:
        self.process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    data = DataSet(str(DATA / "musique"))
    texts = {passage.id: f"{passage.title}\n{passage.text}" for passage in data.passages()}
    questions = [item.question for item in data.items()]
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        flow = ours(texts, Path(folder))
        index_cpu_s = time.process_time() - started
        flow(Query("warm up"))
        index_name = flow.group.corpus.latest().indexes["chunk"][0]
        segments = len(small_segments(lexical_folder(Path(flow.group.corpus.path), "chunk", index_name)))
        first = time_ways({"first": lambda question: flow(Query(question))}, questions, 1)["first"]
        hits = [len(flow(Query(question))) for question in questions]
        run = Run()
        ways: dict[str, Callable[[str], Any]] = {
            "spolia": lambda question: flow(Query(question)),
            "spolia in a run, journal off": lambda question: run(flow, Query(question)),
            "analysis alone": Analyzer().terms,
            "tantivy alone": bare(texts),
        }
        theirs = Peers(list(texts.values()), questions, Path(folder)) if options.peers else None
        times_by_name = time_ways(ways, questions, options.rounds, theirs)
        if theirs is not None:
            theirs.close()
        same = share_of_lucene(flow, texts, questions)
    median = {name: statistics.median(times) for name, times in times_by_name.items()}
    peers = {name: round(median.pop(name), 4) for name in PEERS if name in median}
    result = {
        "passages": len(texts),
        "questions": len(questions),
        "top_k": TOP_K,
        "hits": statistics.mean(hits),
        "median_cpu_ms": {name: round(time, 4) for name, time in median.items()},
        "p95_cpu_ms": {name: round(statistics.quantiles(times_by_name[name], n=20)[-1], 4) for name in median},
        "ratio_to_tantivy": round(median["spolia"] / median["tantivy alone"], 2),
        "first_round": {
            "median_cpu_ms": round(statistics.median(first), 4),
            "mean_cpu_ms": round(sum(first) / len(first), 4),
        },
        "best_ten_are_lucenes": round(same, 4),
        "index_cpu_s": round(index_cpu_s, 2),
        "peers_median_cpu_ms": peers,
        "segments": segments,
        "in_a_run_to_bm25s": round(median["spolia in a run, journal off"] / peers["bm25s"], 2) if peers else None,
        "ratio_of_peers": {name: round(cost / median["spolia"], 1) for name, cost in peers.items()},
        "python": platform.python_version(),
        "tantivy": tantivy.__version__,
    }
    publish("bm25", result, options.out)


if __name__ == "__main__":
    main()

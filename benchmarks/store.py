"""Questions to a whole store: documents, nodes, vectors and texts on the disk, filters and access that it looks at.

    python benchmarks/store.py [--nodes 100000] [--rounds 3] [--out FILE]

Distinct sentences of the data sets, twenty in a file, a node each, are indexed for words and vectors (those of
all-MiniLM-L6-v2, made once, see `sentences.py`). A file has a metadata field with its data set and one with a number
that was drawn. Then 500 questions that people asked are asked one at a time, top 10, as a user asks: by `BM25` and
`Dense`, without a filter, with filters that allow 10, 1 and 0.1 % of the files or a data set, and, after the files
were given reader lists (which embeds nothing), as somebody who may read a tenth; by `hybrid`, without a filter. What
comes back are nodes with their texts. Vectors of questions are looked up, but for `Dense, embedding the question`.
More than 100,000 nodes are pairs of sentences, whose vectors are normalised sums; they are said so in the result.

CPU-ms of the thread, on one core: `first` the first time that a question is asked, when texts come from the disk,
and the median of some rounds. `opening` is what the very first question takes that way, when indexes are opened and
the metadata of all files are read. Recall is the share of what comparing all vectors finds.
Asking is a process of its own, whose anonymous memory (RssAnon) is polled, like that of the one that indexes; the
vectors that are looked up, 150 MB, are in both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy

import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
import sentences  # noqa: E402
from results import publish  # noqa: E402
from vectors import child, quantiles  # noqa: E402

from spolia.filters import AnyOf, Between, Field  # noqa: E402
from spolia.flow_files.built_in_flows import hybrid  # noqa: E402
from spolia.indexing.sync.sync import sync  # noqa: E402
from spolia.indexing.transforms.function import transform  # noqa: E402
from spolia.models.onnx.minilm import MiniLM  # noqa: E402
from spolia.retrieval.bm25 import BM25  # noqa: E402
from spolia.retrieval.dense import Dense  # noqa: E402
from spolia.run import Run  # noqa: E402
from spolia.stores.corpus import Corpus, NodeGroup  # noqa: E402
from spolia.types import Filter, Query, Value  # noqa: E402

REAL, PER_FILE, ASKED, TOP_K, DRAWN = 100_000, 20, 500, 10, 1_000
FIELDS = (Field("set", "str"), Field("drawn", "int"))
FILTERS: dict[str, Filter | None] = {
    "everything": None,
    "10 % of the files": Between("drawn", below=100),
    "1 % of the files": Between("drawn", below=10),
    "0.1 % of the files": Between("drawn", below=1),
    "a data set (pubmedqa)": AnyOf("set", ("pubmedqa",)),
    "a data set (xquad_en)": AnyOf("set", ("xquad_en",)),
}
TEAMS = 10
BETWEEN = " / "
FIRST = "What is opened first?"


@transform
def lines(text):  # type: ignore[no-untyped-def]
    return text.split("\n")


@cache
def rows() -> tuple[dict[str, int], Any]:
    """Which row of the vectors a sentence or a question has."""
    pairs, questions = sentences.distinct(REAL), sentences.questions(ASKED)
    texts = [sentence for sentence, _ in pairs]
    vectors = [
        sentences.vectors(texts, "sentences"),
        sentences.vectors(questions, "questions"),
        np.ones((1, 384)) / 384**0.5,
    ]
    rows_by_text = {text: row for row, text in enumerate([*texts, *questions, FIRST])}
    return rows_by_text, np.concatenate(vectors).astype(np.float32)


@dataclass(frozen=True)
class Known(Value):
    """The vectors of all-MiniLM-L6-v2 as they are kept; of a pair of sentences, their normalised sum."""

    model: MiniLM = field(default_factory=MiniLM)
    dimension: int = 384
    window: int = 256
    scoped = False
    waits = False  # as the model itself: both arms of `hybrid` are computed in the thread whose time is taken

    @property
    def name(self) -> str:
        return self.model.name

    def fingerprint(self) -> str | None:
        return self.model.fingerprint()

    def embed(self, texts: Sequence[str], *, kind: str) -> Any:
        rows_by_text, vectors = rows()
        if all(text in rows_by_text for text in texts):
            return vectors[[rows_by_text[text] for text in texts]]
        halves = [text.split(BETWEEN) for text in texts]
        sums = (
            vectors[[rows_by_text[first] for first, _ in halves]]
            + vectors[[rows_by_text[second] for _, second in halves]]
        )
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text) // 4 for text in texts]

    def covers(self, text: str) -> float:
        return 1.0


def written(folder: Path, nodes: int) -> None:
    """Files of twenty sentences of one data set, or of twenty pairs."""
    by_set: dict[str, list[str]] = {}
    for sentence, name in sentences.distinct(min(nodes, REAL)):
        by_set.setdefault(name, []).append(sentence)
    draw, number = np.random.default_rng(2), 0
    for name in sentences.NAMES:
        texts = [text for text in by_set.get(name, []) if BETWEEN not in text]
        if nodes > REAL:
            texts_of_set = nodes * len(by_set.get(name, [])) // REAL
            pairs = draw.integers(0, max(len(texts), 1), (texts_of_set, 2)).tolist()
            texts = list(dict.fromkeys(f"{texts[a]}{BETWEEN}{texts[b]}" for a, b in pairs))
        for start in range(0, len(texts), PER_FILE):
            path = folder / f"{number // 1000:03}" / f"{number:06} {name}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n".join(texts[start : start + PER_FILE]), "utf-8")
            number += 1


def metadata_of(uri: str) -> dict[str, Any]:
    number, name = Path(uri).stem.split(" ")
    return {"set": name, "drawn": int(number) * 7_919 % DRAWN}


def team(uri: str) -> list[str]:
    return [f"team {int(Path(uri).stem.split(' ')[0]) % TEAMS}"]


def build(folder: Path, store: Path, report: Path) -> None:
    """Index all, or only give the files of a store their reader lists."""
    corpus, began, ticked = Corpus(str(store)), time.process_time(), time.perf_counter()
    access = team if corpus.exists() else None
    rows()
    began, ticked = time.process_time(), time.perf_counter()
    summary = sync(
        folder,
        corpus,
        splitter=lines,
        embedder=Known(),
        fields=FIELDS,
        metadata=metadata_of,
        access=access,
        batch=5_000,
    )
    times = {"cpu_s": round(time.process_time() - began, 1), "wall_s": round(time.perf_counter() - ticked, 1)}
    stats = corpus.latest().stats()
    report.write_text(
        json.dumps(
            {
                **times,
                "files": summary.added or summary.changed,
                "nodes": dict(stats.nodes)["chunk"],
                "texts_embedded": summary.embedded,
                "mb": round(stats.bytes / 1e6),
            }
        )
    )


def asking(work: Callable[[str], Any], questions: Sequence[str], rounds: int) -> dict[str, Any]:
    cpu: list[list[float]] = [[] for _ in questions]
    wall: list[list[float]] = [[] for _ in questions]
    began = time.thread_time()
    work(FIRST)
    opening = (time.thread_time() - began) * 1e3
    for _ in range(rounds):
        for index, question in enumerate(questions):
            began, ticked = time.thread_time(), time.perf_counter()
            work(question)
            cpu[index].append((time.thread_time() - began) * 1e3)
            wall[index].append((time.perf_counter() - ticked) * 1e3)
    return {
        "opening_cpu_ms": round(opening, 1),
        "first_cpu_ms": quantiles([times[0] for times in cpu]),
        "cpu_ms": quantiles([statistics.median(times) for times in cpu]),
        "wall_ms": quantiles([statistics.median(times) for times in wall]),
    }


def exact(
    group: NodeGroup, principals: frozenset[str], condition: Filter | None, questions: Sequence[str]
) -> list[set[str]]:
    """Ids of what comparing all vectors finds."""
    snapshot, embedder = group.snapshot(), Known()
    allowed = snapshot.allowed(group.name, principals, condition)
    keys, vectors = allowed.keys[allowed.positions()], snapshot.vectors(group.name, embedder.name, allowed)
    best_ids = []
    for vector in embedder.embed(questions, kind="query"):
        best = np.argsort(-(vectors @ vector), kind="stable")[:TOP_K]
        best_ids.append({node.id for node in snapshot.nodes(keys[best].tolist(), principals)})
    return best_ids


def recall(flow: Dense, principals: frozenset[str], condition: Filter | None, questions: Sequence[str]) -> float:
    right = exact(flow.group, principals, condition, questions)
    found_ids = [{hit.node.id for hit in flow(Query(question)).hits} for question in questions]
    return round(sum(len(a & b) for a, b in zip(found_ids, right, strict=True)) / max(sum(map(len, right)), 1), 4)


def ask(store: Path, report: Path, restricted: str, rounds: str) -> None:
    group, questions = Corpus(str(store)).group(), sentences.questions(ASKED)
    rows()
    result: dict[str, Any] = {"BM25": {}, "Dense": {}}
    cases = {"a tenth may be read": None, "a tenth may be read, 10 % of the files": FILTERS["10 % of the files"]}
    principals = ["team 3"] if restricted == "yes" else []
    for name, condition in (cases if principals else FILTERS).items():
        words, near = BM25(group, TOP_K, filter=condition), Dense(group, Known(), TOP_K, filter=condition)
        with Run(groups=principals):
            result["BM25"][name] = asking(lambda text, flow=words: flow(Query(text)), questions, int(rounds))
            figures = asking(lambda text, flow=near: flow(Query(text)), questions, int(rounds))
            figures["recall"] = recall(near, frozenset(principals), condition, questions)
            result["Dense"][name] = figures
    if not principals:
        paired_flow = hybrid(group, Known(), top_k=TOP_K)
        with Run():
            result["hybrid"] = {"everything": asking(lambda text: paired_flow(Query(text)), questions, int(rounds))}
        model = Dense(group, MiniLM(), TOP_K)

        def embedding(text: str) -> Any:
            return model(Query(text))

        result["Dense, embedding the question"] = {"everything": asking(embedding, questions, 1)}
    report.write_text(json.dumps(result))


def measure(place: Path, nodes: int, rounds: int) -> dict[str, Any]:
    folder, store, report = place / "files", place / "all.spolia", place / "report.json"
    folder.mkdir()
    written(folder, nodes)
    result: dict[str, Any] = {"made_of": "distinct sentences" if nodes <= REAL else "pairs of sentences"}
    for restricted in ("no", "yes"):
        _, peak = child("build", folder, store, report, code=__file__)
        result["given readers" if restricted == "yes" else "indexed"] = json.loads(report.read_text()) | {
            "anon_mb": peak
        }
        _, peak = child("ask", store, report, restricted, str(rounds), code=__file__)
        for way, row in json.loads(report.read_text()).items():
            result[way] = result.get(way, {}) | row
        result["asking_anon_mb"] = max(peak, result.get("asking_anon_mb", 0))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=REAL)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        part, first, second, *more = options.part
        if part == "build":
            build(Path(first), Path(second), Path(more[0]))
        else:
            ask(Path(first), Path(second), *more)
        return
    result = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    with tempfile.TemporaryDirectory() as place:
        result[str(options.nodes)] = measure(Path(place), options.nodes, options.rounds)
    result |= {"questions": ASKED, "top_k": TOP_K, "python": platform.python_version()}
    result[str(options.nodes)]["load"] = round(os.getloadavg()[1], 1)
    publish("store", result, options.out)


if __name__ == "__main__":
    main()

"""What users wait for: the first question after a publication, one more text, the first filter, a hybrid question.

    python benchmarks/first_questions.py [--count 100000] [--rounds 9] [--store STORE] [--out FILE]

So many short texts, a document and a node each, with random unit vectors of 384 numbers, three declared fields and an
HNSW graph. CPU-ms of the process. Each round adds a text with `add_texts`, asks the first dense question of that
publication, then others. `hybrid` and its two arms are asked the same questions in turn, and each counts with the least
of five times. The first filter is that of a new process, after a question without one. BM25 with a filter by ten
values that one text in a hundred has is asked these questions beside bare tantivy, whose index of the same texts is
asked with terms for these values, and returns addresses and scores without texts.
`publications` counts those of a first index of 5,000 files. To build the store takes two minutes, most of it for the
graph; `--store` keeps it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy

import numpy as np  # noqa: E402
import tantivy  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
from results import publish  # noqa: E402

from spolia import BM25, Corpus, Dense, Query, add_texts, sync  # noqa: E402
from spolia.filters import Between, Field, where  # noqa: E402
from spolia.flow_files.built_in_flows import hybrid  # noqa: E402
from spolia.run import Run  # noqa: E402
from spolia.types import Value  # noqa: E402

DIMENSION, FILES, ASKED, ROUNDS = 384, 5_000, 40, 5
WORDS = [f"w{number}" for number in range(5_000)]
FIELDS = (Field("drawn", "int"), Field("lang"), Field("day", "time"))
TEN = tuple(range(7, 1_000, 100))
"""Values of `drawn` that one text in a hundred has."""


@dataclass(frozen=True)
class Drawn(Value):
    """Directions that a hash of the text draws; nothing waits for them."""

    name: str = "drawn"
    dimension: int = DIMENSION
    window: int = 512
    scoped = False
    waits = False

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Sequence[str], *, kind: str) -> Any:
        vectors = [np.random.default_rng(crc32(text.encode())).standard_normal(DIMENSION) for text in texts]
        return (np.stack(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text) // 4 for text in texts]

    def covers(self, text: str) -> float:
        return 1.0


def text(number: int) -> str:
    draw = random.Random(number)
    return f"Note {number}: {' '.join(WORDS[int(5_000 * draw.random() ** 3)] for _ in range(30))}."


def metadata(uri: str) -> dict[str, Any]:
    number = crc32(uri.encode())
    return {"drawn": number % 1_000, "lang": ("en", "de", "fr")[number % 3], "day": f"2024-0{number % 9 + 1}-11"}


HOW: dict[str, Any] = {"embedder": Drawn(), "fields": FIELDS, "metadata": metadata}


def cpu_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1e3


def after_publications(store: Path, rounds: int) -> dict[str, float]:
    corpus = Corpus(str(store))
    near = Dense(corpus.group(), Drawn())
    near(Query("What is opened first?"))
    add_texts(corpus, {"first.txt": "What is loaded by the first call."}, **HOW)
    added, first, later = list[float](), list[float](), list[float]()
    for number in range(rounds):
        fresh = {f"added {number}.txt": f"A text that is new in round {number}, at {time.time_ns()}."}
        added.append(cpu_ms(lambda: add_texts(corpus, fresh, **HOW)))  # noqa: B023
        first.append(cpu_ms(lambda: near(Query(text(-number - 1)))))  # noqa: B023
        later.append(min(cpu_ms(lambda: near(Query(text(-number - 1)))) for _ in range(3)))  # noqa: B023
    return {
        "one text": round(statistics.median(added), 1),
        "first dense question": round(statistics.median(first), 2),
        "a dense question": round(statistics.median(later), 2),
    }


def in_turn(ways: Mapping[str, Callable[[str], object]]) -> dict[str, float]:
    """CPU-ms of a question in each way: the median over all questions of the least of some rounds."""
    questions = [text(-1_000 - number) for number in range(ASKED)]
    minimum: dict[str, list[float]] = {name: [float("inf")] * ASKED for name in ways}
    with Run():
        for way in ways.values():
            way("What is opened first?")
        for number in list(range(ASKED)) * ROUNDS:
            for name, way in ways.items():
                value = cpu_ms(lambda: way(questions[number]))  # noqa: B023
                minimum[name][number] = min(minimum[name][number], value)
    return {name: statistics.median(value) for name, value in minimum.items()}


def ask_flow(flow: Callable[[Query], object]) -> Callable[[str], object]:
    return lambda text: flow(Query(text))


def hybrid_and_arms(store: Path) -> dict[str, float]:
    group = Corpus(str(store)).group()
    paired_flow = hybrid(group, Drawn())
    flows = {"hybrid": paired_flow, "words": paired_flow.steps[0].arms[0], "meaning": paired_flow.steps[0].arms[1]}  # type: ignore[attr-defined]
    medians = in_turn({name: ask_flow(flow) for name, flow in flows.items()})
    share = medians["hybrid"] / (medians["words"] + medians["meaning"])
    return {name: round(median, 2) for name, median in medians.items()} | {
        "hybrid to the sum of its arms": round(share, 2)
    }


def bare_index(folder: str, count: int) -> tuple[tantivy.Index, tantivy.Query]:
    """An index as tantivy's users make it, and a query for the texts with one of `TEN`."""
    builder = tantivy.SchemaBuilder().add_text_field("body", tokenizer_name="en_stem")
    index = tantivy.Index(builder.add_integer_field("drawn", indexed=True).build(), folder)
    writer = index.writer(num_threads=1)
    for number in range(count):
        drawn_value = metadata(f"{number:06}.txt")["drawn"]
        writer.add_document(tantivy.Document(body=text(number), drawn=drawn_value))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    terms = [(tantivy.Occur.Should, tantivy.Query.term_query(index.schema, "drawn", value)) for value in TEN]
    return index, tantivy.Query.const_score_query(tantivy.Query.boolean_query(terms), 0)


def time_filtered(store: Path, count: int) -> dict[str, float]:
    group, must = Corpus(str(store)).group(), tantivy.Occur.Must
    words = BM25(group, filter=where(drawn=TEN))
    with tempfile.TemporaryDirectory() as folder:
        index, only = bare_index(folder, count)
        searcher = index.searcher()

        def bare(text: str) -> object:
            query = index.parse_query("".join(filter(lambda c: c.isalnum() or c == " ", text)), ["body"])
            return searcher.search(tantivy.Query.boolean_query([(must, query), (must, only)]), 10).hits

        medians = in_turn({"words with a 1 % filter": ask_flow(words), "bare tantivy": bare})
    ratio = medians["words with a 1 % filter"] / medians["bare tantivy"]
    return {name: round(median, 3) for name, median in medians.items()} | {"1 % filter, times tantivy": round(ratio, 2)}


def first_filter(store: Path) -> float:
    group = Corpus(str(store)).group()
    BM25(group)(Query("w1"))
    return round(cpu_ms(lambda: BM25(group, filter=Between("drawn", below=10))(Query("w1"))), 1)


def publications(place: Path) -> int:
    folder = place / "files"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number:05}.txt").write_text(text(number))
    corpus = Corpus(str(place / "files.spolia"))
    sync(folder, corpus)
    return corpus.latest().generation


def in_process(part: str, store: Path, rounds: int, count: int) -> Any:
    command = [sys.executable, __file__, "--part", part, str(store), "--rounds", str(rounds), "--count", str(count)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    parts: dict[str, Callable[[Path], Any]] = {
        "filter": first_filter,
        "hybrid": hybrid_and_arms,
        "filtered": lambda store: time_filtered(store, options.count),
        "publications": lambda store: after_publications(store, options.rounds),
    }
    if options.part:
        print(json.dumps(parts[options.part[0]](Path(options.part[1]))))
        return
    with tempfile.TemporaryDirectory() as place:
        store = options.store or Path(place, "all.spolia")
        if not store.exists():
            add_texts(Corpus(str(store)), {f"{number:06}.txt": text(number) for number in range(options.count)}, **HOW)
        reports = {part: in_process(part, store, options.rounds, options.count) for part in parts}
        result = {
            "count": options.count,
            "cpu_ms": reports["publications"]
            | {"first filter": reports["filter"]}
            | reports["filtered"]
            | reports["hybrid"],
            "publications of a first index of 5,000 files": publications(Path(place)),
        }
    publish("first_questions", result, options.out)


if __name__ == "__main__":
    main()

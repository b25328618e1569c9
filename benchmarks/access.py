"""What access lists cost: stores of real sentences, of which nothing, a tenth or half is hidden from who asks.

    python benchmarks/access.py [--count 10000] [--rounds 3] [--out FILE]

Sentences of the data sets, a hundred in a document, stand in three stores: without access lists, and with lists that
hide a tenth and half of the documents. The same 60 questions are asked of each, top 10, one at a time, in turn: by
words, by formulas that are counted in memory, by exact vectors (a hashing embedder with 64 numbers), and along the
links of a graph. CPU-ms of the thread, for each question the least of some rounds, after one that is not measured;
`first_cpu_ms` is the first question of all. The limit is of the ratio of the medians: with lists to without.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import sentences
from results import publish

from spolia.core.operator import Operator
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.bm25_variants import BM25Variant
from spolia.retrieval.dense import Dense
from spolia.retrieval.graph.edges import InOrder, Similar
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.retrieval.graph.walk import Hops
from spolia.retrieval.tfidf import TFIDF
from spolia.run import Run
from spolia.stores.backends.rows import SourceRow, in_batches
from spolia.stores.corpus import Corpus
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.testing import HashingEmbedder
from spolia.types import Document, Node, Query, Span

HIDDEN = {"without lists": 0, "a tenth hidden": 10, "half hidden": 2}
"""Every how manyth document is hidden."""
ASKED, TOGETHER = 60, 100
EMBEDDER = HashingEmbedder(dimension=64)


def make_corpus(path: Path, texts: list[str], interval: int) -> Corpus:
    """A store of which every so many documents one may be read by `ann` only."""
    corpus = Corpus(str(path)).create()
    with corpus.writer() as writer:
        writer.define("chunk", Manifest("chunk", "sentences", "test", Analyzer(), (GroupEmbedding(EMBEDDER.name, 64),)))
        for number, batch in enumerate(in_batches(texts, TOGETHER)):
            writer.put_document(*_document(number, batch, ("ann",) if interval and number % interval == 0 else ()))
        for lacking in in_batches(list(writer.unembedded("chunk", EMBEDDER.name)), 5_000):
            hashes, new_texts = zip(*lacking, strict=True)
            writer.add_vectors(EMBEDDER.name, hashes, EMBEDDER.embed(new_texts, kind="passage"))
    return corpus


def _document(number: int, texts: list[str], readers: tuple[str, ...]) -> tuple[Document, list[Node], SourceRow]:
    text, nodes, position = "\n".join(texts), [], 0
    for place, sentence in enumerate(texts, 1):
        span, id = Span(position, position + len(sentence)), f"{number}.{place}"
        nodes.append(Node(id, sentence, str(number), "chunk", span, readers=readers, number=place))
        position += len(sentence) + 1
    document = Document(str(number), text, uri=f"{number}.txt", readers=readers)
    return document, nodes, SourceRow(document.uri, len(text), content_hash=str(number))


def ways(corpus: Corpus) -> Mapping[str, Operator[Any, Any]]:
    chunks = corpus.group("chunk")
    return {
        "BM25": BM25(chunks),
        "BM25Variant": BM25Variant(chunks),
        "TFIDF": TFIDF(chunks),
        "Dense, exact": Dense(chunks, EMBEDDER),
        "BM25, then Hops": BM25(chunks) >> Hops(NodeGraph(chunks, (Similar(), InOrder()))),
    }


def cost(op: Operator[Any, Any], query: Query) -> float:
    began = time.thread_time()
    op(query)
    return (time.thread_time() - began) * 1e3


def measure(folder: Path, count: int, rounds: int) -> Iterator[tuple[str, dict[str, Any]]]:
    texts = [text for text, _ in sentences.distinct(count)]
    queries = [Query(question) for question in sentences.questions(ASKED)]
    stores = {name: make_corpus(folder / f"{interval}.spolia", texts, interval) for name, interval in HIDDEN.items()}
    built = {name: ways(corpus) for name, corpus in stores.items()}
    for way in built["without lists"]:
        first, minimum = dict.fromkeys(HIDDEN, 0.0), {name: [float("inf")] * ASKED for name in HIDDEN}
        ops = {name: built[name][way] for name in HIDDEN}
        with Run():
            for name, op in ops.items():
                first[name] = cost(op, queries[0])
                for query in queries:
                    op(query)
            for _ in range(rounds):
                for index, query in enumerate(queries):
                    for name, op in ops.items():
                        minimum[name][index] = min(minimum[name][index], cost(op, query))
        medians = {name: statistics.median(times) for name, times in minimum.items()}
        yield (
            way,
            {
                "first_cpu_ms": {name: round(number, 1) for name, number in first.items()},
                "p50_cpu_ms": {name: round(number, 3) for name, number in medians.items()},
                "p95_cpu_ms": {
                    name: round(statistics.quantiles(times, n=20)[-1], 3) for name, times in minimum.items()
                },
                "ratio": round(
                    max(number for name, number in medians.items() if HIDDEN[name]) / medians["without lists"], 3
                ),
            },
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = dict(measure(Path(folder), options.count, options.rounds))
    publish("access", {"nodes": options.count, "questions": ASKED, "ways": report}, options.out)


if __name__ == "__main__":
    main()

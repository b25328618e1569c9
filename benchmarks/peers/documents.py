"""A folder of text files cut into lines, indexed and asked by one side; run by benchmarks/documents.py.

Arguments: the side, `bm25` or `cosine`, the folder, a JSON file with questions, an empty folder to work in.
"""

from __future__ import annotations

import json
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

TOP_K, DIMENSION, ROUNDS = 5, 384, 3
Found = list[tuple[str, float]]
"""Texts and scores."""
Side = Callable[[str, Path, Path], Callable[[str], Found]]
"""Gets the way, the folder and where to work; once it is called, all has been imported."""


def embed_text(text: str) -> Any:
    """A vector float32[384] of length 1: the words, counted by a hash."""
    vector = np.zeros(DIMENSION, dtype=np.float32)
    for word in text.lower().split():
        vector[crc32(word.encode()) % DIMENSION] += 1
    return vector / max(float(np.linalg.norm(vector)), 1e-9)


def lines(text: str) -> list[str]:
    return text.split("\n")


def spolia() -> Side:
    from spolia.indexing.sync.sync import sync
    from spolia.indexing.transforms.function import transform
    from spolia.retrieval.bm25 import BM25
    from spolia.retrieval.dense import Dense
    from spolia.stores.corpus import Corpus
    from spolia.types import Query, Value

    class Hashed(Value):
        name, dimension, window, scoped = "hashed", DIMENSION, 10_000, False

        def fingerprint(self) -> str:
            return self.name

        def embed(self, texts: Sequence[str], *, kind: str) -> Any:
            return np.stack([embed_text(text) for text in texts])

        def tokens(self, texts: Sequence[str]) -> list[int]:
            return [len(text.split()) for text in texts]

        def covers(self, text: str) -> float:
            return 1.0

    def side(way: str, folder: Path, place: Path) -> Callable[[str], Found]:
        corpus, embedder = Corpus(str(place / "files.spolia")), Hashed() if way == "cosine" else None
        sync(folder, corpus, splitter=transform(lines), embedder=embedder)
        group = corpus.group()
        flow: Any = BM25(group, TOP_K) if embedder is None else Dense(group, embedder, TOP_K)
        return lambda question: [(hit.node.text, hit.score) for hit in flow(Query(question)).hits]

    return side


def lazyllm() -> Side:
    without_network()
    from lazyllm.tools.rag import Document, Retriever

    def side(way: str, folder: Path, place: Path) -> Callable[[str], Found]:
        options = {"embed": lambda text: embed_text(text).tolist()} if way == "cosine" else {}
        document = Document(dataset_path=str(folder), manager=False, **options)
        document.create_node_group(name="block", transform=lines)
        retriever = Retriever(document, "block", way, topk=TOP_K)
        return lambda question: [(node.text, node.similarity_score) for node in retriever(question)]

    return side


def without_network() -> None:
    """Importing LazyLLM's RAG loads the encoding `gpt2` from the network; its tokens are in the package as well."""
    import tiktoken
    from tiktoken import registry

    spec: Any = find_spec("lazyllm")
    lines = (Path(spec.origin).parent / "tokenizers" / "r50k_base.tiktoken").read_text().splitlines()
    ranks = {b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    special = {"<|endoftext|>": len(ranks)}
    registry.ENCODINGS["gpt2"] = tiktoken.Encoding(
        "gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special
    )


def main() -> None:
    name, way, folder, questions, place = sys.argv[1:]
    texts = json.loads(Path(questions).read_text())
    side = {"spolia": spolia, "lazyllm": lazyllm}[name]()
    began, ticked = time.process_time(), time.perf_counter()
    ask = side(way, Path(folder), Path(place))
    ask("Which film came out first?")
    indexed, wall = time.process_time() - began, time.perf_counter() - ticked
    times = [float("inf")] * len(texts)
    for index in list(range(len(texts))) * ROUNDS:
        began = time.process_time()
        ask(texts[index])
        times[index] = min(times[index], (time.process_time() - began) * 1e3)
    answers = [ask(question) for question in texts]
    scores = [[score for _, score in hits] for hits in answers]
    figures = {
        "indexed_cpu_s": indexed,
        "indexed_wall_s": wall,
        "asked_ms": times,
        "ordered": sum(ranking == sorted(ranking, reverse=True) for ranking in scores),
        "right": sum(any(title in text for text, _ in hits) for title, hits in zip(texts, answers, strict=True)),
        "nodes": sum(len(lines(path.read_text("utf-8"))) for path in Path(folder).iterdir()),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

"""BM25 by peers on passages and questions from a file; run by benchmarks/bm25.py in an environment that has them."""

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def of_bm25s(texts: list[str]) -> Callable[[str], Any]:
    import bm25s

    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    return lambda question: index.retrieve(
        bm25s.tokenize(question, show_progress=False, return_ids=True), corpus=texts, k=10, show_progress=False
    )


def of_rank_bm25(texts: list[str]) -> Callable[[str], Any]:
    from rank_bm25 import BM25Okapi

    index = BM25Okapi([words(text) for text in texts])
    return lambda question: index.get_top_n(words(question), texts, n=10)


def of_haystack(texts: list[str]) -> Callable[[str], Any]:
    from haystack import Document
    from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    store = InMemoryDocumentStore()
    store.write_documents([Document(content=text) for text in texts])
    retriever = InMemoryBM25Retriever(store, top_k=10)
    return lambda question: retriever.run(query=question)


def main() -> None:
    """For each line, the name of a peer, one line with the CPU-ms that it took for each question."""
    data = json.loads(Path(sys.argv[1]).read_text())
    builders = {"bm25s": of_bm25s, "rank_bm25": of_rank_bm25, "haystack": of_haystack}
    searches: dict[str, Callable[[str], Any]] = {}
    for line in sys.stdin:
        name, times = line.strip(), []
        search = searches.get(name) or searches.setdefault(name, builders[name](data["texts"]))
        for question in data["questions"]:
            began = time.thread_time_ns()
            search(question)
            times.append((time.thread_time_ns() - began) / 1e6)
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()

"""What fusing, reordering and sweeping cost.

    python benchmarks/fusion.py [--out FILE]

CPU milliseconds, the least of several rounds, with the cache off: rank and score fusion of two lists of 1,000 hits
each, half of which both have found; marginal relevance of 1,000 hits by stored vectors of 384 numbers, 50 taken; and
279 settings of fusions for each of 100 questions with two lists, as an optimizer asks for them (77 values of k, 101
weights under two normalisations), ten hits a list, as AutoRAG's optimizer was given.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from results import publish

from spolia.core.operator import Operator
from spolia.indexing.sync.texts import add_texts
from spolia.orchestration.rank_fusion import ConvexCombination, ReciprocalRankFusion
from spolia.orchestration.sweep import sweep
from spolia.post_retrieval.mmr import MMR
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.types import Hit, Node, Query, Ranking, Value

HITS, TAKEN, QUESTIONS, SHORT = 1_000, 50, 100, 10
DIMENSION, ROUNDS = 384, 500
PEER_CPU_S = 101.7
"""AutoRAG's, of the same settings over as many questions (six measures included), on another machine."""


@dataclass(frozen=True)
class Drawn(Value):
    """Vectors by chance, the same for the same text."""

    name: str = "drawn"
    dimension: int = DIMENSION
    window: int = 1_000
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Any, *, kind: str) -> Any:
        import numpy as np

        seeds = (int.from_bytes(text.encode()[-4:]) for text in texts)
        rows = np.stack([np.random.default_rng(seed).normal(size=DIMENSION) for seed in seeds]).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def tokens(self, texts: Any) -> list[int]:
        return [len(text.split()) for text in texts]

    def covers(self, text: str) -> float:
        return 1.0


def lists(hits: int, chance: random.Random) -> tuple[Ranking, Ranking]:
    """Two rankings that have half of their hits in common."""
    nodes = [Node(f"node-{number:06d}", "x" * 300, f"doc-{number // 5}") for number in range(hits * 3 // 2)]
    chance.shuffle(nodes)
    first, second = nodes[:hits], nodes[hits // 2 :]
    return _ranking(first, "bm25", chance), _ranking(second, "dense", chance)


def _ranking(nodes: list[Node], source: str, chance: random.Random) -> Ranking:
    scores = sorted((chance.random() for _ in nodes), reverse=True)
    chance.shuffle(nodes)
    return Ranking(Query("q"), tuple(map(Hit, nodes, scores)), source)


def cpu_ms(work: Callable[[], object], rounds: int) -> float:
    """The least of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best * 1_000


def settings() -> list[Operator[Any, Ranking]]:
    """77 values of k, and 101 weights under two normalisations."""
    weights = [(("bm25", percent / 100), ("dense", 1 - percent / 100)) for percent in range(101)]
    combinations = ConvexCombination().vary(normalisation=("min-max", "theoretical-min-max"), weights=weights)
    return [*ReciprocalRankFusion().vary(k=range(4, 81)).decided(), *combinations.decided()]


def store_vectors(folder: Path) -> tuple[NodeGroup, Ranking]:
    """A group whose vectors are stored, and a ranking of its nodes."""
    corpus = Corpus(str(folder / "notes.spolia"))
    add_texts(corpus, {f"{number}.md": f"Stone number {number:04d}" for number in range(HITS)}, embedder=Drawn())
    group, chance = corpus.group(), random.Random(1)
    nodes = list(group.snapshot().all_nodes(group.name))
    query = Query("q", vector=tuple(chance.gauss(0, 1) for _ in range(DIMENSION)))
    return group, _ranking(nodes, "dense", chance).but(query=query)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chance = random.Random(0)
    rankings = lists(HITS, chance)
    fused = {"rrf": cpu_ms(lambda: ReciprocalRankFusion()(rankings), ROUNDS)}
    for normalisation in ConvexCombination.normalisations:
        combination = ConvexCombination(normalisation=normalisation)
        fused[f"cc, {normalisation}"] = cpu_ms(lambda op=combination: op(rankings), ROUNDS)  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        group, ranking = store_vectors(Path(folder))
        by_vectors, by_words = MMR(Drawn(), group, top_k=TAKEN), MMR(top_k=TAKEN)
        mmr = {
            "by stored vectors": cpu_ms(lambda: by_vectors(ranking), 30),
            "by words": cpu_ms(lambda: by_words(ranking), 30),
        }
    questions, variants = [lists(SHORT, chance) for _ in range(QUESTIONS)], settings()
    longer = [lists(100, chance) for _ in range(QUESTIONS)]
    result = {
        "unit": "CPU milliseconds",
        "hits": HITS,
        "cpu_ms": fused,
        "mmr_cpu_ms": mmr,
        "sweep": {
            "settings": len(variants),
            "questions": QUESTIONS,
            "cpu_s": cpu_ms(lambda: list(sweep(questions, variants)), 5) / 1_000,
            "cpu_s, 100 hits a list": cpu_ms(lambda: list(sweep(longer, variants)), 3) / 1_000,
            "peer_cpu_s": PEER_CPU_S,
        },
    }
    publish("fusion", result, options.out)


if __name__ == "__main__":
    main()

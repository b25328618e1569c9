"""What embedding costs: passages per CPU second on one thread, opening, one query, and how near the vectors are.

    python benchmarks/embedding.py [--out FILE] [--peer]

The first 200 passages of musique whose mean length is nearest to 86 tokens are embedded; the cosine is to the formulas
in float64 numpy (tests/models/oracle.py). `--peer` runs sentence-transformers on torch on the same passages, where it
is installed. The ratio to a plain float32 matrix product of the same size tells a slow machine from a slow program.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy: all that is compared runs on one thread

import numpy as np  # noqa: E402
from results import publish  # noqa: E402

from spolia.models.onnx import weights  # noqa: E402
from spolia.models.onnx.minilm import MiniLM  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
PASSAGES, TOKENS, REPEATS = 200, 86, 7
OPENING = """
import time; began = time.process_time()
from spolia.models.onnx.minilm import MiniLM
MiniLM().embed(["Who employed Carsten Olsen?"], kind="query")
print(time.process_time() - began)
"""


def passages(model: MiniLM) -> list[str]:
    """Real passages, 86 tokens long on average: those of musique that are nearest to it, half below and half above."""
    folder = Path(os.environ.get("SPOLIA_DATASETS") or ROOT.parent / "shared" / "datasets")
    path = folder / "musique" / "corpus.jsonl.gz"
    if not path.is_file():
        sys.exit(f"No data set {path}. Set SPOLIA_DATASETS to the folder of the data sets.")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines][:1000]
    lengths = dict(zip(texts, model.tokens(texts), strict=True))
    chosen, total = [], 0
    for text in texts:  # greedily keep the running mean at 86
        if len(chosen) < PASSAGES and abs(total + lengths[text] - TOKENS * (len(chosen) + 1)) < 40:
            chosen.append(text)
            total += lengths[text]
    return chosen


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of this process; the best of several, because others' work can only make it slower."""
    seconds = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def flops(lengths: list[int]) -> float:
    """Floating-point operations of the matrix products in one pass over texts of these lengths."""
    weights_each = 6 * (4 * 384 * 384 + 2 * 384 * 1536)
    return float(sum(2 * n * weights_each + 6 * 4 * n * n * 384 for n in lengths))


def matrix_product_gflops() -> float:
    """What numpy reaches on the encoder's largest product, 512 tokens at a time."""
    a, b = np.ones((512, 384), np.float32), np.ones((384, 1536), np.float32)
    seconds = cpu_seconds(lambda: [a @ b for _ in range(50)])
    return 50 * 2 * 512 * 384 * 1536 / seconds / 1e9


def opening_seconds() -> float:
    """CPU time from a fresh interpreter with nothing imported to the first vector."""
    runs = [subprocess.run([sys.executable, "-c", OPENING], check=True, capture_output=True) for _ in range(5)]
    return statistics.median(float(run.stdout) for run in runs)


def peer(texts: list[str], our_vectors: Any) -> dict[str, Any]:
    """The same passages through sentence-transformers and torch."""
    if find_spec("sentence_transformers") is None:
        return {"sentence-transformers": "not installed"}
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    model = SentenceTransformer(str(weights.find().folder), device="cpu")
    model.max_seq_length = 256
    vectors = model.encode(texts, normalize_embeddings=True)
    seconds = cpu_seconds(lambda: model.encode(texts, normalize_embeddings=True))
    query_seconds = cpu_seconds(lambda: [model.encode(["Who employed Carsten Olsen?"]) for _ in range(10)]) / 10
    return {
        "passages_per_cpu_s": round(len(texts) / seconds, 1),
        "query_cpu_ms": round(query_seconds * 1e3, 2),
        "cosine_to_ours_min": float((vectors * our_vectors).sum(axis=1).min()),
    }


def measure(with_peer: bool) -> dict[str, Any]:
    from tests.models.oracle import Oracle

    model = MiniLM()
    texts = passages(model)
    lengths = model.tokens(texts)
    vectors = model.embed(texts, kind="passage")
    oracle = Oracle(weights.find().tensors).embed([model.tokenizer.ids(text, model.window) for text in texts[:40]])
    seconds = cpu_seconds(lambda: model.embed(texts, kind="passage"))
    query = cpu_seconds(lambda: [model.embed(["Who employed Carsten Olsen?"], kind="query") for _ in range(20)]) / 20
    product = matrix_product_gflops()
    reached = flops(lengths) / seconds / 1e9
    result: dict[str, Any] = {
        "what": f"{model.name}, {len(texts)} passages of musique, 1 thread, best of {REPEATS}",
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
        "tokens_mean": round(statistics.mean(lengths), 1),
        "passages_per_cpu_s": round(len(texts) / seconds, 1),
        "query_cpu_ms": round(query * 1e3, 2),
        "opening_cpu_s": round(opening_seconds(), 3),
        "gflops": round(reached, 1),
        "gflops_of_a_numpy_product": round(product, 1),
        "cosine_to_the_formulas": {"min": float((vectors[:40] * oracle).sum(axis=1).min()), "texts": 40},
        "reach": {"passages_per_cpu_s": 38, "cosine": 0.9999},
    }
    return result | ({"peer": peer(texts, vectors)} if with_peer else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peer", action="store_true")
    options = parser.parse_args()
    publish("embedding", measure(options.peer), options.out)


if __name__ == "__main__":
    main()

"""What the learned ranker costs as a store grows: its set-up in a process, and a question beyond hybrid search.

    python benchmarks/training/ranker_growth.py [--passages 5000 20000 100000] [--out FILE]

Passages of an invented world, of some 240 characters each with a title, with hashed vectors of 384 numbers: what they
say is not measured. `first_set_up` is that in the first process at a generation, which reads the links from the texts,
`later_set_up` that in every other one, which reads the file with the links; both count words. Each is measured in a new
process. All numbers are CPU time, of one thread.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from results import publish

from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.simulation.world import FictionalWorld
from spolia.flow_files.built_in_flows import SHIPPED, hybrid
from spolia.models.trained_weights import TrainedWeights
from spolia.retrieval.learned.ranker import prepare_question, read_passes, snapshot_of
from spolia.retrieval.learned.scores import rank_candidates
from spolia.run import Run
from spolia.testing import HashingEmbedder
from spolia.types import Query

HERE = Path(__file__).resolve().parent
EMBEDDER = HashingEmbedder(384)
PASSAGES_A_PERSON, QUESTIONS = 2.72, 60


def measure(folder: Path) -> dict[str, float]:
    """The set-up in this process, and the mean over some questions."""
    data = DataSet(str(folder / "world"))
    group, items = index_passages(data, EMBEDDER, folder=folder), [item for item in data.items() if item.gold]
    passes = read_passes("", TrainedWeights(SHIPPED[0]))
    with Run():
        snapshot, questions = snapshot_of(group, "entity", EMBEDDER), [Query(item.question) for item in items]
        hybrid(group, EMBEDDER)(questions[0])  # whose set-up is none of this
        began = time.process_time()
        first = prepare_question(snapshot, group, "entity", EMBEDDER, questions[0], frozenset(), None)
        rank_candidates(first, passes)
        set_up = time.process_time() - began
        prepared = [
            prepare_question(snapshot, group, "entity", EMBEDDER, question, frozenset(), None)
            for question in questions[1:]
        ]
        assert all(question.ranks and question.fused for question in prepared)
        began = time.process_time()
        for question in prepared:
            rank_candidates(question, passes)
        seconds = (time.process_time() - began) / len(prepared)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"set_up_s": round(set_up, 2), "question_ms": round(1000 * seconds, 2), "peak_mb": round(peak)}


def measure_in_child(passages: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        FictionalWorld(7, people=round(passages / PASSAGES_A_PERSON), questions=QUESTIONS).write(folder / "world")
        data = DataSet(str(folder / "world"))
        began = time.process_time()
        group = index_passages(data, EMBEDDER, folder=folder)
        index = time.process_time() - began
        began = time.process_time()
        snapshot = snapshot_of(group, "entity", EMBEDDER)
        names = time.process_time() - began
        command = [sys.executable, str(Path(__file__)), "--of", str(folder)]
        first, later = (json.loads(subprocess.check_output(command)) for _ in range(2))
        return {
            "passages": len(snapshot.open.records(group.name).keys),
            "index_cpu_s": round(index, 1),
            "names_cpu_s": round(names, 1),
            "first_set_up_cpu_s": first["set_up_s"],
            "later_set_up_cpu_s": later["set_up_s"],
            "question_cpu_ms": later["question_ms"],
            "peak_mb": later["peak_mb"],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="+", default=[5_000, 20_000, 100_000])
    parser.add_argument("--of", type=Path, help="measure the store in this folder, in this process")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "training" / "ranker_growth.json")
    options = parser.parse_args()
    if options.of:
        print(json.dumps(measure(options.of)))
        return
    publish("ranker_growth", {"sizes": [measure_in_child(count) for count in options.passages]}, options.out)


if __name__ == "__main__":
    main()

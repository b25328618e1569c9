"""What weights for the words of a question add to BM25, learned from gold passages by REINFORCE.

    python benchmarks/training/term_weights.py [--seeds N] [--out FILE]

Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout: MuSiQue, HotpotQA and 2WikiMultihopQA, each over
its whole pool. Trained on the questions of the part `tune`, scored on those of the part `report`, which share no gold
passage with them. Compare it with BM25 only: neither meaning nor links are searched.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

HERE = Path(__file__).resolve().parent


sys.path.insert(0, str(HERE.parent))

from results import publish  # noqa: E402
from retrieval import DATA  # noqa: E402

from spolia.evaluation.data.dataset import DataSet  # noqa: E402
from spolia.evaluation.data.passage_store import index_passages  # noqa: E402
from spolia.evaluation.experiment.experiment import Experiment  # noqa: E402
from spolia.training.term_weights import TermWeightsTrainer  # noqa: E402
from spolia.training.training import QuestionSplit, train  # noqa: E402

SETS = ("musique", "hotpotqa", "2wikimultihopqa")


def result(name: str, seeds: int, folder: Path) -> dict[str, Any]:
    data = DataSet(str(DATA / name))
    group, items = index_passages(data), list(data.items())
    trainers = [TermWeightsTrainer(group) for _ in range(seeds)]
    trainings = [
        train(item, items, folder / name / str(seed), seed=seed, data=name) for seed, item in enumerate(trainers)
    ]
    card = trainings[0].card
    flows = {"bm25": trainers[0].untrained(), **{f"seed {seed}": item.flow for seed, item in enumerate(trainings)}}
    recall = Experiment(flows, QuestionSplit.from_items(items).kept_apart, "R@5").run()
    means = {item.flow: item.json()["measures"]["R@5"]["mean"] for item in recall.flows}
    gain = recall.compare("seed 0", "bm25", "R@5")
    interval = gain.interval if gain.better == "seed 0" else gain.interval.reversed
    return {
        "data": name,
        "questions": card["questions"],
        "sha256": card["sha256"],
        "nDCG@10": card["score"],
        "nDCG@10_gain_by_seed": [item.card["score"]["difference"]["mean"] for item in trainings],
        "R@5": {"bm25": means["bm25"], "trained": means["seed 0"], "difference": interval.json()},
        "R@5_gain_by_seed": [means[f"seed {seed}"] - means["bm25"] for seed in range(seeds)],
        "cpu_s": round(fmean(sum(item.card["cost"].values()) for item in trainings), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "training" / "term_weights.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        publish("term_weights", {"sets": [result(name, options.seeds, Path(temporary)) for name in SETS]}, options.out)


if __name__ == "__main__":
    main()

"""The records of studies that are shipped with Spolia: the best flows of `space.py` on public data.

    python benchmarks/optimizer/shipped_studies.py [MATRIX.npz ...] [--out FILE]

For each data set of the matrices (benchmarks/results/optimizer/real.npz) a record with the flows that have the best
means, as `spolia tune` writes one when a study ends: names of places and candidates, scores, hashes of all questions
of the data set, so that a study of these questions does not use it. Run it again when the matrices or the space change.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent))

from matrix import DATA, MEASURE, ScoreMatrix, candidates_of

from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.experiment.flows import portable_notation
from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.earlier_studies import SHIPPED, SpaceNames, StudyRecord, question_marks

MATRICES = [Path(__file__).parents[1] / "results" / "optimizer" / "real.npz"]
KEPT = 8
"""Flows of each data set."""


def records(matrix: ScoreMatrix, candidates: FlowTable) -> list[StudyRecord]:
    """One for each data set of a matrix."""
    if str(matrix.space) != portable_notation(candidates.space.flow):
        raise SystemExit("The matrix is of another space than space.py. Make it again: matrix.py --out FILE.")
    names, studies = SpaceNames(candidates), []
    for name in np.unique(matrix.sets).tolist():
        means = matrix.scores[:, matrix.sets == name].mean(axis=1)
        best = np.argsort(-means, kind="stable")[:KEPT].tolist()
        questions = question_marks(DataSet(str(DATA / name)).items())
        choices = tuple(names.choices(candidates.point_by_number[flow]) for flow in best)
        scores = tuple(float(means[flow]) for flow in best)
        studies.append(StudyRecord(names.places, choices, scores, (MEASURE,), questions, name))
    return studies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("matrices", nargs="*", type=Path, default=MATRICES)
    parser.add_argument("--out", type=Path, default=SHIPPED)
    options = parser.parse_args()
    candidates = candidates_of()
    studies = [study for path in options.matrices for study in records(ScoreMatrix.load(path), candidates)]
    text = ",\n".join(json.dumps(study.json(), separators=(",", ":")) for study in studies)
    options.out.write_text(f"[\n{text}\n]\n", "utf-8")
    print(f"{options.out}: {', '.join(study.source for study in studies)}, {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

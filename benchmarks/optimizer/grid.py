"""What a row of the whole grid costs: every flow of `space.py` on every question that chooses, by `tune`.

    python benchmarks/optimizer/grid.py [--questions N] [--kept FOLDER] [--out FILE]

As many questions of squad_newwiki, covid_qa and xquad_en are drawn (500 by default); a row is one flow on one question.
CPU time of the process: all of it, a row once term counts and graphs are in memory, and the same study again.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from matrix import DATA, KEPT, MEASURE, POOLED, indexed, questions_of
from results import publish
from space import space

from spolia.cli import GARBAGE
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.usage_log import UsageLog
from spolia.optimizer.tuning import tune

BEGUN = 6
"""Questions after which everything that is read once was read."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=500, help="of each data set")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where the index is kept")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    gc.set_threshold(GARBAGE)  # as the command does
    sets = [DataSet(str(DATA / name)) for name in POOLED]
    flow, items = space(indexed(options.kept, sets)), questions_of(sets, [options.questions] * len(sets))
    times: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        extra_options = {"path": Path(folder) / "study", "usage_log": UsageLog(Path(folder) / "looks")}
        began = time.process_time()
        tuned_flow = tune(
            flow,
            items,
            MEASURE,
            on_progress=lambda so_far: times.append((so_far.done, time.process_time())),
            **extra_options,
        )
        cpu_s = time.process_time() - began
        began = time.process_time()
        second_tuned_flow = tune(flow, items, MEASURE, **extra_options)
        again_s = time.process_time() - began
    assert second_tuned_flow.rows == 0
    assert second_tuned_flow.point == tuned_flow.point
    grid = tuned_flow.flows * tuned_flow.questions
    first = next(rows for rows in times if rows[0] >= BEGUN * tuned_flow.flows)
    last = next(rows for rows in times if rows[0] >= grid)
    result = {
        "flows": tuned_flow.flows,
        "questions that choose": tuned_flow.questions,
        "questions that report": tuned_flow.fresh,
        "rows": tuned_flow.rows,
        "cpu_s": round(cpu_s, 2),
        "ms_a_row": 1e3 * cpu_s / tuned_flow.rows,
        "ms_a_row_once_begun": 1e3 * (last[1] - first[1]) / (last[0] - first[0]),
        "again_cpu_s": round(again_s, 2),
        "best": {place: choice.replace(f"{options.kept}/", "") for place, choice in tuned_flow.finalists[0].choices},
        "score": tuned_flow.score.json(),
    }
    publish("grid", result, options.out)


if __name__ == "__main__":
    main()

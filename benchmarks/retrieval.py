"""bm25, dense, hybrid and the default flow on six languages, and whether the default is the right one.

    python benchmarks/retrieval.py [--out benchmarks/results/retrieval.json] [SET ...]

Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout. Writes the numbers as JSON, and beside them a
table in Markdown. One thread; the passages are embedded once and kept in the cache directory.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

from results import publish

from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.results import Report
from spolia.evaluation.measures.registry import parse_measures
from spolia.flow_files.built_in_flows import BUILT_IN, choose
from spolia.models.onnx.minilm import MiniLM

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("SPOLIA_DATASETS") or HERE.parents[1] / "shared" / "datasets")
SETS = ("xquad_en", "xquad_es", "xquad_ar", "xquad_th", "xquad_zh", "korquad_dev")
MEASURES = parse_measures("R@1,R@5,R@10,MRR")
QUESTIONS, SEED = 1000, 0
FLOWS = ("bm25", "dense", "hybrid", "default")

# R@5 and R@10 in percent, measured apart from this project on the same sets (at most 1,000 questions, another draw):
# bm25s with English stop words, or over character bigrams; MiniLM with torch; their RRF with k = 60.
REFERENCE = {
    "xquad_en": {"bm25": (98.5, 99.0), "dense": (98.2, 98.9), "hybrid": (99.0, 99.5)},
    "xquad_es": {"bm25": (97.3, 98.5)},
    "xquad_ar": {"bm25": (93.2, 95.0)},
    "xquad_th": {"bm25": (95.7, 97.2)},
    "xquad_zh": {"bm25": (99.0, 99.1)},
    "korquad_dev": {"bm25": (99.0, 99.3)},
}


def measure_set(name: str) -> dict[str, Any]:
    """Everything about one data set, as plain data."""
    data, embedder = DataSet(str(DATA / name)), MiniLM(threads=1)
    started = time.process_time()
    chunks = index_passages(data, embedder)
    index_cpu_s = time.process_time() - started
    items = data.sample(QUESTIONS, SEED)
    flows = {flow: BUILT_IN[flow](chunks, embedder) for flow in FLOWS}
    ended = {"": time.process_time()}  # by flow, in their order
    report = Experiment(flows, items, MEASURES, data=name).run(
        on_progress=lambda flow, done, total: ended.update({flow: time.process_time()})
    )
    cpu_s = {flow: end - begun for (flow, end), begun in zip(list(ended.items())[1:], ended.values(), strict=False)}
    return {
        "data": name,
        "passages": dict(chunks.corpus.snapshot().stats().nodes)[chunks.name],
        "n": len(items),
        "index_cpu_s": round(index_cpu_s, 1),
        "flows": {
            flow_report.flow: flow_report.json()["measures"] | {"cpu_s": round(cpu_s[flow_report.flow], 2)}
            for flow_report in report.flows
        },
        "default_is": choose(chunks, embedder)[1],
        "verdicts": {str(measure): verdict(report, str(measure)) for measure in MEASURES},
        "reference": REFERENCE.get(name, {}),
    }


def verdict(report: Report, measure: str) -> dict[str, Any]:
    """Whether the default is below the better single retriever by more than the paired interval."""
    means = {item.flow: item.json()["measures"][measure]["mean"] for item in report.flows}
    better = max(("bm25", "dense"), key=lambda flow: means[flow])
    item = report.compare("default", better, measure)
    difference = item.interval if item.better == "default" else item.interval.reversed
    return {"better_single": better, "difference": difference.json(), "holds": difference.high >= 0}


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table that is committed beside the numbers."""
    lines = [
        "# Retrieval in six languages",
        "",
        "Times 100, with 95 % intervals. The embedder is all-MiniLM-L6-v2, which was taught English; all",
        f"parts are at their defaults. At most {QUESTIONS:,} questions a set, drawn with seed {SEED}; one thread.",
        "Reference: R@5 / R@10 of bm25s, of MiniLM under torch and of their RRF, measured apart on another draw.",
        "",
        "| set | passages | n | flow | R@1 | R@5 | R@10 | MRR | reference | CPU-ms a question |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        lines += [_line(row, flow) for flow in FLOWS]
    lines += ["", "## The default against the better single retriever", ""]
    lines += [
        "Difference in points with its paired 95 % interval. It holds where the interval reaches zero or above.",
        "",
    ]
    lines += [
        "| set | default is | " + " | ".join(map(str, MEASURES)) + " | holds |",
        "| --- " * (len(MEASURES) + 3) + "|",
    ]
    lines += [_verdict_line(row) for row in rows]
    failing = [row["data"] for row in rows if not _holds(row)]
    message = f"not on {', '.join(failing)}" if failing else f"on all {len(rows)} sets"
    lines += ["", f"The default is not below the better single retriever by more than the interval: {message}.", ""]
    return "\n".join(lines)


def _line(row: dict[str, Any], flow: str) -> str:
    flow_row = row["flows"][flow]
    cells = [_percent(flow_row[str(measure)]) for measure in MEASURES]
    reference = row["reference"].get(flow)
    message = f"{reference[0]} / {reference[1]}" if reference else ""
    milliseconds = 1000 * flow_row["cpu_s"] / row["n"]
    columns = (row["data"], row["passages"], row["n"], flow, *cells, message, f"{milliseconds:.1f}")
    return f"| {' | '.join(map(str, columns))} |"


def _verdict_line(row: dict[str, Any]) -> str:
    cells = []
    for measure in MEASURES:
        judged = row["verdicts"][str(measure)]
        cells.append(f"{_percent(judged['difference'], sign='+')} to {judged['better_single']}")
    return f"| {row['data']} | {row['default_is']} | {' | '.join(cells)} | {'yes' if _holds(row) else 'NO'} |"


def _holds(row: dict[str, Any]) -> bool:
    return all(judged["holds"] for judged in row["verdicts"].values())


def _percent(interval: dict[str, float], sign: str = "") -> str:
    mean, low, high = (100 * interval[end] for end in ("mean", "low", "high"))
    return f"{mean:{sign}.1f} [{low:.1f}, {high:.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "retrieval.json")
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET")
    options = parser.parse_args()
    rows = []
    for name in options.sets:
        rows.append(measure_set(name))
        print(markdown(rows[-1:]), flush=True)
    publish("retrieval", {"seed": SEED, "questions": QUESTIONS, "sets": rows}, options.out)
    options.out.with_suffix(".md").write_text(markdown(rows))


if __name__ == "__main__":
    main()

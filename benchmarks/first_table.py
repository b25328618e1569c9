"""The first honest table: bm25, dense and hybrid on all shared data sets, with intervals, verdicts and references.

    python benchmarks/first_table.py [--again] [--out FILE] [--kept FOLDER] [SET ...]

Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout. Writes the numbers as JSON, and from them
benchmarks/results/first_table.md. A run that was stopped goes on: passages are embedded once and kept in the cache
directory, questions are kept in `--kept` as they are answered, and a set that is in the file is measured again if it
is named.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from first_table_page import PLAIN, page
from results import machine

from spolia.core.combinators.branch import Branch
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.results import Report
from spolia.evaluation.measures.registry import parse_measures
from spolia.flow_files.built_in_flows import bm25, choose, dense, hybrid
from spolia.generation.extract import Extract
from spolia.journal import Runs
from spolia.models.file_hash import cache_folder
from spolia.models.onnx.minilm import MiniLM
from spolia.orchestration.rank_fusion import ReciprocalRankFusion
from spolia.run import Run
from spolia.stores.corpus import NodeGroup
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Answer, Item, Query

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("SPOLIA_DATASETS") or HERE.parents[1] / "shared" / "datasets")
PLACES, QUESTIONS, SEED = 100, 1000, 0
ANSWERED = 150
"""Of the questions, since quotes chosen with an embedder embed about 25 sentences for each of them."""
RETRIEVAL = "nDCG@10, R@1, R@2, R@5, R@10, MRR"
MULTI_HOP = ("musique", "hotpotqa", "2wikimultihopqa")
SETS = (
    "xquad_en", "xquad_es", "xquad_ar", "xquad_th", "xquad_zh", "korquad_dev", "arcd", "cmrc2018", "drcd", "pubmedqa",
    "squad2_dev", "squad_newwiki", "covid_qa", "cranfield", "cisi", "aragog", *MULTI_HOP,
)  # fmt: skip
WORDS = Analyzer(stem="", stop_words="english", fold=False)
PAIRS = Analyzer(stem="", fold=False, ngram=2)
"""Terms as the reference makes them, words or pairs of characters."""
UNMARKED = ("xquad_th",)
"""Sets of which the reference took pairs, in words that end at a vowel mark, as `\\w+` of Python's `re` has them."""
AS_HERE = ("xquad_zh", "korquad_dev", "cmrc2018", "drcd")
"""Sets of which ours are pairs of characters too."""
ANSWERS = {"xquad_en": "EM, F1, Acc", "squad2_dev": "EM, F1, Acc", "squad_newwiki": "EM, F1, Acc", "pubmedqa": "EM"}
CHOSEN_ON = ("hotpotqa", "squad2_dev", "musique")
"""Sets whose questions decided between hybrid flows."""
FITTED_ON = ("squad2_dev", "squad_newwiki")
"""Sets that the constants of `Extract` were fitted on."""
ALL_PARTS = ("tune", "select", "report")


@step
def always_yes(query: Query) -> Answer:
    """What a yes-or-no question is answered without reading anything."""
    return Answer("yes")


def measure(name: str, folder: Path) -> dict[str, Any]:
    """Everything about one data set, as plain data."""
    data, embedder = DataSet(str(DATA / name)), MiniLM()
    items = _items(data)
    chunks = index_passages(data, embedder)
    flows = _flows(name, data, chunks, embedder)
    measures = RETRIEVAL + (", full@2, full@5, full@10" if name in MULTI_HOP else "")
    with Runs(folder / "runs.db") as runs, Run(cache=runs.cache) as run:
        report = _ask(name, flows, items, measures, run, folder, name in CHOSEN_ON)
        answers = _answers(name, flows, items, run, folder, embedder)
    return {
        "data": name,
        "passages": dict(chunks.corpus.snapshot().stats().nodes)[chunks.name],
        "n": report.n,
        "default_is": choose(chunks, embedder)[1],
        "retrieval": _plain(report),
        "answers": answers,
    }


def _items(data: DataSet) -> Sequence[Item]:
    """At most so many questions with gold, drawn by the seed; of aragog any passage of the right paper is gold."""
    papers: dict[Any, list[str]] = {}
    if data.name == "aragog":
        for passage in data.passages():
            papers.setdefault(dict(passage.meta).get("paper"), []).append(passage.id)
    gold = {item.id: item.gold or _any(papers.get(dict(item.meta).get("paper"))) for item in data.items()}
    items = [item.but(gold=gold[item.id]) for item in data.items() if gold[item.id] and item.question.strip()]
    sampled_numbers = set(random.Random(SEED).sample(range(len(items)), min(QUESTIONS, len(items))))
    return [item for number, item in enumerate(items) if number in sampled_numbers]


def _any(passages: Sequence[str] | None) -> tuple[tuple[str, ...], ...]:
    return (tuple(passages),) if passages else ()


def _flows(name: str, data: DataSet, chunks: NodeGroup, embedder: MiniLM) -> dict[str, Operator[Query, Any]]:
    """What is compared; `bm25 plain` makes terms as the reference does, to tell what a difference comes from."""
    flows: dict[str, Operator[Query, Any]] = {"bm25": bm25(chunks, top_k=PLACES)}
    if name not in AS_HERE:
        flows[PLAIN] = (
            _search_without_marks(data)
            if name in UNMARKED
            else bm25(index_passages(data, analyzer=WORDS), top_k=PLACES)
        )
    arms = Branch(bm25(chunks, top_k=PLACES), dense(chunks, embedder, top_k=PLACES))
    flows["dense"] = dense(chunks, embedder, top_k=PLACES)
    flows["rank fusion"] = arms >> ReciprocalRankFusion(top_k=PLACES)
    flows["hybrid"] = hybrid(chunks, embedder, top_k=PLACES)
    return flows


def _search_without_marks(data: DataSet) -> Operator[Query, Any]:
    """Pairs of characters that no mark stands between."""
    folder = cache_folder() / "unmarked" / data.name
    folder.mkdir(parents=True, exist_ok=True)
    rows = (
        {"id": passage.id, "title": no_marks(passage.title), "text": no_marks(passage.text)}
        for passage in data.passages()
    )
    (folder / "corpus.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return without_marks >> bm25(index_passages(DataSet(str(folder)), analyzer=PAIRS), top_k=PLACES)


def no_marks(text: str) -> str:
    return "".join(" " if unicodedata.category(character) == "Mn" else character for character in text)


@step
def without_marks(query: Query) -> Query:
    return query.but(text=no_marks(query.text))


def _ask(
    name: str,
    flows: Mapping[str, Operator[Query, Any]],
    items: Sequence[Item],
    measures: str,
    run: Run,
    folder: Path,
    chosen: bool,
) -> Report:
    """The report; where a flow was chosen or fitted on the set, it says that its numbers are too good."""
    tuned = ALL_PARTS if chosen else ()
    experiment = Experiment(flows, items, parse_measures(measures), data=name, tuned_on=tuned, overlap=True)
    return experiment.run(run=run, path=folder)


def _answers(
    name: str,
    flows: Mapping[str, Operator[Query, Any]],
    items: Sequence[Item],
    run: Run,
    folder: Path,
    embedder: MiniLM,
) -> dict[str, Any] | None:
    """Answers quoted from what the flows find; no model writes any, so yes or no is never said but by `always yes`."""
    if name not in ANSWERS:
        return None
    sampled_ids = set(random.Random(SEED).sample([item.id for item in items], ANSWERED))
    few = items if name == "pubmedqa" else [item for item in items if item.id in sampled_ids]
    answering = {"bm25 > quotes": flows["bm25"] >> Extract()}
    if name == "pubmedqa":
        answering["always yes"] = always_yes
    else:
        answering["hybrid > quotes"] = flows["hybrid"] >> Extract(embedder)
        answering["bm25 > one sentence"] = flows["bm25"] >> Extract(words=1)
    return _plain(_ask(name, answering, few, ANSWERS[name], run, folder, name in FITTED_ON))


def _plain(report: Report) -> dict[str, Any]:
    """Numbers and verdicts, without what no table shows."""
    return {
        "n": report.n,
        "flows": {part.flow: part.json()["measures"] for part in report.flows},
        "failures": {part.flow: len(part.failures) for part in report.flows if part.failures},
        "verdicts": [part.json() for part in report.comparisons],
        "chosen_on": report.tuned_count > 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "first_table.json")
    parser.add_argument("--kept", type=Path, default=cache_folder() / "first_table")
    parser.add_argument("--again", action="store_true", help="measure every set, whatever the file has")
    parser.add_argument("sets", nargs="*", metavar="SET")
    options = parser.parse_args()
    options.kept.mkdir(parents=True, exist_ok=True)
    rows = json.loads(options.out.read_text())["sets"] if options.out.exists() and not options.again else {}
    for name in options.sets or [name for name in SETS if name not in rows]:
        started = time.process_time()
        rows[name] = measure(name, options.kept)
        print(f"{name}: {rows[name]['n']} questions, {time.process_time() - started:.1f} CPU-s", flush=True)
        kept_rows = {name: rows[name] for name in SETS if name in rows}
        table = {"seed": SEED, "questions": QUESTIONS, "machine": machine(), "sets": kept_rows}
        options.out.write_text(json.dumps(table, indent=1) + "\n")
    (HERE.parent / "benchmarks" / "results" / "first_table.md").write_text(page(json.loads(options.out.read_text())))


if __name__ == "__main__":
    main()

"""The trained classifiers of four published flows: accuracy, and what each flow answers and costs with it.

    python benchmarks/training/classifiers.py [--folder DIR] [--out FILE]

Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout: `EACH` questions of MuSiQue, 2WikiMultihopQA and
XQuAD (English), drawn by lot, over one store of all their passages, searched by BM25. Labels are from gold, those of
router and verifier also from what the simulated reader answers (`PROFILE`); no language model is asked. Five folds of
questions without a common gold passage. Each flow is compared with what it is without the classifier, with the
judgement of the simulated reader (`simulated model`: it knows the gold) where the flow asks one, and with the gold
label (`oracle`). For CRAG the store is halved by a hash of the document's id into a first and a second source.

The router is also trained with MiniLM's vectors. `--folder` keeps the store and the result of each part, so that a run
that was killed goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from results import publish  # noqa: E402
from retrieval import DATA  # noqa: E402

from spolia.core.function import step  # noqa: E402
from spolia.core.operator import Operator  # noqa: E402
from spolia.evaluation.data.dataset import DataSet  # noqa: E402
from spolia.evaluation.data.json_lines import write_rows  # noqa: E402
from spolia.evaluation.data.passage_store import index_passages  # noqa: E402
from spolia.evaluation.measures.answers.string_match import ExactMatch  # noqa: E402
from spolia.evaluation.simulation.gold_hops import GoldChain  # noqa: E402
from spolia.evaluation.simulation.profile import Profile  # noqa: E402
from spolia.evaluation.simulation.reader import SimulatedReader  # noqa: E402
from spolia.evaluation.statistics.sample import difference, interval  # noqa: E402
from spolia.flows.adaptive_rag import adaptive_rag, strategies  # noqa: E402
from spolia.flows.crag import crag, crag_grader  # noqa: E402
from spolia.flows.dr_rag import dr_rag  # noqa: E402
from spolia.flows.naive_rag import naive  # noqa: E402
from spolia.models.onnx.minilm import MiniLM  # noqa: E402
from spolia.models.protocols import Embedder, Kind  # noqa: E402
from spolia.models.text_classifier import JOINT, TextClassifier  # noqa: E402
from spolia.models.trained_weights import CARD, JSON, TrainedWeights, hash_of  # noqa: E402
from spolia.pre_retrieval.query_llm import normalize_text  # noqa: E402
from spolia.retrieval.bm25 import BM25  # noqa: E402
from spolia.run import Run  # noqa: E402
from spolia.training.classifier import ClassifierTrainer, LabelledText, calibration_error, folds  # noqa: E402
from spolia.training.flow_classifiers import (  # noqa: E402
    EvaluatorTrainer,
    PairTrainer,
    RouterTrainer,
    VerifierTrainer,
)
from spolia.types import Item, Query, Ranking, Value  # noqa: E402

SETS, EACH, OUTER, SEED = ("musique", "2wikimultihopqa", "xquad_en"), 180, 5, 0
PROFILE = Profile(miss=0.1, lure=0.3)
Flow = Operator[Query, Any]


class Cell(NamedTuple):
    """What a flow has made of a question."""

    em: float
    tokens: int


@dataclass(frozen=True)
class World:
    """All that is asked."""

    items: Sequence[Item]
    reader: SimulatedReader
    group: Any

    def search(self, top_k: int) -> Any:
        return BM25(self.group, top_k=top_k)


def world(folder: Path) -> World:
    """The questions of the sets, and one store of all their passages."""
    passages, items = {}, list[Item]()
    for name in SETS:
        data = DataSet(str(DATA / name))
        passages |= {
            passage.id: {"id": passage.id, "title": passage.title, "text": passage.text} for passage in data.passages()
        }
        answered_items = [item for item in data.items() if item.answers and item.gold]
        items += [item.but(type=name) for item in random.Random(SEED).sample(answered_items, EACH)]
    (folder / "merged").mkdir(parents=True, exist_ok=True)
    write_rows(folder / "merged" / "corpus.jsonl", list(passages.values()))
    write_rows(folder / "merged" / "questions.jsonl", [{"id": "q", "question": "?"}])
    merged = DataSet(str(folder / "merged"))
    return World(items, SimulatedReader.from_data(merged, items, PROFILE), index_passages(merged, folder=folder))


@step
def half(query: Query, *, search: Any, is_first: bool) -> Ranking:
    """What lies in one half of the documents, of the first twenty."""
    ranking = search(query)
    own_hits = tuple(hit for hit in ranking.hits if _in_first(hit.node.document) is is_first)
    return ranking.but(hits=own_hits[:10])


def _in_first(document: str) -> bool:
    return hashlib.blake2b(document.encode(), digest_size=1).digest()[0] < 128


@dataclass(frozen=True)
class GoldScorer(Value):
    """Knows the gold: 1 for a passage that states a part of the answer, else 0.

    Two passages have 1 if both do; if only one of all does, each pair with that.
    """

    chains: tuple[GoldChain, ...] = field(repr=False)
    name: str = "gold"

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str:
        return self.digest.hex()

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        hops = next(item.hops for item in self.chains if normalize_text(item.item.question) == normalize_text(query))
        parts = [item.split(JOINT) for item in texts]
        gold = {part for sentences in parts for part in sentences if any(hop.is_supported(part) for hop in hops)}
        needed = min(len(gold), max(map(len, parts), default=1)) or 1
        return tuple(float(sum(part in gold for part in sentences) >= needed) for sentences in parts)


class KeptVectors(MiniLM):
    """Embeds each text once for all folds."""

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Any:
        lacking = [text for text in dict.fromkeys(texts) if text not in VECTORS]
        VECTORS.update(zip(lacking, super().embed(lacking, kind=kind), strict=True))
        return np.array([VECTORS[text] for text in texts])


VECTORS: dict[str, Any] = {}


def ask_all(flow: Flow, items: Sequence[Item], sample: int = 0) -> list[Cell]:
    cells = []
    for item in items:
        with Run() as run, run.lane() as lane:
            answer = flow(Query(item.question, sample=sample))
        tokens = lane.usage.input_tokens + lane.usage.output_tokens
        cells.append(Cell(ExactMatch().score(answer, item) or 0.0, tokens))
    return cells


def write_weights(trainer: ClassifierTrainer, folder: Path) -> TrainedWeights:
    """The weights of a trainer, as `train` writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JSON).write_text(json.dumps(trainer.weights(), sort_keys=True))
    sha256 = hash_of(folder / JSON)
    (folder / CARD).write_text(json.dumps({"part": trainer.part, "sha256": sha256}))
    return TrainedWeights(str(folder), sha256)


class Folded(NamedTuple):
    """What five trainings come to: probabilities of all rows, cells of the trained flow, what it says of itself."""

    rows: list[LabelledText]
    chances: list[list[float]]
    cells: dict[str, Cell]
    notes: list[str]
    training_cpu_s: float


def train_in_folds(
    make: Callable[[], ClassifierTrainer], rows: Sequence[LabelledText], items: Sequence[Item]
) -> Folded:
    """Train on four folds, and test on the fifth."""
    own, result = folds(items, OUTER), Folded([], [], {}, [], 0.0)
    cpu_s = 0.0
    for fold in range(OUTER):
        trainer = make()
        trainer.label_items = lambda subset, seed: [row for row in rows if row.item in {one.id for one in subset}]  # type: ignore[method-assign]
        tested = [item for item in items if own[item.id] == fold]
        began = time.process_time()
        trainer.prepare([item for item in items if own[item.id] != fold], (), SEED)
        for index in range(trainer.steps):
            trainer.step(index / trainer.steps)
        with tempfile.TemporaryDirectory() as folder:
            weights = write_weights(trainer, Path(folder))
            cpu_s += time.process_time() - began
            classifier = TextClassifier.from_plain(trainer.part, weights.plain(trainer.part))
            new = [row for row in rows if own[row.item] == fold]
            result.rows.extend(new)
            result.chances.extend(classifier.probabilities([row[1:3] for row in new], trainer.embedder).tolist())
            cells = ask_all(trainer.trained(weights), tested)
        result.cells.update(zip((item.id for item in tested), cells, strict=True))
        result.notes.append(trainer.notes[-1])
    return result._replace(training_cpu_s=round(cpu_s, 1))


def compare_policies(cells: Mapping[str, Sequence[Cell]], items: Sequence[Item], base: str) -> dict[str, Any]:
    """EM and tokens of each policy, and how they differ from one of them."""
    verdicts = {}
    for name, cell in cells.items():
        gain = difference([figure.em for figure in cell], [figure.em for figure in cells[base]], range=(0, 1))
        of_sets = {
            kind: round(
                100 * fmean(figure.em for figure, item in zip(cell, items, strict=True) if item.type == kind), 1
            )
            for kind in SETS
        }
        verdicts[name] = {
            "EM": round(100 * fmean(figure.em for figure in cell), 1),
            "EM_of_sets": of_sets,
            "EM_change": [round(100 * figure, 1) for figure in (gain.mean, gain.low, gain.high)],
            "tokens": round(fmean(figure.tokens for figure in cell)),
        }
    return verdicts


def report_size(fold_result: Folded, labels: Sequence[str]) -> dict[str, Any]:
    """Accuracy and calibration on questions that no training had."""
    chances, truth = np.array(fold_result.chances), np.eye(len(labels))[[row.label for row in fold_result.rows]]
    right: dict[str, list[bool]] = {}
    for row, is_right in zip(fold_result.rows, chances.argmax(axis=1) == truth.argmax(axis=1), strict=True):
        right.setdefault(row.item, []).append(bool(is_right))
    by_question = interval([fmean(scores) for scores in right.values()])
    frequent, usual = int(truth.sum(axis=0).argmax()), dict[str, list[bool]]()
    for row in fold_result.rows:
        usual.setdefault(row.item, []).append(row.label == frequent)
    gain = difference(*([fmean(scores) for scores in by_item.values()] for by_item in (right, usual)), range=(0, 1))
    return {
        "rows": len(fold_result.rows),
        "labels": {label: int(truth[:, index].sum()) for index, label in enumerate(labels)},
        "accuracy": [round(100 * figure, 1) for figure in (by_question.mean, by_question.low, by_question.high)],
        "over_most_frequent_label": [round(100 * figure, 2) for figure in (gain.mean, gain.low, gain.high)],
        "most_frequent_label": round(100 * float(truth.mean(axis=0).max()), 1),
        "calibration_error": round(100 * calibration_error(chances, truth), 1),
        "training_cpu_s": fold_result.training_cpu_s,
        "notes": fold_result.notes,
    }


def part(
    here: World,
    make: Callable[[Embedder | None], ClassifierTrainer],
    policies: Mapping[str, Flow | Sequence[Cell]],
    base: str,
    embedder: Embedder | None = None,
) -> dict[str, Any]:
    """One classifier: its sizes, and its flow with it, without it, and with the gold."""
    first = make(None)
    began = time.process_time()
    rows = first.label_items(here.items, SEED)
    labelling = round(time.process_time() - began, 1)
    cells = {
        name: ask_all(policy, here.items) if isinstance(policy, Operator) else policy
        for name, policy in policies.items()
    }
    sizes = {}
    for size, reads in (("features", None), ("features and vectors", embedder))[: 1 + (embedder is not None)]:

        def build_trainer(reads: Embedder | None = reads) -> ClassifierTrainer:
            instance = make(reads)
            vars(instance).update({name: entry for name, entry in vars(first).items() if name == "gold_flags"})
            return instance

        fold_result = train_in_folds(build_trainer, rows, here.items)
        sizes[size] = report_size(fold_result, first.labels)
        cells[f"trained, {size}"] = [fold_result.cells[item.id] for item in here.items]
    return {"labelling_cpu_s": labelling, "sizes": sizes, "flow": compare_policies(cells, here.items, base)}


def router(here: World) -> dict[str, Any]:
    search = here.search(15)
    arms = {name: ask_all(flow, here.items) for name, flow in strategies(here.reader, search).items()}
    cheapest = [next((cell for cell in cells if cell.em == 1), cells[1]) for cells in zip(*arms.values(), strict=True)]
    policies = {"one": arms["one"], "several": arms["several"], "oracle": cheapest}
    policies["simulated model"] = ask_all(adaptive_rag(here.reader, search), here.items)
    return part(here, lambda reads: RouterTrainer(here.reader, search, reads), policies, "several", KeptVectors())


def evaluator(here: World) -> dict[str, Any]:
    first, web = (half.but(search=here.search(20), is_first=is_first) for is_first in (True, False))
    gold = GoldScorer(here.reader.chains)
    policies = {
        "none": EvaluatorTrainer(here.reader, first, web).untrained(),
        "none, first source": naive(here.reader, first, 10),
        "oracle": crag(here.reader, first, web, gold, 0.5, 0.5),
        "oracle strips, always both sources": crag(here.reader, first, web, gold, 2.0, -1.0),
        "simulated model": crag_grader(here.reader, first, web),
    }
    return part(here, lambda reads: EvaluatorTrainer(here.reader, first, web, reads), policies, "none")


def pairs(here: World) -> dict[str, Any]:
    search = here.search(5)
    untrained = PairTrainer(here.reader, search).untrained()
    policies = {"none": untrained, "oracle": dr_rag(here.reader, search, GoldScorer(here.reader.chains))}
    return part(here, lambda reads: PairTrainer(here.reader, search, reads), policies, "none")


def verifier(here: World) -> dict[str, Any]:
    search = here.search(5)
    trainer = VerifierTrainer(here.reader, search)
    rounds = [ask_all(trainer.untrained(), here.items, sample) for sample in range(3)]
    best = [
        next(
            (Cell(1.0, sum(cell.tokens for cell in cells[:index])) for index in (1, 2, 3) if cells[index - 1].em == 1),
            None,
        )
        or Cell(0.0, sum(cell.tokens for cell in cells))
        for cells in zip(*rounds, strict=True)
    ]
    policies = {"none": rounds[0], "oracle": best}
    return part(here, lambda reads: VerifierTrainer(here.reader, search, reads), policies, "none")


PARTS = {"router": router, "evaluator": evaluator, "pairs": pairs, "verifier": verifier}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the store and the result of each part are kept")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        here, parts = world(folder), {}
        for name, measured in PARTS.items():
            file = folder / f"{name}.json"
            if not file.exists():
                file.write_text(json.dumps(measured(here)))
            parts[name] = json.loads(file.read_text())
    note = "answers of the simulated reader; labels from gold; no language model was asked"
    result = {"simulated": note, "profile": repr(PROFILE), "questions": EACH * len(SETS), "parts": parts}
    publish("classifiers", result, options.out)


if __name__ == "__main__":
    main()

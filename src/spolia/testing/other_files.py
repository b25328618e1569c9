"""Files that Spolia writes outside stores: one of each kind that has a digest, and readers of their content."""

import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from spolia import checksums
from spolia.core.function import step
from spolia.evaluation.data.usage_log import UsageLog
from spolia.evaluation.experiment.execution import ask
from spolia.evaluation.experiment.score_store import ANSWER, SCORES, ScoreStore
from spolia.evaluation.gate.baseline import Baseline, BaselineQuestion, KnownDocument
from spolia.models.file_hash import hash_of
from spolia.models.onnx import safetensors
from spolia.models.trained_weights import CARD, JSON, TENSORS, TrainedWeights
from spolia.optimizer.budget import RowCost
from spolia.optimizer.earlier_studies import EarlierStudies, StudyRecord, WarmStart
from spolia.optimizer.pilot import Pilot
from spolia.retrieval.array_files import DAMAGED, read_arrays, write_arrays
from spolia.services.traffic import MEASURES, MIN_ANSWERS, TrafficBaseline
from spolia.stores.corpus import Corpus
from spolia.stores.portable import export_store, import_store
from spolia.training.training import format_card
from spolia.types import Hit, Item, Node, Query, Ranking

ITEMS = [Item(f"q{number}", f"Who built mill {number}?", gold=((f"p{number}",),)) for number in range(3)]
_MARKS = ("05", "0a")


@step
def rank_mills(query: Query) -> Ranking:
    return Ranking(
        query, tuple(Hit(Node(f"p{number}", f"The miller built mill {number}."), 1.0) for number in range(3))
    )


def make_other_files(folder: Path, corpus: Corpus) -> None:
    """Write each file as Spolia does; studies and trainings, which take long, are not run."""
    study, folder_of_file = folder / "study", {JSON: folder / "ranker", TENSORS: folder / "reader"}
    for path in (study, *folder_of_file.values()):
        path.mkdir(parents=True)
    with patch.dict(os.environ, SPOLIA_CACHE=str(folder)):
        hash_of(Path(__file__))
    record = StudyRecord({"cut": ("a", "b")}, ({"cut": "b"},), (0.75,), ("R@5",), _MARKS, at=7.0)
    EarlierStudies(folder / "studies").store_record(record)
    log = UsageLog(folder / "looks.jsonl")
    for flows in ({"a": "1f", "b": "2e"}, {"c": "3d", "b": "2e"}):
        log.note(log.new_entry(ITEMS, flows, ["R@5"], ["b"]))
    ask(rank_mills, ITEMS, "R@5", path=folder / "scores.experiment")
    study_plan = {"form": 1, "space": "Choice(a, b)", "objective": "R@5", "questions": "05", "reads": {}}
    checksums.write(study / "study.json", study_plan, indent=1)
    checksums.write(study / "pilot.json", Pilot(RowCost(1.0, 60.0), (), 3).json(), indent=1)
    checksums.write(study / "warm_start.json", WarmStart(({"cut": 1},), 1).json(), indent=1)
    checksums.write(study / "finished.json", {"key": "05", "files": [], "written": "", "result": {"score": 0.75}})
    checksums.write(study / "tuned.json", {"finalists": [{"point": {"cut": 1}}]})
    write_arrays(folder / "ranker" / "checkpoint.npz", {"state.weights": np.arange(12.0)})
    (folder / "ranker" / JSON).write_text('{"weights": [0.25, 0.5]}\n', "utf-8")
    safetensors.write(folder / "reader" / TENSORS, {"weights": np.arange(12, dtype=np.float32)})
    for file, place in folder_of_file.items():
        digest = sha256((place / file).read_bytes()).hexdigest()
        card = {"part": "ranker", "sha256": digest, "file": file, "trained_on": "BQo=", "score": {"mean": 0.75}}
        (place / CARD).write_text(format_card(card), "utf-8")
    question = BaselineQuestion("q1", ("05", "0a", "0b"), {"R@5": (1.0,)}, (("p1", 0, 9),), "0c", ("p1",))
    documents = {"p1": KnownDocument("0d", (("chunk", "0e", 2),))}
    Baseline("tides", "bm25", {"R@5": "0f"}, {"flow": {"BM25": "05"}}, documents, (question,)).write(
        folder / "baseline.json"
    )
    TrafficBaseline("bm25", "1", 7.0, {name: [0.25] * MIN_ANSWERS for name in MEASURES}).write(folder / "traffic.json")
    export_store(corpus, folder / "notes.zip")


def _make_reader(*names: str) -> Callable[[Path], Any]:
    """Make a reader of values of a JSON file by their names."""
    return lambda file: None if (plain := checksums.recall(file)) is None else [plain.get(name) for name in names]


def _read_experiment(file: Path) -> Any:
    with ScoreStore(file) as store:
        cases = [store.case(row, ITEMS[0]) for row in store.columns(ANSWER)]
        return [repr(case) for case in cases], store.columns(SCORES).tobytes()


def _read_arrays(file: Path) -> Any:
    try:
        with read_arrays(file) as parts:
            return {name: parts[name].tolist() for name in parts}
    except DAMAGED:
        return None


def _import_store(file: Path) -> Any:
    corpus = Corpus(file.with_name(f"{file.name}.{os.urandom(4).hex()}.spolia"))
    import_store(file, corpus)
    return [(node.document, node.text) for node in corpus.snapshot().all_nodes("chunk")]


READERS: Mapping[str, Callable[[Path], Any]] = {
    "file_hashes/*.json": _make_reader("stamp", "hash"),
    "studies/*.json": lambda file: [repr(record) for record in EarlierStudies(file.parent, None)._read_records()],
    "*looks.jsonl": lambda file: UsageLog(file).entries(UsageLog(file).new_entry(ITEMS, {}, ()).data),
    "*.experiment": _read_experiment,
    "study.json": _make_reader("form", "space", "objective", "questions", "reads"),
    "pilot.json": Pilot.read,
    "warm_start.json": WarmStart.read,
    "finished.json": _make_reader("key", "files", "written", "result"),
    "tuned.json": _make_reader("finalists"),
    "checkpoint.npz": _read_arrays,
    CARD: lambda file: TrainedWeights(str(file.parent)).card("ranker"),
    "*.safetensors": lambda file: {
        name: array.tolist() for name, array in TrainedWeights(str(file.parent)).tensors("ranker").items()
    },
    "weights.json": lambda file: TrainedWeights(str(file.parent)).plain("ranker"),
    "baseline.json": Baseline.read,
    "traffic.json": TrafficBaseline.read,
    "*.zip": _import_store,
}
"""Reads a file as Spolia does, by the end of its path: a damaged one raises a `SpoliaError`, or is made again."""


def read_other(file: Path) -> Any:
    """Read the content of a file."""
    return next(read for pattern, read in READERS.items() if file.match(pattern))(file)

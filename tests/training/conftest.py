"""A small world for parts in training: towns, their rivers, and questions that need two passages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.models.onnx.minilm import MiniLM
from spolia.stores.corpus import NodeGroup
from spolia.types import Item

SOUNDS = ("Bal", "Cor", "Dun", "Fel", "Gar", "Hol", "Kel", "Lor", "Mar", "Nor")


def write_world(folder: Path, chains: int = 60) -> Path:
    """Passages on people, towns and rivers. A question names a person, and asks for what stands with the river."""
    folder.mkdir(parents=True, exist_ok=True)
    passages, questions = [], []
    for index in range(chains):
        name = f"{SOUNDS[index % 10]}{SOUNDS[index // 10].lower()}"
        person, town, river = f"Oda {name}son", f"{name}burg", f"{name} Water"
        lines = {
            "person": (person, f"The painter {person} was born in {town} and painted many portraits."),
            "town": (town, f"A market town with an old bridge over {river} and a church."),
            "river": (river, f"A stream of the lowlands, {index + 3} miles long, known for its trout."),
        }
        for kind, (title, text) in lines.items():
            passages.append({"id": f"{kind}{index}", "title": title, "text": text})
        question = f"How long is the water in the town where {person} was born?"
        gold = [f"{kind}{index}" for kind in lines]
        questions.append({"id": f"q{index}", "question": question, "answers": [f"{index + 3} miles"], "gold_ids": gold})
    for name, rows in (("corpus", passages), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return folder


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    return DataSet(str(write_world(tmp_path_factory.mktemp("world") / "towns")))


@pytest.fixture(scope="session")
def passages(world: DataSet, tmp_path_factory: pytest.TempPathFactory) -> NodeGroup:
    return index_passages(world, folder=tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    """A world small enough to fine-tune MiniLM on."""
    return DataSet(str(write_world(tmp_path_factory.mktemp("small") / "towns", 12)))


@pytest.fixture(scope="session")
def group(small: DataSet, tmp_path_factory: pytest.TempPathFactory) -> NodeGroup:
    """The passages of the small world, with vectors."""
    return index_passages(small, MiniLM(), folder=tmp_path_factory.mktemp("vectors"))


@pytest.fixture(scope="session")
def items(small: DataSet) -> list[Item]:
    return list(small.items())

"""The matrix that strategies are compared on holds what its flows score alone."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spolia.core.combinators import Branch, Choice, Identity
from spolia.core.combinators.space import Space
from spolia.evaluation.experiment.execution import ask
from spolia.indexing.sync.texts import add_texts
from spolia.optimizer.candidates import FlowTable
from spolia.orchestration.rank_fusion import ReciprocalRankFusion
from spolia.post_retrieval.selection import Cut
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.tfidf import TFIDF
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.types import Item, Query

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TOWNS = ("Rostock", "Wismar", "Lübeck", "Kiel", "Emden", "Husum")


@pytest.fixture
def matrix(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, which is run from its folder."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.syspath_prepend(BENCHMARKS / "optimizer")
    previous_modules = set(sys.modules)
    yield import_module("matrix")
    for name in {"matrix", "space"} - previous_modules:
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_the_matrix_holds_the_scores_and_contexts_of_its_flows(tmp_path: Path, matrix: Any) -> None:
    corpus = Corpus(str(tmp_path / "towns.spolia"))
    texts = {
        f"{town}.md": f"# {town}\n\nThe town {town} has a port, a wall and {index} gates."
        for index, town in enumerate(TOWNS)
    }
    add_texts(corpus, texts)
    items = [
        Item(
            f"q{index}",
            f"How many gates has the town {town}?",
            gold=((f"text:{TOWNS[index // 2]}.md",),),
            meta=(("set", "towns"),),
        )
        for index, town in enumerate(TOWNS)
    ]
    chunks = corpus.group()
    branch = Branch(BM25(chunks, source="words"), TFIDF(chunks, source="other")) >> ReciprocalRankFusion()
    space = Choice(BM25(chunks), branch, name="arms") >> Choice(Identity(), Cut(1), name="cut")
    whole = matrix.measured(space, items)
    candidates = FlowTable(Space(space))
    flows = [candidates.flows[number] for number in candidates.all_flows]
    assert len(np.unique(whole.scores)) > 2
    np.testing.assert_array_equal(whole.scores, ask(flows, items, matrix.MEASURE).scores[:, :, 0])
    for index, item in enumerate(items):
        with Run():
            contexts = [tuple(hit.node.id for hit in flow(Query(item.question)).hits[: matrix.SHOWN]) for flow in flows]
        same = np.array([[context == other_context for other_context in contexts] for context in contexts])
        column = whole.contexts[:, index]
        np.testing.assert_array_equal(column[:, None] == column, same)
    assert whole.points.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert whole.cost_us([0, 1]) < whole.cost_us([0]) + whole.cost_us([1])
    parts = [matrix.measured(space, asked_items) for asked_items in (items[:4], items[2:])]
    np.testing.assert_array_equal(parts[0].joined(parts[1]).scores, whole.scores)
    np.testing.assert_array_equal(parts[0].joined(parts[1]).contexts, whole.contexts)
    whole.save(tmp_path / "towns.npz")
    np.testing.assert_array_equal(matrix.ScoreMatrix.load(tmp_path / "towns.npz").scores, whole.scores)


@pytest.mark.slow
def test_flows_have_the_numbers_of_a_study(tmp_path: Path, matrix: Any) -> None:
    here = FlowTable(Space(matrix.space(Corpus(str(tmp_path / "other.spolia")))))
    assert len(here.all_flows) >= 500
    assert here.point_by_number == matrix.candidates_of().point_by_number

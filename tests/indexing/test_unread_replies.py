"""Replies of a model that cannot be read: what is made without them is told, by whoever makes the group."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.indexing.splitters.text_units import Sentences
from spolia.indexing.sync.sync import sync
from spolia.indexing.transforms.contextual_headers import ContextualHeaders
from spolia.indexing.transforms.text_enrichment import QuestionAnswers
from spolia.journal.trace import Runs
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.retrieval.bm25 import BM25
from spolia.run.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Transform
from spolia.stores.groups.materialise import materialise
from spolia.types import Query

MODEL = ScriptedModel((("seals", "Hm."), ("krill", "Q: What glows?\nA: Krill."), ("", "Hm.")))
ANSWERS = QuestionAnswers(MODEL)
WHY = "times: The reply to spolia:indexing/prompts/"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "docs"
    new_folder.mkdir()
    for name in ("krill", "seals", "whales"):
        (new_folder / f"{name}.txt").write_text(f"Here {name} glow.")
    return new_folder


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "s.spolia"))


@pytest.mark.slow
@pytest.mark.parametrize("has_run", [False, True])
def test_sync_tells_how_often_while_it_builds_and_while_it_follows(folder: Path, corpus: Corpus, has_run: bool) -> None:
    answers = corpus.group("answers", Definition(ANSWERS))

    def synced() -> tuple[tuple[str, str], ...]:
        if not has_run:
            return sync(folder, corpus, groups=[answers]).behind
        with Run():
            return sync(folder, corpus, groups=[answers]).behind

    ((group, reason),) = synced()
    assert (group, reason.startswith(f"2 {WHY}question_answers.txt")) == ("answers", True)
    assert "it must be pairs of lines" in reason
    assert [node.text for node in corpus.latest().all_nodes("answers")] == ["What glows?\nKrill."]
    (folder / "more.txt").write_text("Here seals sleep.")
    ((group, reason),) = synced()
    assert (group, reason.startswith("once: The reply to")) == ("answers", True)
    assert synced() == ()


@pytest.mark.parametrize(
    ("transform", "said"),
    [(ANSWERS, f"2 {WHY}question_answers.txt"), (ContextualHeaders(MODEL, Sentences()), "")],
    ids=["answers", "headers, which are whatever is said"],
)
def test_materialise_tells_how_often(folder: Path, corpus: Corpus, transform: Transform, said: str) -> None:
    sync(folder, corpus)
    lacks = materialise([corpus.group("made", Definition(transform))])
    assert [lack.reason[: len(said)] for lack in lacks] == [said] * bool(said)
    assert [(lack.document, lack.uri, lack.group) for lack in lacks] == [("", "", "made")] * bool(said)
    assert materialise([corpus.group("made", Definition(transform))]) == ()


def test_a_search_that_builds_a_group_notes_how_often(folder: Path, corpus: Corpus, tmp_path: Path) -> None:
    sync(folder, corpus)
    with Runs(tmp_path / "runs.db") as runs:
        with Run(journal=runs.journal) as run:
            ranking = BM25(corpus.group("answers", Definition(ANSWERS)))(Query("What glows?"))
        assert [node.uri for node in ranking.nodes] == ["krill.txt"]
        runs.journal.flush()
        notes = [note for span in runs.journal.spans(run.id) for note in span.notes]
    assert any(note.startswith("In group 'answers', 2 times: The reply to") for note in notes)
    assert not any("lacks" in note for note in notes)

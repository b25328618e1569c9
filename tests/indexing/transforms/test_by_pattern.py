"""Another transform for another kind of file: each works as it would alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.errors import WiringError
from spolia.flow_files.files import dump, load
from spolia.indexing.splitters.text_units import Sentences
from spolia.indexing.sync.dry_run import planned
from spolia.indexing.sync.sync import sync
from spolia.indexing.sync.texts import add_texts
from spolia.indexing.transforms.by_pattern import ByPattern
from spolia.indexing.transforms.function import transform
from spolia.indexing.transforms.text_enrichment import Summary
from spolia.journal import Runs
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Part, Transform, document_node
from spolia.stores.groups.materialise import materialise
from spolia.types import Document

MODEL = ScriptedModel((("stones", "About stones."), ("salt", "About salt.")))
TEXTS = {"a.pdf.txt": "Of stones.", "b.md": "One. Two.", "c.csv.txt": "Of words.", "d.pdf.txt": "Of salt."}


@transform
def shouted(text: str) -> str:
    return text.upper()


CHOSEN = ByPattern((("*.pdf.txt", Summary(MODEL)), ("*.md", Sentences())), otherwise=shouted)
SEEN = CHOSEN.but(otherwise=Sentences())
"""The same without code of the user's, which asks no model either."""


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    new_corpus = Corpus(str(tmp_path / "s.spolia"))
    add_texts(new_corpus, TEXTS)
    return new_corpus


def texts_of_group(corpus: Corpus, group: str = "made") -> list[str]:
    return sorted(node.text for node in corpus.latest().all_nodes(group))


@pytest.mark.slow
def test_each_kind_of_file_has_its_transform(corpus: Corpus) -> None:
    materialise([corpus.group("made", Definition(CHOSEN))])
    assert texts_of_group(corpus) == ["About salt.", "About stones.", "OF WORDS.", "One.", "Two."]
    add_texts(corpus, {"e.md": "Three.", "f.pdf.txt": "More of stones."}, operators=[shouted])
    assert texts_of_group(corpus).count("About stones.") == 2
    assert "Three." in texts_of_group(corpus)
    assert corpus.latest().check() == []


@pytest.mark.slow
def test_replies_are_kept_as_without_it(corpus: Corpus, tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.db")
    calls = []
    for name in ("one", "two"):
        with Run(journal=runs.journal, cache=runs.cache) as run:
            materialise([corpus.group(name, Definition(CHOSEN))])
        calls.append(run.actual_usage.calls)
    assert calls == [2, 0]
    assert texts_of_group(corpus, "one") == texts_of_group(corpus, "two")


def test_it_says_what_its_transforms_say() -> None:
    assert CHOSEN.waiting
    assert CHOSEN.calls() == SEEN.calls() == Summary(MODEL).calls()
    assert ByPattern((("*.md", Sentences()),)).calls() == 0
    assert CHOSEN.resources == Summary(MODEL).resources
    assert (
        CHOSEN.digest
        != ByPattern((("*.pdf.txt", Summary(ScriptedModel(("x",)))), ("*.md", Sentences())), shouted).digest
    )
    parts = [
        Part(document_node(document), document)
        for document in (Document(uri, text, uri) for uri, text in TEXTS.items())
    ]
    assert CHOSEN.batch(parts) == [CHOSEN(part) for part in parts]


def test_a_plan_counts_what_asks_and_only_that(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    corpus = Corpus(str(tmp_path / "p.spolia"))
    sync(folder, corpus)
    plans = {
        group.group: group for group in planned(folder, corpus, groups=[corpus.group("made", Definition(SEEN))]).groups
    }
    assert plans["made"].calls == 2 * 2  # two documents, each a question and its repair at most


def test_it_is_written_to_flow_files() -> None:
    group = Corpus("a.spolia").group("made", Definition(ByPattern((("*.md", Sentences()),))))
    assert load(dump(BM25(group))) == BM25(group)


@pytest.mark.parametrize("arm", [Sentences, len, BM25(Corpus("a.spolia").group())])
def test_what_is_no_transform_is_refused(arm: Transform) -> None:
    with pytest.raises(WiringError):
        ByPattern((("*.md", arm),))

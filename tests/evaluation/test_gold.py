"""Gold by the names of files and by quotes, of documents in a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.errors import DataError, MeasureError
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.gold_locations import locate_gold
from spolia.evaluation.experiment.results import Report
from spolia.evaluation.measures.registry import parse_measures
from spolia.evaluation.report.html import html
from spolia.indexing.sync.sync import sync
from spolia.retrieval.bm25 import BM25
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.types import Hit, Item, Node, Query, Quote, Ranking
from tests.evaluation.killed_experiment import same

FILES = {
    "tides.md": "# Tides\n\nThe moon pulls the sea,\nand the tide rises.\n\nSalt makes the sea heavy.\n",
    "birds/owls.txt": "Owls hunt by night and sleep by day.",
    "rail.txt": "The railway reached the town in 1887. The railway was closed in 1963.",
}
RISES = Quote("tides.md", text="The moon pulls the sea, and the tide rises.")
ITEMS = (
    Item("q1", "Why does the tide rise?", gold=((RISES,),)),
    Item("q2", "When do owls hunt?", gold=(("birds/owls.txt", "tides.md"),), grades=(("birds/owls.txt", 2.0),)),
)


def store_files(folder: Path, name: str = "notes", **more: str) -> NodeGroup:
    for file, text in (FILES | more).items():
        path = folder / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    corpus = Corpus(str(folder / f"{name}.spolia"))
    sync(folder / name, corpus)
    return corpus.group()


@pytest.fixture
def chunks(tmp_path: Path) -> NodeGroup:
    return store_files(tmp_path)


def ask_flow(flow: object, *items: Item) -> Report:
    return Experiment({"flow": flow}, items, parse_measures("R@1,nDCG@3")).run()  # type: ignore[dict-item]


@pytest.mark.slow
def test_files_and_quotes_are_found_by_their_names(chunks: NodeGroup) -> None:
    report = ask_flow(BM25(chunks), *ITEMS)
    assert [measured.value for measured in report.flows[0].measured] == [1.0, 1.0]
    assert report.items == ITEMS  # as they were written
    page = html(report)
    assert 'class="gold-hit"><b>tides.md</b>' in page
    assert "birds/owls.txt or tides.md" in page


def test_a_quote_stands_where_its_words_do_whatever_the_lines(chunks: NodeGroup) -> None:
    ((place,),) = locate_gold(ITEMS, [BM25(chunks)]).locate_item(ITEMS[0]).gold
    assert isinstance(place, Quote)
    assert place.text == "The moon pulls the sea,\nand the tide rises."
    text = chunks.snapshot().document(place.document, frozenset()).text
    assert text[place.start : place.end] == place.text
    stale = Item("q", "?", gold=((Quote("tides.md", 3, "Salt makes"),),))
    ((quote,),) = locate_gold([stale], [BM25(chunks)]).locate_item(stale).gold
    assert isinstance(quote, Quote)
    assert quote.start == text.index("Salt makes")


def test_grades_go_with_what_they_are_of(chunks: NodeGroup) -> None:
    item = locate_gold(ITEMS, [BM25(chunks)]).locate_item(ITEMS[1])
    ids = chunks.snapshot().document_ids(["birds/owls.txt"])
    assert item.grades == ((ids["birds/owls.txt"], 2.0),)


@pytest.mark.slow
def test_a_name_stands_for_what_each_store_calls_so(chunks: NodeGroup, tmp_path: Path) -> None:
    other_group = store_files(tmp_path, "other", **{"birds/owls.txt": "Owls are birds, and hunt by night."})
    report = Experiment({"a": BM25(chunks), "b": BM25(other_group)}, ITEMS, parse_measures("R@1")).run()
    assert [flow.measured[0].value for flow in report.flows] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("gold", "says"),
    [
        (
            "birds/owl.txt",
            "Gold 'birds/owl.txt' of question 'q9' .“Who was here[?]”. names no .*Write a .*: 'birds/owls.txt'",
        ),
        (Quote("tides.md", text="The sun pulls"), "does not occur in 'tides.md'.*Quote words that occur there once"),
        (Quote("rail.txt", text="The railway"), "“The railway”' of question 'q9' .* occurs 2 times in 'rail.txt'"),
        (Quote("nowhere.md", text="The"), "names no document of .*Nor is this found: 'gone' .“Who was here[?]”.[.]$"),
    ],
)
def test_what_cannot_be_found_is_named_before_anything_is_asked(
    chunks: NodeGroup, tmp_path: Path, gold: str | Quote, says: str
) -> None:
    more = (("gone",),) if isinstance(gold, Quote) and gold.document == "nowhere.md" else ()
    wrong = Item("q9", "Who was here?", gold=((gold,), *more))
    file = tmp_path / "kept.experiment"
    with pytest.raises(DataError, match=says):
        Experiment(BM25(chunks), [*ITEMS, wrong], parse_measures("R@1")).run(path=file)
    assert not file.exists()


@pytest.mark.slow
def test_a_quote_without_a_start_needs_a_store() -> None:
    with pytest.raises(DataError, match="does not say where it starts, and a flow searches no store"):
        ask_flow(same, ITEMS[0])
    ranking = Ranking(Query("?"), (Hit(Node("n", "The moon", document="tides.md"), 1.0),))
    with pytest.raises(MeasureError, match=r"Where 'tides.md “The moon pulls .* starts is not said"):
        parse_measures("R@1")[0].score(ranking, ITEMS[0])  # type: ignore[attr-defined]


def test_questions_of_a_store_need_no_corpus_of_their_own(chunks: NodeGroup, tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_text(
        '{"id": "q1", "question": "Why does the tide rise?", '
        '"gold_ids": [{"document": "tides.md", "quote": "The moon pulls"}]}\n'
        '{"id": "q2", "question": "When do owls hunt?", "gold_ids": [["birds/owls.txt", "rail.txt"]]}'
    )
    data = DataSet(str(tmp_path))
    items = list(data.items())
    assert items[0].gold == ((Quote("tides.md", text="The moon pulls"),),)
    assert [measured.value for measured in ask_flow(BM25(chunks), *items).flows[0].measured] == [1.0, 1.0]
    (tmp_path / "corpus.jsonl").write_text('{"id": "p1", "text": "Another one."}')
    with pytest.raises(DataError, match=r"line 1: gold id 'tides\.md' of question 'q1' is not in the corpus"):
        list(DataSet(str(tmp_path)).items())
    assert list(DataSet(str(tmp_path)).items(stored=True)) == items


def test_a_stretch_of_a_store_is_written_as_a_quote(tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_text(
        '{"id": "q1", "question": "?", "gold_ids": [{"document": "tides.md", "start": 3, "end": 9}]}'
    )
    with pytest.raises(DataError, match="For a document of a store, write a quote"):
        list(DataSet(str(tmp_path)).items(stored=True))

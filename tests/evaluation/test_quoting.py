"""Gold that was passages as quotes: located, joined, and the same after every re-chunking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spolia.errors import DataError
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.formats.form import form_named
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.data.quotes import join_passages, locate_passages, with_quotes
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.results import Report
from spolia.evaluation.measures.measure import Case, measured
from spolia.evaluation.measures.registry import parse_measures
from spolia.indexing.splitters.sized_splitter import SlidingWindow, TokenWindow
from spolia.indexing.splitters.text_units import Paragraphs, RecursiveCharacters, Sentences
from spolia.retrieval.bm25 import BM25
from spolia.stores.corpus import NodeGroup
from spolia.stores.definition import Definition
from spolia.types import Document, Hit, Item, Node, Query, Quote, Ranking, SubQuestion
from tests.cases import check_each

PASSAGES = [
    Document("p1", "The moon pulls the sea. Salt makes it heavy.", title="Tides"),
    Document("p2", "The sun pulls too, but less.", title="Tides"),
    Document("p3", "Owls hunt by night.", title="Owls"),
    Document("p4", "No title here.", title=""),
]
TEXTS = {one.id: one.text for one in PASSAGES}


def test_joined_passages_are_one_document_each_title() -> None:
    joined = join_passages(PASSAGES)
    assert [document.id for document in joined.documents] == ["Tides", "Owls", "p4"]
    by_id = {document.id: document.text for document in joined.documents}
    for passage in PASSAGES:
        [quote] = joined.quotes[passage.id]
        assert by_id[quote.document][quote.start : quote.end] == quote.text == passage.text


def test_a_title_that_comes_again_later_is_a_document_of_its_own() -> None:
    joined = join_passages([PASSAGES[0], PASSAGES[2], PASSAGES[1]])
    assert [document.id for document in joined.documents] == ["Tides", "Owls", "p2"]


def test_passages_are_found_in_what_they_were_cut_from() -> None:
    documents = [Document("a", "Intro. Owls hunt by night. More."), Document("b", "Owls hunt by night.")]
    passage_locations = locate_passages(PASSAGES, documents)
    item = passage_locations.item(
        Item("q", "?", gold=(("p3",),), grades=(("p3", 2.0),), decomposition=(SubQuestion("?", "", "p3"),))
    )
    assert item.gold == ((Quote("a", 7, "Owls hunt by night."), Quote("b", 0, "Owls hunt by night.")),)
    assert item.grades == (("a[7:26]", 2.0), ("b[0:19]", 2.0))
    assert item.decomposition[0].gold_id == "a"
    with pytest.raises(DataError, match=r"Gold 'p1' of question 'q2' is in none of 2 documents, word for word\. G"):
        passage_locations.item(Item("q2", "?", gold=(("p1",),)))


def test_quotes_of_passages_move_with_them() -> None:
    item = Item("q", "?", gold=((Quote("p2", 4, "sun"),),))
    [[quote]] = join_passages(PASSAGES).item(item).gold
    assert quote == Quote("Tides", len(PASSAGES[0].text) + 2 + 4, "sun")


def test_answers_and_supporting_sentences_become_quotes() -> None:
    supporting = json.dumps([{"gold_id": "p1", "sentence": "Salt makes it heavy."}])
    items = [
        Item("answer", "?", answers=("sun", "The sun"), gold=(("p2",),)),
        Item("told", "?", answers=("salt",), gold=(("p1",), ("p3",)), meta=(("supporting_sentences", supporting),)),
        Item("nowhere", "?", answers=("stars",), gold=(("p3", "p2"),)),
        Item("no gold", "?", answers=("sun",)),
    ]
    answer, sentence, whole, none = with_quotes(items, TEXTS)
    assert answer.gold == ((Quote("p2", 4, "sun"), Quote("p2", 0, "The sun")),)
    assert sentence.gold == ((Quote("p1", 24, "Salt makes it heavy."),), (Quote("p3", 0, TEXTS["p3"]),))
    assert whole.gold == ((Quote("p3", 0, TEXTS["p3"]), Quote("p2", 0, TEXTS["p2"])),)
    assert none.gold == ()


@check_each(
    ("text", "answer", "starts"),
    [
        ("In 1957, with 15 men and 250 women, there were 5 ships.", "5", [47]),
        ("Nobody knows; it is not known.", "no", []),
        ("No. It is (no) answer; no", "no", [11, 23]),
        ("Müller-Lüdenscheid, über Mu\u0308ll", "Mu", []),
        ("それは東京にある", "東京", [3]),
        ("서울에서 만났다", "서울", [0]),
        ("हिन्दी में", "हिन्द", []),
    ],
)
def test_an_answer_is_found_as_whole_words_only(text: str, answer: str, starts: list[int]) -> None:
    [item] = with_quotes([Item("q", "?", answers=(answer,), gold=(("p",),))], {"p": text})
    assert item.gold == (tuple(Quote("p", start, answer) for start in starts) or (Quote("p", 0, text),),)


# ------------------------------------------------------------------------------------------------- through the stores

FILLER = "Of other things it is said at length, and nobody remembers why they were written down at all. "
ARTICLES = {
    "tides": f"{FILLER}The harbour of Ostia silted up within nine decades.\n\n{FILLER * 3}",
    "birds": f"{FILLER * 2}The barn owl hears a vole\nunder forty centimetres of snow. {FILLER}",
    "roads": f"{FILLER * 2}\n\nThe Via Appia was begun in 312 BC by a censor. {FILLER}",
}
ASKED = {
    "How fast did Ostia's harbour silt up?": ("tides", "The harbour of Ostia silted up within nine decades."),
    "What does the barn owl hear under snow?": ("birds", "The barn owl hears a vole\nunder forty centimetres of snow."),
    "Who began the Via Appia?": ("roads", "The Via Appia was begun in 312 BC by a censor."),
}
CUTS = {
    "sentences": Sentences(),
    "paragraphs": Paragraphs(),
    "windows": SlidingWindow(size=40, overlap=10),
    "tokens": TokenWindow(size=9, overlap=3),
    "characters": RecursiveCharacters(size=30, overlap=0),
}


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    items = [
        Item(f"q{n}", question, gold=((Quote(name, ARTICLES[name].index(quote), quote),),))
        for n, (question, (name, quote)) in enumerate(ASKED.items())
    ]
    passages = [Document(name, text) for name, text in ARTICLES.items()]
    form_named("spolia").write(tmp_path / "articles", passages, items)
    return DataSet(str(tmp_path / "articles"))


@pytest.mark.slow
def test_one_question_set_measures_five_ways_of_cutting(data: DataSet, tmp_path: Path) -> None:
    whole = index_passages(data, folder=tmp_path / "kept")
    groups = {name: whole.corpus.group(name, Definition(cut)) for name, cut in CUTS.items()}
    flows = {name: BM25(group, top_k=100) for name, group in {"whole": whole, **groups}.items()}
    report = Experiment(flows, data.items(), parse_measures("R@100,R@1(share=0)")).run()
    assert {name: _mean(report, name, "R@1(share=0)") for name in flows} == dict.fromkeys(flows, 1.0)
    whole_quotes = {name: _mean(report, name, "R@100") for name in flows}
    assert whole_quotes == dict.fromkeys(flows, 1.0) | {"tokens": pytest.approx(2 / 3)}  # a part shares no word
    nodes = {name: _nodes(group) for name, group in groups.items()}
    assert len({tuple(node.text for node in cut_nodes) for cut_nodes in nodes.values()}) == len(CUTS)
    for cut_nodes in nodes.values():
        cases = [Case(item, _perfect(item, cut_nodes)) for item in data.items()]
        for measure in parse_measures("R@9,full@9,MRR,MAP,nDCG@9,Rprec,SetR"):
            assert measured(measure, cases).value == pytest.approx(1.0)


def _mean(report: Report, flow: str, measure: str) -> float:
    interval = report.flow(flow).interval(measure)
    assert interval is not None
    return interval.mean


def _perfect(item: Item, nodes: list[Node]) -> Ranking:
    """The nodes of a store that hold any of the gold, in the order of the text."""
    [quote] = item.quotes
    gold_nodes = [node for node in nodes if node.document == quote.document and node.span is not None]
    gold_nodes = [
        node for node in gold_nodes if node.span and node.span.start < quote.end and quote.start < node.span.end
    ]
    gold_nodes.sort(key=lambda one: one.number)
    return Ranking(Query(item.question), tuple(Hit(node, 1.0) for node in gold_nodes))


def _nodes(group: NodeGroup) -> list[Node]:
    return list(group.corpus.snapshot().all_nodes(group.name))


@pytest.mark.slow
def test_a_quote_that_the_store_has_not_is_named(data: DataSet, tmp_path: Path) -> None:
    flow = BM25(index_passages(data, folder=tmp_path / "kept"))
    items = [item.but(gold=((Quote("birds", 3, "The brown owl"),),)) for item in data.items()]
    with pytest.raises(DataError, match=r"Gold 'birds\[3:16\]' of question 'q0' .* does not occur in 'birds'"):
        Experiment(flow, items, parse_measures("R@5")).run()


def test_shared_articles_are_asked_with_the_questions_of_their_paragraphs(shared_datasets: Path) -> None:
    source = DataSet(str(shared_datasets / "xquad_en"))
    passages = list(source.passages())
    joined, texts = join_passages(passages), {passage.id: passage.text for passage in passages}
    assert len(joined.documents) < len(passages)
    by_id = {passage.id: passage.text for passage in joined.documents}
    items = list(with_quotes(source.items(), texts))
    whole = [item.id for item in items if not any(quote.text in item.answers for quote in item.quotes)]
    assert len(whole) < len(items) / 200  # one was published as "7,000,000 square kilometres (2,70": cut in a word
    for item in items:
        moved_item = joined.item(item)
        assert moved_item.quotes
        for quote in moved_item.quotes:
            assert by_id[quote.document][quote.start : quote.end] == quote.text
            assert quote.text in item.answers or item.id in whole

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import QueryError, StoreError, WiringError
from spolia.evaluation.data.dataset import DataSet
from spolia.indexing.sync.sync import sync
from spolia.journal import Runs
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Query
from tests.retrieval.conftest import Stored, store
from tests.retrieval.lucene import Lucene, code_length

TEXTS = {
    "tower": "The Eiffel Tower is a tower in Paris.",
    "louvre": "The Louvre is a museum in Paris, the capital.",
    "prado": "The Prado is a museum in Madrid.",
    "tokyo": "東京タワーは東京にある。",
    "bangkok": "กรุงเทพมหานครเป็นเมืองหลวง",
}


def ids(ranking: object) -> list[str]:
    return [node.id for node in ranking.nodes]  # type: ignore[attr-defined]


def test_the_best_match_comes_first_with_its_text(stored: Stored) -> None:
    ranking = BM25(stored(TEXTS))(Query("Which museums are in Madrid?"))
    assert ids(ranking)[0] == "prado"
    assert ranking.hits[0].node.text == TEXTS["prado"]
    assert ranking.source == "bm25"
    assert [hit.score for hit in ranking.hits] == sorted((hit.score for hit in ranking.hits), reverse=True)


@pytest.mark.slow
def test_what_shares_no_term_is_not_found(stored: Stored) -> None:
    group = stored(TEXTS)
    assert ids(BM25(group)(Query("museum"))) == ["prado", "louvre"]
    assert ids(BM25(group)(Query("zebra"))) == []
    assert ids(BM25(group, top_k=1)(Query("museum"))) == ["prado"]


def test_scripts_without_blanks_are_found(stored: Stored) -> None:
    bm25 = BM25(stored(TEXTS))
    assert ids(bm25(Query("東京はどこ？"))) == ["tokyo"]
    assert ids(bm25(Query("เมืองหลวงคืออะไร"))) == ["bangkok"]


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u3000"])
def test_an_empty_question_is_refused(stored: Stored, text: str) -> None:
    with pytest.raises(QueryError, match="The question is empty"):
        BM25(stored({"a": "text"}))(Query(text, question="?"))


def test_stop_words_are_searched_as_they_are_and_signs_find_nothing(stored: Stored) -> None:
    bm25 = BM25(stored(TEXTS))
    assert set(ids(bm25(Query("the is in")))) == {"tower", "louvre", "prado"}
    for nothing in ("!?", "\0", "\u202e\u202c", "\ud800", "🗼"):
        assert ids(bm25(Query(nothing))) == []


def test_invisible_characters_do_not_matter(stored: Stored) -> None:
    bm25 = BM25(stored(TEXTS))
    assert bm25(Query("museum in Madrid\0")).hits == bm25(Query("museum \u202ein\u202c Ma\u00addrid")).hits


@pytest.mark.slow
def test_an_endless_question_is_searched_at_both_ends_and_that_is_recorded(stored: Stored, tmp_path: Path) -> None:
    bm25, runs = BM25(stored(TEXTS)), Runs(tmp_path / "runs.db")
    with Run(journal=runs.journal) as run:
        assert ids(bm25(Query("museum Madrid " + "word " * 20_000)))[0] == "prado"
        assert ids(bm25(Query("x " * 50_000 + "Madrid")))[0] == "prado"
    runs.journal.flush()
    notes = [note for span in runs.journal.spans(run.id) for note in span.notes]
    assert notes == [
        "The question has 100014 characters; its first and last 5000 are searched.",
        "The question has 100006 characters; its first and last 5000 are searched.",
    ]
    runs.close()


@pytest.mark.slow
def test_many_different_words_can_be_asked(stored: Stored) -> None:
    words = " ".join(f"word{i}" for i in range(12_000))
    assert ids(BM25(stored(TEXTS))(Query(words[:100_000] + " museum"))) == ["prado", "louvre"]


def test_restricted_nodes_are_found_by_their_readers_only(stored: Stored) -> None:
    bm25 = BM25(stored(TEXTS, readers={"prado": ("ana",)}))
    assert ids(bm25(Query("museum"))) == ["louvre"]
    with Run(principal="ana"):
        assert ids(bm25(Query("museum"))) == ["prado", "louvre"]


@pytest.mark.slow
def test_no_such_store_or_group_is_an_error(stored: Stored, tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        BM25(Corpus(str(tmp_path / "nosuch.spolia")).group())(Query("x"))
    group = stored(TEXTS)
    with pytest.raises(StoreError, match="no node group 'other'"):
        BM25(group.corpus.group("other"))(Query("x"))
    with pytest.raises(WiringError, match="top_k counts from 1"):
        BM25(group, top_k=0)


@pytest.mark.slow
def test_a_query_keeps_what_was_asked(stored: Stored) -> None:
    query = Query("Where is the Prado?").rewritten("prado place")
    ranking = BM25(stored(TEXTS))(query)
    assert ranking.query == query
    assert ranking.query.question == "Where is the Prado?"


def test_lengths_are_coded_as_lucene_does() -> None:
    lengths = [code_length(n) for n in (0, 23, 40, 41, 42, 57, 100, 1_000)]
    assert lengths == [0, 23, 40, 40, 42, 56, 96, 984]


words = st.lists(st.sampled_from(["stone", "old", "tower", "sea", "red", "of"]), min_size=1, max_size=60)


@pytest.mark.slow
@settings(max_examples=15)
@given(documents=st.lists(words, min_size=1, max_size=8), query=words)
def test_scores_are_those_of_lucene(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[str]], query: list[str]
) -> None:
    texts = {f"d{number}": " ".join(terms) + f" {number}" for number, terms in enumerate(documents)}
    group = store(tmp_path_factory.mktemp("lucene") / "a.spolia", texts, Analyzer(stem=""))
    expected = Lucene([text.split() for text in texts.values()]).scores(query)
    ranking = BM25(group, top_k=10)(Query(" ".join(query)))
    assert {hit.node.id: hit.score / 2.2 for hit in ranking.hits} == pytest.approx(
        {f"d{number}": score for number, score in expected.items()}, rel=1e-5
    )


@pytest.mark.slow
def test_the_best_ten_on_musique_are_those_of_lucene(shared_datasets: Path, tmp_path: Path) -> None:
    data = DataSet(str(shared_datasets / "musique"))
    passages = {passage.id: f"{passage.title}\n{passage.text}" for passage in data.passages()}
    bm25, analyzer = BM25(store(tmp_path / "musique.spolia", passages)), Analyzer()
    names = list(passages)
    reference = Lucene([analyzer.terms(text) for text in passages.values()])
    same, items = 0, list(data.items())
    for item in items:
        scores = reference.scores(analyzer.terms(item.question))
        best = sorted(scores, key=lambda number: -scores[number])
        found_ids = ids(bm25(Query(item.question)))
        # Equal scores have no order: what was found must score what the best ten score.
        number_of = {names[number]: number for number in best[:200]}
        got = [scores[number_of[name]] if name in number_of else -1.0 for name in found_ids]
        same += got == pytest.approx([scores[number] for number in best[:10]], rel=1e-6)
    assert same >= 0.99 * len(items)


@pytest.mark.slow
def test_equal_scores_do_not_depend_on_when_a_file_came(tmp_path: Path) -> None:
    folder, corpus = tmp_path / "docs", Corpus(str(tmp_path / "notes.spolia"))
    folder.mkdir()
    texts = {f"{number:02}.txt": f"Stone {number} of the wall." for number in range(40)}
    for name, text in texts.items():
        (folder / name).write_text(text)
    sync(folder, corpus)
    few, all_ = BM25(corpus.group(), top_k=7), BM25(corpus.group(), top_k=100)
    previous_ranking = all_(Query("wall"))
    assert len({hit.score for hit in previous_ranking.hits}) == 1
    for name in sorted(texts, reverse=True)[::3]:
        (folder / name).write_text("Something else.")
    sync(folder, corpus)
    assert len(all_(Query("wall")).hits) < len(previous_ranking.hits)
    for name in sorted(texts, reverse=True)[::3]:
        (folder / name).write_text(texts[name])
    sync(folder, corpus)
    assert ids(all_(Query("wall"))) == ids(previous_ranking)
    assert ids(few(Query("wall"))) == ids(previous_ranking)[:7]

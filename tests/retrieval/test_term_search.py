"""Formulas of words, by numbers that follow from them, and beside an oracle that was written for another test."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import FilterError, QueryError, StoreError, WiringError
from spolia.filters import where
from spolia.flow_files.files import dump, load
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.bm25_variants import BM25Variant, FieldedBM25, Variant
from spolia.retrieval.term_counts import Counts, counts_of
from spolia.retrieval.tfidf import TFIDF
from spolia.run import Run
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import Manifest
from spolia.types import Document, Node, Query, Ranking, Span
from tests.cases import check_each
from tests.retrieval.conftest import Stored, store
from tests.retrieval.lucene import Lucene

THREE = {"d1": "stone stone sea", "d2": "stone road", "d3": "sea"}
"""Lengths 3, 2 and 1, the mean is 2; L is 1.375, 1 and 0.625."""
PLAIN = Analyzer(stem="")


def scores(ranking: Ranking) -> dict[str, float]:
    return {hit.node.id: hit.score for hit in ranking.hits}


def ids(ranking: Ranking) -> list[str]:
    return [node.id for node in ranking.nodes]


GOLDENS: Mapping[Variant, Mapping[str, float]] = {
    "lucene": {"d1": math.log(1.6) * 2 / 3.65, "d2": math.log(1.6) * 1 / 2.2},
    "robertson": {"d2": math.log(0.6) * 1 / 2.2, "d1": math.log(0.6) * 2 / 3.65},
    # The idf of stone and sea is ln 0.6 and that of road ln(5/3); a quarter of their mean stands for ln 0.6.
    "okapi": {
        "d2": 0.25 * (2 * math.log(0.6) + math.log(5 / 3)) / 3,
        "d1": 0.25 * (2 * math.log(0.6) + math.log(5 / 3)) / 3 * 4.4 / 3.65,
    },
    "atire": {"d1": math.log(1.5) * 4.4 / 3.65, "d2": math.log(1.5) * 1.0},
    # c = 2 / 1.375 for d1: 2.2 * (c + 0.5) / (1.2 + c + 0.5), and 2.2 * 1.5 / 2.7 for d2
    "bm25l": {"d1": math.log(1.6) * 2.2 * (2 / 1.375 + 0.5) / (1.7 + 2 / 1.375), "d2": math.log(1.6) * 3.3 / 2.7},
    "bm25+": {"d1": math.log(2) * (4.4 / 3.65 + 0.5), "d2": math.log(2) * 1.5},
}


@pytest.mark.parametrize("variant", GOLDENS)
def test_goldens_of_the_variants(stored: Stored, variant: Variant) -> None:
    ranking = BM25Variant(stored(THREE, analyzer=PLAIN), variant)(Query("stone"))
    assert scores(ranking) == pytest.approx(GOLDENS[variant], rel=1e-9)
    assert ids(ranking) == list(GOLDENS[variant])


def test_parameters_count(stored: Stored) -> None:
    group = stored(THREE, analyzer=PLAIN)
    assert scores(BM25Variant(group, "lucene", b=0.0, k1=2.0)(Query("stone"))) == pytest.approx(
        {"d1": math.log(1.6) * 2 / 4, "d2": math.log(1.6) * 1 / 3}
    )
    assert scores(BM25Variant(group, "bm25+", delta=1.0)(Query("stone")))["d2"] == pytest.approx(math.log(2) * 2)
    assert scores(BM25Variant(group, "okapi", epsilon=0.0)(Query("stone"))) == {"d1": 0.0, "d2": 0.0}


def test_a_word_that_is_asked_twice_counts_twice(stored: Stored) -> None:
    group = stored(THREE, analyzer=PLAIN)
    once, twice = (BM25Variant(group)(Query(text)) for text in ("road", "road road"))
    assert scores(twice) == pytest.approx({"d2": 2 * scores(once)["d2"]})


def test_goldens_of_tf_idf(stored: Stored) -> None:
    group = stored(THREE, analyzer=PLAIN)
    common, rare = math.log(4 / 3) + 1, math.log(4 / 2) + 1  # held by two of three nodes, by one
    stone = (1 + math.log(2)) * common
    d1, d2 = math.hypot(stone, common), math.hypot(common, rare)
    assert scores(TFIDF(group)(Query("stone"))) == pytest.approx({"d1": stone / d1, "d2": common / d2}, rel=1e-9)
    assert scores(TFIDF(group)(Query("stone sea unheard"))) == pytest.approx(
        {"d1": (stone + common) / (d1 * math.sqrt(2)), "d2": common / (d2 * math.sqrt(2)), "d3": 1 / math.sqrt(2)}
    )
    raw = TFIDF(group, sublinear=False)(Query("stone"))
    assert scores(raw)["d1"] == pytest.approx(2 / math.sqrt(5))


def store_fields(path: Path, nodes: Mapping[str, tuple[str, str]]) -> NodeGroup:
    """A store of nodes with what stands above them."""
    corpus = Corpus(str(path)).create()
    with corpus.writer() as writer:
        writer.define("chunk", Manifest("chunk", "whole", "test", PLAIN))
        for id, (context, text) in nodes.items():
            document = Document(id, text, uri=f"{id}.txt")
            node = Node(id, text, id, span=Span(0, len(text)), uri=document.uri, context=context)
            writer.put_document(document, [node], SourceRow(document.uri, content_hash=id))
    return corpus.group()


TITLED = {"a": ("stone", "sea sea"), "b": ("road", "stone sea"), "c": ("", "hill wood")}
"""Titles have lengths 1, 1, 0, their mean is 2/3; each text has two words."""


def test_goldens_of_fields_together(tmp_path: Path) -> None:
    group = store_fields(tmp_path / "a.spolia", TITLED)
    idf = math.log(1 + 1.5 / 2.5)  # two of three hold it in some field
    title = 1.25 / (0.25 + 0.75 * 1 / (2 / 3))
    expected = {"a": idf * title / (1.2 + title), "b": idf * 1 / (1.2 + 1)}
    ranking = FieldedBM25(group)(Query("stone"))
    assert scores(ranking) == pytest.approx(expected, rel=1e-9)
    heavy = FieldedBM25(group, (("context", 5.0), ("text", 1.0)), b=(("context", 0.0), ("text", 0.0)))
    assert scores(heavy(Query("stone"))) == pytest.approx({"a": idf * 5 / 6.2, "b": idf / 2.2}, rel=1e-9)


def test_goldens_of_the_best_field(tmp_path: Path) -> None:
    group = store_fields(tmp_path / "a.spolia", TITLED)
    idf = math.log(1 + 2.5 / 1.5)  # one of three holds it in the title, one in the text
    expected = {"b": idf / 2.2, "a": 1.25 * idf / (1 + 1.2 * (0.25 + 0.75 * 1.5))}
    ranking = FieldedBM25(group, combine="best")(Query("stone"))
    assert scores(ranking) == pytest.approx(expected, rel=1e-9)
    assert ids(ranking) == ["a", "b"]


def test_a_field_of_weight_0_is_not_looked_at(tmp_path: Path) -> None:
    group = store_fields(tmp_path / "a.spolia", TITLED)
    for combine in ("together", "best"):
        only = FieldedBM25(group, (("context", 0.0), ("text", 1.0)), combine)
        assert ids(only(Query("stone"))) == ["b"]


words = st.lists(st.sampled_from(["stone", "old", "tower", "sea", "red", "of"]), min_size=1, max_size=20)


@pytest.mark.slow
@settings(max_examples=15)
@given(documents=st.lists(words, min_size=1, max_size=8), query=words)
def test_exact_lengths_give_the_scores_of_lucene(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[str]], query: list[str]
) -> None:
    texts = {f"d{number}": " ".join(terms) + f" {number}" for number, terms in enumerate(documents)}
    group = store(tmp_path_factory.mktemp("terms") / "a.spolia", texts, PLAIN)
    expected = Lucene([text.split() for text in texts.values()]).scores(query)
    asked_query = Query(" ".join(query))
    for op in (BM25Variant(group), FieldedBM25(group), FieldedBM25(group, (("context", 1.0), ("text", 1.0)), "best")):
        assert scores(op(asked_query)) == pytest.approx(
            {f"d{number}": score for number, score in expected.items()}, rel=1e-9
        )
    assert set(scores(TFIDF(group)(asked_query))) == set(scores(BM25Variant(group)(asked_query)))


def rank_bm25(documents: list[list[str]], query: list[str]) -> list[float]:
    """What the package rank_bm25 computes (BM25Okapi with its defaults), in plain words, of every document."""
    k1, b, epsilon, count = 1.5, 0.75, 0.25, len(documents)
    mean = sum(map(len, documents)) / count
    document_counts = {
        term: sum(term in document for document in documents) for document in documents for term in document
    }
    idf = {term: math.log(count - holding + 0.5) - math.log(holding + 0.5) for term, holding in document_counts.items()}
    floor = epsilon * sum(idf.values()) / len(idf)
    return [
        sum(
            (weight if (weight := idf.get(term, 0.0)) >= 0 else floor)
            * document.count(term)
            * (k1 + 1)
            / (document.count(term) + k1 * (1 - b + b * len(document) / mean))
            for term in query
        )
        for document in documents
    ]


@pytest.mark.slow
@settings(max_examples=30)
@given(documents=st.lists(words, min_size=1, max_size=8), query=words)
def test_okapi_gives_the_scores_of_rank_bm25(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[str]], query: list[str]
) -> None:
    own = [[*terms, str(number)] for number, terms in enumerate(documents)]
    group = store(
        tmp_path_factory.mktemp("okapi") / "a.spolia", {f"d{n}": " ".join(d) for n, d in enumerate(own)}, PLAIN
    )
    found_scores = scores(BM25Variant(group, "okapi", k1=1.5)(Query(" ".join(query))))
    expected = rank_bm25(own, query)
    assert set(found_scores) == {f"d{number}" for number, terms in enumerate(own) if set(terms) & set(query)}
    for id, score in found_scores.items():
        assert score == pytest.approx(expected[int(id[1:])], rel=1e-9, abs=1e-9)


EVERY: Mapping[str, Callable[[NodeGroup], BM25Variant | TFIDF | FieldedBM25]] = {
    "BM25Variant": lambda group: BM25Variant(group),
    "robertson": lambda group: BM25Variant(group, "robertson"),
    "TFIDF": lambda group: TFIDF(group),
    "FieldedBM25": lambda group: FieldedBM25(group),
}


@pytest.mark.parametrize("kind", EVERY)
def test_what_shares_no_term_is_not_found_and_what_does_is(stored: Stored, kind: str) -> None:
    op = EVERY[kind](stored(THREE, analyzer=PLAIN))
    assert set(ids(op(Query("stone")))) == {"d1", "d2"}
    assert ids(op(Query("unheard"))) == []
    assert ids(op(Query("!?"))) == []
    assert len(op.but(top_k=1)(Query("stone sea"))) == 1
    with pytest.raises(QueryError, match="empty"):
        op(Query(" "))


@pytest.mark.parametrize("kind", EVERY)
def test_equal_scores_go_by_the_id(stored: Stored, kind: str) -> None:
    op = EVERY[kind](stored(dict.fromkeys("zxya", "stone") | {"w": "sea"}, analyzer=PLAIN))
    assert ids(op(Query("stone"))) == ["a", "x", "y", "z"]
    assert ids(op.but(top_k=2)(Query("stone"))) == ["a", "x"]


@pytest.mark.parametrize("kind", EVERY)
def test_a_filter_changes_no_score_and_hidden_nodes_count_for_nothing(stored: Stored, kind: str) -> None:
    op = EVERY[kind](stored(THREE, analyzer=PLAIN, readers={"d1": ("ann",)}))
    assert ids(op(Query("stone"))) == ["d2"]
    with Run(principal="ann"):
        unfiltered_scores = scores(op(Query("stone")))
        assert set(unfiltered_scores) == {"d1", "d2"}
        assert scores(op(Query("stone", filter=where(file_name="d1.txt")))) == {"d1": unfiltered_scores["d1"]}
    visible = EVERY[kind](stored({"d2": THREE["d2"], "d3": THREE["d3"]}, analyzer=PLAIN))
    assert scores(op(Query("stone"))) == scores(visible(Query("stone"))) != {"d2": unfiltered_scores["d2"]}
    with pytest.raises(FilterError):
        op(Query("stone", filter=where(nowhere=1)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVERY)
def test_another_generation_is_counted_anew(tmp_path: Path, kind: str) -> None:
    group = store(tmp_path / "a.spolia", THREE, PLAIN)
    op = EVERY[kind](group)
    previous_scores = scores(op(Query("road")))
    with group.corpus.writer() as writer:
        document = Document("d4", "road road road", uri="d4.txt")
        node = Node("d4", document.text, "d4", span=Span(0, len(document.text)), uri=document.uri)
        writer.put_document(document, [node], SourceRow(document.uri, content_hash="d4"))
    later_scores = scores(op(Query("road")))
    assert set(later_scores) == {"d2", "d4"}
    assert later_scores["d2"] != previous_scores["d2"]
    with group.corpus.writer() as writer:
        writer.remove("d4.txt")
    assert scores(op(Query("road"))) == previous_scores


def test_an_empty_store_finds_nothing(stored: Stored) -> None:
    group = stored({})
    for make_search in EVERY.values():
        assert make_search(group)(Query("stone")).hits == ()


def test_a_group_that_is_not_there_is_an_error(stored: Stored) -> None:
    with pytest.raises(StoreError, match="no node group 'other'"):
        TFIDF(stored(THREE).corpus.group("other"))(Query("x"))


def test_counts_are_those_of_the_index(stored: Stored) -> None:
    group = stored({"a": "The stones of Rome", "b": "A stone", "c": "東京タワー"})
    snapshot = group.snapshot()
    counts = counts_of(snapshot, group.name, frozenset())
    assert counts is counts_of(snapshot, group.name, frozenset())
    for text in ("stones", "rome", "東京"):
        counted_keys = {
            int(counts.keys[position]) for term in Analyzer().terms(text) for position in counts.find_term(term)[0]
        }
        assert counted_keys == {key for key, _ in snapshot.search(group.name, text, 10, frozenset())}


def test_counts_of_nothing() -> None:
    import numpy as np

    nothing = Counts.from_terms(np.zeros(0, np.int64), [])
    assert nothing.find_term("stone")[0].tolist() == []
    assert nothing.mean_length == 1.0


@check_each(
    "wrong",
    [
        lambda group: BM25Variant(group, "bm26"),  # type: ignore[arg-type]
        lambda group: BM25Variant(group, k1=0.0),
        lambda group: BM25Variant(group, b=1.5),
        lambda group: BM25Variant(group, delta=-1.0),
        lambda group: BM25Variant(group, top_k=0),
        lambda group: FieldedBM25(group, (("title", 1.0), ("text", 1.0))),
        lambda group: FieldedBM25(group, (("context", 0.0), ("text", 0.0))),
        lambda group: FieldedBM25(group, combine="sum"),  # type: ignore[arg-type]
        lambda group: FieldedBM25(group, b=(("context", 2.0), ("text", 0.0))),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Callable[[NodeGroup], object]) -> None:
    with pytest.raises(WiringError):
        wrong(Corpus("nowhere.spolia").group())


def test_they_are_written_and_read() -> None:
    group = Corpus("nowhere.spolia").group()
    for op in (
        TFIDF(group, 3, sublinear=False),
        BM25Variant(group, "bm25l", 1.5, 0.6, 0.4),
        FieldedBM25(group, (("context", 2.0), ("text", 1.0)), "best"),
        BM25(group),
    ):
        assert load(dump(op)) == op

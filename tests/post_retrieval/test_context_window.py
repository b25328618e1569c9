"""What stands around a hit: as hits of its own, or as one stretch of the document."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.operator import Operator
from spolia.errors import WiringError
from spolia.filters import Field, where
from spolia.generation.reader import Reader
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.post_retrieval.context_window import Neighbours, SentenceWindow
from spolia.post_retrieval.mmr import MMR
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Hit, Node, Query, Ranking
from tests.group_fixtures import Cut, Source, store_texts

GROUPS = {"sentence": Definition(Cut(";"))}
TEXTS = {"a": ";".join(f"a{n}" for n in range(1, 13)), "b": "b1;b2;b3"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return store_texts(tmp_path_factory.mktemp("around") / "s.spolia", TEXTS, GROUPS)


def ranking(corpus: Corpus, *found: tuple[str, float]) -> Ranking:
    nodes = {node.text: node for node in corpus.snapshot().all_nodes("sentence", frozenset({"ann"}))}
    return Ranking(Query("which"), tuple(Hit(nodes[text], score) for text, score in found), "test")


def texts(ranking: Ranking) -> list[str]:
    return [node.text for node in ranking.nodes]


# -------------------------------------------------------------------------------------------------------- neighbours


@pytest.mark.slow
def test_neighbours_come_with_less_than_the_hit_s_score(corpus: Corpus) -> None:
    widened = Neighbours(corpus, before=1, after=2, decay=0.5)(ranking(corpus, ("a5", 8.0)))
    assert [(hit.node.text, hit.score) for hit in widened.hits] == [
        ("a5", 8.0),
        ("a4", 4.0),
        ("a6", 4.0),
        ("a7", 2.0),
    ]
    negative = Neighbours(corpus, before=1, after=0, decay=0.5)(ranking(corpus, ("a5", -8.0)))
    assert [(hit.node.text, hit.score) for hit in negative.hits] == [("a5", -8.0), ("a4", -12.0)]


def test_the_first_and_the_last_of_a_document_have_none_beyond(corpus: Corpus) -> None:
    assert set(texts(Neighbours(corpus)(ranking(corpus, ("a12", 2.0), ("b1", 1.0))))) == {"a11", "a12", "b1", "b2"}


@dataclass(frozen=True)
class Far(HashingEmbedder):
    """Places `a4`, `a5`, `a6` at 53, 90 and 0 degrees of any query."""

    dimension: int = 2

    def embed(self, texts: Sequence[str], *, kind: str) -> Any:
        vectors = {"a4": (0.6, 0.8), "a5": (0.0, 1.0), "a6": (1.0, 0.0)}
        return np.array([vectors[text] if kind == "passage" else (1.0, 0.0) for text in texts], np.float32)


def test_scored_anew_by_cosine_as_autorag_does(corpus: Corpus) -> None:
    flow = Neighbours(corpus) >> MMR(Far(), relevance=1.0, top_k=2)
    widened = flow(ranking(corpus, ("a5", 8.0)))
    assert [(hit.node.text, round(hit.score, 6)) for hit in widened.hits] == [("a6", 1.0), ("a4", 0.6)]


def test_one_direction_and_a_limit(corpus: Corpus) -> None:
    assert texts(Neighbours(corpus, before=2, after=0)(ranking(corpus, ("a5", 1.0)))) == ["a5", "a4", "a3"]
    assert texts(Neighbours(corpus, before=2, after=2, top_k=2)(ranking(corpus, ("a5", 1.0)))) == ["a5", "a4"]


def test_what_is_reached_twice_or_found_comes_once_with_its_best_score(corpus: Corpus) -> None:
    widened = Neighbours(corpus, decay=0.5)(ranking(corpus, ("a5", 8.0), ("a6", 6.0), ("a8", 1.0)))
    assert [(hit.node.text, hit.score) for hit in widened.hits] == [
        ("a5", 8.0), ("a6", 6.0), ("a4", 4.0), ("a7", 3.0), ("a8", 1.0), ("a9", 0.5),
    ]  # fmt: skip


def test_scores_that_are_none_come_last_and_infinite_ones_stay_in_order(corpus: Corpus) -> None:
    odd = ranking(corpus, ("a2", math.nan), ("a6", 1.0), ("a10", math.inf), ("b2", 3.0))
    widened = Neighbours(corpus, decay=0.5)(odd)
    assert texts(widened)[:9] == ["a10", "a9", "a11", "b2", "b1", "b3", "a6", "a5", "a7"]
    assert [hit.score for hit in widened.hits[:9]] == [math.inf] * 3 + [3.0, 1.5, 1.5, 1.0, 0.5, 0.5]
    assert texts(SentenceWindow(corpus, before=1, after=1)(odd)) == ["a9;a10;a11", "b1;b2;b3", "a5;a6;a7", "a1;a2;a3"]


def test_a_node_without_a_number_stays_alone(corpus: Corpus) -> None:
    hit = Hit(Node("x", "x", "a", "sentence"), 1.0)
    assert Neighbours(corpus)(Ranking(Query("x"), (hit,))).hits == (hit,)


@pytest.mark.slow
@settings(max_examples=100)
@given(data=st.data(), before=st.integers(0, 3), after=st.integers(1, 3), decay=st.floats(0, 1))
def test_hits_stay_and_no_more_is_added_than_stands_beside_them(
    corpus: Corpus, data: st.DataObject, before: int, after: int, decay: float
) -> None:
    names = data.draw(st.lists(st.sampled_from(";".join(TEXTS.values()).split(";")), unique=True, max_size=10))
    hits = ranking(corpus, *((name, data.draw(st.floats(-3, 3))) for name in names))
    widened = Neighbours(corpus, before, after, decay)(hits)
    assert len(widened) <= len(names) * (1 + before + after)
    assert len(set(texts(widened))) == len(widened)
    scores = {hit.node.text: hit.score for hit in widened.hits}
    for hit in hits.hits:
        assert scores[hit.node.text] >= hit.score
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    assert max(scores.values(), default=0) == max((hit.score for hit in hits.hits), default=0)


# ------------------------------------------------------------------------------------------------------------ window


def test_a_window_is_the_text_around_a_hit_and_is_cited_by_it(corpus: Corpus) -> None:
    (hit,) = SentenceWindow(corpus, before=1, after=2)(ranking(corpus, ("a5", 8.0))).hits
    assert (hit.node.text, hit.score) == ("a4;a5;a6;a7", 8.0)
    assert hit.node.span is not None
    assert TEXTS["a"][hit.node.span.start : hit.node.span.end] == hit.node.text
    assert [node.text for node in hit.found] == ["a5"]
    answer = Reader(ScriptedModel(("It is [1].",)))(Ranking(Query("which"), (hit,)))
    assert [(citation.quote, citation.node) for citation in answer.citations] == [("a5", hit.found[0].id)]
    assert corpus.snapshot().node(hit.node.id, frozenset()).text == "a5"


def test_windows_that_overlap_or_touch_become_one(corpus: Corpus) -> None:
    widened = SentenceWindow(corpus, before=1, after=1)(ranking(corpus, ("a2", 2.0), ("a10", 3.0), ("a5", 4.0)))
    assert [(hit.node.text, hit.score) for hit in widened.hits] == [
        ("a1;a2;a3;a4;a5;a6", 4.0),
        ("a9;a10;a11", 3.0),
    ]
    assert [[node.text for node in hit.found] for hit in widened.hits] == [["a5", "a2"], ["a10"]]


def test_windows_do_not_cross_documents(corpus: Corpus) -> None:
    widened = SentenceWindow(corpus)(ranking(corpus, ("a12", 2.0), ("b1", 1.0)))
    assert texts(widened) == ["a9;a10;a11;a12", "b1;b2;b3"]


def test_a_window_tells_pages_and_lines_from_its_first_to_its_last(tmp_path: Path) -> None:
    corpus = store_texts(tmp_path / "s.spolia", {"a": "one\n;two\n;three\n;four"}, GROUPS)
    (hit,) = SentenceWindow(corpus, before=1, after=1)(ranking(corpus, ("two\n", 1.0))).hits
    assert hit.node.span is not None
    assert hit.node.span.lines == (1, 3)


def test_hits_that_were_written_stay_as_they_are(corpus: Corpus) -> None:
    hit = Hit(Node("x", "a summary", "a", "sentence", number=2), 9.0)
    cut = ranking(corpus, ("a5", 8.0)).hits
    widened = SentenceWindow(corpus, before=0, after=1)(Ranking(Query("x"), (*cut, hit)))
    assert widened.hits[0] == hit
    assert texts(widened) == ["a summary", "a5;a6"]


@pytest.mark.slow
@settings(max_examples=100)
@given(data=st.data(), before=st.integers(0, 3), after=st.integers(1, 3))
def test_windows_are_exact_disjoint_and_hold_every_hit_once(
    corpus: Corpus, data: st.DataObject, before: int, after: int
) -> None:
    names = data.draw(st.lists(st.sampled_from(";".join(TEXTS.values()).split(";")), unique=True, max_size=8))
    hits = ranking(corpus, *((name, data.draw(st.floats(-3, 3))) for name in names))
    widened = SentenceWindow(corpus, before, after)(hits)
    covered: list[str] = []
    for hit in widened.hits:
        span = hit.node.span
        assert span is not None
        assert TEXTS[hit.node.document][span.start : span.end] == hit.node.text
        inside = hit.node.text.split(";")
        covered += inside
        assert hit.score == max(h.score for h in hits.hits if h.node.text in inside)
    assert set(names) <= set(covered)
    assert len(covered) == len(set(covered))
    expected = {text for name in names for text in _around(name, before, after)}
    assert set(covered) == expected


def _around(name: str, before: int, after: int) -> list[str]:
    all_ = TEXTS[name[0]].split(";")
    position = all_.index(name)
    return all_[max(0, position - before) : position + after + 1]


# ------------------------------------------------------------------------------------------------- access and filters


def operators(corpus: Corpus) -> list[Operator[Ranking, Ranking]]:
    return [Neighbours(corpus, 3, 3), SentenceWindow(corpus, 3, 3)]


@pytest.mark.parametrize("number", [0, 1])
def test_the_way_ends_at_what_may_not_be_read(tmp_path: Path, number: int) -> None:
    corpus = store_texts(tmp_path / "s.spolia", TEXTS, GROUPS, secret={"a:sentence:6": ("ann",)})
    flow = operators(corpus)[number]
    hits = ranking(corpus, ("a5", 8.0))
    assert set(";".join(texts(flow(hits))).split(";")) == {"a2", "a3", "a4", "a5"}
    with Run(principal="ann"):
        assert set(";".join(texts(flow(hits))).split(";")) == {f"a{n}" for n in range(2, 9)}


@pytest.mark.parametrize("number", [0, 1])
def test_the_way_ends_at_what_the_filters_do_not_let_be_found(tmp_path: Path, number: int) -> None:
    text = "one kind=x;two kind=x;three kind=y;four kind=x"
    corpus = store_texts(tmp_path / "s.spolia", {"a": text}, GROUPS, fields=(Field("kind"),))
    flow = operators(corpus)[number]
    hits = ranking(corpus, ("one kind=x", 8.0))
    assert "four" in "".join(texts(flow(hits)))
    filtered_ranking = hits.but(query=hits.query.but(filter=where(kind="x")))
    assert set(";".join(texts(flow(filtered_ranking))).split(";")) == {"one kind=x", "two kind=x"}
    with Run(filter=where(kind="x")):
        assert set(";".join(texts(flow(hits))).split(";")) == {"one kind=x", "two kind=x"}


def test_a_document_that_may_not_be_read_gives_no_stretch(tmp_path: Path) -> None:
    everybody = {f"a:sentence:{n}": ("guest",) for n in (1, 2)}
    corpus = store_texts(tmp_path / "s.spolia", {"a": Source("a1;a2;a3", ("ann",))}, GROUPS, secret=everybody)
    with Run(principal="guest"):
        node = corpus.snapshot().node("a:sentence:1", frozenset({"guest"}))
        hits = Ranking(Query("which"), (Hit(node, 1.0),))
        assert texts(SentenceWindow(corpus)(hits)) == ["a1"]
        assert texts(Neighbours(corpus)(hits)) == ["a1", "a2"]


def test_bad_numbers_are_refused(corpus: Corpus) -> None:
    for bad in (
        lambda: Neighbours(corpus, before=-1),
        lambda: Neighbours(corpus, before=0, after=0),
        lambda: Neighbours(corpus, decay=1.5),
        lambda: Neighbours(corpus, top_k=0),
        lambda: SentenceWindow(corpus, after=-1),
        lambda: SentenceWindow(corpus, before=0, after=0),
        lambda: SentenceWindow(corpus, top_k=0),
    ):
        with pytest.raises(WiringError):
            bad()

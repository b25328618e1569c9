"""Small nodes are found, large ones shown: once each, best first, cited where they were found."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import StoreError, WiringError
from spolia.filters import Field, where
from spolia.generation.extract import Extract
from spolia.generation.reader import Reader
from spolia.indexing.splitters.text_units import Sentences
from spolia.indexing.transforms.text_enrichment import HypotheticalQuestions
from spolia.journal import Runs
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.orchestration.rank_fusion import ReciprocalRankFusion
from spolia.post_retrieval.context_window import Mapped
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Piece
from spolia.types import Hit, Node, Query, Ranking, Span
from tests.group_fixtures import GROUPS, Cut, Source, store_texts

TEXTS = {
    "a": "One is here;Two is here;|Three is here;Four is here;\nFive is here;|Six is here;",
    "b": "Seven is here;|Eight is here;Nine is here;",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return store_texts(tmp_path_factory.mktemp("mapped") / "s.spolia", TEXTS)


def ranking(corpus: Corpus, *found: tuple[str, float], query: str = "here") -> Ranking:
    snapshot = corpus.snapshot()
    return Ranking(Query(query), tuple(Hit(snapshot.node(id, frozenset()), score) for id, score in found), "test")


def ids_and_scores(ranking: Ranking) -> list[tuple[str, float]]:
    return [(hit.node.id, hit.score) for hit in ranking.hits]


@pytest.mark.slow
def test_two_children_of_one_parent_give_it_once_with_the_better_score(corpus: Corpus) -> None:
    small_hits = ranking(
        corpus, ("b:sentence:3", 3.0), ("a:sentence:4", 2.0), ("b:sentence:2", 1.0), ("a:sentence:3", 0.5)
    )
    assert ids_and_scores(Mapped(corpus.group("chunk"))(small_hits)) == [("b:chunk:2", 3.0), ("a:chunk:2", 2.0)]
    assert ids_and_scores(Mapped(corpus.group("chunk"), top_k=1)(small_hits)) == [("b:chunk:2", 3.0)]


@pytest.mark.slow
def test_a_score_that_is_none_comes_last(corpus: Corpus) -> None:
    small_hits = ranking(corpus, ("a:sentence:1", math.nan), ("b:sentence:1", 1.0), ("a:sentence:5", 3.0))
    assert [node.id for node in Mapped(corpus.group("chunk"))(small_hits).nodes] == [
        "a:chunk:3",
        "b:chunk:1",
        "a:chunk:1",
    ]


def test_several_levels_up_to_the_whole_document(corpus: Corpus) -> None:
    small_hits = ranking(corpus, ("a:sentence:6", 2.0), ("b:chunk:1", 1.0))
    assert ids_and_scores(Mapped(corpus.group("section"))(small_hits)) == [("a:section:2", 2.0), ("b:section:1", 1.0)]
    documents = Mapped(corpus.group("document"))(small_hits)
    assert ids_and_scores(documents) == [("a", 2.0), ("b", 1.0)]
    assert documents.nodes[0].text == TEXTS["a"]


def test_down_to_what_was_made_of_it_in_the_order_of_the_text(corpus: Corpus) -> None:
    small_hits = ranking(corpus, ("b:chunk:2", 2.0), ("a:section:2", 1.0))
    assert ids_and_scores(Mapped(corpus.group("sentence"))(small_hits)) == [
        ("b:sentence:2", 2.0), ("b:sentence:3", 2.0), ("a:sentence:5", 1.0), ("a:sentence:6", 1.0),
    ]  # fmt: skip


def test_a_group_mapped_to_itself_is_as_it_was(corpus: Corpus) -> None:
    small_hits = ranking(corpus, ("b:chunk:2", 2.0), ("a:chunk:1", 1.0))
    assert Mapped(corpus.group("chunk"))(small_hits) == small_hits


@pytest.mark.slow
def test_up_to_the_common_ancestor_and_down_again(tmp_path: Path) -> None:
    groups = GROUPS | {"word": Definition(Cut(" "), parent="chunk")}
    corpus = store_texts(tmp_path / "s.spolia", {"a": "red cat;blue cat|green dog"}, groups)
    words = Mapped(corpus.group("word"))(ranking(corpus, ("a:sentence:2", 1.0)))
    assert [node.text for node in words.nodes] == ["red", "cat;blue", "cat"]


@pytest.mark.slow
def test_by_span_what_overlaps_is_shown_however_it_was_made(tmp_path: Path) -> None:
    groups = {"line": Definition(Cut("\n")), "half": Definition(Cut("|"))}
    corpus = store_texts(tmp_path / "s.spolia", {"a": "one\ntwo|three\nfour", "b": "one\ntwo"}, groups)
    small_hits = ranking(corpus, ("a:line:2", 2.0), ("a:line:3", 1.0))
    by_span = Mapped(corpus.group("half"), by="span")(small_hits)
    assert ids_and_scores(by_span) == [("a:half:1", 2.0), ("a:half:2", 2.0)]
    assert [[node.id for node in hit.found] for hit in by_span.hits] == [[], ["a:line:3"]]
    assert [node.id for node in Mapped(corpus.group("document"), by="span")(small_hits).nodes] == ["a"]


def test_citations_point_to_what_was_found_not_to_what_was_shown(corpus: Corpus) -> None:
    small_hits = BM25(corpus.group("sentence"), top_k=2)(Query("four eight"))
    parents = Mapped(corpus.group("section"))(small_hits)
    answer = Reader(ScriptedModel(("It is [1], or else [2].",)))(parents)
    assert [citation.quote for citation in answer.citations] == [node.text for node in small_hits.nodes]
    for citation in answer.citations:
        assert citation.span is not None
        assert TEXTS[citation.document][citation.span.start : citation.span.end] == citation.quote


def test_a_passage_in_which_two_were_found_has_two_citations(corpus: Corpus) -> None:
    small_hits = ranking(corpus, ("a:sentence:3", 2.0), ("a:sentence:1", 1.0))
    answer = Reader(ScriptedModel(("So it is [1].",)))(Mapped(corpus.group("section"))(small_hits))
    assert [(c.marker, c.node) for c in answer.citations] == [("1", "a:sentence:3"), ("1", "a:sentence:1")]


def test_the_reader_is_shown_the_large_node(corpus: Corpus) -> None:
    reader = Reader(ScriptedModel(("",)))
    prompt = reader.build_prompt(Mapped(corpus.group("section"))(ranking(corpus, ("a:sentence:3", 2.0))))
    assert TEXTS["a"].partition("\n")[0] in prompt.text


def test_an_extract_of_the_large_node_quotes_within_the_small_one(tmp_path: Path) -> None:
    text = "Ships wait in the harbour. The tide is caused by the pull of the moon. Taxes are due in May."
    corpus = store_texts(tmp_path / "s.spolia", {"a": text}, {"sentence": Definition(Sentences())})
    small_hits = BM25(corpus.group("sentence"), top_k=1)(Query("What causes the tide?"))
    (citation, *_) = Extract(words=10)(Mapped(corpus.group("document"))(small_hits)).citations
    child = small_hits.nodes[0].span
    assert citation.span is not None
    assert child is not None
    assert child.start <= citation.span.start
    assert citation.span.end <= child.end


def test_what_was_found_outlives_a_second_mapping_and_a_fusion(corpus: Corpus) -> None:
    small_hits = ranking(corpus, ("a:sentence:3", 2.0))
    twice = (Mapped(corpus.group("chunk")) >> Mapped(corpus.group("section")))(small_hits)
    fused = ReciprocalRankFusion()((twice, ranking(corpus, ("b:section:1", 1.0))))
    assert {hit.node.id: [node.id for node in hit.found] for hit in fused.hits} == {
        "a:section:1": ["a:sentence:3"], "b:section:1": [],
    }  # fmt: skip


def test_a_cached_answer_cites_what_this_question_found(corpus: Corpus) -> None:
    from spolia.journal import Cache

    flow = Mapped(corpus.group("section")) >> Reader(ScriptedModel(("It is [1].",)))
    cache = Cache()
    for id in ("a:sentence:3", "a:sentence:1", "a:sentence:3"):
        with Run(cache=cache):
            assert [citation.node for citation in flow(ranking(corpus, (id, 2.0))).citations] == [id]


# ------------------------------------------------------------------------------------------------- access and filters


@pytest.mark.slow
def test_what_may_not_be_read_is_neither_shown_nor_passed_through(tmp_path: Path) -> None:
    secret = {"a:chunk:1": ("ann",)}
    corpus = store_texts(tmp_path / "s.spolia", TEXTS, secret=secret)
    with Run(principal="ann"):
        small_hits = ranking(corpus, ("b:sentence:1", 1.0))
        small_hits = small_hits.but(
            hits=(Hit(corpus.snapshot().node("a:sentence:1", frozenset({"ann"})), 2.0), *small_hits.hits)
        )
        assert [node.id for node in Mapped(corpus.group("chunk"))(small_hits).nodes] == ["a:chunk:1", "b:chunk:1"]
        assert [node.id for node in Mapped(corpus.group("section"))(small_hits).nodes] == [
            "a:section:1",
            "b:section:1",
        ]
    assert [node.id for node in Mapped(corpus.group("chunk"))(small_hits).nodes] == ["b:chunk:1"]
    assert [node.id for node in Mapped(corpus.group("section"))(small_hits).nodes] == ["b:section:1"]
    down = Mapped(corpus.group("sentence"))(ranking(corpus, ("a:section:1", 1.0)))
    assert [node.id for node in down.nodes] == ["a:sentence:3", "a:sentence:4"]


@pytest.fixture
def marked(tmp_path: Path) -> Corpus:
    texts = {"a": Source("red kind=x;blue kind=y", meta=(("lang", "en"),)), "b": Source("red", meta=(("lang", "de"),))}
    return store_texts(tmp_path / "s.spolia", texts, fields=(Field("kind"), Field("lang")))


@pytest.mark.slow
def test_the_run_s_filter_holds_for_all_that_is_shown(marked: Corpus) -> None:
    small_hits = ranking(marked, ("a:sentence:1", 2.0), ("b:sentence:1", 1.0))
    for group in ("chunk", "document"):
        assert len(Mapped(marked.group(group))(small_hits)) == 2
        with Run(filter=where(lang="en")):
            assert [node.document for node in Mapped(marked.group(group))(small_hits).nodes] == ["a"]


@pytest.mark.slow
def test_the_query_s_filter_holds_for_what_was_found_and_what_is_added_to_it(marked: Corpus) -> None:
    small_hits = ranking(marked, ("a:sentence:1", 2.0))
    filtered_ranking = small_hits.but(query=small_hits.query.but(filter=where(kind="x")))
    assert (
        len(Mapped(marked.group("document"))(filtered_ranking)) == 1
    )  # it holds what was found, and has no kind of its own
    whole = ranking(marked, ("a:chunk:1", 2.0))
    down = Mapped(marked.group("sentence"))(whole.but(query=filtered_ranking.query))
    assert [node.id for node in down.nodes] == ["a:sentence:1"]
    overlapping = Mapped(marked.group("sentence"), by="span")(whole.but(query=filtered_ranking.query))
    assert [node.id for node in overlapping.nodes] == ["a:sentence:1"]


# ------------------------------------------------------------------------------------------------------ reverse HyDE


@pytest.mark.slow
def test_a_planted_question_finds_its_text_first_and_once(tmp_path: Path) -> None:
    model = ScriptedModel(
        (
            ("pull of the moon", "What makes the sea rise?\nWhat makes the sea rise and fall twice a day?"),
            ("taxes", "When must I pay?"),
            ("harbour", "Where do ships wait for the sea?"),
        )
    )
    texts = {"a": "Ships lie in the harbour.|The tide is the pull of the moon.|In May taxes are due."}
    groups = {"chunk": Definition(Cut("|")), "question": Definition(HypotheticalQuestions(model), parent="chunk")}
    corpus = store_texts(tmp_path / "s.spolia", texts, groups)
    small_hits = BM25(corpus.group("question"))(Query("What makes the sea rise?"))
    assert [node.parent for node in small_hits.nodes].count("a:chunk:2") == 2
    mapped = Mapped(corpus.group("chunk"))(small_hits)
    assert [hit.node.text for hit in mapped.hits[:1]] == ["The tide is the pull of the moon."]
    assert [node.id for node in mapped.nodes].count("a:chunk:2") == 1
    assert mapped.hits[0].score == small_hits.hits[0].score
    answer = Reader(ScriptedModel(("By the moon [1].",)))(mapped)
    assert [(c.node, c.quote) for c in answer.citations] == [("a:chunk:2", "The tide is the pull of the moon.")]


def test_a_node_found_by_another_text_is_shown_as_it_is() -> None:
    node = Node("q", "The tide.", "d", span=Span(0, 9), search_text="What rises?")
    assert "The tide." in Reader(ScriptedModel(("",))).build_prompt(Ranking(Query("?"), (Hit(node, 1.0),))).text


# -------------------------------------------------------------------------------------------------------- properties

BY: tuple[Literal["lineage", "span"], ...] = ("lineage", "span")


@pytest.fixture(scope="module")
def all_nodes(corpus: Corpus) -> list[Node]:
    return [node for group in corpus.snapshot().groups() for node in corpus.snapshot().all_nodes(group)]


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data())
def test_every_mapping_shows_each_node_once_with_the_best_score_of_its_hits(
    corpus: Corpus, all_nodes: list[Node], data: st.DataObject
) -> None:
    hits = data.draw(st.lists(st.builds(Hit, st.sampled_from(all_nodes), st.floats(-2, 2)), max_size=8))
    target = data.draw(st.sampled_from(["document", "section", "chunk", "sentence"]))
    by_lineage, by_span = (Mapped(corpus.group(target), by=way)(Ranking(Query("here"), tuple(hits))) for way in BY)
    assert {shown_hit.node.id: shown_hit.score for shown_hit in by_lineage.hits} == dict(
        _expected_scores(hits, by_lineage.nodes)
    )
    # The groups of this store are cut one out of the other, so that both ways lead to the same.
    assert {hit.node.id: hit.score for hit in by_span.hits} == {hit.node.id: hit.score for hit in by_lineage.hits}
    scores = [hit.score for hit in by_lineage.hits]
    assert scores == sorted(scores, reverse=True)
    assert {node.document for node in by_lineage.nodes} == {hit.node.document for hit in hits}


def _expected_scores(hits: list[Hit], nodes: tuple[Node, ...]) -> Iterator[tuple[str, float]]:
    """By the places of the texts alone."""
    for node in nodes:
        yield node.id, max(hit.score for hit in hits if _overlap(hit.node, node))


def _overlap(node: Node, other_node: Node) -> bool:
    assert node.span is not None
    assert other_node.span is not None
    same = node.document == other_node.document
    return same and node.span.start < other_node.span.end and other_node.span.start < node.span.end


def test_bad_wiring_and_foreign_nodes_are_refused(corpus: Corpus) -> None:
    with pytest.raises(WiringError, match="no way by 'page'"):
        Mapped(corpus.group("chunk"), by="page")  # type: ignore[arg-type]
    with pytest.raises(WiringError, match="top_k counts from 1"):
        Mapped(corpus.group("chunk"), top_k=0)
    with pytest.raises(StoreError, match="no node group 'web'"):
        Mapped(corpus.group("chunk"))(Ranking(Query("?"), (Hit(Node("n", "x", group="web"), 1.0),)))


@pytest.mark.slow
def test_pieces_that_were_written_are_not_cited_in_place_of_the_text(tmp_path: Path) -> None:
    from spolia.core.function import step
    from spolia.stores.definition import Part, Pieces

    @step
    def loud(part: Part) -> Pieces:
        return (Piece(part.node.text.upper()[:5]),)

    groups = {"chunk": Definition(Cut("|")), "loud": Definition(loud, parent="chunk")}
    corpus = store_texts(tmp_path / "s.spolia", {"a": "quiet please|hush"}, groups)
    (hit,) = Mapped(corpus.group("chunk"))(BM25(corpus.group("loud"))(Query("QUIET"))).hits
    assert hit.node.text == "quiet please"
    assert hit.found == ()


def test_hits_of_another_corpus_are_told_in_the_trace(corpus: Corpus, tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.db")
    other_corpus = store_texts(tmp_path / "other.spolia", {"c": "Ten is here;"})
    with Run(journal=runs.journal) as run:
        assert not Mapped(other_corpus.group("chunk"))(ranking(corpus, ("a:sentence:1", 1.0))).hits
        assert Mapped(corpus.group("chunk"))(ranking(corpus, ("a:sentence:1", 1.0))).hits
    runs.journal.flush()
    notes = [span.notes for span in runs.journal.spans(run.id)]
    assert notes == [("Nothing of group 'chunk' belongs to the 1 hits, or may be read.",), ()]
    runs.close()

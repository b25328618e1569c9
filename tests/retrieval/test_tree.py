"""Descending a tree of groups: the same as a flat search without a width, and less to compare with one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import ManifestMismatch, QueryError, WiringError
from spolia.filters import Field, where
from spolia.indexing.structure.sections import Sections
from spolia.indexing.structure.topics import ExtractiveSummary
from spolia.journal import Runs
from spolia.models.protocols import Embedder
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense
from spolia.retrieval.tree import Descend
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition
from spolia.testing import HashingEmbedder
from spolia.types import Query, Ranking
from tests.group_fixtures import Cut, Source, store_texts

EMBEDDER = HashingEmbedder(256)
TREE = {
    "section": Definition(Cut("\n")),
    "summary": Definition(ExtractiveSummary(1), parent="section"),
    "chunk": Definition(Cut("|"), parent="section"),
}
SUBJECTS = ("rivers", "taxes", "bridges", "bread")
TEXTS: dict[str, str | Source] = {
    subject: "\n".join(
        f"All about {subject} in {place}. |" + "|".join(f"A word on {subject} of {place}, part {n}." for n in range(4))
        for place in ("Rome", "Oslo", "Bonn")
    )
    for subject in SUBJECTS
}
NEEDLE = "The needle lies under bridges in Oslo."
TEXTS["bridges"] = str(TEXTS["bridges"]).replace("A word on bridges of Oslo, part 2.", NEEDLE)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return store_texts(tmp_path_factory.mktemp("tree") / "s.spolia", TEXTS, TREE, EMBEDDER)


def levels(corpus: Corpus, *names: str) -> Descend:
    return Descend(tuple(corpus.group(name) for name in names or ("summary", "chunk")))


def search_by(embedder: Embedder | None, corpus: Corpus) -> BM25 | Dense:
    return Dense(corpus.group("chunk"), embedder) if embedder else BM25(corpus.group("chunk"))


def ids_and_scores(ranking: Ranking) -> list[tuple[str, float]]:
    return [(hit.node.id, round(hit.score, 9)) for hit in ranking.hits]


QUERIES = st.sampled_from(["needle", "needle under bridges in Oslo", "rivers of Bonn", "part 3", "bread", "zzz"])


@pytest.mark.parametrize("embedder", [None, EMBEDDER], ids=["bm25", "dense"])
@settings(max_examples=30)
@given(text=QUERIES)
def test_without_a_width_it_is_a_flat_search(corpus: Corpus, embedder: Embedder | None, text: str) -> None:
    flat = search_by(embedder, corpus)(Query(text))
    for names in (("summary", "chunk"), ("section", "summary", "chunk")):
        descend = levels(corpus, *names).but(embedder=embedder, width=None)
        assert ids_and_scores(descend(Query(text))) == ids_and_scores(flat)
        assert descend.stages(Query(text))[-1].compared == 60
        assert ids_and_scores(descend.but(width=1000)(Query(text))) == ids_and_scores(flat)


@pytest.mark.parametrize("embedder", [None, EMBEDDER], ids=["bm25", "dense"])
def test_a_needle_in_one_branch_is_found_by_comparing_less(corpus: Corpus, embedder: Embedder | None) -> None:
    query = Query("What lies under bridges in Oslo?")
    descend = levels(corpus).but(embedder=embedder, width=2)
    assert descend(query).nodes[0].text == NEEDLE
    upper_stage, lower_stage = descend.stages(query)
    assert (upper_stage.group, upper_stage.compared, upper_stage.there, len(upper_stage.found)) == (
        "summary",
        12,
        12,
        2,
    )
    assert (lower_stage.group, lower_stage.compared, lower_stage.there) == ("chunk", 10, 60)


def test_the_trace_notes_how_many_were_compared(corpus: Corpus, tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs:
        with Run(journal=runs.journal) as run:
            levels(corpus).but(width=1)(Query("bridges in Oslo"))
        runs.journal.flush()
        (span,) = runs.journal.spans(run.id)
    assert span.notes == ("Of 60 nodes of group 'chunk', 5 were compared with the question.",)


def test_a_level_on_which_nothing_is_found_narrows_nothing(corpus: Corpus) -> None:
    ranking = levels(corpus).but(width=1)(Query("needle"))  # no summary speaks of it
    assert [node.text for node in ranking.nodes] == [NEEDLE]


def test_three_levels_and_a_limit(corpus: Corpus) -> None:
    query = Query("bridges in Oslo")
    three = levels(corpus, "section", "summary", "chunk").but(width=2, top_k=3)
    assert [stage.compared for stage in three.stages(query)] == [12, 2, 10]
    assert len(three(query)) == 3


def test_many_questions_at_once(corpus: Corpus) -> None:
    descend = levels(corpus).but(embedder=EMBEDDER)
    queries = [Query("bridges in Oslo"), Query("bread in Rome")]
    assert descend.batch(queries) == [descend(query) for query in queries]


# ------------------------------------------------------------------------------------------------- access and filters


@pytest.mark.slow
def test_branches_that_may_not_be_read_take_no_room(tmp_path: Path) -> None:
    texts = {**TEXTS, "secret": Source(NEEDLE + " |" + NEEDLE, ("ann",))}
    corpus = store_texts(tmp_path / "s.spolia", texts, TREE)
    descend = levels(corpus).but(width=1)
    query = Query("needle under bridges in Oslo")
    with Run(principal="ann"):
        assert {node.document for node in descend(query).nodes} == {"secret"}
    assert {node.document for node in descend(query).nodes} == {"bridges"}
    assert descend.stages(query)[0].there == 12


@pytest.mark.slow
def test_branches_without_anything_that_a_filter_accepts_take_no_room(tmp_path: Path) -> None:
    texts = {id: Source(str(text), meta=(("lang", "de" if id == "bridges" else "en"),)) for id, text in TEXTS.items()}
    corpus = store_texts(tmp_path / "s.spolia", texts, TREE, fields=(Field("lang"),))
    descend = levels(corpus).but(width=1)
    query = Query("bridges in Oslo")
    assert {node.document for node in descend(query).nodes} == {"bridges"}
    for ranking in (
        descend(query.but(filter=where(lang="en"))),
        descend.but(filter=where(lang="en"))(query),
    ):
        assert ranking.nodes
        assert "bridges" not in {node.document for node in ranking.nodes}
    with Run(filter=where(lang="de")):
        assert {node.document for node in descend(Query("bread in Rome")).nodes} == {"bridges"}


@pytest.mark.slow
def test_a_filter_on_what_only_leaves_have_counts_their_branches(tmp_path: Path) -> None:
    texts = {"a": "Stones here. |old kind=x", "b": "Stones here. Stones. |stones kind=y"}
    groups = {**TREE, "section": Definition(Sections())}
    corpus = store_texts(tmp_path / "s.spolia", texts, groups, fields=(Field("kind"),))
    assert BM25(corpus.group("summary"))(Query("stones old", filter=where(kind="x"))).hits == ()
    ranking = levels(corpus).but(width=1)(Query("stones old", filter=where(kind="x")))
    assert [node.text for node in ranking.nodes] == ["old kind=x"]


# ------------------------------------------------------------------------------------------------------------ errors


def test_bad_wiring_is_refused(corpus: Corpus) -> None:
    with pytest.raises(WiringError, match="two groups of one corpus"):
        levels(corpus, "chunk")
    with pytest.raises(WiringError, match="two groups of one corpus"):
        Descend((corpus.group("summary"), Corpus("other.spolia").group("chunk")))
    for name in ("width", "top_k"):
        with pytest.raises(WiringError, match="counts from 1"):
            levels(corpus).but(**{name: 0})
    with pytest.raises(ManifestMismatch):
        levels(corpus).but(embedder=HashingEmbedder(8))(Query("bridges"))
    with pytest.raises(QueryError):
        levels(corpus)(Query(" "))

"""A fusion fetches the nodes that it may show; what it gives is what it gives of rankings whose hits are all there."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from spolia.core.combinators.branch import Branch
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.core.run_context import call_late
from spolia.evaluation.experiment.score_store import ANSWER, ScoreStore
from spolia.evaluation.measures.measure import Case
from spolia.journal import Runs
from spolia.orchestration.rank_fusion import ConvexCombination, ReciprocalRankFusion
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense
from spolia.run import Run
from spolia.stores.access.reader_lists import Asker
from spolia.stores.corpus import NodeGroup
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.types import Filter, Hit, Item, LateHits, Node, Query, Ranking
from tests.retrieval.conftest import store
from tests.retrieval.test_dense import Words

TEXTS = {f"d{number:02}": f"a {what} in town {number % 7}" for number in range(40) for what in [
    ("tower", "museum", "harbour")[number % 3]
]}  # fmt: skip
ASKED = Query("the museum in town 3")
ANN = ["ann"]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> NodeGroup:
    readers = {f"d{number:02}": ("ann",) for number in range(0, 40, 5)}
    return store(tmp_path_factory.mktemp("late") / "a.spolia", TEXTS, embedder=Words(), readers=readers)


@pytest.fixture
def fetched_counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many nodes each fetching of some asked for."""
    counts: list[int] = []
    plain = Snapshot._readable

    def count_keys(self: Snapshot, keys: Sequence[int], principals: Asker) -> list[tuple[int, Node]]:
        counts.append(len(keys))
        return plain(self, keys, principals)

    monkeypatch.setattr(Snapshot, "_readable", count_keys)
    return counts


def arms(group: NodeGroup) -> Branch[Query, Ranking]:
    return Branch(BM25(group, 30), Dense(group, Words(), 30))


def late_ranking(group: NodeGroup, query: Query = ASKED) -> Ranking:
    search = BM25(group, 30)
    ranking = call_late(search, query, search.late_searches())
    assert ranking.late_hits is not None
    return ranking


def test_equal_scores_that_come_in_another_order_than_their_ids_go_by_id(tmp_path: Path) -> None:
    backwards = store(tmp_path / "b.spolia", dict(reversed(TEXTS.items())))
    for top_k in (1, 2, 9, 30):
        search = BM25(backwards, top_k)
        ranking = call_late(search, ASKED, search.late_searches())
        assert ranking.late_hits is not None
        assert ranking.hits == search(ASKED).hits
    assert len({hit.score for hit in ranking.hits}) < len(ranking.hits)


FUSIONS: list[Operator[Sequence[Ranking], Ranking]] = [
    ReciprocalRankFusion(top_k=5),
    ConvexCombination((("bm25", 0.5), ("dense", 0.5)), "z-score", 5),
    ConvexCombination((("bm25", 1.0), ("dense", 0.0)), "min-max", 5),
    ReciprocalRankFusion(top_k=500),
]


@pytest.mark.parametrize("fuse", FUSIONS, ids=repr)
def test_a_chain_gives_what_its_steps_give_one_by_one(
    group: NodeGroup, fuse: Operator[Sequence[Ranking], Ranking]
) -> None:
    for principals in ([], ANN):
        with Run(groups=principals):
            for text in ("the museum in town 3", "a tower", "town", "harbour 5", "nothing of it"):
                searches, query = arms(group), Query(text)
                plain, chained = fuse(searches(query)), (searches >> fuse)(query)
                assert chained == plain
                assert [hit.parts for hit in chained.hits] == [hit.parts for hit in plain.hits]
                assert chained.digest == plain.digest


def test_a_fusion_fetches_what_it_shows_in_one_call(group: NodeGroup, fetched_counts: list[int]) -> None:
    flow = arms(group) >> ConvexCombination((("bm25", 0.5), ("dense", 0.5)), "z-score", 3)
    assert len(flow(ASKED)) == 3
    assert len(fetched_counts) == 1
    assert fetched_counts[0] < 12


def test_a_chain_inside_an_arm_may_be_late_too(group: NodeGroup, fetched_counts: list[int]) -> None:
    @step
    def asked(query: Query) -> Query:
        return query

    flow = Branch(asked >> BM25(group, 30), Dense(group, Words(), 30)) >> ReciprocalRankFusion(top_k=1)
    assert len(flow(ASKED)) == 1
    assert len(fetched_counts) == 1


def test_a_step_of_yours_gets_hits_wherever_it_stands(group: NodeGroup) -> None:
    has_hits: list[bool] = []

    @step
    def best(ranking: Ranking) -> Ranking:
        has_hits.append("hits" in vars(ranking))
        return ranking.cut(2)

    @dataclass(frozen=True)
    class Mine(BM25):
        def hits(
            self, query: Query, snapshot: Snapshot, who: frozenset[str], wanted: Filter | None, /
        ) -> tuple[Hit, ...] | LateHits:
            new_hits = super().hits(query, snapshot, who, wanted)
            assert isinstance(new_hits, tuple)
            return new_hits[:2]

    flow = Branch(BM25(group, 30) >> best, Mine(group, 30)) >> ReciprocalRankFusion()
    assert len(flow(ASKED)) == 2
    assert has_hits == [True]


def test_a_run_that_keeps_what_steps_give_keeps_hits(group: NodeGroup, tmp_path: Path) -> None:
    flow = arms(group) >> ReciprocalRankFusion(top_k=2)
    with Runs(tmp_path / "runs.db") as runs:
        with Run(journal=runs.journal) as run:
            ranking = flow(ASKED)
        assert runs.journal.flush()
        spans = [span for span in runs.journal.spans(run.id) if span.step in ("BM25", "Dense")]
    assert len(spans) == 2
    assert all(
        span.result.count('["d') == len(searched) for span, searched in zip(spans, arms(group)(ASKED), strict=True)
    )
    assert ranking == flow(ASKED)


def test_a_lane_keeps_late_hits_and_an_experiment_writes_them_without_fetching_them_twice(
    group: NodeGroup, fetched_counts: list[int]
) -> None:
    flow, item = arms(group) >> ReciprocalRankFusion(top_k=2), Item("q", ASKED.text)
    with Run(groups=ANN) as run, ScoreStore() as store:
        for _ in range(2):
            with run.lane() as lane:
                result = flow(ASKED)
            assert all(ranking.late_hits is not None for ranking in lane.retrievals)
            fetched_counts.clear()
            keep(store, Case(item, result, retrievals=tuple(lane.retrievals)))
        assert not fetched_counts
        for row in store.columns(ANSWER):
            case = store.case(row, item)
            assert case.result == result
            # in the order in which they ended
            assert sorted(case.retrievals, key=lambda entry: entry.source) == list(arms(group)(ASKED))


def keep(store: ScoreStore, case: Case) -> None:
    store.write_answer(1, 2, case, usage=case.usage, spent=case.usage)


def test_a_late_ranking_is_as_good_as_another(group: NodeGroup) -> None:
    plain = BM25(group, 30)(ASKED)
    assert late_ranking(group) == plain
    assert late_ranking(group).digest == plain.digest
    assert repr(late_ranking(group)) == repr(plain)
    assert len(late_ranking(group)) == len(plain)
    assert list(late_ranking(group)) == list(plain)
    assert late_ranking(group).cut(3) == plain.cut(3)
    assert late_ranking(group).but(source="other") == plain.but(source="other")
    assert late_ranking(group).but(hits=()) == plain.but(hits=())
    assert pickle.loads(pickle.dumps(late_ranking(group))) == plain
    assert copy.copy(late_ranking(group)) == plain
    with pytest.raises(AttributeError, match="no attribute 'hit'"):
        _ = late_ranking(group).hit  # type: ignore[attr-defined]


def test_a_late_ranking_that_was_read_lets_go_of_its_snapshot(group: NodeGroup) -> None:
    ranking = late_ranking(group)
    assert ranking.hits
    assert vars(ranking).keys() == {"query", "hits", "source", "merged"}


def test_the_text_is_of_the_generation_that_was_asked(tmp_path: Path) -> None:
    group = store(tmp_path / "a.spolia", {"d": "the old text", "e": "another text"})
    ranking = late_ranking(group, Query("text"))
    for number in range(4):
        with group.corpus.writer() as writer:
            (document, *_) = writer.documents()
            (source,) = writer.holders(document.id)
            text = f"the new text {number}"
            new = document.but(id=f"n{number}", text=text)
            writer.put_document(new, [Node(f"n{number}", text, new.id, uri=new.uri)], source.but(document=new.id))
    assert sorted(hit.node.text for hit in ranking.hits) == ["another text", "the old text"]


def test_who_lost_the_right_to_read_since_gets_no_text(tmp_path: Path) -> None:
    group = store(tmp_path / "a.spolia", {"d": "an open text", "e": "another text"})
    with Run():
        group.snapshot()
        ranking = late_ranking(group, Query("text"))
        with group.corpus.writer() as writer:
            document = next(document for document in writer.documents() if document.id == "d")
            writer.set_readers(document, ["ann"])
        with ScoreStore() as score_store:
            keep(score_store, Case(Item("q", "text"), Ranking(Query("text"), ()), retrievals=(ranking,)))
            case = score_store.case(score_store.columns(ANSWER)[0], Item("q", "text"))
        assert [hit.node.id for hit in case.retrievals[0].hits] == ["e"]
        assert [hit.node.id for hit in ranking.hits] == ["e"]
        searches = Branch(BM25(group), BM25(group, source="again"))
        weights = (("bm25", 0.5), ("again", 0.5))
        for fuse in (
            ReciprocalRankFusion(),
            ConvexCombination(weights, "z-score"),
            ConvexCombination(weights, "min-max"),
        ):
            fused = (searches >> fuse)(Query("text"))
            assert [hit.node.id for hit in fused.hits] == ["e"]
            assert fused == fuse(searches(Query("text")))  # the scores of what is hidden by now do not count

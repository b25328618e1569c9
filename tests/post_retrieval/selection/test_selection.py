"""Selection: which hits stay. Scores and their bounds are written by hand from the formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from spolia.core.operator import Operator
from spolia.errors import BudgetSpent, WiringError
from spolia.flow_files.files import dump, load
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.protocols import Kind
from spolia.post_retrieval.boosts import Recent
from spolia.post_retrieval.context_window import WindowReplacement
from spolia.post_retrieval.rerankers import Critique
from spolia.post_retrieval.selection import Percentile, SimilarityPercentile, SimilarityThreshold, Threshold
from spolia.run import Budget, Run
from spolia.types import Hit, Node, Query, Ranking, Value
from tests.cases import check_each
from tests.degradation import degraded

NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class Angles(Value):
    """Embeds a text that is a number of degrees as that direction; the query is 0 degrees."""

    name: str = "angles"
    dimension: int = 2
    window: int = 9
    scoped = False

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Sequence[str], *, kind: Kind) -> npt.NDArray[np.float32]:
        radians = np.radians([float(text) for text in texts])
        return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [1 for _ in texts]

    def covers(self, text: str) -> float:
        return 1.0


def ranking_by_scores(*scores: float) -> Ranking:
    return Ranking(
        Query("0"), tuple(Hit(Node(f"n{index}", f"text {index}"), s) for index, s in enumerate(scores)), "bm25"
    )


def degrees(*angles: int) -> Ranking:
    hits = tuple(Hit(Node(f"n{index}", str(angle)), 9.0 - index) for index, angle in enumerate(angles))
    return Ranking(Query("0"), hits, "bm25")


def places(ranking: Ranking) -> list[int]:
    return [int(hit.node.id[1:]) for hit in ranking.hits]


@check_each(
    ("scores", "bound", "kept"),
    [
        ((3.0, 2.0, 1.0), 2.0, [0, 1]),
        ((3.0, 2.0, 1.0), 9.0, [0]),
        ((-0.2, -0.5, -0.9), -0.5, [0, 1]),
        ((1.0, 1.0, 1.0), 2.0, [0]),
        ((NAN, 0.5), 0.4, [1]),
        ((NAN, NAN), 0.4, [0]),
        ((INF, 1.0, -INF), -INF, [0, 1, 2]),
        ((INF, 1.0, -INF), INF, [0]),
        ((), 0.0, []),
    ],
)
def test_a_threshold_keeps_what_reaches_it_and_never_nothing(
    scores: tuple[float, ...], bound: float, kept: list[int]
) -> None:
    assert places(Threshold(bound)(ranking_by_scores(*scores))) == kept


@check_each(
    ("count", "share", "kept"), [(10, 0.6, 6), (10, 0.29, 2), (100, 0.29, 29), (3, 0.1, 1), (1, 1.0, 1), (0, 0.5, 0)]
)
def test_a_percentile_counts_the_hits_of_each_ranking_anew(count: int, share: float, kept: int) -> None:
    rankings = [
        Percentile(share)(ranking) for ranking in (ranking_by_scores(*range(count, 0, -1)), ranking_by_scores(1.0, 0.5))
    ]
    assert [len(ranking) for ranking in rankings] == [kept, max(1, int(2 * share))]
    assert places(rankings[0]) == list(range(kept))


def test_of_equal_scores_the_first_stay_and_nan_goes_first() -> None:
    assert places(Percentile(0.5)(ranking_by_scores(1.0, NAN, 1.0, 1.0))) == [0, 2]
    assert places(Percentile(0.5)(ranking_by_scores(NAN, NAN))) == [0]


def test_ten_thousand_hits_are_many_and_not_too_many() -> None:
    many = ranking_by_scores(*range(10_000, 0, -1))
    assert len(Percentile(0.5)(many)) == 5_000
    assert len(Threshold(1.0)(many)) == 10_000


def test_likeness_decides_and_the_scores_stay() -> None:
    # cos 0° = 1, cos 60° = 0.5, cos 90° = 0, cos 180° = -1
    ranking = SimilarityThreshold(Angles(), 0.49)(degrees(90, 60, 0, 180))
    assert places(ranking) == [1, 2]
    assert [hit.score for hit in ranking.hits] == [8.0, 7.0]
    assert places(SimilarityThreshold(Angles(), 0.9)(degrees(90, 60, 180))) == [1]
    assert places(SimilarityPercentile(Angles(), 0.75)(degrees(90, 60, 180, 0))) == [0, 1, 3]
    for op in (SimilarityThreshold(Angles()), SimilarityPercentile(Angles())):
        assert op(degrees()).hits == ()


def ranking_by_days(*times: str | int | None) -> Ranking:
    nodes = [Node(f"n{index}", "", meta=(("day", time),) if time != "" else ()) for index, time in enumerate(times)]
    return Ranking(Query("?"), tuple(Hit(node, 1.0) for node in nodes))


@check_each(
    ("times", "since", "kept"),
    [
        (("2023-12-31", "2024-01-01", "2024"), "2024", [1, 2]),
        (("2024-01-01T00:00:00+01:00", "2024-01-01T00:00:00Z"), "2024-01-01", [1]),
        (("2019", "2021", "2020"), "2024", [1]),
        (("2021", "2021"), "2024", [0]),
        (("", None, "soon", 7), "2024", [0]),
        (("", "2019"), "2024", [1]),
        ((2025, 2020), "2024", [0]),
        ((), "2024", []),
    ],
)
def test_what_is_new_stays_or_the_newest(times: tuple[str, ...], since: str, kept: list[int]) -> None:
    assert places(Recent(since, "day")(ranking_by_days(*times))) == kept


def test_the_latest_of_several_times_counts() -> None:
    node = Node("n0", "", meta=(("day", "2019"), ("day", "2025")))
    ranking = Ranking(Query("?"), (Hit(Node("n1", "", meta=(("day", "2024"),)), 2.0), Hit(node, 1.0)))
    assert places(Recent("2025", "day")(ranking)) == [0]


def test_a_window_is_shown_and_the_hit_is_cited() -> None:
    window = Node("n0", "It rises.", meta=(("window", "Ships wait. It rises. It falls."),))
    ranking = WindowReplacement()(Ranking(Query("?"), (Hit(window, 2.0), Hit(Node("n1", "No window."), 1.0))))
    assert [node.text for node in ranking.nodes] == ["Ships wait. It rises. It falls.", "No window."]
    assert [hit.found for hit in ranking.hits] == [(window,), ()]
    assert [hit.score for hit in ranking.hits] == [2.0, 1.0]


# ----------------------------------------------------------------------------------------------------- critique

TEXTS = ("Ships wait for the tide.", "Salt is dug in mines.", "The tide is caused by the moon.")
FOUND = Ranking(
    Query("What causes the tide?"), tuple(Hit(Node(f"n{at}", text), 3.0 - at) for at, text in enumerate(TEXTS))
)


def judge_hits(*rows: str | tuple[str, ...]) -> Ranking:
    return Critique(ScriptedModel(rows))(FOUND)


def test_a_model_drops_what_is_of_no_use() -> None:
    ranking = judge_hits(("Salt", "No."), "Yes, it does.")
    assert places(ranking) == [0, 2]
    assert [hit.score for hit in ranking.hits] == [3.0, 1.0]


@pytest.mark.parametrize("reply", ["I cannot say", "", "{", "maybe " * 60])
def test_a_verdict_that_cannot_be_read_keeps_the_hit(reply: str) -> None:
    with degraded() as reasons:
        assert places(judge_hits(("Salt", reply or " "), "yes")) == [0, 1, 2]
    assert reasons


def test_dropping_all_of_them_keeps_the_best_and_says_so() -> None:
    with degraded() as reasons:
        assert places(judge_hits("no")) == [0]
    assert reasons


def test_a_call_that_fails_keeps_the_hit_and_a_spent_budget_is_raised() -> None:
    with degraded() as reasons:
        assert places(judge_hits(("Salt", "no"), ("Ships", "yes"))) == [0, 2]  # no row for the third
    assert reasons
    with Run(budget=Budget(calls=1)), pytest.raises(BudgetSpent):
        judge_hits("yes")


def test_nobody_is_asked_about_nothing() -> None:
    assert Critique(ScriptedModel(()))(FOUND.but(hits=())).hits == ()


@check_each(
    "wrong",
    [
        lambda: Threshold(NAN),
        lambda: SimilarityThreshold(Angles(), NAN),
        lambda: Percentile(0.0),
        lambda: Percentile(1.5),
        lambda: SimilarityPercentile(Angles(), NAN),
        lambda: Recent("yesterday"),
        lambda: Critique(ScriptedModel(("yes",)), characters=0),
    ],
)
def test_bounds_that_mean_nothing_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(WiringError):
        wrong()


@pytest.mark.parametrize(
    "op", [Threshold(0.5), Percentile(), Recent("2024"), WindowReplacement(), Critique(ScriptedModel(("yes",)))]
)
def test_each_is_written_to_a_file(op: Operator[Ranking, Ranking]) -> None:
    assert load(dump(op)) == op

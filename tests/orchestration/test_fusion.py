import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.core.operator import Operator
from spolia.errors import StepFailed, WiringError
from spolia.orchestration.fusion import original_query
from spolia.orchestration.rank_fusion import ConvexCombination, EvenSplit, HighestScore, ReciprocalRankFusion
from spolia.types import Hit, Node, Query, Ranking
from tests.cases import check_each


def ranking_of(source: str, query: Query | None = None, /, **scores: float) -> Ranking:
    hits = tuple(Hit(Node(name, f"text of {name}"), score) for name, score in scores.items())
    return Ranking(query or Query("why?"), hits, source)


def ids(ranking: Ranking) -> list[str]:
    return [node.id for node in ranking.nodes]


def test_each_hit_says_which_scores_were_fused() -> None:
    fused = ReciprocalRankFusion()((ranking_of("bm25", a=9.0, b=4.0), ranking_of("dense", b=0.8, c=0.3)))
    assert [(hit.node.id, hit.parts) for hit in fused.hits] == [
        ("b", (("bm25", 4.0), ("dense", 0.8))),
        ("a", (("bm25", 9.0),)),
        ("c", (("dense", 0.3),)),
    ]
    assert fused.hits[0].score == pytest.approx(1 / 62 + 1 / 61)


def test_the_weight_of_a_query_counts() -> None:
    original = Query("why?", weight=2.0)
    rewritten = Query("why?").rewritten("for what reason?")
    assert ids(ReciprocalRankFusion()((ranking_of("bm25", rewritten, a=1.0), ranking_of("bm25", original, b=1.0)))) == [
        "b",
        "a",
    ]
    combined = ConvexCombination()((ranking_of("bm25", rewritten, a=1.0), ranking_of("bm25", original, b=1.0)))
    assert ids(combined) == ["b", "a"]


def test_fused_rewritings_answer_the_question() -> None:
    first = Query("Who wrote Emma?").rewritten("author of Emma")
    second = Query("Who wrote Emma?").rewritten("Emma writer")
    fused = ReciprocalRankFusion()((ranking_of("bm25", first, a=1.0), ranking_of("bm25", second, a=1.0)))
    assert (fused.query.text, fused.query.question) == ("Who wrote Emma?", "Who wrote Emma?")


def test_the_question_survives_a_lost_origin() -> None:
    assert original_query(Query("emma author", question="Who wrote Emma?", vector=(1.0,))) == Query("Who wrote Emma?")


def test_weights_are_named_by_source_whatever_the_order_of_the_rankings() -> None:
    bm25, dense = ranking_of("bm25", a=9.0, b=1.0), ranking_of("dense", b=0.9, a=0.1)
    fuse = ConvexCombination((("bm25", 0.8), ("dense", 0.2)), normalisation="min-max")
    assert ids(fuse((bm25, dense))) == ids(fuse((dense, bm25))) == ["a", "b"]
    assert ids(fuse.but(weights=(("bm25", 0.2), ("dense", 0.8)))((bm25, dense))) == ["b", "a"]


@pytest.mark.parametrize("normalisation", ConvexCombination.normalisations)
def test_every_normalisation_fuses_a_single_hit_and_an_empty_list(normalisation: str) -> None:
    fuse = ConvexCombination(normalisation=normalisation)
    assert ids(fuse((ranking_of("bm25", a=2.0), ranking_of("dense")))) == ["a"]
    assert ids(fuse((ranking_of("bm25"), ranking_of("dense")))) == []


def test_a_source_without_weight_is_refused_by_name() -> None:
    with pytest.raises(WiringError, match="no weight for the source 'web', only for 'bm25', 'dense'"):
        ConvexCombination()((ranking_of("web", a=1.0),))


@check_each(
    "wrong",
    [
        lambda: ConvexCombination(normalisation="max"),
        lambda: ConvexCombination((("bm25", -1.0),)),
        lambda: ConvexCombination((("bm25", 0.0),)),
        lambda: ConvexCombination((("bm25", math.nan), ("dense", 1.0))),
        lambda: ConvexCombination((("bm25", math.inf), ("dense", 1.0))),
        lambda: ConvexCombination(minimums=(("bm25", math.nan),)),
        lambda: ConvexCombination(top_k=0),
        lambda: ReciprocalRankFusion(top_k=0),
        lambda: ReciprocalRankFusion(k=-1),
    ],
)
def test_parameters_that_make_no_sense_are_refused(wrong: object) -> None:
    with pytest.raises(WiringError):
        wrong()  # type: ignore[operator]


@pytest.mark.parametrize("fuse", [ReciprocalRankFusion(), ConvexCombination()])
def test_nothing_to_fuse_is_an_error(fuse: Operator[Sequence[Ranking], Ranking]) -> None:
    with pytest.raises(StepFailed, match="no ranking to fuse"):
        fuse(())


@pytest.mark.slow
@given(
    st.lists(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1), max_size=6), min_size=1, max_size=3),
    st.integers(1, 8),
)
def test_fusion_keeps_the_best_of_what_was_found_once(found_scores: list[dict[str, float]], top_k: int) -> None:
    rankings = tuple(
        ranking_of("bm25", **dict(sorted(scores.items(), key=lambda item: -item[1]))) for scores in found_scores
    )
    names = {name for scores in found_scores for name in scores}
    for fuse in (ReciprocalRankFusion(), ConvexCombination()):
        fused = fuse.but(top_k=top_k)(rankings)
        assert len(fused) == min(top_k, len(names))
        assert len(set(ids(fused))) == len(fused)
        assert [hit.score for hit in fused.hits] == sorted((hit.score for hit in fused.hits), reverse=True)
        assert fused.hits == fuse.but(top_k=6)(rankings).hits[:top_k]


ODD = (math.nan, math.inf, -math.inf, 1e308, -1e308, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fuse",
    [
        ReciprocalRankFusion(),
        HighestScore(),
        EvenSplit(),
        *(ConvexCombination(normalisation=name) for name in ConvexCombination.normalisations),
    ],
    ids=lambda fuse: fuse.short,
)
@given(st.lists(st.sampled_from(ODD), max_size=5), st.lists(st.sampled_from(ODD), max_size=5))
def test_scores_that_are_no_numbers_or_endless_are_fused_all_the_same(
    fuse: Operator[Sequence[Ranking], Ranking], first: list[float], second: list[float]
) -> None:
    pair = [dict(zip("abcde", scores, strict=False)) for scores in (first, second)]
    fused = fuse((ranking_of("bm25", **pair[0]), ranking_of("dense", **pair[1])))
    assert set(ids(fused)) == set(pair[0]) | set(pair[1])
    scores = [hit.score for hit in fused.hits]
    if not isinstance(fuse, EvenSplit):  # which leaves scores as they are
        assert all(map(math.isfinite, scores))
    numbers = [score for score in scores if score == score]
    assert numbers == sorted(numbers, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("fuse", [ReciprocalRankFusion(), HighestScore(), EvenSplit(), ConvexCombination()])
def test_ten_thousand_hits_are_fused_and_so_are_equal_ones(fuse: Operator[Sequence[Ranking], Ranking]) -> None:
    many = {f"n{index:05}": 1.0 for index in range(10_000)}
    fused = fuse((ranking_of("bm25", **many), ranking_of("dense", **many)))
    assert ids(fused) == [f"n{index:05}" for index in range(5 if isinstance(fuse, EvenSplit) else 10)]


def test_one_id_for_two_texts_of_two_stores_is_two_hits() -> None:
    def rank_node(store: str, text: str) -> Ranking:
        return Ranking(Query("?"), (Hit(Node("n1", text, uri=f"{store}/a.md"), 1.0),), "dense")

    fuse = HighestScore()
    ranking = fuse((rank_node("x", "Stones."), rank_node("y", "Sea.")))
    assert [node.text for node in ranking.nodes] == ["Stones.", "Sea."]
    assert [node.text for node in fuse((ranking,)).nodes] == ["Stones.", "Sea."]
    assert len(fuse((rank_node("x", "Stones."), rank_node("y", "Stones.")))) == 1

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.ranking import (
    Scaling,
    convex_combination,
    min_max,
    reciprocal_rank_fusion,
    theoretical_min_max,
    three_sigma,
    z_score,
)
from spolia.ranking.alignment import competition_ranks
from tests.cases import check_each


def cosine_minimum(scores: object) -> tuple[list[float], float]:
    return theoretical_min_max(scores, -1.0)  # type: ignore[arg-type]


SCALINGS: list[Scaling] = [min_max, cosine_minimum, z_score, three_sigma]
names = st.sampled_from("abcdefgh")
scores = st.floats(-1, 1, allow_nan=False)


@st.composite
def lists(draw: st.DrawFn) -> list[tuple[str, float]]:
    scores = draw(st.dictionaries(names, st.integers(-1000, 1000), max_size=8))
    return sorted(((name, score / 1000) for name, score in scores.items()), key=lambda item: (-item[1], item[0]))


def ordered(fused: list[tuple[str, float]]) -> list[str]:
    return [name for name, _ in fused]


def test_goldens_of_reciprocal_rank_fusion() -> None:
    fused = reciprocal_rank_fusion([[("a", 9), ("b", 8), ("c", 7)], [("c", 0.9), ("d", 0.1)]])
    assert ordered(fused) == ["c", "a", "b", "d"]
    assert dict(fused) == pytest.approx({"c": 1 / 63 + 1 / 61, "a": 1 / 61, "b": 1 / 62, "d": 1 / 62})


def test_equal_sums_go_to_the_better_rank_then_to_the_id() -> None:
    assert ordered(reciprocal_rank_fusion([[("b", 2.0)], [("a", 2.0)]])) == ["a", "b"]
    assert ordered(reciprocal_rank_fusion([[("x", 2.0), ("a", 1.0)], [("y", 2.0), ("b", 1.0)]])) == ["x", "y", "a", "b"]


def test_tied_scores_of_a_list_share_the_better_rank() -> None:
    assert competition_ranks(np.array([3.0, 3.0, 1.0])).tolist() == [1, 1, 3]
    assert dict(reciprocal_rank_fusion([[("a", 3.0), ("b", 3.0)]])) == {"a": 1 / 61, "b": 1 / 61}


def test_weights_count_a_list_more() -> None:
    lists = [[("a", 1.0)], [("b", 1.0)]]
    assert ordered(reciprocal_rank_fusion(lists, weights=[1, 2])) == ["b", "a"]


@pytest.mark.slow
@given(st.lists(lists(), min_size=1, max_size=3), st.floats(0.01, 100), st.floats(-50, 50))
def test_only_the_order_matters_to_reciprocal_rank_fusion(
    found: list[list[tuple[str, float]]], scale: float, shift: float
) -> None:
    rescaled = [[(name, math.exp(3 * score) * scale + shift) for name, score in list_] for list_ in found]
    distinct = [len({s for _, s in a}) == len({s for _, s in b}) for a, b in zip(found, rescaled, strict=True)]
    if all(distinct):  # rounding may merge two scores; then the order is another
        assert reciprocal_rank_fusion(rescaled) == reciprocal_rank_fusion(found)


@pytest.mark.slow
@given(st.lists(lists(), min_size=1, max_size=4))
def test_the_order_of_the_lists_does_not_matter(found: list[list[tuple[str, float]]]) -> None:
    assert reciprocal_rank_fusion(found) == reciprocal_rank_fusion(found[::-1])
    for scaling in SCALINGS:
        assert convex_combination(found, scaling=scaling) == convex_combination(found[::-1], scaling=scaling)


def test_goldens_of_the_scalings() -> None:
    assert min_max([4.0, 3.0, 2.0]) == ([1.0, 0.5, 0.0], 0.0)
    assert theoretical_min_max([0.5, 0.0], -1.0)[0] == pytest.approx([1.0, 2 / 3])
    assert theoretical_min_max([8.0, 2.0], 0.0) == ([1.0, 0.25], 0.0)
    assert z_score([4.0, 3.0, 2.0])[0] == pytest.approx([3 + math.sqrt(1.5), 3.0, 3 - math.sqrt(1.5)])
    assert z_score([10.0] * 20 + [0.0])[0] == pytest.approx([math.sqrt(20) + math.sqrt(1 / 20)] * 20 + [0.0])
    assert three_sigma([4.0, 3.0, 2.0])[0] == pytest.approx([0.5 + math.sqrt(1.5) / 6, 0.5, 0.5 - math.sqrt(1.5) / 6])


def test_a_golden_of_the_convex_combination() -> None:
    fused = convex_combination(
        [[("a", 10.0), ("b", 5.0)], [("c", 0.8), ("a", 0.2)]],
        scaling=[lambda s: theoretical_min_max(s, 0.0), lambda s: theoretical_min_max(s, -1.0)],
        weights=[0.25, 0.75],
    )
    assert dict(fused) == pytest.approx({"c": 0.75, "a": 0.25 + 0.75 * 1.2 / 1.8, "b": 0.125})


@check_each("scaling", SCALINGS)
@check_each("scores", [[], [3.0], [3.0, 3.0, 3.0], [0.0], [-1.0], [1e308, -1e308], [5e-324, 0.0]])
def test_every_list_has_finite_values(scaling: Scaling, scores: list[float]) -> None:
    values, absent = scaling(scores)
    assert len(values) == len(scores)
    assert all(math.isfinite(value) for value in values)
    assert math.isfinite(absent)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_list_with_one_hit_still_speaks_for_it(scaling: Scaling) -> None:
    fused = convex_combination([[("only", 0.7)], [("a", 0.9), ("only", 0.8), ("b", 0.2)]], scaling=scaling)
    assert ordered(fused)[0] == "only"


@pytest.mark.slow
@pytest.mark.parametrize("scaling", SCALINGS)
@given(found=lists(), other=lists())
def test_weight_one_gives_the_single_list_and_weight_zero_the_other(
    scaling: Scaling, found: list[tuple[str, float]], other: list[tuple[str, float]]
) -> None:
    for weights, expected_list in (((1, 0), found), ((0, 1), other)):
        fused = convex_combination([found, other], scaling=scaling, weights=weights)
        values = dict(zip([name for name, _ in expected_list], scaling([s for _, s in expected_list])[0], strict=True))
        fused_kept = [name for name, _ in fused if name in values]
        assert set(fused_kept) == set(values)
        assert [values[name] for name in fused_kept] == sorted(values.values(), reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("scaling", SCALINGS)
@given(found=lists())
def test_an_absent_document_counts_no_more_than_any_that_is_present(
    scaling: Scaling, found: list[tuple[str, float]]
) -> None:
    values, absent = scaling([score for _, score in found])
    assert all(absent <= value for value in values)
    assert values == sorted(values, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("scaling", [min_max, z_score, three_sigma])
@given(found=lists(), scale=st.integers(1, 8), shift=st.integers(-4, 4))
def test_scalings_that_look_at_the_list_alone_ignore_shift_and_scale(
    scaling: Scaling, found: list[tuple[str, float]], scale: int, shift: int
) -> None:
    raw = [score for _, score in found]
    shifted, _ = scaling([score * scale + shift for score in raw])
    assert shifted == pytest.approx(scaling(raw)[0], abs=1e-6)


def test_weights_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="1 lists have 2 weights"):
        reciprocal_rank_fusion([[("a", 1.0)]], weights=[1, 2])
    with pytest.raises(ValueError, match="at least 0"):
        convex_combination([[("a", 1.0)]], scaling=min_max, weights=[-1])

"""A sweep gives what each variant gives by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.operator import Operator
from spolia.errors import StepFailed, WiringError
from spolia.orchestration.rank_fusion import ConvexCombination, EvenSplit, HighestScore, ReciprocalRankFusion
from spolia.orchestration.sweep import sweep
from spolia.ranking import convex_combination, min_max, reciprocal_rank_fusion
from spolia.types import Hit, Node, Query, Ranking

SOURCES = ("bm25", "dense", "web")
MINIMUMS = (("bm25", 0.0), ("dense", -1.0), ("web", 0.0))


def variants() -> list[Operator[Sequence[Ranking], Ranking]]:
    combination = ConvexCombination(minimums=MINIMUMS)
    weights = [(0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.3, 0.7, 0.0), (0.1, 0.2, 0.7)]
    return [
        *ReciprocalRankFusion(top_k=4).vary(k=range(0, 100, 9)).decided(),
        *combination.vary(
            normalisation=ConvexCombination.known,
            weights=[tuple(zip(SOURCES, row, strict=True)) for row in weights],
            top_k=(2, 30),
        ).decided(),
        HighestScore(),
    ]


names = st.sampled_from([*"abcdefghij"])
lists = st.lists(st.tuples(names, st.integers(-3, 9).map(lambda n: n / 4)), max_size=12).map(
    lambda pairs: sorted(pairs, key=lambda pair: -pair[1])
)


@settings(max_examples=60, deadline=None)
@given(questions=st.lists(st.lists(lists, min_size=1, max_size=3), min_size=1, max_size=3), weight=st.floats(0, 2))
def test_a_sweep_gives_what_each_variant_gives(questions: list[list[list[tuple[str, float]]]], weight: float) -> None:
    values = [
        tuple(
            Ranking(Query("why?", weight=weight), tuple(Hit(Node(name, name), score) for name, score in list_), source)
            for list_, source in zip(question, SOURCES, strict=False)
        )
        for question in questions
    ]
    every = variants()
    for value, row in zip(values, sweep(values, every), strict=True):
        for variant, found in zip(every, row, strict=True):
            expected = variant(value)
            assert found.ranking == expected
            assert [hit.parts for hit in found.ranking.hits] == [hit.parts for hit in expected.hits]
            assert found.ids == [node.id for node in expected.nodes]


def by_the_formula(lists: Sequence[Sequence[tuple[str, float]]], k: float) -> dict[str, float]:
    """Reciprocal rank fusion in plain words: rank 1 + the number of better scores, of the first mention."""
    found: dict[str, float] = {}
    for name in {name for list_ in lists for name, _ in list_}:
        terms = []
        for list_ in lists:
            own = [score for other, score in list_ if other == name]
            if own:
                terms.append(1 / (k + (1 + sum(score > own[0] for _, score in list_))))
        found[name] = math.fsum(terms)
    return found


@settings(max_examples=200, deadline=None)
@given(several=st.lists(lists, max_size=5), k=st.floats(0, 100))
def test_reciprocal_rank_fusion_is_its_formula(several: list[list[tuple[str, float]]], k: float) -> None:
    fused = reciprocal_rank_fusion(several, k=k)
    assert dict(fused) == by_the_formula(several, k)
    assert [score for _, score in fused] == sorted((score for _, score in fused), reverse=True)


@settings(max_examples=200, deadline=None)
@given(several=st.lists(lists, min_size=1, max_size=5), weights=st.lists(st.floats(0.1, 3), min_size=5, max_size=5))
def test_a_convex_combination_is_its_formula(several: list[list[tuple[str, float]]], weights: list[float]) -> None:
    used = weights[: len(several)]
    values = []
    for list_ in several:
        scaled = min_max([score for _, score in list_])[0]
        values.append({name: value for (name, _), value in reversed(list(zip(list_, scaled, strict=True)))})
    for name, score in convex_combination(several, scaling=min_max, weights=used):
        terms = [weight * value.get(name, 0.0) for weight, value in zip(used, values, strict=True)]
        assert score == math.fsum(terms) / math.fsum(used)


def test_a_question_without_rankings_and_a_source_without_weight_are_errors() -> None:
    with pytest.raises(StepFailed, match="no ranking to fuse"):
        next(sweep([()], [ReciprocalRankFusion()]))
    with pytest.raises(WiringError, match="no weight for the source 'elsewhere'"):
        next(sweep([(Ranking(Query("?"), (), "elsewhere"),)], [ConvexCombination()]))
    with pytest.raises(WiringError, match="cannot be swept"):
        next(sweep([()], [EvenSplit()]))


def test_nothing_to_sweep() -> None:
    assert list(sweep([], variants())) == []
    assert list(sweep([(Ranking(Query("?"), (), "bm25"),)], [])) == [[]]

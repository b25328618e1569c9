"""A sweep gives what each variant gives by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.combinators import Branch
from spolia.core.operator import Operator, Then
from spolia.errors import StepFailed, WiringError
from spolia.orchestration.rank_fusion import ConvexCombination, EvenSplit, HighestScore, ReciprocalRankFusion
from spolia.orchestration.sweep import sweep
from spolia.post_retrieval.boosts import Newest, Recent, TimeDecay, TitleBoost
from spolia.post_retrieval.selection import Cut, Percentile, SimilarityPercentile, SimilarityThreshold, Threshold
from spolia.ranking import convex_combination, min_max, reciprocal_rank_fusion
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense
from spolia.retrieval.tfidf import TFIDF
from spolia.run import Run
from spolia.testing import HashingEmbedder
from spolia.types import Hit, Node, Query, Ranking
from tests.retrieval.conftest import store

pytestmark = pytest.mark.slow

SOURCES = ("bm25", "dense", "web")
MINIMUMS = (("bm25", 0.0), ("dense", -1.0), ("web", 0.0))


def variants() -> list[Operator[Sequence[Ranking], Ranking]]:
    combination = ConvexCombination(minimums=MINIMUMS)
    weights = [(0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.3, 0.7, 0.0), (0.1, 0.2, 0.7)]
    return [
        *ReciprocalRankFusion(top_k=4).vary(k=range(0, 100, 9)).decided(),
        *combination.vary(
            normalisation=ConvexCombination.normalisations,
            weights=[tuple(zip(SOURCES, row, strict=True)) for row in weights],
            top_k=(2, 30),
        ).decided(),
        HighestScore(),
    ]


names = st.sampled_from([*"abcdefghij"])
lists = st.lists(st.tuples(names, st.integers(-3, 9).map(lambda n: n / 4)), max_size=12).map(
    lambda pairs: sorted(pairs, key=lambda pair: -pair[1])
)


@settings(max_examples=60)
@given(questions=st.lists(st.lists(lists, min_size=1, max_size=3), min_size=1, max_size=3), weight=st.floats(0, 2))
def test_a_sweep_gives_what_each_variant_gives(questions: list[list[list[tuple[str, float]]]], weight: float) -> None:
    values = [
        tuple(
            Ranking(Query("why?", weight=weight), tuple(Hit(Node(name, name), score) for name, score in list_), source)
            for list_, source in zip(question, SOURCES, strict=False)
        )
        for question in questions
    ]
    flows = variants()
    for value, row in zip(values, sweep(values, flows), strict=True):
        for variant, swept in zip(flows, row, strict=True):
            expected = variant(value)
            assert swept.ranking == expected
            assert [hit.parts for hit in swept.ranking.hits] == [hit.parts for hit in expected.hits]
            assert swept.ids == [node.id for node in expected.nodes]


TITLES = ("", "Why", "why? (book)", "the WHY?", "Other")
DAYS = ("2020", "2026-01-01", "soon", "2025-06-30")


@st.composite
def rankings(draw: st.DrawFn) -> Ranking:
    scores = draw(
        st.lists(st.sampled_from([math.nan, math.inf, -1.0, 0.0, 0.1, 0.3, 0.3, 2.5]) | st.floats(-3, 3), max_size=9)
    )
    hits = [
        Hit(
            Node(f"n{index}", "red stones " * (index % 3 + 1), context=draw(st.sampled_from(TITLES)),
                 meta=(("day", draw(st.sampled_from(DAYS))),)),
            score,
            parts=(("bm25", float(index)),),
        )
        for index, score in enumerate(scores)
    ]  # fmt: skip
    return Ranking(Query("the why?"), tuple(hits), "bm25")


def steps() -> list[Operator[Ranking, Ranking]]:
    """Every step that is a cheap function of a ranking, with many settings."""
    embedder, counts, numbers = HashingEmbedder(), (1, 2, 5, 30), (-1.0, 0.1, 0.3, 0.30000000000000004)
    return [
        *Cut().vary(top_k=(None, *counts), at_least=(None, *numbers)).decided(),
        *Threshold(0.0).vary(at_least=numbers).decided(),
        *Percentile().vary(share=(0.01, 0.29, 0.5, 1.0)).decided(),
        *SimilarityThreshold(embedder).vary(at_least=numbers).decided(),
        *SimilarityPercentile(embedder).vary(share=(0.3, 0.7), embedder=(embedder, HashingEmbedder(8))).decided(),
        *TitleBoost().vary(exact=(1.0, 1.7), near=(1.1, 1.3), mentioned=(1.0, 1.2), top_k=counts).decided(),
        *TimeDecay("day")
        .vary(half_life_days=(1.0, 33.3), weight=(0.0, 0.35, 1.0), now=("", "2026"), top_k=(2, 9))
        .decided(),
        *Newest("day").vary(top_k=counts).decided(),
        *Recent("2020", "day").vary(since=("2020", "2025-07", "2030")).decided(),
    ]


def describe_ranking(ranking: Ranking) -> str:
    """All of a ranking, NaN too."""
    return repr(
        (ranking.query, ranking.source, [(hit.node.id, hit.score, hit.parts, hit.found) for hit in ranking.hits])
    )


@settings(max_examples=40)
@given(values=st.lists(rankings(), max_size=2), chosen=st.randoms())
def test_a_sweep_of_cuts_thresholds_and_boosts_gives_what_each_gives_alone(
    values: list[Ranking], chosen: Random
) -> None:
    flows = steps()
    chains = [chosen.choice(flows) >> chosen.choice(flows) for _ in range(20)]
    chains += [first.steps[0] >> chosen.choice(flows) >> Cut(top_k=2) for first in chains if isinstance(first, Then)]
    variants = [*flows, *chains, *flows[:3]]
    chosen.shuffle(variants)
    for value, row in zip(values, sweep(values, variants), strict=True):
        for variant, swept in zip(variants, row, strict=True):
            expected = variant(value)
            assert describe_ranking(swept.ranking) == describe_ranking(expected)
            assert swept.ids == [node.id for node in expected.nodes]


def test_from_the_question_on_searches_are_made_once_and_fusions_and_cuts_swept(tmp_path: Path) -> None:
    embedder = HashingEmbedder()
    group = store(
        tmp_path / "s.spolia",
        {f"d{n}": f"red stone {'old ' * (n % 4)}road {n % 7}" for n in range(40)},
        embedder=embedder,
    )
    searches: list[Operator[Query, Ranking]] = [
        *BM25(group).vary(top_k=(1, 3, 20, 60)).decided(),
        *TFIDF(group).vary(top_k=(2, 7)).decided(),
        *Dense(group, embedder).vary(top_k=(1, 4, 39)).decided(),
    ]
    fusions = [*ReciprocalRankFusion().vary(k=(1, 60), top_k=(3, 8)).decided(), ConvexCombination()]
    fused = [Branch(BM25(group), Dense(group, embedder)) >> fusion for fusion in fusions]
    boosted = [
        item >> cut for item in (*fused, *searches) for cut in (Cut(top_k=2), Cut(at_least=0.02), Threshold(0.5))
    ]
    variants = [*searches, *fused, *boosted]
    questions = [Query("old red road"), Query("stone 3")]
    with Run() as run:
        swept = [[item.ranking for item in row] for row in sweep(questions, variants)]
    assert swept == [[variant(question) for variant in variants] for question in questions]
    assert {name: count for name, count in run.counts().items() if count} == {
        "BM25": 2, "TFIDF": 2, "Dense": 2
    }  # fmt: skip


def by_the_formula(lists: Sequence[Sequence[tuple[str, float]]], k: float) -> dict[str, float]:
    """Reciprocal rank fusion in plain words: rank 1 + the number of better scores, of the first mention."""
    fused: dict[str, float] = {}
    for name in {name for list_ in lists for name, _ in list_}:
        terms = []
        for list_ in lists:
            own = [score for other_name, score in list_ if other_name == name]
            if own:
                terms.append(1 / (k + (1 + sum(score > own[0] for _, score in list_))))
        fused[name] = math.fsum(terms)
    return fused


@settings(max_examples=200)
@given(several=st.lists(lists, max_size=5), k=st.floats(0, 100))
def test_reciprocal_rank_fusion_is_its_formula(several: list[list[tuple[str, float]]], k: float) -> None:
    fused = reciprocal_rank_fusion(several, k=k)
    assert dict(fused) == by_the_formula(several, k)
    assert [score for _, score in fused] == sorted((score for _, score in fused), reverse=True)


@settings(max_examples=200)
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


@dataclass(frozen=True)
class LastFirst(Cut):
    """Of the user's: what Spolia sweeps is not what it does."""

    def apply(self, value: Ranking, /) -> Ranking:
        return value.but(hits=super().apply(value).hits[::-1])


def test_a_class_of_yours_with_an_apply_of_its_own_is_run_and_not_swept() -> None:
    ranking = Ranking(Query("?"), tuple(Hit(Node(name, name), 1.0) for name in "abcd"))
    chains = [LastFirst(top_k=k) >> Cut(top_k=2) for k in (2, 3)]
    assert [[swept.ids for swept in row] for row in sweep([ranking], chains)] == [[["b", "a"], ["c", "b"]]]
    with pytest.raises(WiringError, match=r"^LastFirst\(top_k=2\) cannot be swept"):
        list(sweep([ranking], [LastFirst(top_k=2)]))


def test_nothing_to_sweep() -> None:
    assert list(sweep([], variants())) == []
    assert list(sweep([(Ranking(Query("?"), (), "bm25"),)], [])) == [[]]

"""How often intervals hold the true number, how often a difference is claimed that is none, and what that costs.

    python benchmarks/experiments.py [--experiments 1000] [--only PART …] [--out benchmarks/results/experiments.json]

With `--only`, the other parts stay in the file as they were measured before; without `--out`, only the limits of the
parts that were measured are judged.

Coverage: simulated experiments of 30, 100 and 300 questions whose true mean or difference is known, by the same
`Sample` that reports use. `expected` are those that a data set is like; `hard` are those that no method here gets right
with 30 questions, so that everybody knows. `exact` is Wilson's and Tango's coverage by adding up all outcomes.
`totals` are measures that are no mean, on questions drawn from a thousand of which the total is known.
Claims: two to four flows that are equally good on five measures, and how many experiments claim any difference.
Gates: what a gate says of a flow that is as good as it was, worse by the tolerance, or by twice of it.
Costs: CPU seconds of intervals and of an experiment that was done before; and an experiment beside the same work as a
researcher writes it by hand (`by_hand`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spolia import BM25, Branch, Corpus, Dense, ReciprocalRankFusion, add_texts
from spolia.core.function import step
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.gate.gate import GateVerdict
from spolia.evaluation.measures.abstention import AURC, AbstentionF1, SelectiveRisk
from spolia.evaluation.measures.answers.ngrams import BLEU
from spolia.evaluation.measures.measure import Case, SetMeasure
from spolia.evaluation.measures.registry import parse_measures
from spolia.evaluation.statistics.interval import Interval, tango, wilson
from spolia.evaluation.statistics.sample import UNIT, Range, Row, Sample, Totals
from spolia.evaluation.statistics.significance import CORRECTIONS
from spolia.testing import HashingEmbedder
from spolia.types import Answer, Hit, Item, Node, Query, Ranking

Floats: TypeAlias = NDArray[np.float64]
Random: TypeAlias = np.random.Generator
Draw: TypeAlias = Callable[[Random, int], tuple[Floats, float]]
"""Scores of some questions, one column or two, and the true mean or difference."""

SIZES = (30, 100, 300)
RESAMPLES = 2_000
PAIRS = 15
"""Of an experiment and the same by hand."""
TOTAL_DRAWS, FEWER = 500, 200
"""Of measures that are no mean, whose draws cost more."""
RECIPROCAL = (np.array([0, 0.1, 0.2, 0.25, 1 / 3, 0.5, 1.0]), np.array([0.12, 0.03, 0.05, 0.05, 0.08, 0.17, 0.5]))


def share(random: Random, n: int) -> tuple[Floats, float]:
    """Right or wrong; how many are right differs from data set to data set."""
    p = random.uniform(0.1, 0.9)
    return (random.random((n, 1)) < p).astype(float), p


def two_shares(random: Random, n: int) -> tuple[Floats, float]:
    """Two flows right or wrong on the same questions: both, one of them, none."""
    both_right, ours, theirs = random.uniform(0.2, 0.6), random.uniform(0.05, 0.2), random.uniform(0.05, 0.2)
    kind = random.choice(4, size=n, p=[both_right, ours, theirs, 1 - both_right - ours - theirs])
    return np.stack([kind <= 1, (kind == 0) | (kind == 2)], axis=1).astype(float), ours - theirs


def ranks(random: Random, n: int) -> tuple[Floats, float]:
    """Reciprocal ranks of the first ten."""
    values, shares = RECIPROCAL
    return random.choice(values, size=(n, 1), p=shares), float(values @ shares)


def overlaps(random: Random, n: int) -> tuple[Floats, float]:
    """F1 of words: none, all, or something between."""
    draws = random.random((n, 1))
    return np.where(draws < 0.3, 0.0, np.where(draws < 0.6, 1.0, random.random((n, 1)))), 0.3 + 0.4 * 0.5


def grades(random: Random, n: int) -> tuple[Floats, float]:
    """A score that has all values, as nDCG of many graded passages."""
    return random.beta(2, 3, (n, 1)), 0.4


def two_overlaps(random: Random, n: int) -> tuple[Floats, float]:
    """F1 of two flows, of which one is better now and then, and the other sometimes."""
    theirs, _ = overlaps(random, n)
    shifts = np.where(random.random((n, 1)) < 0.5, random.uniform(-0.6, 1, (n, 1)), 0.0)
    ours = 0.5 + (theirs - 0.5) / 2 + shifts / 4
    return np.hstack([ours, 0.5 + (theirs - 0.5) / 2]), 0.5 * 0.2 / 4


def two_grades(random: Random, n: int) -> tuple[Floats, float]:
    """Two flows whose grades go with how hard a question is."""
    hard = random.beta(2, 2, (n, 1))
    return np.hstack(
        [0.8 * hard + 0.2 * random.beta(2, 3, (n, 1)), 0.8 * hard + 0.2 * random.beta(3, 3, (n, 1))]
    ), -0.02


def near_the_top(random: Random, n: int) -> tuple[Floats, float]:
    """85 of 100 questions have the highest score."""
    return np.where(random.random((n, 1)) < 0.85, 1.0, random.random((n, 1))), 0.925


def one_in_ten_differs(random: Random, n: int) -> tuple[Floats, float]:
    """Two flows that give the same but for one question in ten."""
    theirs = np.full((n, 1), 0.5)
    shifts = np.where(random.random((n, 1)) < 0.1, random.uniform(-0.3, 0.5, (n, 1)), 0.0)
    return np.hstack([theirs + shifts, theirs]), 0.01


def long_tail(random: Random, n: int) -> tuple[Floats, float]:
    """Tokens of an adaptive flow: a few questions take very many."""
    return 100 * random.lognormal(0, 1, (n, 1)), 100 * math.exp(0.5)


POOL = 1_000
TEXT = ("the", "keeper", "lit", "the", "lamp", "before", "dusk", "and", "wrote", "down", "the", "hour")


def copied_row(random: Random, kept: float) -> Row:
    """What BLEU sees of an answer with some words of the reference."""
    words = [word if random.random() < kept else "other" for word in TEXT[: random.integers(5, 12)]]
    return BLEU().observe(Case(Item("q", "?", answers=(" ".join(TEXT),)), Answer(" ".join(words))))


def abstaining_row(random: Random, kept: float) -> Row:
    """Three in ten questions are unanswerable, and most of these are left."""
    should = random.random() < 0.3
    did = random.random() < (kept if should else 0.1)
    return (float(should and did), float(did and not should), float(should and not did))


def risky_row(random: Random, kept: float) -> Row:
    """Eight in ten are answered."""
    is_answered = random.random() < 0.8
    return (float(is_answered), float(is_answered and random.random() < kept))


def ordered_row(random: Random, kept: float) -> Row:
    """The surer, the more often right."""
    sure = random.random()
    return (sure, float(random.random() < kept * (0.5 + sure / 2)))


TOTALS: dict[str, tuple[SetMeasure, Callable[[Random, float], Row]]] = {
    "BLEU": (BLEU(), copied_row),
    "AbstentionF1": (AbstentionF1(), abstaining_row),
    "Risk": (SelectiveRisk(), risky_row),
    "AURC": (AURC(), ordered_row),
}


def totals(name: str, n: int, experiments: int, paired: bool = False, seed: int = 0) -> float:
    """Percent of simulated experiments whose interval holds the total, or the difference of two, of all questions."""
    measure, row = TOTALS[name]
    random, count = np.random.default_rng((seed, n)), 0
    flows = [[row(random, chance) for _ in range(POOL)] for chance in ((0.8, 0.7) if paired else (0.8,))]
    wholes = [measure.total(rows) or 0.0 for rows in flows]
    truth = wholes[0] - wholes[1] if paired else wholes[0]
    for number in range(experiments):
        positions = random.integers(0, POOL, n).tolist()
        drawn_sample = drawn_totals(measure, [[rows[position] for position in positions] for rows in flows], number)
        interval = drawn_sample.difference(0, 1) if paired else drawn_sample.interval(0)
        count += interval is None or interval.low <= truth <= interval.high
    return round(100 * count / experiments, 1)


def total_claims(name: str, n: int, experiments: int, seed: int = 0) -> float:
    """Percent of experiments that claim a difference between two flows that are equally good."""
    measure, row = TOTALS[name]
    random, claimed = np.random.default_rng((seed, n)), 0
    for number in range(experiments):
        sample = drawn_totals(measure, [[row(random, 0.8) for _ in range(n)] for _ in range(2)], number)
        difference = sample.difference(0, 1)
        claimed += difference is not None and difference.excludes_zero and sample.p(0, 1) < 0.05
    return round(100 * claimed / experiments, 1)


def drawn_totals(measure: SetMeasure, rows: list[list[Row]], seed: int) -> Totals:
    return Totals(rows, measure.total, additive=measure.additive, draws=TOTAL_DRAWS, seed=seed)


EXPECTED: dict[str, tuple[Draw, ...]] = {
    "binary, plain": (share,),
    "binary, paired": (two_shares,),
    "graded, plain": (ranks, overlaps, grades),
    "graded, paired": (two_overlaps, two_grades),
}
HARD: dict[str, tuple[Draw, ...]] = {
    "graded, plain": (near_the_top,),
    "graded, paired": (one_in_ten_differs,),
    "cost, plain": (long_tail,),
}
RANGES: dict[Draw, Range] = {long_tail: (0.0, math.inf)}
"""Of draws that are no share."""


def covered(draw: Draw, n: int, experiments: int, seed: int = 0) -> float:
    """Percent of simulated experiments whose interval holds the true number."""
    random, count = np.random.default_rng((seed, n)), 0
    for number in range(experiments):
        scores, truth = draw(random, n)
        sample = Sample(scores, range=RANGES.get(draw, UNIT), resamples=RESAMPLES, seed=number)
        interval: Interval = sample.interval(0) if scores.shape[1] == 1 else sample.difference(0, 1)
        count += interval.low <= truth <= interval.high
    return round(100 * count / experiments, 1)


def coverage(kinds: dict[str, tuple[Draw, ...]], experiments: int) -> dict[str, Any]:
    return {
        kind: {draw.__name__: {str(n): covered(draw, n, experiments) for n in SIZES} for draw in draws}
        for kind, draws in kinds.items()
    }


def exact(shares: Floats) -> dict[str, Any]:
    """Percent that Wilson's interval holds, for true shares: mean, and least with the share where that is."""
    rows = {}
    for n in SIZES:
        ends = [wilson(right, n) for right in range(n + 1)]
        coverage_sums = []
        for p in shares.tolist():
            weights = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
            coverage_sums.append(
                sum(w for w, interval in zip(weights, ends, strict=True) if interval.low <= p <= interval.high)
            )
        lowest = int(np.argmin(coverage_sums))
        rows[str(n)] = {
            "mean": percent(np.mean(coverage_sums)),
            "least": percent(coverage_sums[lowest]),
            "at": round(float(shares[lowest]), 4),
        }
    return rows


def exact_pairs() -> dict[str, Any]:
    """Percent that Tango's interval holds, for two flows that differ on few questions: shares only one has right."""
    return {
        f"{ours:g} and {theirs:g}": {str(n): percent(tango_holds(n, ours, theirs)) for n in (30, 100)}
        for ours, theirs in ((0.02, 0.0), (0.05, 0.0), (0.02, 0.01), (0.05, 0.02))
    }


def tango_holds(n: int, ours: float, theirs: float) -> float:
    probability = 0.0
    for b in range(n + 1):
        for c in range(n + 1 - b):
            weight = math.comb(n, b) * math.comb(n - b, c) * ours**b * theirs**c * (1 - ours - theirs) ** (n - b - c)
            if weight > 1e-7:
                interval = tango(b, c, n)
                probability += weight * (interval.low - 1e-9 <= ours - theirs <= interval.high + 1e-9)
    return probability


def percent(share: Any) -> float:
    return round(100 * float(share), 1)


def claims(flows: int, n: int, corrections: Sequence[str], experiments: int, seed: int = 0) -> dict[str, float]:
    """Percent of experiments with flows that are equally good in which any difference is claimed on any measure."""
    random, claimed = np.random.default_rng((seed, flows, n)), Counter[str]()
    for number in range(experiments):
        p: list[float] = []
        exclusions: list[bool] = []
        for _ in range(5):
            hard = random.beta(2, 2, (n, 1))
            sample = Sample(0.7 * hard + 0.3 * random.beta(1, 1, (n, flows)), resamples=RESAMPLES, seed=number)
            for i in range(flows):
                for j in range(i):
                    p.append(sample.p(i, j))
                    exclusions.append(sample.difference(i, j).excludes_zero)
        for correction in corrections:
            adjusted = CORRECTIONS[correction](p)
            claimed[correction] += any(
                adjusted_p < 0.05 and far for adjusted_p, far in zip(adjusted, exclusions, strict=True)
            )
    return {correction: round(100 * claimed[correction] / experiments, 1) for correction in corrections}


def gate_outcomes(shift: float, graded: bool, n: int, experiments: int, seed: int = 0) -> dict[str, float]:
    """Percent of gates with a tolerance of 0.05 that say each thing of a flow that is better by `shift` in truth."""
    random, verdict_counts = np.random.default_rng((seed, n, graded)), Counter[str]()
    for number in range(experiments):
        then, now = (moved_grades if graded else moved_answers)(random, n, shift)
        sample = Sample(
            np.stack([then, now], axis=1), range=(-1, 1) if graded else UNIT, resamples=RESAMPLES, seed=number
        )
        change, change_count = sample.difference(1, 0), int((then != now).sum())
        verdict_counts[GateVerdict("R@1", None, None, change, sample.p(1, 0), 0.05, change_count, 0, True).outcome] += 1
    return {
        outcome: round(100 * verdict_counts[outcome] / experiments, 1)
        for outcome in ("not worse", "undecided", "worse")
    }


def moved_answers(random: Random, n: int, shift: float) -> tuple[Floats, Floats]:
    """Right or wrong, of which one in ten changed, a few more of them to the worse or the better."""
    gained, lost = 0.05 + shift / 2, 0.05 - shift / 2
    kind = random.choice(4, size=n, p=[gained, lost, 0.6, 0.4 - gained - lost])
    return ((kind == 1) | (kind == 2)).astype(float), ((kind == 0) | (kind == 2)).astype(float)


def moved_grades(random: Random, n: int, shift: float) -> tuple[Floats, Floats]:
    """A score that has all values, of which a third changed."""
    then = random.uniform(0.3, 0.7, n)
    changes = np.where(random.random(n) < 1 / 3, random.uniform(-0.2, 0.2, n) + 3 * shift, 0.0)
    return then, then + changes


def cpu_s(work: Callable[[], object], runs: int = 3) -> float:
    times = []
    for _ in range(runs):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return round(min(times), 3)


def costs() -> dict[str, float]:
    """CPU seconds: 10,000 resamples of 20 flows on 1,000 questions, and an experiment that was done before."""
    scores = np.random.default_rng(1).beta(2, 3, (1000, 20))
    pairs = [(i, j) for i in range(20) for j in range(i)]

    def intervals() -> None:
        sample = Sample(scores)
        for flow in range(20):
            sample.interval(flow)

    def everything() -> None:
        sample = Sample(scores)
        for flow in range(20):
            sample.interval(flow)
        for ours, theirs in pairs:
            sample.difference(ours, theirs)
            sample.p(ours, theirs)

    return {
        "20 intervals": cpu_s(intervals),
        "and 190 paired intervals and tests": cpu_s(everything),
        "100 questions, 2 flows, 7 measures, asked before": repeat_experiment(),
    }


def by_hand(flows: Mapping[str, Any], items: Sequence[Item], measures: Sequence[SetMeasure], path: Path) -> None:
    """Ask flows questions and measure the results as a script would: for each result one line of JSON with the ids and
    scores of its hits and what the measures say, and at the end the mean of each measure.

    An experiment keeps more: what each retriever found, with the texts, how long each answer took and which steps were
    called, so that it can go on after a kill and take other measures later; and it reports intervals and paired tests.
    """
    names = [str(measure) for measure in measures]
    scores: dict[str, list[list[float]]] = {name: [] for name in flows}
    with path.open("w") as file:
        for name, flow in flows.items():
            for item in items:
                ranking = flow(Query(item.question))
                case = Case(item, ranking)
                row = [(measure.observe(case) or (math.nan,))[0] for measure in measures]
                scores[name].append(row)
                hits = [(hit.node.id, hit.score) for hit in ranking.hits]
                line = {"flow": name, "question": item.id, "hits": hits, "scores": dict(zip(names, row, strict=True))}
                file.write(json.dumps(line) + "\n")
        means = {name: np.mean(rows, axis=0).tolist() for name, rows in scores.items()}
        file.write(json.dumps({"measures": names, "means": means}) + "\n")


def beside_by_hand() -> float:
    """Return how many times the CPU of the same by hand an experiment takes: same questions, flows and measures, asked
    in turn. Each is measured in pairs one after the other, of which the cheapest counts: others use the machine."""
    random = np.random.default_rng(3)
    names = [f"name{number}" for number in range(2000)]
    embedder = HashingEmbedder()
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(str(Path(folder) / "texts.spolia"))
        add_texts(corpus, {name: f"{' '.join(random.choice(TEXT, 60))} {name}" for name in names}, embedder=embedder)
        chunks = corpus.group("chunk")
        hybrid = Branch(BM25(chunks, top_k=50), Dense(chunks, embedder, top_k=50)) >> ReciprocalRankFusion(top_k=10)
        flows = {"words": BM25(chunks, top_k=10), "hybrid": hybrid}
        items = [Item(name, f"when did the keeper light {name}", gold=((f"text:{name}",),)) for name in names[:200]]
        measures = parse_measures("R@1,R@5,R@10,full@5,full@10,MRR,nDCG@10")

        def loop() -> None:
            with tempfile.TemporaryDirectory() as place:
                by_hand(flows, items, measures, Path(place) / "results.jsonl")

        def experiment() -> None:
            with tempfile.TemporaryDirectory() as place:
                Experiment(flows, items, measures).run(path=Path(place) / "one.experiment")

        loop()
        experiment()
        costs = [(cpu_s(experiment, 1), cpu_s(loop, 1)) for _ in range(PAIRS)]
    return round(min(ours for ours, _ in costs) / min(theirs for _, theirs in costs), 2)


def repeat_experiment() -> float:
    asked_texts: list[str] = []

    @step
    def first(query: Query) -> Ranking:
        asked_texts.append(query.text)
        return Ranking(query, tuple(Hit(Node(f"p{(int(query.text) + i) % 7}", "text " * 50), 1.0) for i in range(10)))

    @step
    def second(query: Query) -> Ranking:
        return first(query).cut(3)

    items = [Item(f"q{i}", str(i), gold=((f"p{i % 9}",),), type=f"kind {i % 3}") for i in range(100)]
    experiment = Experiment(
        {"first": first, "second": second}, items, parse_measures("R@1,R@5,R@10,full@5,full@10,MRR,nDCG@10")
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "again.experiment"
        experiment.run(path=path)
        asked_before = len(asked_texts)
        seconds = cpu_s(lambda: experiment.run(path=path))
        assert len(asked_texts) == asked_before
    return seconds


HELD = "percent of 95 % intervals that hold the true number"


def coverages(experiments: int) -> dict[str, Any]:
    return {
        HELD: {
            "expected": coverage(EXPECTED, experiments),
            "hard": coverage(HARD, experiments),
            "exact, Wilson": exact(np.arange(0.05, 0.951, 0.01)),
            "exact, Wilson, shares from 0.95 to 0.998": exact(np.arange(0.95, 0.9985, 0.001)),
            "exact, Tango, shares that only one has right": exact_pairs(),
        }
    }


def coverages_of_totals(experiments: int) -> dict[str, Any]:
    return {
        HELD: {
            f"totals, {kind} ({experiments} experiments)": {
                name: {str(n): totals(name, n, experiments, kind == "paired") for n in SIZES} for name in TOTALS
            }
            for kind in ("plain", "paired")
        }
    }


def false_claims(experiments: int) -> dict[str, Any]:
    return {
        "percent of experiments that claim a difference where there is none": {
            f"{flows} flows, 5 measures, 100 questions, {correction}": percent
            for flows, corrections in ((2, ("holm",)), (4, ("holm", "bh", "none")))
            for correction, percent in claims(flows, 100, corrections, experiments).items()
        }
    }


def false_claims_of_totals(experiments: int) -> dict[str, Any]:
    return {
        "percent of experiments with 2 flows that claim a difference of totals where there is none": {
            name: {str(n): total_claims(name, n, experiments) for n in (2, 3, 5, 10, 30, 100)} for name in TOTALS
        }
    }


def gates(experiments: int) -> dict[str, Any]:
    return {
        "percent of gates with a tolerance of 5 points that say so, by how much better the flow is in truth": {
            f"{kind}, {n} questions": {
                f"{100 * shift:+g} points": gate_outcomes(shift, kind == "graded", n, experiments)
                for shift in (0.0, -0.05, -0.1)
            }
            for kind in ("binary", "graded")
            for n in SIZES
        }
    }


PARTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "coverage": coverages,
    "totals": coverages_of_totals,
    "claims": false_claims,
    "claims-of-totals": false_claims_of_totals,
    "gates": gates,
    "costs": lambda _: {"CPU seconds": costs(), "CPU": {"an experiment, times a plain loop": beside_by_hand()}},
}
"""By name; `totals` takes fewer experiments."""


def main() -> None:
    from results import publish  # type: ignore[import-not-found]  # here, since tests import this file from elsewhere

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=1000)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    has_previous = set(options.only) != set(PARTS) and options.out and options.out.exists()
    result: dict[str, Any] = json.loads(options.out.read_text()) if has_previous else {}
    result |= {"python": platform.python_version(), "experiments": options.experiments, "resamples": RESAMPLES}
    for name in options.only:
        began = time.process_time()
        experiment_count = min(FEWER, options.experiments) if name == "totals" else options.experiments
        tables = PARTS[name](experiment_count)
        took = {"cpu_s": round(time.process_time() - began, 1), "load": round(os.getloadavg()[1], 1)}
        result["parts"] = result.get("parts", {}) | {name: {"experiments": experiment_count, **took}}
        for title, numbers in tables.items():
            result[title] = result.get(title, {}) | numbers
    publish("experiments", result, options.out)


if __name__ == "__main__":
    main()

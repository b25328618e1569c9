"""What measuring costs: 12 measures of 1,000 rankings of 100 passages, 1,000 answers, one of a million characters.

    python benchmarks/measures.py [--rounds 5] [--out FILE]

CPU seconds of the process, the least of some rounds, beside the packages that the tests compare with. Theirs are given
what they take (dictionaries of scores, texts), ours what a flow gives.
"""

from __future__ import annotations

import argparse
import platform
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytrec_eval
import sacrebleu
from results import publish
from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped]

from spolia.evaluation.measures.measure import Case, measured
from spolia.evaluation.measures.registry import parse_measure
from spolia.types import Answer, Hit, Item, Node, Query, Ranking

QUESTIONS, FOUND, POOL = 1_000, 100, 10_000
RETRIEVAL = {
    "R@10": "recall_10",
    "R@100": "recall_100",
    "P@10": "P_10",
    "Hit@10": "success_10",
    "full@10": None,
    "MRR": "recip_rank",
    "MAP": "map",
    "nDCG@10": "ndcg_cut_10",
    "nDCG@100": "ndcg_cut_100",
    "Rprec": "Rprec",
    "SetR": "set_recall",
    "SetF1": "set_F",
}
ANSWERS = ("EM", "F1", 'F1(words="unicode")', "Acc", "ROUGE-1", "ROUGE-L", "BLEU", "METEOR-no-synonyms")
WORDS = [
    "the",
    "moon",
    "pulls",
    "sea",
    "and",
    "it",
    "is",
    "caused",
    "by",
    "of",
    "in",
    "a",
    "tide",
    "twice",
    "day",
    "when",
    "sun",
    "new",
    "full",
    "low",
    "high",
    "water",
]
ANSWER_WORDS, LONG = 60, 1_000_000


def least_seconds(work: Callable[[], object], rounds: int) -> float:
    """CPU seconds, the least of some rounds."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return round(min(times), 4)


def rankings() -> list[Case]:
    """Questions with 1 to 5 graded passages, some of which are found."""
    draw, cases = random.Random(1), []
    for number in range(QUESTIONS):
        passages = [f"passage-{name}" for name in draw.sample(range(POOL), FOUND)]
        gold = [*draw.sample(passages, draw.randint(0, 3)), *(f"gold-{name}" for name in range(draw.randint(1, 2)))]
        grades = tuple((name, float(draw.randint(1, 3))) for name in gold)
        item = Item(f"q{number}", "?", gold=tuple((name,) for name in gold), grades=grades)
        hits = tuple(Hit(Node(f"{name}-1", "", name), float(-rank)) for rank, name in enumerate(passages))
        cases.append(Case(item, Ranking(Query("?"), hits)))
    return cases


def answers(count: int) -> list[Case]:
    draw = random.Random(2)
    texts = [" ".join(draw.choices(WORDS, k=ANSWER_WORDS)) for _ in range(2 * count)]
    return [
        Case(Item("q", "?", answers=(gold,)), Answer(text)) for gold, text in zip(texts[::2], texts[1::2], strict=True)
    ]


def trec(cases: Sequence[Case], rounds: int) -> float:
    """The same questions by pytrec_eval, the measures that it has."""
    qrels = {case.item.id: {passage: int(grade) for passage, grade in case.item.grades} for case in cases}
    runs: dict[str, dict[str, float]] = {}
    for case in cases:
        assert isinstance(case.result, Ranking)
        runs[case.item.id] = {hit.node.document: hit.score for hit in case.result.hits}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {name for name in RETRIEVAL.values() if name})
    return least_seconds(lambda: evaluator.evaluate(runs), rounds)


def of_answers(rounds: int) -> dict[str, Any]:
    cases = answers(QUESTIONS)
    times: dict[str, Any] = {measure: time_measures([measure], cases, rounds) for measure in ANSWERS}
    golds, texts = [case.item.answers[0] for case in cases], [getattr(case.result, "text", "") for case in cases]
    scorer = RougeScorer(["rougeL"])
    pairs = list(zip(golds, texts, strict=True))
    peers = {
        "rouge-score, ROUGE-L": least_seconds(lambda: [scorer.score(gold, text) for gold, text in pairs], 1),
        "sacrebleu, BLEU": least_seconds(lambda: sacrebleu.corpus_bleu(texts, [golds]), rounds),
    }
    return {"spolia": times, "peers": peers}


def of_a_long_answer() -> dict[str, float]:
    """Seconds for one answer: twice the characters, so that what grows with the square is seen."""
    (case,) = answers(1)
    costs = {}
    for measure in ANSWERS:
        for times in (1, 2):
            long = Case(case.item, Answer("the moon pulls " * (times * LONG // 15)))
            costs[f"{measure}, {times * LONG:,} characters"] = time_measures([measure], [long], 1)
    return costs


def time_measures(names: Sequence[str], cases: Sequence[Case], rounds: int) -> float:
    measures = [parse_measure(name) for name in names]
    return least_seconds(lambda: [measured(measure, cases) for measure in measures], rounds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cases = rankings()
    result: dict[str, Any] = {
        "unit": "CPU seconds",
        "python": platform.python_version(),
        "retrieval": {
            "questions": QUESTIONS,
            "found": FOUND,
            "measures": list(RETRIEVAL),
            "spolia": time_measures(list(RETRIEVAL), cases, options.rounds),
            "pytrec_eval, without full@10": trec(cases, options.rounds),
        },
        f"answers of {ANSWER_WORDS} words, {QUESTIONS:,} questions": of_answers(options.rounds),
        "one long answer": of_a_long_answer(),
    }
    publish("measures", result, options.out)


if __name__ == "__main__":
    main()

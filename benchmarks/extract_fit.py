"""Where the constants of `Extract` come from: fits the weights of the clues, the price of a word, the confidence.

    python benchmarks/extract_fit.py [--out FILE]

Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout. The passages of squad_newwiki and squad2_dev are
dealt out, article by article, into corpora of about 240 passages, each searched by the flow `hybrid`. Fitted on three
corpora of squad_newwiki and one of squad2_dev, checked on one other of each. No data set that results are reported on
is read. About 10 CPU-minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from results import publish

from spolia.core.operator import Operator
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.flow_files.built_in_flows import hybrid
from spolia.generation.extract import Clues, Extract, PassageSentences, clues, cosines, count_words
from spolia.models.onnx.minilm import MiniLM
from spolia.types import Item, Query, Ranking

DATA = Path(os.environ.get("SPOLIA_DATASETS") or Path(__file__).resolve().parents[2] / "shared" / "datasets")
EMBEDDER = MiniLM()
Floats = npt.NDArray[np.float64]
BY_HAND = {"idle": -99.0, "definition": 5.0, "whole": 0.0}
"""1 in 250 questions of squad2_dev asks for a definition that a sentence opens with: too few to fit a weight."""


def corpora(name: str, folder: Path, size: int = 240) -> list[DataSet]:
    """The passages of a data set dealt out, article by article, into data sets of about `size` passages."""
    data = DataSet(str(DATA / name))
    passages = sorted(data.passages(), key=lambda passage: (passage.title, passage.id))
    parts = max(1, round(len(passages) / size))
    for part in range(parts):
        (folder / f"{name}-{part}").mkdir()
        rows = [{"id": p.id, "title": p.title, "text": p.text} for p in passages[part::parts]]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}-{part}" / "corpus.jsonl").write_text(lines, encoding="utf-8")
    return [DataSet(str(folder / f"{name}-{part}")) for part in range(parts)]


def build_search(part: DataSet, folder: Path) -> Operator[Query, Ranking]:
    return hybrid(index_passages(part, EMBEDDER, folder=folder), EMBEDDER)


@dataclass
class Row:
    """A question: the clues of the sentences found, which of them hold the answer, and their lengths."""

    lexical: Floats
    embedded: Floats
    cosines: Floats
    gold: npt.NDArray[np.bool_]
    lengths: Floats


def rows(flow: Operator[Query, Ranking], items: Sequence[Item]) -> list[Row]:
    extract, new_rows = Extract(EMBEDDER), []
    for first in range(0, len(items), 500):
        block = items[first : first + 500]
        rankings = [ranking.cut(extract.passages) for ranking in flow.batch([Query(item.question) for item in block])]  # type: ignore[union-attr]
        reads = [PassageSentences(ranking) for ranking in rankings]
        for item, read, likeness in zip(block, reads, cosines(reads, EMBEDDER), strict=True):
            lexical = clues(read.question, read.passages, extract.analyzer)
            embedded = clues(read.question, read.passages, extract.analyzer, likeness)
            passage = dict(item.meta)["passage_id"]
            is_gold = [
                node.document == passage
                for node in read.ranking.nodes
                for _ in read.passages[read.ranking.nodes.index(node)].sentences
            ]
            gold = [
                here and any(a in text for a in item.answers)
                for here, text in zip(is_gold, read.sentences, strict=True)
            ]
            lengths = [count_words(sentence) for sentence in read.sentences]
            new_rows.append(
                Row(np.array(lexical), np.array(embedded), np.array(likeness), np.array(gold), np.array(lengths))
            )
    return new_rows


def fit_weights(features: Sequence[Floats], gold: Sequence[npt.NDArray[np.bool_]], steps: int = 400) -> Floats:
    """Weights that maximise Σ ln P(a sentence with the answer), by Adam; those in `BY_HAND` are not fitted."""
    useful_rows = [(x, y) for x, y in zip(features, gold, strict=True) if y.any()]
    x, y = np.concatenate([x for x, _ in useful_rows]), np.concatenate([y for _, y in useful_rows]).astype(float)
    sizes = np.array([len(rows) for rows, _ in useful_rows])
    starts, owner = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(useful_rows)), sizes)
    spread = x.std(axis=0)
    free = (spread > 0) & ~np.isin(Clues._fields, list(BY_HAND))
    z, w = x[:, free] / spread[free], np.zeros(int(free.sum()))
    mean, square = np.zeros_like(w), np.zeros_like(w)
    awake = x[:, Clues._fields.index("idle")] == 0
    defines = BY_HAND["definition"] * x[:, Clues._fields.index("definition")]
    for step in range(1, steps + 1):
        score = np.where(awake, z @ w + defines, -1e9)
        p = np.exp(score - np.maximum.reduceat(score, starts)[owner])
        p /= np.add.reduceat(p, starts)[owner]
        weighted_gold = p * y
        slope = (
            z.T
            @ (p - weighted_gold / np.maximum(np.add.reduceat(weighted_gold, starts), 1e-12)[owner])
            / len(useful_rows)
            + 1e-3 * w
        )
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        w -= 0.05 * mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
    weights = np.zeros(len(spread))
    weights[free] = w / spread[free]
    for name, weight in BY_HAND.items():
        weights[Clues._fields.index(name)] = weight
    return weights


def shares(x: Floats, weights: Floats) -> Floats:
    score = x @ weights
    p: Floats = np.exp(score - score.max())
    return np.asarray(p / p.sum())


def replies(found_rows: Sequence[Row], weights: Floats, price: float) -> tuple[float, float]:
    """Share of the replies with the answer, and their mean words, at a price of a word."""
    hits, words = 0, 0.0
    for row in found_rows:
        p = shares(row.lexical if not weights[-1] else row.embedded, weights)
        chosen = (p > price * row.lengths) | (np.arange(len(p)) == p.argmax())
        hits, words = hits + bool(row.gold[chosen].any()), words + float(row.lengths[chosen].sum())
    return hits / len(found_rows), words / len(found_rows)


def find_price(found_rows: Sequence[Row], weights: Floats, words: float) -> float:
    """The price of a word at which replies have so many words on average."""
    low, high = 1e-6, 0.5
    for _ in range(20):
        price = float(np.sqrt(low * high))
        low, high = (price, high) if replies(found_rows, weights, price)[1] > words else (low, price)
    return high


def logistic(x: Floats, y: Floats, rounds: int = 25) -> Floats:
    """Intercept and weights of a logistic regression, by Newton's method."""
    x = np.column_stack([np.ones(len(x)), x])
    w = np.zeros(x.shape[1])
    for _ in range(rounds):
        p = 1 / (1 + np.exp(-x @ w))
        w += np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + 1e-3 * np.eye(len(w)), x.T @ (y - p))
    return w


def best_sentences(found_rows: Sequence[Row], weights: Floats) -> Floats:
    """`near`, `whole` and the cosine of the best sentence of each question."""
    near, whole = Clues._fields.index("near"), Clues._fields.index("whole")
    picked = [(row, int(((row.lexical if not weights[-1] else row.embedded) @ weights).argmax())) for row in found_rows]
    return np.array([(row.lexical[best, near], row.lexical[best, whole], row.cosines[best]) for row, best in picked])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        result = fit(Path(temporary))
    publish("extract_fit", result, options.out)


def fit(folder: Path) -> dict[str, Any]:
    newwiki, squad2 = corpora("squad_newwiki", folder)[:4], corpora("squad2_dev", folder)
    questions: dict[str, list[Item]] = defaultdict(list)
    for name in ("squad_newwiki", "squad2_dev"):
        for item in DataSet(str(DATA / name)).items():
            questions[str(dict(item.meta)["passage_id"])].append(item)

    def select_items(part: DataSet, answerable: bool = True) -> list[Item]:
        items = [item for passage in part.passages() for item in questions[passage.id]]
        return [item for item in items if bool(item.answers) == answerable]

    flows = {part.name: build_search(part, folder) for part in (*newwiki, *squad2)}
    tuned = [row for part in (*newwiki[:3], squad2[0]) for row in rows(flows[part.name], select_items(part))]
    checked = {part.name: rows(flows[part.name], select_items(part)) for part in (newwiki[3], squad2[1])}
    answerable = rows(flows[squad2[0].name], select_items(squad2[0]))
    foreign = rows(
        flows[squad2[0].name],
        random.Random(0).sample(select_items(newwiki[0]), min(len(answerable), len(select_items(newwiki[0])))),
    )
    unanswerable = rows(flows[squad2[0].name], select_items(squad2[0], answerable=False))
    result: dict[str, Any] = {
        "tuned_questions": len(tuned),
        "checked_questions": {k: len(v) for k, v in checked.items()},
    }
    for kind in ("lexical", "embedded"):
        weights = fit_weights([getattr(row, kind) for row in tuned], [row.gold for row in tuned])
        prices = {words: find_price(tuned, weights, words) for words in (30, 40, 60, 80, 120)}
        columns = slice(0, 2) if kind == "lexical" else slice(0, 3)
        evidence = {
            name: best_sentences(r, weights)[:, columns]
            for name, r in (("answerable", answerable), ("foreign", foreign), ("unanswerable", unanswerable))
        }
        line = logistic(
            np.concatenate([evidence["answerable"], evidence["foreign"]]),
            np.repeat([1.0, 0.0], [len(answerable), len(foreign)]),
        )
        sure = {name: 1 / (1 + np.exp(-(line[0] + x @ line[1:]))) for name, x in evidence.items()}
        result[kind] = {
            "weights": dict(zip(Clues._fields, weights.round(2).tolist(), strict=True)),
            "price": {words: round(price, 6) for words, price in prices.items()},
            "contained": {
                name: {words: [round(v, 3) for v in replies(r, weights, prices[words])] for words in prices}
                for name, r in checked.items()
            },
            "confidence": line.round(2).tolist(),
            "refused": {
                t: {name: round(float((s < t).mean()), 3) for name, s in sure.items()}
                for t in (0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
            },
        }
    return result


if __name__ == "__main__":
    main()

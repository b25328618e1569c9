"""How often a reply of `Extract`, made without a language model, contains the answer; in how many words; at what cost.

    python benchmarks/extract.py [--data NAME] [--limit N] [--out FILE]

Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout; by default xquad_en,
whose answers one number was chosen by: the constant of the confidence without an embedder.
All its passages are indexed into a store of its own and searched by the flow `hybrid` (and by `bm25`, for `Extract`
without an embedder). A reply counts when some gold answer is part of it, both without case, punctuation and articles
(the normalisation of SQuAD), the markers of its citations taken out; an abstention counts as wrong. Words are those of
the reply between blanks, without the markers and, beside that, with them. One thread.
"""

from __future__ import annotations

import argparse
import os
import re
import string
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results import publish

from spolia.core.operator import Operator
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.statistics.sample import interval
from spolia.flow_files.built_in_flows import bm25, hybrid
from spolia.generation.extract import Extract, count_words
from spolia.models.onnx.minilm import MiniLM
from spolia.types import Answer, Item, Query, Ranking

DATA = Path(os.environ.get("SPOLIA_DATASETS") or Path(__file__).resolve().parents[2] / "shared" / "datasets")
WORDS = (28, 30, 40, 60, 75, 80)
TIMED = 100
# Share in percent and mean words, measured apart from this project, with sentences ranked over the whole corpus.
REFERENCE = {
    "one sentence": {"BM25": 72.5, "MiniLM": 70.1, "their rank fusion": 75.4, "words": 28},
    "three sentences": {"their rank fusion": 89.7, "words": 79},
}
REACH = ((0.78, 30), (0.91, 80))  # at least this share, in at most so many words on average
_MARKER = re.compile(r" \[\d+\]")
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """Lower case, no punctuation, no articles, single blanks: as the script of SQuAD does it.

    Source: Rajpurkar et al., EMNLP 2016.
    """
    plain_text = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", plain_text).split())


def plain_reply(answer: Answer) -> str:
    """The reply without the markers of its citations, whose numbers could be taken for an answer."""
    return _MARKER.sub("", answer.text)


def contains_gold(answer: Answer, golds: Sequence[str]) -> bool:
    reply = normalise(plain_reply(answer))
    return not answer.abstained and any(gold in reply for gold in map(normalise, golds) if gold)


def measure(extract: Extract, rankings: Sequence[Ranking], items: Sequence[Item]) -> dict[str, Any]:
    answers = [answer for answer in extract.batch(rankings) if isinstance(answer, Answer)]
    share = interval([float(contains_gold(a, item.answers)) for a, item in zip(answers, items, strict=True)])
    lengths = [count_words(plain_reply(answer)) for answer in answers]
    return {
        "contained": {"mean": share.mean, "low": share.low, "high": share.high},
        "words": sum(lengths) / len(answers),
        "words_with_markers": sum(lengths) / len(answers) + sum(len(a.citations) for a in answers) / len(answers),
        "sentences": sum(len(answer.citations) for answer in answers) / len(answers),
        "longest": max(lengths),
        "abstained": sum(answer.abstained for answer in answers) / len(answers),
    }


def reach_goals(by_words: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """For each goal, the best share among the replies that are short enough."""
    points = []
    for share, words in REACH:
        best = max((row["contained"]["mean"] for row in by_words.values() if row["words"] <= words), default=0.0)
        points.append({"goal": share, "words": words, "contained": best, "reached": best >= share})
    return points


def cpu_ms(extract: Extract, rankings: Sequence[Ranking]) -> float:
    """CPU milliseconds of one reply, asked for one at a time."""
    started = time.process_time()
    for ranking in rankings:
        extract(ranking)
    return 1000 * (time.process_time() - started) / len(rankings)


def rank_all(flow: Operator[Query, Ranking], items: Sequence[Item]) -> list[Ranking]:
    return [ranking for ranking in flow.batch([Query(item.question) for item in items]) if isinstance(ranking, Ranking)]


def result(name: str, limit: int | None) -> dict[str, Any]:
    data, embedder = DataSet(str(DATA / name)), MiniLM(threads=1)
    items = [item for item in data.sample(limit) if item.answers]
    with tempfile.TemporaryDirectory() as folder:
        group = index_passages(data, embedder, folder=Path(folder))
        rankings = {"bm25": rank_all(bm25(group), items), "hybrid": rank_all(hybrid(group, embedder), items)}
    extracts = {"bm25": Extract(), "hybrid": Extract(embedder)}
    flows: dict[str, Any] = {}
    for flow, extract in extracts.items():
        rows = {words: measure(extract.but(words=words), rankings[flow], items) for words in WORDS}
        flows[f"{flow} >> Extract"] = {
            "by_words": rows,
            "reach": reach_goals(rows),
            "cpu_ms_a_question": round(cpu_ms(extract, rankings[flow][:TIMED]), 2),
        }
    return {
        "data": name,
        "n": len(items),
        "flows": flows,
        "cpu_ms_besides_embedding": round(cpu_ms(Extract(), rankings["hybrid"][:TIMED]), 2),
        "passages_read": Extract().passages,
        "reference": REFERENCE if name == "xquad_en" else {},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="xquad_en")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    publish("extract", result(options.data, options.limit), options.out)


if __name__ == "__main__":
    main()

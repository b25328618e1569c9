"""Distinct real sentences of the data sets and their vectors, embedded once and kept in `~/.cache/spolia-benchmarks`.

    python benchmarks/sentences.py [--count 100000]

Embedding takes a quarter of an hour and more on one core. It is resumed where it was stopped, and what is there can be
used before it is done: sentences are embedded in an order that was shuffled once, so that any first part of them is a
fair sample.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spolia.core.sentences import sentences
from spolia.models.onnx.minilm import MiniLM

DATA = Path(os.environ.get("SPOLIA_DATASETS") or Path(__file__).resolve().parents[2] / "shared" / "datasets")
CACHE = Path.home() / ".cache" / "spolia-benchmarks"
NAMES = (
    *("2wikimultihopqa", "aragog", "cisi", "covid_qa", "cranfield", "hotpotqa"),
    *("musique", "policy_qa", "pubmedqa", "squad2_dev", "squad_newwiki", "xquad_en"),
)
ASKED = ["squad2_dev", "covid_qa", "pubmedqa", "musique", "hotpotqa", "policy_qa"]
SHORTEST, LONGEST = 20, 400  # characters; what is longer is text without marks between its sentences
AT_ONCE = 2_000


def lines(name: str, part: str) -> Iterator[dict[str, Any]]:
    """The rows of a part of a data set."""
    plain = DATA / name / f"{part}.jsonl"
    packed = plain.with_name(f"{plain.name}.gz")
    with plain.open(encoding="utf-8") if plain.exists() else gzip.open(packed, "rt", encoding="utf-8") as rows:
        for row in rows:
            yield json.loads(row)


def distinct(count: int) -> list[tuple[str, str]]:
    """Distinct English sentences, each with the data set that it was first met in, shuffled once."""
    set_by_sentence: dict[str, str] = {}
    for name in NAMES:
        for row in lines(name, "corpus"):
            for start, end in sentences(row["text"]):
                sentence = " ".join(row["text"][start:end].split())
                if SHORTEST <= len(sentence) <= LONGEST:
                    set_by_sentence.setdefault(sentence, name)
    pairs = sorted(set_by_sentence.items())
    random.Random(0).shuffle(pairs)
    return pairs[:count]


def questions(count: int) -> list[str]:
    """Distinct questions that people asked, an equal share from each of some data sets."""
    share = -(-count // len(ASKED))
    chosen: dict[str, None] = {}
    for name in ASKED:
        own = sorted({row["question"] for row in lines(name, "questions")} - chosen.keys())
        random.Random(0).shuffle(own)
        chosen.update(dict.fromkeys(own[:share]))
    return list(chosen)[:count]


def vectors(texts: list[str], name: str, *, embed: bool = True) -> npt.NDArray[np.float32]:
    """Rows for the texts, from the cache as far as they are there.

    Args:
        name: of the folder in the cache; another list of texts needs another.
        embed: what is missing; if not, the rows that are there are returned.
    """
    folder, model = CACHE / name, MiniLM()
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for start in range(0, len(texts), AT_ONCE):
        path = folder / f"{start:07}.npy"
        if not path.exists():
            if not embed:
                break
            new_vectors = model.embed(texts[start : start + AT_ONCE], kind="passage")
            np.save(temporary := path.with_name("making.npy"), new_vectors)
            temporary.rename(path)
            print(f"{start + len(new_vectors)} of {len(texts)}", flush=True)
        parts.append(np.load(path))
    return np.concatenate(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    options = parser.parse_args()
    vectors(questions(500), "questions")
    pairs = distinct(options.count)
    print(len(pairs), "distinct sentences")
    vectors([sentence for sentence, _ in pairs], "sentences")


if __name__ == "__main__":
    main()

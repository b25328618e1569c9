"""What a row of scores costs: 100 flows on 100 questions, three measures; a row is one flow on one question.

    python benchmarks/score_rows.py [--out FILE]

CPU-µs a row: asked and kept, read again with nothing to ask, and with a new measure of the stored answers. Beside it,
what is left once the arrays are there: the mean of every flow on every measure.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results import publish

from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.evaluation.experiment.execution import ask
from spolia.types import Hit, Item, Node, Query, Ranking

FLOWS, QUESTIONS, FOUND = 100, 100, 10
MEASURES, ADDED = "R@5,R@10,nDCG@10", ",MRR"
NODES = [Node(f"p{number}", f"passage {number} " * 40, f"d{number}") for number in range(700)]
ITEMS = [Item(f"q{number}", str(number), gold=((f"d{7 * number}",),)) for number in range(QUESTIONS)]


@step
def neighbours(query: Query) -> Ranking:
    first = 7 * int(query.text)
    return Ranking(
        query, tuple(Hit(NODES[(first + 3 * index) % 700], 1 / (1 + index)) for index in range(FOUND)), "made"
    )


@dataclass(frozen=True)
class Turned(Operator[Ranking, Ranking]):
    """The hits from another one on."""

    by: int = 0

    def apply(self, value: Ranking) -> Ranking:
        return value.but(hits=value.hits[self.by % FOUND :] + value.hits[: self.by % FOUND])


def cpu_us(work: Callable[[], object], rounds: int = 1) -> float:
    """Of a row, at least."""
    seconds = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return round(1e6 * min(seconds) / FLOWS / QUESTIONS, 2)


def measure() -> dict[str, Any]:
    def scores(measures: str = MEASURES) -> Any:
        flows = {
            f"flow {number}": neighbours >> Turned(number) for number in range(FLOWS)
        }  # new ones, as in a new process
        return ask(flows, ITEMS, measures, path=path)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.experiment"
        first_us = cpu_us(scores)
        size = path.stat().st_size
        second_us, table = cpu_us(scores, 5), scores()
        assert table.asked == 0
        times = {
            "asked and kept": first_us,
            "from the file": second_us,
            "means of the arrays": cpu_us(lambda: table.scores.mean(axis=1), 5),
        }
        times["with one measure more"] = cpu_us(lambda: scores(MEASURES + ADDED))
    return {"CPU-µs a row": times, "bytes a row": round(size / FLOWS / QUESTIONS)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    about = {"flows": FLOWS, "questions": QUESTIONS, "measures": MEASURES, "passages found": FOUND}
    publish("score_rows", about | {"python": platform.python_version()} | measure(), options.out)


if __name__ == "__main__":
    main()

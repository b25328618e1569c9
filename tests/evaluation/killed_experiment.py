"""An experiment in a process of its own, which kills itself, or waits to be killed: `python -m … FILE [AT]`."""

from __future__ import annotations

import os
import signal
import sys

from spolia.core.function import step
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.measures.registry import parse_measures
from spolia.types import Hit, Item, Node, Query, Ranking

ITEMS = [Item(f"q{i}", f"question {i}", gold=((f"p{i % 3}",),)) for i in range(20)]


@step
def same(query: Query) -> Ranking:
    if query.text.endswith(f" {os.environ.get('KILLED_AT')}"):
        os.kill(os.getpid(), signal.SIGKILL)
    if "LOG" in os.environ:
        with open(os.environ["LOG"], "a") as log:
            log.write(f"{query.text}\n")
    return Ranking(query, (Hit(Node("p1", "text"), 1.0),))


def experiment() -> Experiment:
    return Experiment({"same": same}, ITEMS, parse_measures("R@1,MRR"), data="twenty")


if __name__ == "__main__":
    experiment().run(path=sys.argv[1])

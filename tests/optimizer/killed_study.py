"""A study that may kill or interrupt its process in the middle."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random

from spolia.core.operator import Operator
from spolia.optimizer.progress import StudyProgress
from spolia.optimizer.sweeps import SweepProcesses
from spolia.optimizer.tuned_flow import TunedFlow
from spolia.optimizer.tuning import tune
from spolia.types import Hit, Item, Node, Query, Ranking

ITEMS = [Item(f"q{at}", f"question {at}", gold=(("gold",),)) for at in range(40)]
NODES = [Node("gold", ""), *(Node(f"n{at}", "") for at in range(5))]


@dataclass(frozen=True)
class Finds(Operator[Query, Ranking]):
    """The gold passage, the sooner the greater the skill; `asked` as an experiment asks, else swept."""

    skill: int = 0
    asked: bool = False

    def calls(self, rows: int | None = None, /) -> int | None:
        return None if self.asked else 0

    def apply(self, value: Query, /) -> Ranking:
        at = max(0, Random(value.text).randrange(6) - self.skill)
        order = [*NODES[1 : at + 1], NODES[0], *NODES[at + 1 :]]
        return Ranking(value, tuple(Hit(node, 1.0 / (1 + rank)) for rank, node in enumerate(order)), "finds")


def study(folder: str, dies_after: float = float("inf"), by: int = signal.SIGKILL, processes: int = 0) -> TunedFlow:
    def told(progress: StudyProgress) -> None:
        if progress.done >= dies_after:
            (os.kill if by == signal.SIGKILL else os.killpg)(os.getpid(), by)  # a terminal interrupts the group

    space = Finds().vary("skill", skill=[0, 1, 2, 3, 4, 5]).vary("asked", asked=[False, True])
    with SweepProcesses(processes) if processes else nullcontext() as executor:
        return tune(space, ITEMS, "MRR", budget="70%", seed=4, path=folder, told=told, executor=executor)

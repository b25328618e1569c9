"""A study that may kill or interrupt its process in the middle."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from dataclasses import dataclass

from spolia.optimizer.progress import StudyProgress
from spolia.optimizer.sweeps import SweepProcesses
from spolia.optimizer.tuned_flow import TunedFlow
from spolia.optimizer.tuning import tune

from .finds import Finds, questions


@dataclass(frozen=True)
class Asked(Finds):
    """`asked` as an experiment asks, else swept."""

    asked: bool = False

    def calls(self, rows: int | None = None, /) -> int | None:
        return None if self.asked else 0


def study(
    folder: str, dies_after: float = float("inf"), signal_number: int = signal.SIGKILL, processes: int = 0
) -> TunedFlow:
    def kill_study(progress: StudyProgress) -> None:
        if progress.done >= dies_after:
            (os.kill if signal_number == signal.SIGKILL else os.killpg)(
                os.getpid(), signal_number
            )  # a terminal interrupts the group

    space = Asked().vary("skill", skill=[0, 1, 2, 3, 4, 5]).vary("asked", asked=[False, True])
    with SweepProcesses(processes) if processes else nullcontext() as executor:
        return tune(
            space, questions(40), "MRR", budget="70%", seed=4, path=folder, on_progress=kill_study, executor=executor
        )

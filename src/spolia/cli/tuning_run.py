"""The best flow of a space, looked for as the options of `spolia tune` say."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from spolia.cli import estimates
from spolia.cli.experiments import SIMULATED, EvaluationRun, EvaluationSetup
from spolia.cli.tuning_screen import estimate_line, leaderboard, tell_study
from spolia.errors import DataError
from spolia.evaluation.experiment.score_store import ScoreStore
from spolia.flow_files.files import dump
from spolia.models.file_hash import cache_folder
from spolia.optimizer.budget import RowCost
from spolia.optimizer.earlier_studies import EarlierStudies, question_marks
from spolia.optimizer.flow_scores import FlowScores
from spolia.optimizer.objectives import Objectives
from spolia.optimizer.pilot import Pilot, StudyEstimate, pilot_flows
from spolia.optimizer.plan import TuningPlan
from spolia.optimizer.report import html
from spolia.optimizer.score_board import FIRST
from spolia.optimizer.study import PILOT
from spolia.optimizer.sweeps import SweepProcesses
from spolia.optimizer.tuned_flow import TunedFlow
from spolia.optimizer.tuning import SHARED_BYTES, tune
from spolia.run import Run
from spolia.types import Query

STUDIES = "studies"
"""Folder of the cache directory with records of studies."""


@dataclass(frozen=True)
class TuningRun(EvaluationRun):
    """A space of flows over the passages and questions of a data set."""

    def tuned(
        self,
        space: str,
        objective: str,
        folder: Path,
        under: Sequence[str],
        cold: bool,
        workers: int,
        processes: int,
        **how: Any,
    ) -> tuple[TunedFlow, Mapping[str, str]]:
        """The best flow of a space, and its files by name: the flow file and the report."""
        ready = self.ready([space], objective)
        (flow,) = ready.flows.values()
        given = self.given
        asks = flow.calls() != 0 and given.llm != SIMULATED
        if asks and not any((how["budget"], given.budget_calls, given.budget_tokens, given.budget_usd)):
            asking = "ask" if flow.calls() else "may ask"  # None: a step does not tell
            raise DataError(
                f"Flows of this space {asking} language models. Write how much they may ask: --budget 5%, '500 calls', "
                "'200k tokens', '2 USD' or 10m; --budget 100% asks everything."
            )
        objectives = Objectives.of(ready.measures, under)
        if asks and sys.stderr.isatty():
            self._tell_estimate(ready, folder, under, how)
        timed, best = objectives.are_timed, objectives.best[0]
        limits = (how["budget"], *(f"{usd} USD" for usd in (given.budget_usd,) if usd is not None))
        with (
            self._recorded(ready, cached=not timed, share=False if timed else SHARED_BYTES, threads=workers) as run,
            leaderboard(self.screen, str(best), best.range == (0.0, 1.0), ", ".join(filter(None, limits))) as told,
            SweepProcesses(processes) if processes else nullcontext() as executor,
            self._usage_log(ready) as usage_log,
        ):
            found = tune(
                flow,
                ready.items,
                ready.measures,
                under=under,
                path=folder,
                run=run,
                usage_log=usage_log,
                degraded=self.given.degraded,
                earlier=None if cold else _earlier(ready),
                told=told,
                executor=executor,
                **how,
            )
        return found, {"best.yaml": dump(found.flow, ready.parts.given()), "report.html": html(found)}

    def _tell_estimate(
        self, ready: EvaluationSetup, folder: Path, under: Sequence[str], how: Mapping[str, Any]
    ) -> None:
        """Print an estimate before models are asked; a budget that is too small raises later."""
        flow = estimates.offline(*ready.flows.values())
        named = {name: how[name] for name in ("budget", "strategy", "seed", "combine")}
        plan = TuningPlan.of(flow, ready.items, ready.measures, under=under, **named)
        pilot = Pilot.read(folder / PILOT) or self._silent_pilot(plan, {})
        with suppress(DataError):
            plan = plan.within(pilot.mean)
        self.screen.say(estimate_line(StudyEstimate.of(plan, pilot, _own_contexts(plan))))

    def tuning_estimated(self, space: str, objective: str, folder: Path, **how: Any) -> None:
        """Say what a study would cost, from a few flows on a few questions, without asking a server."""
        ready = self.ready([space], objective, estimate=True)
        flow = estimates.offline(*ready.flows.values())
        plan = TuningPlan.of(flow, ready.items, ready.measures, seed=self.given.seed, **how)
        found: dict[str, Any] = {}
        pilot = self._free_pilot(plan) if flow.calls() == 0 else self._silent_pilot(plan, found)
        if (known := Pilot.read(folder / PILOT)) is not None:
            pilot = known
        plan = plan.within(pilot.mean)
        whole = StudyEstimate.of(plan, pilot, _own_contexts(plan))
        each = {name: estimated(plan.rows) for name, estimated in found.items()}
        tell_study(self.screen, whole, each, known is not None or not each)

    def _free_pilot(self, plan: TuningPlan) -> Pilot:
        """What scores take that cost only time: these are computed."""
        with _scores(plan) as scores:
            return Pilot.measured(scores, pilot_flows(plan.candidates, (), plan.seed))[0]

    def _silent_pilot(self, plan: TuningPlan, found: dict[str, Any]) -> Pilot:
        """What scores take, from empty to the longest replies, without the time that models need; `found` gets what
        each flow would take."""
        sample = [Query(item.question) for item in plan.choosing[: estimates.SAMPLE]]
        costs: list[RowCost] = []
        for at in pilot_flows(plan.candidates, (), plan.seed):
            flow = plan.candidates.flows[at]
            estimates.silent_use(flow, sample[:1])  # which opens stores
            *uses, seconds = estimates.silent_use(flow, sample)
            costs += [RowCost.of(use.usage, seconds, len(sample)) for use in uses]
            name = ", ".join(map("=".join, plan.candidates.choices(at))) + " (default)" * (not at)
            found[name] = partial(estimates.estimated, flow, uses[1], len(sample))
        means = [sum(numbers) / len(costs) for numbers in zip(*map(astuple, costs), strict=True)]
        return Pilot(RowCost(*means), tuple(costs))


@contextmanager
def _scores(plan: TuningPlan) -> Iterator[FlowScores]:
    """Scores that are not kept."""
    with ScoreStore() as store:
        yield FlowScores(plan.candidates, plan.items, plan.objectives, Run(share=SHARED_BYTES), store)


def _own_contexts(plan: TuningPlan) -> float:
    """The share of the scores to choose that have a context of their own, from a few questions; 1 where a budget
    counts contexts."""
    if plan.budget is not None and not plan.budget.is_share:
        return 1.0
    with _scores(plan) as scores:
        contexts = plan.contexts(scores.items_for, scores.run, FIRST)
        return 1.0 if contexts is None else contexts.total / (plan.candidates.size * contexts.questions)


def _earlier(ready: EvaluationSetup) -> EarlierStudies:
    """The studies of this user, without those of the same data set."""
    return EarlierStudies(cache_folder() / STUDIES, questions=question_marks(ready.data.items()))

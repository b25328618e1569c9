"""Search for the best flow of a space, as the options of `spolia tune` say."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from spolia.cli import estimates
from spolia.cli.experiments import SIMULATED, EvaluationRun, EvaluationSetup
from spolia.cli.tuning_screen import format_estimate, print_study_estimate, show_leaderboard
from spolia.errors import DataError
from spolia.evaluation.experiment.score_store import ScoreStore
from spolia.flow_files.files import dump
from spolia.models.file_hash import cache_folder
from spolia.optimizer.budget import RowCost
from spolia.optimizer.earlier_studies import EarlierStudies, question_marks
from spolia.optimizer.flow_scores import FlowScores
from spolia.optimizer.objectives import Objectives
from spolia.optimizer.pilot import Pilot, StudyEstimate, choose_pilot_flows
from spolia.optimizer.plan import TuningPlan
from spolia.optimizer.report import html
from spolia.optimizer.score_board import FIRST_QUESTIONS
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
    """Space of flows over the passages and questions of a data set."""

    def tune_space(
        self,
        space: str,
        objective: str,
        folder: Path,
        under: Sequence[str],
        cold: bool,
        workers: int,
        processes: int,
        **search_options: Any,
    ) -> tuple[TunedFlow, Mapping[str, str]]:
        """Find the best flow of a space; return it with its files by name: the flow file and the report."""
        ready = self.prepare([space], objective)
        (flow,) = ready.flows.values()
        options = self.options
        asks = flow.calls() != 0 and options.llm != SIMULATED
        if asks and not any(
            (search_options["budget"], options.budget_calls, options.budget_tokens, options.budget_usd)
        ):
            asking = "ask" if flow.calls() else "may ask"  # None: a step does not tell
            raise DataError(
                f"Flows of this space {asking} language models. Write how much they may ask: --budget 5%, '500 calls', "
                "'200k tokens', '2 USD' or 10m; --budget 100% asks everything."
            )
        objectives = Objectives.from_measures(ready.measures, under)
        if asks and sys.stderr.isatty():
            self._print_study_estimate(ready, folder, under, search_options)
        timed, best = objectives.are_timed, objectives.best[0]
        limits = (search_options["budget"], *(f"{usd} USD" for usd in (options.budget_usd,) if usd is not None))
        with (
            self._record_run(ready, cached=not timed, share=False if timed else SHARED_BYTES, threads=workers) as run,
            show_leaderboard(
                self.screen, str(best), best.range == (0.0, 1.0), ", ".join(filter(None, limits))
            ) as on_progress,
            SweepProcesses(processes) if processes else nullcontext() as executor,
            self._open_usage_log(ready) as usage_log,
        ):
            tuned_flow = tune(
                flow,
                ready.items,
                ready.measures,
                under=under,
                path=folder,
                run=run,
                usage_log=usage_log,
                degraded=self.options.degraded,
                earlier=None if cold else _open_earlier_studies(ready),
                on_progress=on_progress,
                executor=executor,
                **search_options,
            )
        return tuned_flow, {"best.yaml": dump(tuned_flow.flow, ready.parts.by_name()), "report.html": html(tuned_flow)}

    def _print_study_estimate(
        self, ready: EvaluationSetup, folder: Path, under: Sequence[str], search_options: Mapping[str, Any]
    ) -> None:
        """Print an estimate before models are asked; a budget that is too small raises later."""
        flow = estimates.without_servers(*ready.flows.values())
        plan_options = {name: search_options[name] for name in ("budget", "strategy", "seed", "combine")}
        plan = TuningPlan.from_space(flow, ready.items, ready.measures, under=under, **plan_options)
        pilot = Pilot.read(folder / PILOT) or self._silent_pilot(plan, {})
        with suppress(DataError):
            plan = plan.fit_budget(pilot.mean)
        self.screen.say(format_estimate(StudyEstimate.from_pilot(plan, pilot, _estimate_context_share(plan))))

    def print_tuning_estimate(self, space: str, objective: str, folder: Path, **search_options: Any) -> None:
        """Say what a study would cost, from a few flows on a few questions, without asking a server."""
        ready = self.prepare([space], objective, estimate=True)
        flow = estimates.without_servers(*ready.flows.values())
        plan = TuningPlan.from_space(flow, ready.items, ready.measures, seed=self.options.seed, **search_options)
        uses_by_flow: dict[str, Any] = {}
        pilot = self._free_pilot(plan) if flow.calls() == 0 else self._silent_pilot(plan, uses_by_flow)
        if (saved_pilot := Pilot.read(folder / PILOT)) is not None:
            pilot = saved_pilot
        plan = plan.fit_budget(pilot.mean)
        study_estimate = StudyEstimate.from_pilot(plan, pilot, _estimate_context_share(plan))
        estimates_by_flow = {name: estimated(plan.rows) for name, estimated in uses_by_flow.items()}
        print_study_estimate(
            self.screen, study_estimate, estimates_by_flow, saved_pilot is not None or not estimates_by_flow
        )

    def _free_pilot(self, plan: TuningPlan) -> Pilot:
        """Measure the costs of scores that cost only time: these are computed."""
        with _open_scores(plan) as scores:
            return Pilot.measure(scores, choose_pilot_flows(plan.candidates, (), plan.seed))[0]

    def _silent_pilot(self, plan: TuningPlan, uses_by_flow: dict[str, Any]) -> Pilot:
        """Estimate the costs of scores, from empty to the longest replies, without the time of models; add each flow's
        use to `uses_by_flow`."""
        sample = [Query(item.question) for item in plan.choosing[: estimates.SAMPLE]]
        costs: list[RowCost] = []
        for index in choose_pilot_flows(plan.candidates, (), plan.seed):
            flow = plan.candidates.flows[index]
            estimates.measure_silent_use(flow, sample[:1])  # which opens stores
            *uses, seconds = estimates.measure_silent_use(flow, sample)
            costs += [RowCost.from_usage(use.usage, seconds, len(sample)) for use in uses]
            name = ", ".join(map("=".join, plan.candidates.choices(index))) + " (default)" * (not index)
            uses_by_flow[name] = partial(estimates.scale_estimate, flow, uses[1], len(sample))
        means = [sum(numbers) / len(costs) for numbers in zip(*map(astuple, costs), strict=True)]
        return Pilot(RowCost(*means), tuple(costs))


@contextmanager
def _open_scores(plan: TuningPlan) -> Iterator[FlowScores]:
    """Open scores that are not kept."""
    with ScoreStore() as store:
        yield FlowScores(plan.candidates, plan.items, plan.objectives, Run(share=SHARED_BYTES), store)


def _estimate_context_share(plan: TuningPlan) -> float:
    """Return the share of the scores to choose that have a context of their own, from a few questions; 1 if a budget
    counts contexts."""
    if plan.budget is not None and not plan.budget.is_share:
        return 1.0
    with _open_scores(plan) as scores:
        contexts = plan.make_contexts(scores.items_for, scores.run, FIRST_QUESTIONS)
        return 1.0 if contexts is None else contexts.total / (plan.candidates.size * contexts.questions)


def _open_earlier_studies(ready: EvaluationSetup) -> EarlierStudies:
    """Return the studies of this user, without those of the same data set."""
    return EarlierStudies(cache_folder() / STUDIES, questions=question_marks(ready.data.items()))

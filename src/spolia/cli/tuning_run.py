"""The best flow of a space, looked for as the options of `spolia tune` say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from spolia.cli import runs
from spolia.cli.experiments import SIMULATED, EvaluationRun
from spolia.core.plurals import several
from spolia.errors import DataError
from spolia.evaluation.measures.costs import UsDollars
from spolia.flow_files.files import dump
from spolia.optimizer.budget import USD, TuningBudget
from spolia.optimizer.objectives import Objectives
from spolia.optimizer.plan import TuningPlan
from spolia.optimizer.report import html
from spolia.optimizer.tuned_flow import TunedFlow
from spolia.optimizer.tuning import SHARED_BYTES, tune
from spolia.types import Query

DRAWN_FLOWS = 4
"""Flows, beside the default, by which the cost of a study is estimated."""


@dataclass(frozen=True)
class TuningRun(EvaluationRun):
    """A space of flows over the passages and questions of a data set."""

    def tuned(
        self, space: str, objective: str, folder: Path, under: Sequence[str], **how: Any
    ) -> tuple[TunedFlow, Mapping[str, str]]:
        """The best flow of a space, and the files that tell of it by name: the flow file and the report."""
        ready = self.ready([space], objective)
        (flow,) = ready.flows.values()
        limits = (how["budget"], self.given.budget_calls, self.given.budget_tokens, self.given.budget_usd)
        if flow.calls() != 0 and self.given.llm != SIMULATED and not any(limits):
            raise DataError(
                "Flows of this space ask language models. Write how much they may ask: --budget 5%, '500 calls', "
                "'200k tokens', '2 USD' or 10m; --budget 100% asks everything."
            )
        objectives = Objectives.of(ready.measures, under)
        in_usd = how["budget"] is not None and TuningBudget.parse(how["budget"]).unit == USD
        if in_usd or any(isinstance(one, UsDollars) for one in objectives.measures):
            runs.refuse_unpriced(0.0, flow.resources)
        timed = objectives.are_timed
        with self._asking(ready, cached=not timed, share=False if timed else SHARED_BYTES) as (run, told):
            found = tune(
                flow,
                ready.items,
                ready.measures,
                under=under,
                path=folder,
                run=run,
                usage_log=self._usage_log(ready),
                degraded=self.given.degraded,
                told=lambda progress: told("flows", progress.done, progress.total),
                **how,
            )
        return found, {"best.yaml": dump(found.flow, ready.parts.given()), "report.html": html(found)}

    def tuning_estimated(self, space: str, objective: str, **how: Any) -> None:
        """Say what a study would cost, from a few flows on a few questions, without asking a language model."""
        ready = self.ready([space], objective, estimate=True)
        (flow,) = ready.flows.values()
        plan = TuningPlan.of(flow, ready.items, ready.measures, seed=self.given.seed, **how)
        sample = [Query(item.question) for item in plan.choosing[: runs.SAMPLE]]
        drawn_flows = dict.fromkeys([0, *plan.candidates.draw(DRAWN_FLOWS, Random(self.given.seed))])
        choices = {at: ", ".join(map("=".join, plan.candidates.choices(at))) for at in drawn_flows}
        found = {
            f"{name} (default)" * (not at) or name: runs.estimate(plan.candidates.flows[at], sample, (), plan.rows)
            for at, name in choices.items()
        }
        note = f"Each line: if all {plan.rows:,} scores were of that flow. Equal contexts are asked once. The report "
        note += f"on {several(len(plan.fresh), 'fresh question')} comes on top, at most as many scores again."
        runs.tell_estimates(self.screen, found, plan.rows, [note])

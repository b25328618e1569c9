"""The gate: the questions of a baseline asked again, and whether the flow may pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spolia.errors import DataError
from spolia.evaluation.estimates import Estimates
from spolia.evaluation.experiment import Experiment, Told
from spolia.evaluation.gate.asked import Asked
from spolia.evaluation.gate.baseline import Baseline, measured_by
from spolia.evaluation.gate.causes import CAUSES, Cause, Moved, moved
from spolia.evaluation.gate.changes import changed, refuse_other_corpus
from spolia.evaluation.gate.comparable import RULES, Rule, refuse_what_cannot_be_compared
from spolia.evaluation.gate.signature import Held, signature
from spolia.evaluation.gate.verdict import Verdict, verdicts
from spolia.evaluation.looks import Looks
from spolia.evaluation.measures.measure import Measure
from spolia.evaluation.report import Report
from spolia.evaluation.wording import several
from spolia.run import Run
from spolia.types import Value

TOLERANCE = 0.05


@dataclass(frozen=True)
class Gate(Value):
    """A flow compared with its baseline.

    Args:
        data: what the questions are called.
        flow: what the flow is called.
        n: how many questions were asked then and now.
        rule: what decides; see `RULES`.
        verdicts: of each measure.
        changes: what differs of all that results depend on: its kind, and in words.
        moved: the questions that score otherwise, those that lost most first.
        report: of what was asked now.
        now: what would be the next baseline.
    """

    data: str
    flow: str
    n: int
    rule: Rule
    verdicts: tuple[Verdict, ...]
    changes: tuple[tuple[str, str], ...]
    moved: tuple[Moved, ...]
    report: Report
    now: Baseline

    @property
    def passed(self) -> bool:
        """Whether the flow may pass."""
        outcomes = {one.outcome for one in self.verdicts}
        return outcomes == {"not worse"} if self.rule == "not-worse" else "worse" not in outcomes

    @property
    def worse(self) -> tuple[Moved, ...]:
        """The questions that score less."""
        return tuple(one for one in self.moved if one.worse)

    @property
    def causes(self) -> Mapping[Cause, int]:
        """How many questions score less by each cause, most first."""
        found = {cause: sum(one.cause == cause for one in self.worse) for cause in CAUSES}
        return {cause: n for cause, n in sorted(found.items(), key=lambda one: -one[1]) if n}

    @property
    def why(self) -> str:
        """What made questions worse, in one sentence; empty where none is."""
        if not self.worse:
            return ""
        listed = ", ".join(f"{n} because {CAUSES[cause]}" for cause, n in self.causes.items())
        unknown = "" if self.changes else "; nothing that is recorded has changed, so the flow is not deterministic"
        return f"Of {several(self.n, 'question')} {len(self.worse)} score less: {listed}{unknown}."

    @property
    def sentence(self) -> str:
        """Whether it passes, in one sentence."""
        said = "passes" if self.passed else "does not pass"
        return f"{self.flow} {said} on {self.data or 'questions'}, {several(self.n, 'question')}: {RULES[self.rule]}."

    def json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "passed": self.passed,
            "data": self.data,
            "flow": self.flow,
            "n": self.n,
            "rule": self.rule,
            "verdicts": [one.json() for one in self.verdicts],
            "changes": [{"kind": kind, "change": text} for kind, text in self.changes],
            "causes": dict(self.causes),
            "why": self.why,
            "questions": [one.json() for one in self.moved],
            "warnings": list(self.report.warnings),
        }


def recorded(
    experiment: Experiment,
    *,
    run: Run | None = None,
    path: str | Path | None = None,
    told: Told = lambda flow, done, total: None,
    also: Baseline | None = None,
    looks: Looks | None = None,
) -> tuple[Report, Baseline]:
    """Run an experiment with one flow, and make a baseline of it.

    Args:
        run, path, told: as for `Experiment.run`.
        also: the baseline that it will be compared with, whose documents are written down too.
        looks: as for `Experiment.run`, but by default nowhere: what is compared with itself is not chosen.

    Raises:
        DataError: there is more than one flow, none of the baseline's documents is there, or a flow was chosen by these
            questions.
    """
    if len(experiment.flows) != 1:
        raise DataError(f"A baseline is of one flow; here are {len(experiment.flows)}. Name one.")
    ((name, flow),) = experiment.flows
    run = run if run is not None else Run()
    with run:
        held = Held.by(flow)
        if also is not None:
            refuse_other_corpus(also, held)
        report = experiment.run(run=run, path=path, looks=looks if looks is not None else Looks(), told=told)
        rows = ((item, report.rows[name, item.id]) for item in report.items)
        asked = tuple(Asked.of(item, row, report.places, held.names) for item, row in rows)
        wanted = {document for one in asked for document in one.documents}
        documents = held.among(wanted, also.documents if also is not None else {})
        signed = signature(flow, held, run)
        return report, Baseline(experiment.data, name, measured_by(experiment.measures), signed, documents, asked)


def gate(
    experiment: Experiment,
    baseline: Baseline | str | Path,
    *,
    tolerance: float = TOLERANCE,
    tolerances: Mapping[str, float] | None = None,
    rule: Rule = "not-worse",
    run: Run | None = None,
    path: str | Path | None = None,
    told: Told = lambda flow, done, total: None,
) -> Gate:
    """Ask a flow the questions of a baseline, and say whether it has become worse, where, and what has changed.

    Args:
        experiment: one flow with the questions and measures of the baseline (`Baseline.among`).
        baseline: that, or its file.
        tolerance: how much worse a measure may be: 0.05 is 5 points of 100 where scores lie between 0 and 1, and a
            twentieth of what it was elsewhere.
        tolerances: other ones for some measures, as they are written.
        rule: `not-worse` passes where every measure is shown to be not worse, `worse` where none is shown to be worse.
        run, path, told: as for `Experiment.run`.

    Raises:
        DataError: the two cannot be compared, and why: other questions, measures, another corpus.
    """
    before = baseline if isinstance(baseline, Baseline) else Baseline.read(baseline)
    own = dict(tolerances or {})
    refuse_what_cannot_be_compared(experiment, before, rule, tolerance, own)
    report, now = recorded(experiment, run=run, path=path, told=told, also=before)
    was, is_ = before.by_item, now.by_item
    estimates = [
        Estimates(one, [[side[item.id].seen.get(str(one)) for item in report.items] for side in (was, is_)], 0)
        for one in experiment.measures
    ]
    allowed = [own.get(str(one), tolerance) for one in experiment.measures]
    scored = [str(one) for one in experiment.measures if isinstance(one, Measure)]
    return Gate(
        experiment.data,
        now.flow,
        len(report.items),
        rule,
        verdicts(estimates, allowed),
        changed(before, now),
        moved(report.items, scored, before, now),
        report,
        now,
    )

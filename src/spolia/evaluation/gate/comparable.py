"""Whether an experiment can be compared with a baseline, by which rule, and why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from spolia import __version__
from spolia.errors import DataError
from spolia.evaluation.experiment import Experiment
from spolia.evaluation.gate.asked import PARTS, content_of
from spolia.evaluation.gate.baseline import Baseline, measured_by
from spolia.evaluation.measures.measure import SetMeasure
from spolia.evaluation.wording import several

Rule: TypeAlias = Literal["not-worse", "worse"]
RULES: Mapping[Rule, str] = {
    "not-worse": "every measure must be shown to be not worse",
    "worse": "no measure may be shown to be worse",
}


def refuse_what_cannot_be_compared(
    experiment: Experiment, before: Baseline, rule: str, tolerance: float, named: Mapping[str, float]
) -> None:
    """Raise `DataError` with all reasons why an experiment cannot be compared with a baseline."""
    refuse_what_decides_nothing(experiment.measures, rule, tolerance, named)
    if reasons := [*_other_questions(experiment, before), *_other_measures(experiment.measures, before)]:
        raise DataError(
            f"The baseline of {before.flow} on {before.data or 'questions'} cannot be compared: {'; '.join(reasons)}. "
            "Ask its questions with its measures, or write a new one: --write"
        )


def refuse_what_decides_nothing(
    measures: Sequence[SetMeasure], rule: str, tolerance: float, tolerances: Mapping[str, float]
) -> None:
    """Raise `DataError` where there is no such rule, or a tolerance is none of these measures."""
    written = [str(one) for one in measures]
    if rule not in RULES:
        raise DataError(f"There is no rule {rule!r}. Write one of: {', '.join(RULES)}.")
    numbers = (tolerance, *tolerances.values())
    if not all(0 <= one < float("inf") for one in numbers):
        raise DataError(f"A tolerance is a number from 0, for example 0.05; got {', '.join(map(str, numbers))}.")
    shares = [str(one) for one in measures if one.range == (0.0, 1.0)]
    wide = [(one, number) for one in shares if (number := tolerances.get(one, tolerance)) >= 1]
    if wide:
        raise DataError(
            f"{wide[0][0]} lies between 0 and 1, and a tolerance of {wide[0][1]:g} tolerates everything. Write the "
            "share: 0.05 for 5 points of 100."
        )
    if unknown := [one for one in tolerances if one not in written]:
        raise DataError(
            f"A tolerance is given for {unknown[0]}, which is not measured. Measured: {', '.join(written)}."
        )


def _other_questions(experiment: Experiment, before: Baseline) -> list[str]:
    then, now = before.by_item, {item.id: content_of(item) for item in experiment.asked}
    both = [id for id in then if id in now]
    other = [(what, [id for id in both if then[id].content[at] != now[id][at]]) for at, what in enumerate(PARTS)]
    kinds = [
        ("of the baseline not asked now", [id for id in then if id not in now]),
        ("not in the baseline", [id for id in now if id not in then]),
        *((f"with another {what} than then", ids) for what, ids in other),
    ]
    return [f"{several(len(ids), 'question')} {what}, the first {ids[0]!r}" for what, ids in kinds if ids]


def _other_measures(measures: Sequence[SetMeasure], before: Baseline) -> list[str]:
    now = measured_by(measures)
    listed = [f"{name} is not measured now" for name in before.measures if name not in now]
    listed += [f"{name} was not measured then" for name in now if name not in before.measures]
    other = [name for name in now if before.measures.get(name, now[name]) != now[name]]
    version = before.signature.get("Spolia", {}).get("version", "?")
    told = "then: its code, its model or a prompt of it is another"
    than = told if version == __version__ else f"by Spolia {version}, which wrote it"
    return listed + [f"{name} is computed otherwise than {than}" for name in other]

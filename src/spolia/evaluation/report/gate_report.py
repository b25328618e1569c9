"""What a gate says, as a terminal shows it, and as Markdown for a comment on a change."""

from spolia.core.markdown import disarm
from spolia.evaluation.experiment.comparison import amount, number
from spolia.evaluation.gate.changes import Moved
from spolia.evaluation.gate.gate import RULES, Gate, GateVerdict
from spolia.evaluation.report.tables import Table, flat, table
from spolia.evaluation.statistics.interval import Interval

TOLD = 20
"""Questions that are shown; all of them are in the JSON."""
RULE = (
    "Not worse: no question scores otherwise, or the 95 % interval of the paired difference ends above minus the "
    "tolerance. Worse: all of the interval lies below minus the tolerance; or not all, but all of it below zero, and a "
    "paired permutation test gives p < 0.05 with Holm's correction for all measures. Else undecided. Times 100 where a "
    "score lies between 0 and 1."
)


def verdicts(gate: Gate) -> Table:
    head = ("", "then", "now", "change", "tolerated", "questions that differ", "")
    return Table(head, tuple(_row(one) for one in gate.verdicts))


def summary(gate: Gate) -> str:
    """Each measure then and now, on one line."""
    return ", ".join(
        f"{one.measure} {_mean(one.before, one.unit)} → {_mean(one.now, one.unit)}" for one in gate.verdicts
    )


def _row(one: GateVerdict) -> tuple[str, ...]:
    mean_then, mean_now = (_mean(side, one.unit) for side in (one.before, one.now))
    change = "–" if one.change is None else amount(one.change, one.unit)
    tolerated = f"-{number(one.tolerance, one.unit)}"
    return (one.measure, mean_then, mean_now, change if one.moved else "0", tolerated, str(one.moved), one.outcome)


def _mean(interval: Interval | None, unit: bool) -> str:
    return "–" if interval is None else number(interval.mean, unit)


def why(gate: Gate) -> list[str]:
    """Which measures are not shown to be not worse, what made questions worse, and what has changed."""
    open_ = [one.sentence for one in gate.verdicts if one.outcome != "not worse"]
    changes = [f"{kind}: {text}" for kind, text in gate.changes]
    return [*open_, *([gate.why] if gate.why else []), *changes]


def questions(gate: Gate) -> list[tuple[str, list[str]]]:
    """The questions that score otherwise, those that lost most first: a headline and the evidence of each."""
    units = {one.measure: one.unit for one in gate.verdicts}
    return [(_headline(one, units), list(one.evidence)) for one in gate.moved[:TOLD]]


def _headline(one: Moved, units: dict[str, bool]) -> str:
    scores = ", ".join(
        f"{name} {number(was, units[name])} → {number(now, units[name])}" for name, was, now in one.scores
    )
    return f"{'worse' if one.worse else 'better'} ({one.cause}): {one.item} “{one.question}”: {scores}"


def left_out(gate: Gate) -> str:
    more = len(gate.moved) - TOLD
    return f"... and {more} more questions that score otherwise; --report FILE.json has all." if more > 0 else ""


def markdown(gate: Gate) -> str:
    parts = [f"## {'Passes' if gate.passed else 'Does not pass'}: {flat(gate.flow)}", flat(gate.sentence)]
    parts += [f"**{flat(warning)}**" for warning in gate.report.warnings]
    parts += [table(verdicts(gate)), *filter(None, ["\n".join(f"- {flat(one)}" for one in why(gate))])]
    if gate.moved:
        parts += ["### Questions", "\n".join(_item(*one) for one in questions(gate))]
    return disarm("\n\n".join([*parts, *filter(None, [left_out(gate)]), RULE, f"Rule: {RULES[gate.rule]}."]) + "\n")


def _item(headline: str, evidence: list[str]) -> str:
    return "\n".join([f"- {flat(headline)}", *(f"  - {flat(one)}" for one in evidence)])

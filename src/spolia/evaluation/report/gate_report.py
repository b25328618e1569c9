"""Report of a gate, for a terminal, and as Markdown for a comment on a change."""

from spolia.core.markdown import disarm
from spolia.evaluation.experiment.comparison import format_interval, format_number
from spolia.evaluation.gate.changes import ChangedQuestion
from spolia.evaluation.gate.gate import RULES, Gate, GateVerdict
from spolia.evaluation.report.tables import Table, flatten, format_table
from spolia.evaluation.statistics.interval import Interval

SHOWN_QUESTIONS = 20
"""Questions that are shown; all of them are in the JSON."""
RULE_TEXT = (
    "Not worse: no question scores otherwise, or the 95 % interval of the paired difference ends above minus the "
    "tolerance. Worse: all of the interval lies below minus the tolerance; or not all, but all of it below zero, and a "
    "paired permutation test gives p < 0.05 with Holm's correction for all measures. Else undecided. Times 100 where a "
    "score lies between 0 and 1."
)


def verdict_table(gate: Gate) -> Table:
    head = ("", "then", "now", "change", "tolerated", "questions that differ", "")
    return Table(head, tuple(_verdict_row(verdict) for verdict in gate.verdicts))


def format_summary(gate: Gate) -> str:
    """Format each measure then and now, on one line."""
    return ", ".join(
        f"{verdict.measure} {_format_mean(verdict.before, verdict.is_share)} → "
        f"{_format_mean(verdict.now, verdict.is_share)}"
        for verdict in gate.verdicts
    )


def _verdict_row(verdict: GateVerdict) -> tuple[str, ...]:
    mean_then, mean_now = (_format_mean(side, verdict.is_share) for side in (verdict.before, verdict.now))
    change = "–" if verdict.change is None else format_interval(verdict.change, verdict.is_share)
    tolerated = f"-{format_number(verdict.tolerance, verdict.is_share)}"
    return (
        verdict.measure,
        mean_then,
        mean_now,
        change if verdict.moved else "0",
        tolerated,
        str(verdict.moved),
        verdict.outcome,
    )


def _format_mean(interval: Interval | None, unit: bool) -> str:
    return "–" if interval is None else format_number(interval.mean, unit)


def list_reasons(gate: Gate) -> list[str]:
    """List the measures that may be worse, what made questions worse, and what has changed."""
    open_ = [verdict.sentence for verdict in gate.verdicts if verdict.outcome != "not worse"]
    changes = [f"{kind}: {text}" for kind, text in gate.changes]
    return [*open_, *([gate.why] if gate.why else []), *changes]


def list_questions(gate: Gate) -> list[tuple[str, list[str]]]:
    """List the questions that score differently, those that lost most first: a headline and the evidence of each."""
    units = {verdict.measure: verdict.is_share for verdict in gate.verdicts}
    return [
        (_format_headline(question, units), list(question.evidence))
        for question in gate.changed_questions[:SHOWN_QUESTIONS]
    ]


def _format_headline(question: ChangedQuestion, units: dict[str, bool]) -> str:
    scores = ", ".join(
        f"{name} {format_number(was, units[name])} → {format_number(now, units[name])}"
        for name, was, now in question.scores
    )
    return (
        f"{'worse' if question.worse else 'better'} ({question.cause}): {question.item} “{question.question}”: {scores}"
    )


def format_omitted(gate: Gate) -> str:
    omitted = len(gate.changed_questions) - SHOWN_QUESTIONS
    return f"... and {omitted} more questions that score otherwise; --report FILE.json has all." if omitted > 0 else ""


def markdown(gate: Gate) -> str:
    parts = [f"## {'Passes' if gate.passed else 'Does not pass'}: {flatten(gate.flow)}", flatten(gate.sentence)]
    parts += [f"**{flatten(warning)}**" for warning in gate.report.warnings]
    parts += [
        format_table(verdict_table(gate)),
        *filter(None, ["\n".join(f"- {flatten(reason)}" for reason in list_reasons(gate))]),
    ]
    if gate.changed_questions:
        parts += ["### Questions", "\n".join(_format_item(*entry) for entry in list_questions(gate))]
    # Text of questions and evidence must stay text in a comment: no links, mentions or HTML.
    return disarm(
        "\n\n".join([*parts, *filter(None, [format_omitted(gate)]), RULE_TEXT, f"Rule: {RULES[gate.rule]}."]) + "\n"
    )


def _format_item(headline: str, evidence: list[str]) -> str:
    return "\n".join([f"- {flatten(headline)}", *(f"  - {flatten(line)}" for line in evidence)])

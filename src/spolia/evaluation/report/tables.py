"""The tables of a report, as a terminal, Markdown and HTML show them."""

from collections.abc import Iterator
from dataclasses import dataclass

from spolia.core.markdown import disarm
from spolia.core.plurals import several
from spolia.evaluation.experiment.comparison import Slice, amount
from spolia.evaluation.experiment.results import Report
from spolia.types import Value
from spolia.types.outcomes import dollars

CORRECTED = {
    "holm": "with Holm's correction",
    "bh": "with the correction of Benjamini and Hochberg",
    "none": "with no correction",
}


@dataclass(frozen=True)
class Table(Value):
    """Cells in rows; the first column names the row."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def width(self) -> int:
        """Columns of a terminal that it takes, two blanks between cells."""
        cells = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        return sum(cells) + 2 * (len(cells) - 1)

    def turned(self) -> "Table":
        """Columns as rows.

        >>> Table(("", "p50", "p95"), (("bm25", "1 ms", "2 ms"),)).turned()
        Table(head=('', 'bm25'), rows=(('p50', '1 ms'), ('p95', '2 ms')))
        """
        head, *rows = zip(self.head, *self.rows, strict=True)
        return Table(head, tuple(rows))


def scores(report: Report) -> Table:
    """Each measure of each flow with its interval; on how many questions each failed, if any did."""
    rows = []
    for index, measured in enumerate(report.flows[0].measured):
        unit = measured.measure in report.units
        intervals = [flow.intervals[index] for flow in report.flows]
        rows.append((measured.measure, *("–" if one is None else amount(one, unit) for one in intervals)))
    if any(flow.failures for flow in report.flows):
        rows.append(("failed", *(f"{len(flow.failures)} of {flow.n}" for flow in report.flows)))
    return Table(("", *(flow.flow for flow in report.flows)), tuple(rows))


def under(report: Report) -> str:
    """What the numbers of the scores are."""
    cells = [cell for row in scores(report).rows for cell in row[1:]]
    notes = [UNDER]
    if any("?" in cell for cell in cells):
        notes.append(NO_BOUND)
    if "–" in cells:
        notes.append(NO_NUMBER)
    return " ".join(notes)


def costs(report: Report) -> Table:
    head = (
        "", "p50", "p95", "set-up", "at once", "calls", "tokens", "embedded", "USD", "judges' USD", "failed",
        "degraded",
    )  # fmt: skip
    rows = []
    for flow in report.flows:
        latency, usage = flow.latency, flow.usage
        tokens = usage.input_tokens + usage.output_tokens
        rows.append((
            flow.flow, _taken(latency.p50_s, latency.ran_p50_s), _taken(latency.p95_s, latency.ran_p95_s),
            seconds(latency.setup_s),
            str(latency.at_once),
            f"{usage.calls:,}", f"{tokens:,}", f"{usage.embedded:,}", dollars(usage.cost_usd),
            dollars(flow.judging.cost_usd), str(len(flow.failures)), str(flow.degraded),
        ))  # fmt: skip
    return Table(head, tuple(rows))


def degraded(report: Report) -> Table:
    """What was out of order in each flow, by step and reason; without rows where nothing was."""
    rows = [
        (
            flow.flow,
            f"{step.step}{', which never worked' * step.never_worked}",
            shortened(reason),
            f"{n:,}",
            f"{step.trials:,}",
        )
        for flow in report.flows
        for step in flow.steps
        for reason, n in step.reasons
    ]
    return Table(("", "step", "out of order", "times", "calls"), tuple(rows))


def shortened(reason: str) -> str:
    text = flat(reason)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def of_slice(report: Report, kind: Slice) -> Table:
    """The scores of the questions of one kind."""
    rows = [(measure, *cells) for measure, *cells in _cells(report, kind)]
    return Table((f"{kind.named}, n = {kind.n}", *(flow.flow for flow in report.flows)), tuple(rows))


def of_slices(report: Report) -> Table:
    rows = [(kind.named, str(kind.n), *cells) for kind in report.slices for cells in _cells(report, kind)]
    return Table(("", "n", "measure", *(flow.flow for flow in report.flows)), tuple(rows))


def _cells(report: Report, kind: Slice) -> Iterator[tuple[str, ...]]:
    """By measure its name, and what each flow scored."""
    found = {(flow, measure): interval for flow, measure, interval in kind.scores}
    for measured in report.flows[0].measured:
        unit = measured.measure in report.units
        intervals = [found[flow.flow, measured.measure] for flow in report.flows]
        yield measured.measure, *("–" if one is None else amount(one, unit) for one in intervals)


def in_slices(report: Report) -> list[str]:
    """The differences shown on questions of one kind, and how that is decided; nothing where none is compared."""
    compared = [one for kind in report.slices for one in kind.comparisons]
    if not compared:
        return []
    shown = [f"{kind.named}: {one.verdict}" for kind in report.slices for one in kind.comparisons if one.shown]
    how = f"Within slices {len(shown)} of {several(len(compared), 'comparison')} show a difference, "
    return [*shown, f"{how}{CORRECTED[report.correction]} for these {len(compared):,} together."]


def verdicts(report: Report) -> Table:
    """Each flow against the baseline: by how much it is better on the primary measure, or on all."""
    rows = []
    for one in report.comparisons:
        flow = one.other if one.better == report.against else one.better
        by, said = one.of_flow(flow), "no difference shown"
        if one.shown:
            said = "better" if one.better == flow else "worse"
        rows.append(
            (flow, one.measure, amount(by, one.unit), p_value(one.p), p_value(one.adjusted), f"{said}{one.aside}")
        )
    return Table((f"against {report.against}", "on", "better by", "test", "corrected", ""), tuple(rows))


def corrected(report: Report) -> str:
    """How the verdicts were come by."""
    return (
        "A difference is shown where its interval excludes zero and the paired permutation test gives p < 0.05 "
        f"{CORRECTED[report.correction]} for {several(len(report.comparisons), 'comparison')}. A difference that is "
        f"not shown may still exist.{' Other numbers were not tested.' if report.primary or report.against else ''}"
    )


def _taken(whole: float | None, ran: float | None) -> str:
    return seconds(whole) if whole is not None or ran is None else f"≥ {seconds(ran)}"


def untimed(report: Report) -> str:
    """What to write where the times of a flow are lower bounds."""
    flows = [one.flow for one in report.flows if one.latency.p50_s is None and one.latency.cached]
    return f"{UNTIMED} of {', '.join(flows)} (in Python again=True and a run with a new cache)." if flows else ""


def times(report: Report) -> str:
    """What the numbers of time and cost are."""
    return f"{TIMES} {untimed(report)}".rstrip()


def seconds(taken: float | None) -> str:
    """A time for people.

    >>> seconds(0.00042), seconds(0.25), seconds(3.21), seconds(None)
    ('0.42 ms', '250 ms', '3.2 s', '–')
    """
    if taken is None:
        return "–"
    return f"{taken:.1f} s" if taken >= 1 else f"{1000 * taken:.0f} ms" if taken >= 0.01 else f"{1000 * taken:.2f} ms"


UNDER = "Times 100 where a score lies between 0 and 1; in brackets the 95 % interval."
NO_NUMBER = "–: no number, for example for answers of a flow that only finds passages."
NO_BOUND = "?: the bound cannot be estimated, for example if all scores are the same."
TIMES = (
    "p50 and p95 of the questions that were timed in full; a step that two flows share runs once, and counts its time "
    "for both. Set-up: opening stores and the first question, apart. "
    "Calls, tokens and texts embedded as the flow needs them, results from a cache included."
)
UNTIMED = "≥: partly cached; the real time is higher. --again times all"

DEGRADED = (
    "Calls that failed, were skipped or cut off, whose reply could not be read or was sent back, and loops that a "
    "budget or an error ended; the calls beside them are all calls of the step. An end that the "
    "flow plans does not count."
)
LONGEST = 200
"""Characters of a reason that are shown; the JSON has all."""


def p_value(p: float) -> str:
    """A p-value for people.

    >>> p_value(0.0412), p_value(3e-9)
    ('p = 0.041', 'p < 0.001')
    """
    return f"p = {p:.2g}" if p >= 0.001 else "p < 0.001"


def markdown(report: Report) -> str:
    """The report as Markdown, to be committed or posted."""
    parts = [f"# {flat(report.about)}", *(f"**{flat(warning)}**" for warning in report.warnings)]
    parts += ["## Scores", table(scores(report)), under(report)]
    if report.comparisons:
        listed = "\n".join(f"- {flat(one.verdict)}" for one in report.comparisons)
        parts += ["## Verdicts", table(verdicts(report)) if report.against else listed, corrected(report)]
    parts += ["## Time and cost", table(costs(report)), times(report)]
    if (wrong := degraded(report)).rows:
        parts += ["## Degraded calls", table(wrong), DEGRADED]
    if report.slices:
        parts += ["## Slices", *(table(of_slice(report, kind)) for kind in report.slices)]
        parts += ["\n".join(f"- {flat(one)}" for one in in_slices(report))] if len(report.flows) > 1 else []
    parts += ["## Flows", "\n".join(f"- {flat(flow.flow)}: `{flat(flow.notation)}`" for flow in report.flows)]
    return disarm("\n\n".join(parts) + "\n")


def text(report: Report) -> str:
    """Scores, verdicts and warnings as plain text, which `print(report)` shows."""
    made = scores(report)
    widths = [max(map(len, column)) for column in zip(made.head, *made.rows, strict=True)]
    rows = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in (made.head, *made.rows))
    verdicts = (one.verdict for one in report.comparisons if one.shown)
    return "\n".join((*rows, *map(flat, (*verdicts, *report.warnings))))


def table(made: Table) -> str:
    rule = ("---", *("--:" for _ in made.head[1:]))
    rows = [[flat(cell).replace("|", "\\|") for cell in row] for row in (made.head, rule, *made.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def flat(text: str) -> str:
    return " ".join(text.split())

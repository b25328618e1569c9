"""Tables of a report, for a terminal, Markdown and HTML."""

from collections.abc import Iterator
from dataclasses import dataclass

from spolia.core.markdown import disarm
from spolia.core.plurals import several
from spolia.evaluation.experiment.comparison import Slice, format_interval
from spolia.evaluation.experiment.results import Report
from spolia.types import Value
from spolia.types.outcomes import format_dollars

CORRECTION_TEXTS = {
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
        """Return the columns of a terminal that the table takes, with two blanks between cells."""
        cells = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        return sum(cells) + 2 * (len(cells) - 1)

    def transpose(self) -> "Table":
        """Return the table with its columns as rows.

        >>> Table(("", "p50", "p95"), (("bm25", "1 ms", "2 ms"),)).transpose()
        Table(head=('', 'bm25'), rows=(('p50', '1 ms'), ('p95', '2 ms')))
        """
        head, *rows = zip(self.head, *self.rows, strict=True)
        return Table(head, tuple(rows))


def tabulate_scores(report: Report) -> Table:
    """Tabulate each measure of each flow with its interval, and on how many questions each failed, if any did."""
    rows = []
    for index, measured in enumerate(report.flows[0].measured):
        unit = measured.measure in report.units
        intervals = [flow.intervals[index] for flow in report.flows]
        rows.append(
            (
                measured.measure,
                *("–" if interval is None else format_interval(interval, unit) for interval in intervals),
            )
        )
    if any(flow.failures for flow in report.flows):
        rows.append(("failed", *(f"{len(flow.failures)} of {flow.n}" for flow in report.flows)))
    return Table(("", *(flow.flow for flow in report.flows)), tuple(rows))


def explain_scores(report: Report) -> str:
    """Explain what the numbers of the scores are."""
    cells = [cell for row in tabulate_scores(report).rows for cell in row[1:]]
    notes = [SCORES_NOTE]
    if any("?" in cell for cell in cells):
        notes.append(NO_BOUND)
    if "–" in cells:
        notes.append(NO_NUMBER)
    return " ".join(notes)


def tabulate_costs(report: Report) -> Table:
    head = (
        "", "p50", "p95", "set-up", "at once", "calls", "tokens", "embedded", "USD", "judges' USD", "failed",
        "degraded",
    )  # fmt: skip
    rows = []
    for flow in report.flows:
        latency, usage = flow.latency, flow.usage
        tokens = usage.input_tokens + usage.output_tokens
        rows.append((
            flow.flow, _format_time(latency.p50_s, latency.ran_p50_s), _format_time(latency.p95_s, latency.ran_p95_s),
            format_seconds(latency.setup_s),
            str(latency.at_once),
            f"{usage.calls:,}", f"{tokens:,}", f"{usage.embedded:,}", format_dollars(usage.cost_usd),
            format_dollars(flow.judging.cost_usd), str(len(flow.failures)), str(flow.degraded),
        ))  # fmt: skip
    return Table(head, tuple(rows))


def tabulate_degraded(report: Report) -> Table:
    """Tabulate what was out of order in each flow, by step and reason; without rows if nothing was."""
    rows = [
        (
            flow.flow,
            f"{step.step}{', which never worked' * step.never_worked}",
            shorten(reason),
            f"{n:,}",
            f"{step.trials:,}",
        )
        for flow in report.flows
        for step in flow.steps
        for reason, n in step.reasons
    ]
    return Table(("", "step", "out of order", "times", "calls"), tuple(rows))


def shorten(reason: str) -> str:
    text = flatten(reason)
    return text if len(text) <= REASON_CHARACTERS else f"{text[: REASON_CHARACTERS - 1]}…"


def tabulate_slice(report: Report, kind: Slice) -> Table:
    """Tabulate the scores of the questions of one kind."""
    rows = [(measure, *cells) for measure, *cells in _slice_cells(report, kind)]
    return Table((f"{kind.label}, n = {kind.n}", *(flow.flow for flow in report.flows)), tuple(rows))


def tabulate_slices(report: Report) -> Table:
    rows = [(kind.label, str(kind.n), *cells) for kind in report.slices for cells in _slice_cells(report, kind)]
    return Table(("", "n", "measure", *(flow.flow for flow in report.flows)), tuple(rows))


def _slice_cells(report: Report, kind: Slice) -> Iterator[tuple[str, ...]]:
    """Yield the name of each measure, and what each flow scored."""
    interval_by_key = {(flow, measure): interval for flow, measure, interval in kind.scores}
    for measured in report.flows[0].measured:
        unit = measured.measure in report.units
        intervals = [interval_by_key[flow.flow, measured.measure] for flow in report.flows]
        yield (
            measured.measure,
            *("–" if interval is None else format_interval(interval, unit) for interval in intervals),
        )


def describe_slices(report: Report) -> list[str]:
    """Describe the differences shown on questions of one kind, and how that is decided; empty if none is compared."""
    compared = [comparison for kind in report.slices for comparison in kind.comparisons]
    if not compared:
        return []
    differences = [
        f"{kind.label}: {comparison.verdict}"
        for kind in report.slices
        for comparison in kind.comparisons
        if comparison.shown
    ]
    summary = f"Within slices {len(differences)} of {several(len(compared), 'comparison')} show a difference, "
    return [*differences, f"{summary}{CORRECTION_TEXTS[report.correction]} for these {len(compared):,} together."]


def tabulate_verdicts(report: Report) -> Table:
    """Tabulate each flow against the baseline: by how much it is better on the primary measure, or on all."""
    rows = []
    for comparison in report.comparisons:
        flow = comparison.other if comparison.better == report.against else comparison.better
        advantage, verdict = comparison.of_flow(flow), "no difference shown"
        if comparison.shown:
            verdict = "better" if comparison.better == flow else "worse"
        rows.append(
            (
                flow,
                comparison.measure,
                format_interval(advantage, comparison.is_share),
                format_p(comparison.p),
                format_p(comparison.adjusted),
                f"{verdict}{comparison.aside}",
            )
        )
    return Table((f"against {report.against}", "on", "better by", "test", "corrected", ""), tuple(rows))


def explain_verdicts(report: Report) -> str:
    """Explain how the verdicts were decided."""
    return (
        "A difference is shown where its interval excludes zero and the paired permutation test gives p < 0.05 "
        f"{CORRECTION_TEXTS[report.correction]} for {several(len(report.comparisons), 'comparison')}. A difference "
        "that is not shown may still "
        f"exist.{' Other numbers were not tested.' if report.primary or report.against else ''}"
    )


def _format_time(full: float | None, partial: float | None) -> str:
    return format_seconds(full) if full is not None or partial is None else f"≥ {format_seconds(partial)}"


def explain_untimed(report: Report) -> str:
    """Explain how to get full times where those of a flow are lower bounds."""
    flows = [flow.flow for flow in report.flows if flow.latency.p50_s is None and flow.latency.cached]
    return (
        f"{UNTIMED_NOTE} of {', '.join(flows)} (in Python ask_again=True and a run with a new cache)." if flows else ""
    )


def explain_times(report: Report) -> str:
    """Explain what the numbers of time and cost are."""
    return f"{TIMES_NOTE} {explain_untimed(report)}".rstrip()


def format_seconds(duration: float | None) -> str:
    """Format a time for people.

    >>> format_seconds(0.00042), format_seconds(0.25), format_seconds(3.21), format_seconds(None)
    ('0.42 ms', '250 ms', '3.2 s', '–')
    """
    if duration is None:
        return "–"
    return (
        f"{duration:.1f} s"
        if duration >= 1
        else f"{1000 * duration:.0f} ms"
        if duration >= 0.01
        else f"{1000 * duration:.2f} ms"
    )


SCORES_NOTE = "Times 100 where a score lies between 0 and 1; in brackets the 95 % interval."
NO_NUMBER = "–: no number, for example for answers of a flow that only finds passages."
NO_BOUND = "?: the bound cannot be estimated, for example if all scores are the same."
TIMES_NOTE = (
    "p50 and p95 of the questions that were timed in full; a step that two flows share runs once, and counts its time "
    "for both. Set-up: opening stores and the first question, apart. "
    "Calls, tokens and texts embedded as the flow needs them, results from a cache included."
)
UNTIMED_NOTE = "≥: partly cached; the real time is higher. --again times all"

DEGRADED_NOTE = (
    "Calls that failed, were skipped or cut off, whose reply could not be read or was sent back, and loops that a "
    "budget or an error ended; the calls beside them are all calls of the step. An end that the "
    "flow plans does not count."
)
REASON_CHARACTERS = 200
"""Characters of a reason that are shown; the JSON has all."""


def format_p(p: float) -> str:
    """Format a p-value for people.

    >>> format_p(0.0412), format_p(3e-9)
    ('p = 0.041', 'p < 0.001')
    """
    return f"p = {p:.2g}" if p >= 0.001 else "p < 0.001"


def markdown(report: Report) -> str:
    """Format the report as Markdown, to be committed or posted."""
    parts = [f"# {flatten(report.about)}", *(f"**{flatten(warning)}**" for warning in report.warnings)]
    parts += ["## Scores", format_table(tabulate_scores(report)), explain_scores(report)]
    if report.comparisons:
        listed = "\n".join(f"- {flatten(comparison.verdict)}" for comparison in report.comparisons)
        parts += [
            "## Verdicts",
            format_table(tabulate_verdicts(report)) if report.against else listed,
            explain_verdicts(report),
        ]
    parts += ["## Time and cost", format_table(tabulate_costs(report)), explain_times(report)]
    if (wrong := tabulate_degraded(report)).rows:
        parts += ["## Degraded calls", format_table(wrong), DEGRADED_NOTE]
    if report.slices:
        parts += ["## Slices", *(format_table(tabulate_slice(report, kind)) for kind in report.slices)]
        parts += ["\n".join(f"- {flatten(line)}" for line in describe_slices(report))] if len(report.flows) > 1 else []
    parts += ["## Flows", "\n".join(f"- {flatten(flow.flow)}: `{flatten(flow.notation)}`" for flow in report.flows)]
    # Text of questions and flows must stay text in Markdown: no links, mentions or HTML.
    return disarm("\n\n".join(parts) + "\n")


def format_text(report: Report) -> str:
    """Format scores, verdicts and warnings as plain text, which `print(report)` shows."""
    content = tabulate_scores(report)
    widths = [max(map(len, column)) for column in zip(content.head, *content.rows, strict=True)]
    rows = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in (content.head, *content.rows))
    verdicts = (comparison.verdict for comparison in report.comparisons if comparison.shown)
    return "\n".join((*rows, *map(flatten, (*verdicts, *report.warnings))))


def format_table(content: Table) -> str:
    rule = ("---", *("--:" for _ in content.head[1:]))
    rows = [[flatten(cell).replace("|", "\\|") for cell in row] for row in (content.head, rule, *content.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def flatten(text: str) -> str:
    return " ".join(text.split())

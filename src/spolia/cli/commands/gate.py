"""`spolia gate`: whether a flow has become worse than it was; `spolia promote`: serve it if it has not."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from spolia.cli import reports
from spolia.cli.commands.eval import DATA, WHAT, refuse_other_kinds
from spolia.cli.exit_codes import Exit
from spolia.cli.experiments import SIMULATED, EvaluationRun, GateOptions, load_real_model, with_profile_store
from spolia.cli.flow_parts import add_second_source, build_parts, is_file, load_flow_file
from spolia.cli.flow_views import STAND_IN, load_flow_view
from spolia.cli.measuring_options import MeasuringOptions
from spolia.cli.model_profile import load_profile
from spolia.cli.options import FLOWS
from spolia.cli.parameters import argument, option
from spolia.cli.screen import Screen, json_text
from spolia.core.environment import refuse_env
from spolia.core.operator import walk_values
from spolia.core.plurals import several
from spolia.errors import DataError
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.json_lines import replace_files
from spolia.evaluation.gate.baseline import Baseline
from spolia.evaluation.gate.gate import TOLERANCE, Gate
from spolia.evaluation.report.gate_report import format_summary, markdown
from spolia.flow_files.files import inline_files
from spolia.services.aliases import ALIASES, CANDIDATE, PRODUCTION, Aliases, Promotion
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.groups.materialise import materialise

KINDS = (".md", ".json")
RULE = (
    "The rule: `not-worse` (the default) passes if every measure is shown to be not worse (no question scores "
    "otherwise, or the 95 % interval of the paired difference ends above minus the tolerance); `worse`, where none is "
    "shown to be worse."
)
Flow = Annotated[str | None, argument("FLOW", f"{FLOWS} By default that of the baseline.")]
BaselineFile = Annotated[Path, option("--baseline FILE", "The baseline, kept beside the code.")]
Data = Annotated[Path | None, option("--data DATA", f"{DATA} By default that of the baseline.")]
Tolerances = Annotated[
    list[str] | None,
    option(
        "--tolerance NUMBER",
        "How much worse a measure may be, by default 0.05: 5 points of 100 where scores lie between 0 and 1, "
        "elsewhere a twentieth of what it was. MEASURE=NUMBER for one of them; repeatable.",
    ),
]
ReportFiles = Annotated[list[Path] | None, option("--report FILE", "Write a report: .md or .json; repeatable.")]


def gate(
    options: MeasuringOptions,
    baseline: BaselineFile,
    flow: Flow = None,
    data: Data = None,
    write: Annotated[bool, option("--write", "Write the baseline from the current flow.")] = False,
    measures: Annotated[str, option("--measures LIST", f"With --write. {WHAT}")] = "",
    tolerance: Tolerances = None,
    rule: Annotated[str, option("--rule NAME", RULE)] = "",
    report: ReportFiles = None,
    overlap: Annotated[
        bool, option("--overlap", "With --write: also score questions that were used to select a flow.")
    ] = False,
) -> Exit:
    """Ask a flow the questions of a baseline again; report whether it got worse, on which questions, and why.

    The causes: changed documents, a corpus split differently, a ranker that orders the same nodes differently, and
    different answers from the same passages. Exit code 0 if it passes, 1 if not, 2 if the two cannot be compared, 5 if
    a step failed on every call, or if it passes with questions that failed. `--write` saves a new baseline with these
    measures, split and limit. It also keeps flow, data, store, tolerances, rule, `--known`, `--prompts`, `--web`,
    `--retriever`, `--profile` and `--llm simulated`; paths are relative to the baseline file. Command-line options
    override the baseline.
    """
    screen = Screen(json=options.json)
    refuse_other_kinds(report or (), KINDS)
    previous = _read_previous(baseline, write)
    if not write and (measures or options.split or options.limit is not None or options.seed or overlap):
        raise DataError(
            "The baseline fixes the measures and the questions: --measures, --split, --limit, --seed and --overlap "
            "go with --write."
        )
    settings, evaluation = _merge_options(screen, options, baseline, previous, flow, data, tolerance, rule, write=write)
    if write:
        measure_names = measures or ",".join(previous.measures if previous is not None else ())
        decides = _parse_tolerances(settings.tolerance, settings.rule)
        measured_report, new_baseline = evaluation.baseline(settings.flow, measure_names, decides, overlap=overlap)
        _write_baseline(screen, new_baseline.but(command=settings.to_command(baseline)), baseline)
        return Exit.PARTLY if measured_report.is_partial(options.degraded) else Exit.DONE
    assert previous is not None
    outcome = evaluation.run_gate(
        settings.flow, previous, baseline, **_parse_tolerances(settings.tolerance, settings.rule)
    )
    for path in report or ():
        text = markdown(outcome) if path.suffix == ".md" else json_text(outcome.json()) + "\n"
        with replace_files(path) as (part,):
            part.write_text(text, "utf-8", errors="backslashreplace")  # questions can hold half characters
    screen.give(**outcome.json())
    reports.show_gate(screen, outcome)
    if outcome.passed or outcome.idle:
        return Exit.PARTLY if outcome.report.is_partial(options.degraded) else Exit.DONE
    return Exit.WORSE


def run_gate(
    screen: Screen,
    options: MeasuringOptions,
    baseline: Path,
    flow: str,
    data: Path | None = None,
    display_name: str = "",
) -> "Gate":
    """Compare a flow with a baseline by the baseline's rule and tolerances; messages name the flow `display_name`."""
    previous = _read_previous(baseline, write=False)
    settings, evaluation = _merge_options(screen, options, baseline, previous, flow, data)
    assert previous is not None
    return evaluation.run_gate(
        settings.flow, previous, baseline, display_name, **_parse_tolerances(settings.tolerance, settings.rule)
    )


def _merge_options(
    screen: Screen,
    options: MeasuringOptions,
    baseline: Path,
    previous: "Baseline | None",
    flow: str | None,
    data: Path | None,
    tolerance: Sequence[str] | None = None,
    rule: str = "",
    write: bool = False,
) -> "tuple[GateOptions, EvaluationRun]":
    """Merge the options of the command line with those that the baseline keeps."""
    selection = options.split, str(options.limit or ""), str(options.seed or ""), tuple(tolerance or ()), rule
    resources = tuple(options.known or ()), str(options.prompts or ""), tuple(options.web or ())
    simulated = options.llm if options.llm == SIMULATED else ""
    settings = GateOptions(
        flow or "",
        str(data or ""),
        options.store or "",
        *selection,
        *resources,
        options.retriever,
        options.profile,
        simulated,
    )
    if previous is not None:
        settings = settings.override(GateOptions.read(previous.command, baseline))
        if settings.store and not options.store:
            # The baseline's file names the store: that may read no variable that the user has not allowed.
            refuse_env(Corpus(settings.store))
    if not settings.flow or not settings.data:
        raise DataError(f"{baseline} does not say which flow and data it is of. Write FLOW and --data DIR.")
    _parse_tolerances(settings.tolerance, settings.rule)  # raises an error before anything is asked
    options = replace(
        options,
        split=settings.split,
        limit=int(settings.limit) if settings.limit and write else None,  # else the baseline's questions are asked
        seed=int(settings.seed or 0),
        known=list(settings.known),
        web=list(settings.web),
        retriever=settings.retriever,
        profile=settings.profile,
        llm=options.llm or settings.llm,
        store=settings.store or None,
        prompts=Path(settings.prompts) if settings.prompts else None,
    )
    return settings, EvaluationRun(screen, Path(settings.data), with_profile_store(options, DataSet(settings.data)))


def promote(
    options: MeasuringOptions,
    flow: Annotated[str, argument("FLOW", f"{FLOWS} `candidate` is the flow of that alias.")] = "",
    baseline: Annotated[
        Path | None, option("--baseline FILE", "Baseline of the gate; required for production.")
    ] = None,
    data: Data = None,
    to: Annotated[str, option("--to ALIAS", "production or candidate.")] = "production",
    back: Annotated[bool, option("--back", "Switch back to the previous flow, without a gate.")] = False,
) -> Exit:
    """Switch the alias `production` of a store to a flow, if it passes the gate. A running server follows.

    First the node groups that the flow needs are built and the gate runs, on --store. Spolia asks you before texts go
    to a server that a flow file names, or wants --build-groups. Exit code 1 if it does not pass;
    the alias stays as it is then.
    """
    screen = Screen(json=options.json)
    if to not in ALIASES:
        raise DataError(f"--to {to}: no alias. Write {' or '.join(ALIASES)}.")
    options = replace(options, store=options.store or load_profile(options.profile_file).store or None)
    if options.store is None:
        raise DataError("An alias belongs to a store. Write --store STORE.")
    corpus = Corpus(options.store)
    corpus.snapshot()  # raises an error, before anything is copied, if there is no store
    aliases = Aliases(corpus.backend.folder)
    if back:
        return _report_switch(screen, to, aliases.back(to))
    if not flow or (baseline is None and to == PRODUCTION):
        raise DataError("Write FLOW and --baseline FILE; `spolia gate FLOW --write` makes a baseline.")
    flow_name = _candidate_flow(aliases) if flow == CANDIDATE else flow
    _build_groups(screen, options, flow_name)  # before the copy, so that errors name the user's file
    file = Path(flow_name)
    promotion = aliases.copy_flow(file, inline_files(file)) if is_file(flow_name) else Promotion(flow_name)
    outcome = None
    if baseline is not None:
        display_name = promotion.name if flow == CANDIDATE else flow  # not the copy's path
        outcome = run_gate(screen, options, baseline, promotion.verify_flow(), data, display_name)
        if not outcome.passed:
            screen.give(promoted=None, gate=outcome.json())
            reports.show_gate(screen, outcome)
            return Exit.WORSE
        promotion = promotion.but(gate=outcome.sentence)
    # The alias changes last: a gate that fails, or a kill before this line, leaves it as it was.
    aliases.promote(to, promotion)
    return _report_switch(screen, to, aliases.current()[to], outcome)


def _candidate_flow(aliases: "Aliases") -> str:
    """Return the flow behind the alias `candidate`."""
    if (candidate := aliases.current().get(CANDIDATE)) is None:
        raise DataError(f"There is no candidate yet. Write: spolia promote FLOW --to {CANDIDATE}")
    return candidate.verify_flow()


def _build_groups(screen: Screen, options: MeasuringOptions, flow: str) -> None:
    """Build the node groups that the first question would have to build."""
    assert options.store is not None
    llm = load_real_model(options) or STAND_IN.llm
    parts = build_parts(options.store, options, llm, modules=options.known, prompts=options.prompts)
    parts = add_second_source(parts.but(retriever=options.retriever or "default"), options.web, ())
    loaded_flow = load_flow_file(flow, parts) if is_file(flow) else load_flow_view(flow, parts)
    groups = [parts.chunks, *(operator for operator in walk_values(loaded_flow) if isinstance(operator, NodeGroup))]
    with screen.progress("building groups"):
        for lack in materialise(groups, operators=parts.known_operators):
            screen.say(f"Not in {lack.group}: {lack.uri} {lack.reason}", "yellow")


def _report_switch(screen: Screen, alias: str, promotion: "Promotion", gate: "Gate | None" = None) -> Exit:
    screen.give(alias=alias, promoted=asdict(promotion) | {"flow": promotion.name}, gate=gate and gate.json())
    screen.show(*((gate.sentence, format_summary(gate)) if gate is not None else ("No gate ran.",)))
    screen.show(f"{alias}: {promotion.name}" + (f", sha256 {promotion.sha256}" if promotion.sha256 else ""))
    return Exit.DONE


def _read_previous(path: Path, write: bool) -> "Baseline | None":
    """Read the baseline; with `write`, None if no earlier one can be read."""
    try:
        return Baseline.read(path)
    except DataError:
        if write:
            return None
        raise


def _write_baseline(screen: Screen, baseline: "Baseline", path: Path) -> None:
    baseline.write(path)
    questions = len(baseline.questions)
    screen.give(written=str(path), flow=baseline.flow, data=baseline.data, n=questions)
    screen.show(f"{path}: {baseline.flow} on {baseline.data}, {several(questions, 'question')}")


def _parse_tolerances(tolerances: Sequence[str], rule: str) -> dict[str, Any]:
    default_tolerance, by_measure = TOLERANCE, dict[str, float]()
    for tolerance in tolerances:
        measure, _, number = tolerance.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise DataError(f"--tolerance {tolerance} is not a number. Write 0.05, or R@5=0.02.") from None
        if measure:
            by_measure[measure] = value
        else:
            default_tolerance = value
    return {"tolerance": default_tolerance, "tolerances": by_measure, "rule": rule or "not-worse"}

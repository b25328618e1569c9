"""`spolia gate`: whether a flow has become worse than it was; `spolia promote`: serve it if it has not."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from spolia.cli import reports
from spolia.cli.commands.eval import DATA, WHAT, refuse_other_kinds
from spolia.cli.exit_codes import Exit
from spolia.cli.experiments import SIMULATED, EvaluationRun, GateOptions, real_model, with_profile_store
from spolia.cli.flow_parts import from_file, is_file, parts_of, with_sources
from spolia.cli.flow_views import STAND_IN, described
from spolia.cli.measuring_options import MeasuringOptions
from spolia.cli.model_profile import profile_of
from spolia.cli.options import FLOWS
from spolia.cli.parameters import argument, option
from spolia.cli.screen import Screen, json_text
from spolia.core.environment import refuse_env
from spolia.core.operator import inside
from spolia.core.plurals import several
from spolia.errors import DataError
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.json_lines import whole_files
from spolia.evaluation.gate.baseline import Baseline
from spolia.evaluation.gate.gate import TOLERANCE, Gate
from spolia.evaluation.report.gate_report import markdown, summary
from spolia.flow_files.files import self_contained
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
    given: MeasuringOptions,
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
    screen = Screen(json=given.json)
    refuse_other_kinds(report or (), KINDS)
    before = _before(baseline, write)
    if not write and (measures or given.split or given.limit is not None or given.seed or overlap):
        raise DataError(
            "The baseline fixes the measures and the questions: --measures, --split, --limit, --seed and --overlap "
            "go with --write."
        )
    said, asked = _options(screen, given, baseline, before, flow, data, tolerance, rule, write=write)
    if write:
        wanted = measures or ",".join(before.measures if before is not None else ())
        decides = _deciding(said.tolerance, said.rule)
        measured, written = asked.baseline(said.flow, wanted, decides, overlap=overlap)
        _write(screen, written.but(command=said.kept(baseline)), baseline)
        return Exit.PARTLY if measured.is_partial(given.degraded) else Exit.DONE
    assert before is not None
    found = asked.gated(said.flow, before, baseline, **_deciding(said.tolerance, said.rule))
    for path in report or ():
        text = markdown(found) if path.suffix == ".md" else json_text(found.json()) + "\n"
        with whole_files(path) as (part,):
            part.write_text(text, "utf-8", errors="backslashreplace")
    screen.give(**found.json())
    reports.show_gate(screen, found)
    if found.passed or found.idle:
        return Exit.PARTLY if found.report.is_partial(given.degraded) else Exit.DONE
    return Exit.WORSE


def gated(
    screen: Screen, given: MeasuringOptions, baseline: Path, flow: str, data: Path | None = None, called: str = ""
) -> "Gate":
    """A flow compared with a baseline, by the rule and the tolerances of that; messages name it as it is `called`."""
    before = _before(baseline, write=False)
    said, asked = _options(screen, given, baseline, before, flow, data)
    assert before is not None
    return asked.gated(said.flow, before, baseline, called, **_deciding(said.tolerance, said.rule))


def _options(
    screen: Screen,
    given: MeasuringOptions,
    baseline: Path,
    before: "Baseline | None",
    flow: str | None,
    data: Path | None,
    tolerance: Sequence[str] | None = None,
    rule: str = "",
    write: bool = False,
) -> "tuple[GateOptions, EvaluationRun]":
    """The options of the command line, else those of the baseline."""
    which = given.split, str(given.limit or ""), str(given.seed or ""), tuple(tolerance or ()), rule
    how = tuple(given.known or ()), str(given.prompts or ""), tuple(given.web or ())
    simulated = given.llm if given.llm == SIMULATED else ""
    said = GateOptions(
        flow or "", str(data or ""), given.store or "", *which, *how, given.retriever, given.profile, simulated
    )
    if before is not None:
        said = said.over(GateOptions.read(before.command, baseline))
        if said.store and not given.store:
            refuse_env(Corpus(said.store))
    if not said.flow or not said.data:
        raise DataError(f"{baseline} does not say which flow and data it is of. Write FLOW and --data DIR.")
    _deciding(said.tolerance, said.rule)
    given = replace(
        given,
        split=said.split,
        limit=int(said.limit) if said.limit and write else None,
        seed=int(said.seed or 0),
        known=list(said.known),
        web=list(said.web),
        retriever=said.retriever,
        profile=said.profile,
        llm=given.llm or said.llm,
        store=said.store or None,
        prompts=Path(said.prompts) if said.prompts else None,
    )
    return said, EvaluationRun(screen, Path(said.data), with_profile_store(given, DataSet(said.data)))


def promote(
    given: MeasuringOptions,
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
    screen = Screen(json=given.json)
    if to not in ALIASES:
        raise DataError(f"--to {to}: no alias. Write {' or '.join(ALIASES)}.")
    given = replace(given, store=given.store or profile_of(given.profile_file).store or None)
    if given.store is None:
        raise DataError("An alias belongs to a store. Write --store STORE.")
    corpus = Corpus(given.store)
    corpus.snapshot()
    aliases = Aliases(corpus.backend.folder)
    if back:
        return _switched(screen, to, aliases.back(to))
    if not flow or (baseline is None and to == PRODUCTION):
        raise DataError("Write FLOW and --baseline FILE; `spolia gate FLOW --write` makes a baseline.")
    named = _candidate(aliases) if flow == CANDIDATE else flow
    _build_groups(screen, given, named)  # before the copy, so that errors name the user's file
    file = Path(named)
    wanted = aliases.copied(file, self_contained(file)) if is_file(named) else Promotion(named)
    found = None
    if baseline is not None:
        called = wanted.name if flow == CANDIDATE else flow  # not the copy's path
        found = gated(screen, given, baseline, wanted.checked(), data, called)
        if not found.passed:
            screen.give(promoted=None, gate=found.json())
            reports.show_gate(screen, found)
            return Exit.WORSE
        wanted = wanted.but(gate=found.sentence)
    aliases.promote(to, wanted)
    return _switched(screen, to, aliases.current()[to], found)


def _candidate(aliases: "Aliases") -> str:
    """The flow of the alias."""
    if (found := aliases.current().get(CANDIDATE)) is None:
        raise DataError(f"There is no candidate yet. Write: spolia promote FLOW --to {CANDIDATE}")
    return found.checked()


def _build_groups(screen: Screen, given: MeasuringOptions, flow: str) -> None:
    """Build what the first question would have to build."""
    assert given.store is not None
    llm = real_model(given) or STAND_IN.llm
    parts = parts_of(given.store, given, llm, known=given.known, prompts=given.prompts)
    parts = with_sources(parts.but(retriever=given.retriever or "default"), given.web, ())
    found = from_file(flow, parts) if is_file(flow) else described(flow, parts)
    groups = [parts.chunks, *(one for one in inside(found) if isinstance(one, NodeGroup))]
    with screen.progress("building groups"):
        for lack in materialise(groups, known=parts.known):
            screen.say(f"Not in {lack.group}: {lack.uri} {lack.reason}", "yellow")


def _switched(screen: Screen, alias: str, now: "Promotion", gate: "Gate | None" = None) -> Exit:
    screen.give(alias=alias, promoted=asdict(now) | {"flow": now.name}, gate=gate and gate.json())
    screen.show(*((gate.sentence, summary(gate)) if gate is not None else ("No gate ran.",)))
    screen.show(f"{alias}: {now.name}" + (f", sha256 {now.sha256}" if now.sha256 else ""))
    return Exit.DONE


def _before(path: Path, write: bool) -> "Baseline | None":
    """The baseline; where one is to be written, the one before it, if there is one that can be read."""
    try:
        return Baseline.read(path)
    except DataError:
        if write:
            return None
        raise


def _write(screen: Screen, written: "Baseline", path: Path) -> None:
    written.write(path)
    questions = len(written.questions)
    screen.give(written=str(path), flow=written.flow, data=written.data, n=questions)
    screen.show(f"{path}: {written.flow} on {written.data}, {several(questions, 'question')}")


def _deciding(tolerances: Sequence[str], rule: str) -> dict[str, Any]:
    general, each = TOLERANCE, dict[str, float]()
    for one in tolerances:
        measure, _, number = one.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise DataError(f"--tolerance {one} is not a number. Write 0.05, or R@5=0.02.") from None
        if measure:
            each[measure] = value
        else:
            general = value
    return {"tolerance": general, "tolerances": each, "rule": rule or "not-worse"}

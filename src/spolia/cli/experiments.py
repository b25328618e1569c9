"""Flows measured on the questions of a data set."""

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

from spolia.cli import estimates, runs
from spolia.cli.destinations import PASSAGES_SENT, describe_destination
from spolia.cli.flow_parts import (
    CHOOSING,
    Parts,
    add_second_source,
    build_parts,
    is_file,
    load_flow,
    load_flow_file,
    prepare_judge,
)
from spolia.cli.flow_views import STAND_IN
from spolia.cli.measured_destinations import print_measured_servers
from spolia.cli.measuring_options import MeasuringOptions, QuestionOptions
from spolia.cli.model_profile import load_profile
from spolia.cli.models import load_embedder, load_language_model, load_scorer
from spolia.cli.options import MAIN
from spolia.cli.screen import Screen
from spolia.cli.user_modules import load_user_modules
from spolia.core.operator import Operator
from spolia.core.plurals import several
from spolia.errors import DataError, MissingExtra, QueryError, WeightsError
from spolia.evaluation.data.dataset import DataSet, draw_items, part_of
from spolia.evaluation.data.formats.table import QuestionTable
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.data.usage_log import TUNED, Marks, UsageLog, marks_of
from spolia.evaluation.experiment.execution import QuestionCallback
from spolia.evaluation.experiment.experiment import ENOUGH, Experiment, default_measures
from spolia.evaluation.experiment.flows import walk_parts
from spolia.evaluation.experiment.results import Report
from spolia.evaluation.gate import gate
from spolia.evaluation.gate.baseline import Baseline
from spolia.evaluation.gate.gate import Gate, refuse_invalid_rule
from spolia.evaluation.measures.measure import SetMeasure
from spolia.evaluation.measures.registry import parse_measures
from spolia.evaluation.report.html import Traces
from spolia.evaluation.simulation.profile import profile_named
from spolia.evaluation.simulation.reader import SimulatedReader
from spolia.filters.text import list_fields
from spolia.flow_files.built_in_flows import RETRIEVERS, SAMPLE, bm25, find_builder, find_language_gap
from spolia.flows.catalogue import MODULES
from spolia.journal import Journal
from spolia.models.file_hash import cache_folder
from spolia.models.http.remote import Remote
from spolia.models.onnx.minilm import MiniLM
from spolia.models.protocols import Embedder, LanguageModel
from spolia.private_files import make_folder
from spolia.run import Run
from spolia.types import Item, Query, Value


@dataclass(frozen=True)
class EvaluationSetup:
    """Flows by name that can be asked, the questions, the measures, and what was chosen for each flow."""

    data: DataSet
    marks: Marks
    items: Sequence[Item]
    measures: Sequence[SetMeasure]
    flows: Mapping[str, Operator[Any, Any]]
    parts: Parts
    chosen: Sequence[str]


SIMULATED = "simulated"
IDEAL, DEFAULT = "ideal", "default"
"""Defaults: the profile of the simulated reader, and the retriever of published flows."""
Q = TypeVar("Q", bound=QuestionOptions)
ItemFilter: TypeAlias = Callable[[Sequence[Item], Sequence[SetMeasure]], Sequence[Item]]


def _applicable_items(items: Sequence[Item], measures: Sequence[SetMeasure]) -> Sequence[Item]:
    """Return the questions that a measure applies to: those that a baseline has."""
    return [item for item in items if any(measure.applies(item) for measure in measures)]


@contextmanager
def announce_log(log: UsageLog, screen: Screen) -> Iterator[UsageLog]:
    """Say at the end if the log was begun meanwhile: it lies beside the data."""
    is_new = log.path is not None and not log.path.exists()
    yield log
    if is_new and log.path is not None and log.path.exists():
        screen.say(f"Spolia notes in {log.path} which questions were used to select flows or train parts.")


def with_profile_store(options: Q, data: DataSet) -> Q:
    """Use the store of the profile for data without passages of their own, if no option names a store."""
    if options.store is not None or data.has_corpus:
        return options
    return replace(options, store=load_profile(options.profile_file).store or None)


@dataclass(frozen=True)
class EvaluationRun:
    """Flows asked the questions of a data set, as the options of `spolia eval` and `spolia gate` say."""

    screen: Screen
    data: Path
    options: MeasuringOptions

    def prepare(
        self,
        names: Sequence[str],
        measures: str,
        select_simulated: ItemFilter = lambda items, _: items,
        estimate: bool = False,
    ) -> EvaluationSetup:
        """Prepare flows over the data set's passages or the store, and the questions to ask; without `measures`, the
        default ones.

        `select_simulated` says of which questions the simulated reader knows the gold; a gate gives it those of the
        baseline, so that it is the same reader, regardless of other questions in the data.
        """
        options, user_modules = self.options, load_user_modules(self.options.known)
        refuse_misspelt(options)
        source = DataSet(str(self.data), options.split)
        reader = load_real_model(options)
        models: dict[str, Any] = {
            "llm": prepare_judge(reader),
            "embedder": MiniLM(options.weights),
            "own": user_modules.measures,
        }
        parsed_measures = parse_measures(measures, **models) if measures else []
        if source.columns:
            self.screen.say(source.columns)
        # The usage log identifies a data set by all its questions, not by those of one part.
        all_items = list(DataSet(str(self.data)).items(stored=options.store is not None))
        items = draw_items(
            [item for item in all_items if options.split in ("", part_of(item.id))], options.limit, options.seed
        )
        if not items:
            part = (
                f" of the part {options.split}, and {len(all_items):,} of others. Name another one" if all_items else ""
            )
            raise DataError(f"{source.path} has no questions{part or '. Write at least one'}.")
        if options.llm == SIMULATED:
            reader = build_simulated_reader(
                options, source, select_simulated(items, parsed_measures or parse_measures(default_measures(items)))
            )
        if options.store is None:
            with self.screen.progress(f"indexing {source.name}") as on_progress:
                parts, problem = build_data_parts(
                    source,
                    names,
                    options,
                    reader,
                    on_progress,
                    user_modules.operators,
                    self.screen.say,
                    list_fields(options.web or ()),
                    estimate,
                )
        else:
            parts, problem = build_parts(options.store, options, reader).but(known_operators=user_modules.operators), ""
        parts = add_second_source(
            parts.but(prompts=options.prompts, retriever=options.retriever or DEFAULT), options.web, ()
        )
        if options.prompts is not None and (judges := options.prompts / "evaluation").is_dir():
            self.screen.say(
                f"{judges} is not used: a judge's prompt is a part of its measure. Write it in --measures, for example "
                "'Correctness(role=\"FILE\")'.",
                "yellow",
            )
        flows, chosen = self._load_flows(names, parts, problem)
        parsed_measures = parsed_measures or parse_measures(default_measures(items, flows.values()))
        print_measured_servers(self.screen, flows.values(), parsed_measures, reader, estimate)
        return EvaluationSetup(source, marks_of(all_items), items, parsed_measures, flows, parts, chosen)

    def report(
        self, names: Sequence[str], measures: str, *, save: Path | None, asks_again: bool, **experiment_options: Any
    ) -> tuple[Report, Sequence[str], Traces | None, str]:
        """Ask flows by name; return the report, the choices, the traces and the simulated reader's planner."""
        ready = self.prepare(names, measures)
        experiment = Experiment(
            ready.flows, ready.items, ready.measures, data=self._describe_subject(ready), **experiment_options
        )
        with self._open_run(ready, replace=asks_again) as (run, on_progress):
            with self._open_usage_log(ready) as usage_log:
                report = experiment.run(
                    run=run,
                    path=save or make_experiments_folder(),
                    ask_again=asks_again,
                    usage_log=usage_log,
                    on_progress=on_progress,
                )
            asked_count = report.table.asked
            if kept_count := report.n * len(report.flows) - asked_count:
                asked_text = f"{asked_count:,} asked now" if asked_count else "nothing was asked"
                self.screen.say(
                    f"{several(kept_count, 'answer')} kept from before, {asked_text}; --again asks all again."
                )
            if self.options.split in TUNED:
                questions_text = f"{several(report.n, 'question')} of the part {self.options.split}"
                later = "refused" if len(ready.marks) >= ENOUGH else "a warning"
                self.screen.say(
                    f"{questions_text} looked at; reporting on them is {later} from now on: spolia data looks "
                    f"{self.data}"
                )
            return report, ready.chosen, _read_traces(run), choose_planner(ready.items)

    def print_estimate(self, names: Sequence[str], measures: str) -> None:
        """Say what flows would cost, without asking a server."""
        ready = self.prepare(names, measures, estimate=True)
        questions = list(
            Experiment(ready.flows, ready.items, ready.measures).measurable_items
        )  # refuses what a run refuses
        sample = [Query(item.question) for item in draw_items(questions, estimates.SAMPLE)]
        flow_estimates = {
            name: estimates.estimate(flow, sample, (), len(questions)) for name, flow in ready.flows.items()
        }
        has_judges = any(isinstance(part, LanguageModel) for measure in ready.measures for part in walk_parts(measure))
        note = ["The estimate leaves out judges; --budget-calls limits them too."] if has_judges else []
        estimates.print_estimates(self.screen, flow_estimates, len(questions), note)

    def baseline(
        self, name: str, measures: str, decides: Mapping[str, Any], *, overlap: bool = False
    ) -> tuple[Report, Baseline]:
        """Ask a flow the questions and return the new baseline; first raise an error for options that could decide
        nothing."""
        ready = self.prepare([name], measures, _applicable_items)
        refuse_invalid_rule(ready.measures, **decides)
        experiment_options: dict[str, Any] = {"by": (), "overlap": overlap, "degraded": self.options.degraded}
        experiment = Experiment(
            ready.flows, ready.items, ready.measures, data=self._describe_subject(ready), **experiment_options
        )
        with self._open_run(ready) as (run, on_progress), self._open_usage_log(ready) as usage_log:
            report, new_baseline = gate.record_baseline(
                experiment, run=run, path=make_experiments_folder(), on_progress=on_progress, usage_log=usage_log
            )
        for warning in report.warnings:
            self.screen.say(warning, "yellow")
        gate.refuse_idle(report, self.options.degraded)
        return report, new_baseline

    def run_gate(
        self, name: str, previous: Baseline, baseline: Path, display_name: str = "", **rule_options: Any
    ) -> Gate:
        """Ask a flow the questions of a baseline in a file, and compare; `display_name` replaces the flow's name in
        messages."""
        ready = self.prepare([name], ",".join(previous.measures), lambda items, _: previous.select_items(items))
        _refuse_without_model(name, ready.flows[name], previous, baseline)
        items = previous.select_items(ready.items)
        if (
            extra_count := sum(any(measure.applies(item) for measure in ready.measures) for item in ready.items)
            - len(items)
        ) and not previous.command.get("limit"):
            message = f"{several(extra_count, 'question')} of {ready.data.name} not in the baseline"
            self.screen.say(f"{message}, and not asked.")
        flows = {display_name or name: ready.flows[name]}
        experiment = Experiment(
            flows, items, ready.measures, data=self._describe_subject(ready), degraded=self.options.degraded
        )
        with self._open_run(ready) as (run, on_progress):
            return gate.gate(
                experiment, previous, **rule_options, run=run, path=make_experiments_folder(), on_progress=on_progress
            )

    def _describe_subject(self, ready: EvaluationSetup) -> str:
        """Return the subject of a report: the data set and, if it is simulated, the reader."""
        if self.options.llm != SIMULATED:
            return ready.data.name
        planner = choose_planner(ready.items).replace("none", "no")
        return f"{ready.data.name} (simulated reader, {self.options.profile or IDEAL}, {planner} planner)"

    def _open_usage_log(self, ready: EvaluationSetup) -> AbstractContextManager[UsageLog]:
        return announce_log(
            UsageLog.for_data(self.data, make_experiments_folder(), ready.marks, self.options.split), self.screen
        )

    @contextmanager
    def _open_run(self, ready: EvaluationSetup, *, replace: bool = False) -> Iterator[tuple[Run, QuestionCallback]]:
        """Open a run recorded beside the store, with a display of its progress."""
        with self._record_run(ready, replace=replace) as run, self.screen.progress("asking") as on_progress:
            yield run, lambda flow, done, total: on_progress(done, total, f"asking {flow}")

    @contextmanager
    def _record_run(self, ready: EvaluationSetup, **run_options: Any) -> Iterator[Run]:
        """Open a run that is recorded beside the store, with the budget of the options."""
        store = ready.parts.chunks.corpus.path
        options, models = self.options, [resource for flow in ready.flows.values() for resource in flow.resources]
        judges = [part for measure in ready.measures for part in walk_parts(measure)]
        runs.refuse_unpriced(options.budget_usd, [*models, *judges])
        limit = runs.budget_of(options.budget_calls, options.budget_tokens, options.budget_usd)
        with runs.record_run(store, self.screen, budget=limit, values=options.keep_values, **run_options) as run:
            yield run
            has_steps = options.keep_values and _is_recorded(run)
        if has_steps:
            self.screen.say(f"What each step took and gave: spolia trace {run.id} --store {shlex.quote(str(store))}")

    def _load_flows(
        self, names: Sequence[str], parts: Parts, problem: str
    ) -> tuple[Mapping[str, Operator[Any, Any]], list[str]]:
        flows: dict[str, Operator[Any, Any]] = {}
        chosen = []
        for name in names:
            if name in flows:
                raise DataError(f"{name} is named twice. Name each flow once.")
            flows[name], reason = load_flow(name, parts)
            reason = f"bm25: {problem}" if problem and reason else reason
            chosen.append(reason)
            if reason:
                self.screen.say(f"{name} searches with {reason}")
        return flows, chosen


def _refuse_without_model(name: str, flow: Operator[Any, Any], previous: Baseline, baseline: Path) -> None:
    """Refuse a built-in flow that answers without a model now since none was named; a flow file names its own."""
    baseline_models = previous.signature.get("models", {})
    if baseline_models and not is_file(name) and not any(isinstance(part, LanguageModel) for part in walk_parts(flow)):
        models = ", ".join(baseline_models)
        raise DataError(
            f"{baseline} was made with the language model {models}, and {name} is asked without one. Write --llm URL "
            f"--model {next(iter(baseline_models))}, or a profile with [llm]; to go on without, write the baseline "
            "again: --write."
        )


def load_real_model(options: QuestionOptions) -> LanguageModel | None:
    """Load the language model that the options name; None for none, and for the simulated reader."""
    return (
        None
        if options.llm == SIMULATED
        else load_language_model(options.llm, options.model, load_profile(options.profile_file), options.think)
    )


def build_simulated_reader(options: QuestionOptions, data: DataSet, items: Sequence[Item]) -> LanguageModel:
    """Build the reader that knows the gold of these questions and errs as the options say."""
    if isinstance(data.file_form, QuestionTable):
        raise DataError(
            f"{data.path} has no passages, and the simulated reader reads them from the data, not from a store. Give a "
            "folder with corpus.jsonl and questions.jsonl, or a language model: --llm URL."
        )
    return SimulatedReader.from_data(data, items, profile_named(options.profile or IDEAL), options.seed)


def choose_planner(items: Iterable[Item]) -> str:
    """Return the simulated reader's planner: `gold` sub-questions if the data have some, else `none`."""
    return "gold" if any(item.decomposition for item in items) else "none"


def refuse_misspelt(options: QuestionOptions) -> None:
    """Refuse a retriever that is none, and a model that was meant to be the simulated reader."""
    if options.retriever and options.retriever not in RETRIEVERS:
        near = get_close_matches(options.retriever.lower(), RETRIEVERS, 1)
        nearest = f"Did you mean {near[0]}? " if near else ""
        raise QueryError(f"--retriever {options.retriever}: no retriever. {nearest}Write {', '.join(RETRIEVERS)}.")
    is_place = "://" in options.llm or Path(options.llm).expanduser().exists()
    if options.llm != SIMULATED and not is_place and get_close_matches(options.llm.lower(), [SIMULATED], 1, 0.7):
        raise QueryError(f"--llm {options.llm}: no address, file or folder. Did you mean --llm {SIMULATED}?")


def make_experiments_folder() -> Path:
    """Return the default folder of experiments, and make it if it is missing."""
    folder = cache_folder() / "experiments"
    make_folder(folder)
    return folder


def _is_recorded(run: Run) -> bool:
    """Check whether steps of the run are kept: it has none if all answers were stored before."""
    if not isinstance(run.journal, Journal):
        return False
    # The journal is written by another thread, so the last steps may still be in memory.
    run.journal.flush()
    return run.id in (run_id for run_id, _, _ in run.journal.runs())


def _read_traces(run: Run) -> Traces | None:
    """Return the recorded steps of questions, by run and lane; None without a journal."""
    if run.journal is None:
        return None
    journal: Journal = run.journal
    journal.flush()

    @cache  # the journal is read once for a run, not for each of its questions
    def by_lane(run_id: str) -> dict[int, list[Any]]:
        spans_by_lane: dict[int, list[Any]] = {}
        for span in journal.spans(run_id):
            spans_by_lane.setdefault(span.lane, []).append(span)
        return spans_by_lane

    return lambda run_id, lane: by_lane(run_id).get(lane, ())


def build_data_parts(
    data: DataSet,
    flows: Sequence[str],
    options: QuestionOptions,
    llm: LanguageModel | None,
    on_progress: Callable[[int, int], None],
    known_operators: tuple[Operator[Any, Any] | type, ...] = (),
    say: Callable[[str], object] = lambda message: None,
    fields: Sequence[str] = (),
    estimate: bool = False,
) -> tuple[Parts, str]:
    """Build the parts for flows over a data set, indexed if needed, and say why the embedder is not used. Passages get
    vectors if a flow uses them, unless an `estimate` would need a server for that."""
    parts = Parts(
        STAND_IN.chunks, None, llm, scorer=load_scorer(options), ranker=options.ranker, known_operators=known_operators
    )
    embedding_flows = [flow for flow in flows if needs_vectors(flow, known_operators, options.retriever or DEFAULT)]
    if not embedding_flows:
        return parts.but(chunks=index_passages(data, on_progress=on_progress, fields=fields)), ""
    embedder = load_embedder(options, None, MAIN, measures=not estimate)
    chooses = all(flow in CHOOSING and (options.retriever or DEFAULT) == DEFAULT for flow in embedding_flows)
    if reason := explain_unsuited(data, embedder) if chooses else "":
        return parts.but(chunks=index_passages(data, on_progress=on_progress, fields=fields)), reason
    if isinstance(embedder, Remote):
        say(describe_destination(embedder, PASSAGES_SENT, is_estimate=estimate))
        if estimate:
            return parts.but(chunks=index_passages(data, on_progress=on_progress, fields=fields), embedder=embedder), ""
    return parts.but(
        chunks=index_passages(data, embedder, on_progress=on_progress, fields=fields), embedder=embedder
    ), ""


def needs_vectors(
    flow: str, known_operators: tuple[Operator[Any, Any] | type, ...] = (), retriever: str = "default"
) -> bool:
    """Return whether a flow embeds questions, so that its passages need vectors; raise if the flow does not exist."""
    if not is_file(flow):
        return find_builder(retriever if flow in MODULES else flow) is not bm25
    return any(
        isinstance(part, Embedder)
        for part in load_flow_file(flow, STAND_IN.but(known_operators=known_operators)).resources
    )


def explain_unsuited(data: DataSet, embedder: Embedder) -> str:
    """Explain why an embedder does not suit a data set, before anything is embedded; empty if it does."""
    try:
        texts = [passage.text for passage in data.passages()]
        # A sample from the whole data set is enough to tell the language, and costs little to tokenise.
        return find_language_gap(texts[:: max(1, len(texts) // SAMPLE)][:SAMPLE], embedder)
    except (WeightsError, MissingExtra) as error:
        return f"{embedder.name} cannot be used ({error})"


@dataclass(frozen=True)
class GateOptions(Value):
    """Options of a gate that its baseline keeps; empty ones are not set."""

    flow: str = ""
    data: str = ""
    store: str = ""
    split: str = ""
    limit: str = ""
    seed: str = ""
    tolerance: tuple[str, ...] = ()
    rule: str = ""
    known: tuple[str, ...] = ()
    prompts: str = ""
    web: tuple[str, ...] = ()
    retriever: str = ""
    profile: str = ""
    llm: str = ""
    """Only `simulated`: where a server is differs from machine to machine."""

    @classmethod
    def read(cls, command: Mapping[str, str | list[str]], baseline: Path) -> Self:
        """Read the options that a baseline keeps, with paths from here; raise DataError if they are not valid."""
        names = cls.__dataclass_fields__
        several = {name for name in names if isinstance(getattr(cls, name), tuple)}
        for name, value in command.items():
            fits = isinstance(value, list if name in several else str)
            fits &= name not in ("limit", "seed") or str(value).isdecimal()
            if name not in names or not fits or not all(isinstance(text, str) for text in value):
                raise DataError(
                    f"{baseline}: 'command' has {name!r}: {value!r}. Write a text there, or texts for tolerance and "
                    f"known, of: {', '.join(names)}."
                )
        plain: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in command.items()}
        return cls(**plain)._relocate(baseline.resolve().parent, Path.cwd())

    def to_command(self, baseline: Path) -> dict[str, str | list[str]]:
        """Return the settings that the baseline keeps, with paths relative to its file."""
        relocated = self._relocate(Path.cwd(), baseline.resolve().parent)
        settings = {name: getattr(relocated, name) for name in self.__dataclass_fields__}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items() if value}

    def override(self, defaults: "GateOptions") -> Self:
        """Return these options, with the unset ones filled in from `defaults`."""
        return self.but(**{name: getattr(self, name) or getattr(defaults, name) for name in self.__dataclass_fields__})

    def _relocate(self, start: Path, target: Path) -> Self:
        """Return the options with their relative paths rewritten for another folder; absolute ones stay."""

        def rewrite(path: str) -> str:
            relative = path if os.path.isabs(path) else os.path.relpath(start / path, target)
            return Path(os.path.normpath(relative)).as_posix()

        def rewrite_module(module: str) -> str:
            place, colon, name = module.partition(":")
            return rewrite(place) + colon + name if place.endswith(".py") else module

        flow_is_path = bool(self.flow) and (is_file(self.flow) or "/" in self.flow or os.sep in self.flow)
        return self.but(
            flow=rewrite(self.flow) if flow_is_path else self.flow,
            data=rewrite(self.data) if self.data else "",
            store=rewrite(self.store) if self.store and "://" not in self.store else self.store,
            known=tuple(map(rewrite_module, self.known)),
            prompts=rewrite(self.prompts) if self.prompts else "",
        )

"""A data set made ready for flows, and the flows asked."""

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
from spolia.cli.destinations import TEXTS, destination
from spolia.cli.flow_parts import CHOOSING, Parts, flow_of, from_file, is_file, judging, parts_of, with_sources
from spolia.cli.flow_views import STAND_IN
from spolia.cli.measured_destinations import tell_of_measured
from spolia.cli.measuring_options import MeasuringOptions, QuestionOptions
from spolia.cli.model_profile import profile_of
from spolia.cli.models import embedder_for, model_at, scorer_for
from spolia.cli.options import MAIN
from spolia.cli.screen import Screen
from spolia.cli.user_modules import own
from spolia.core.operator import Operator
from spolia.core.plurals import several
from spolia.errors import DataError, MissingExtra, QueryError, WeightsError
from spolia.evaluation.data.dataset import DataSet, drawn, part_of
from spolia.evaluation.data.formats.table import QuestionTable
from spolia.evaluation.data.passage_store import indexed
from spolia.evaluation.data.usage_log import TUNED, Marks, UsageLog, marks_of
from spolia.evaluation.experiment.execution import Told
from spolia.evaluation.experiment.experiment import ENOUGH, Experiment, default_measures
from spolia.evaluation.experiment.flows import inside
from spolia.evaluation.experiment.results import Report
from spolia.evaluation.gate import gate
from spolia.evaluation.gate.baseline import Baseline
from spolia.evaluation.gate.gate import Gate, refuse_what_decides_nothing
from spolia.evaluation.measures.measure import SetMeasure
from spolia.evaluation.measures.registry import parse_measures
from spolia.evaluation.report.html import Traces
from spolia.evaluation.simulation.profile import profile_named
from spolia.evaluation.simulation.reader import SimulatedReader
from spolia.filters.text import named_fields
from spolia.flow_files.built_in_flows import RETRIEVERS, SAMPLE, bm25, covers, named
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
    """Flows by name that can be asked, the questions, what is measured, and what was chosen for each flow."""

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
Narrowed: TypeAlias = Callable[[Sequence[Item], Sequence[SetMeasure]], Sequence[Item]]


def _applying(items: Sequence[Item], measures: Sequence[SetMeasure]) -> Sequence[Item]:
    """The questions that a measure applies to: those that a baseline has."""
    return [item for item in items if any(one.applies(item) for one in measures)]


@contextmanager
def announced(log: UsageLog, screen: Screen) -> Iterator[UsageLog]:
    """Say at the end if the log was begun meanwhile: it lies beside the data."""
    is_new = log.path is not None and not log.path.exists()
    yield log
    if is_new and log.path is not None and log.path.exists():
        screen.say(f"Spolia notes in {log.path} which questions were used to select flows or train parts.")


def with_profile_store(given: Q, data: DataSet) -> Q:
    """Take the store of the profile for data without passages of their own, if no option names a store."""
    if given.store is not None or data.has_corpus:
        return given
    return replace(given, store=profile_of(given.profile_file).store or None)


@dataclass(frozen=True)
class EvaluationRun:
    """Flows asked the questions of a data set, as the options of `spolia eval` and `spolia gate` say."""

    screen: Screen
    data: Path
    given: MeasuringOptions

    def ready(
        self,
        names: Sequence[str],
        measures: str,
        known_of: Narrowed = lambda items, _: items,
        estimate: bool = False,
    ) -> EvaluationSetup:
        """The flows of these names, over the data set's passages or the store, and the questions to ask them; without
        `measures` the default ones.

        `known_of` says of which questions the simulated reader knows the gold; a gate gives it those of the baseline,
        so that it is the same reader, regardless of other questions in the data.
        """
        given, mine = self.given, own(self.given.known)
        refuse_misspelt(given)
        source = DataSet(str(self.data), given.split)
        reader = real_model(given)
        models: dict[str, Any] = {"llm": judging(reader), "embedder": MiniLM(given.weights), "own": mine.measures}
        wanted = parse_measures(measures, **models) if measures else []
        if source.columns:
            self.screen.say(source.columns)
        every = list(DataSet(str(self.data)).items(stored=given.store is not None))
        items = drawn([one for one in every if given.split in ("", part_of(one.id))], given.limit, given.seed)
        if not items:
            part = f" of the part {given.split}, and {len(every):,} of others. Name another one" if every else ""
            raise DataError(f"{source.path} has no questions{part or '. Write at least one'}.")
        if given.llm == SIMULATED:
            reader = simulated_reader(given, source, known_of(items, wanted or parse_measures(default_measures(items))))
        if given.store is None:
            with self.screen.progress(f"indexing {source.name}") as told:
                parts, unsuited = parts_over(
                    source,
                    names,
                    given,
                    reader,
                    told,
                    mine.operators,
                    self.screen.say,
                    named_fields(given.web or ()),
                    estimate,
                )
        else:
            parts, unsuited = parts_of(given.store, given, reader).but(known=mine.operators), ""
        parts = with_sources(parts.but(prompts=given.prompts, retriever=given.retriever or DEFAULT), given.web, ())
        if given.prompts is not None and (judges := given.prompts / "evaluation").is_dir():
            self.screen.say(
                f"{judges} is not used: a judge's prompt is a part of its measure. Write it in --measures, for example "
                "'Correctness(role=\"FILE\")'.",
                "yellow",
            )
        flows, chosen = self._flows(names, parts, unsuited)
        wanted = wanted or parse_measures(default_measures(items, flows.values()))
        tell_of_measured(self.screen, flows.values(), wanted, reader, estimate)
        return EvaluationSetup(source, marks_of(every), items, wanted, flows, parts, chosen)

    def report(
        self, names: Sequence[str], measures: str, *, save: Path | None, again: bool, **how: Any
    ) -> tuple[Report, Sequence[str], Traces | None, str]:
        """Ask flows by name: the report, what was chosen for each, where their steps are, what a simulated reader plans
        with."""
        ready = self.ready(names, measures)
        experiment = Experiment(ready.flows, ready.items, ready.measures, data=self._about(ready), **how)
        with self._asking(ready, replace=again) as (run, told):
            with self._usage_log(ready) as usage_log:
                found = experiment.run(run=run, path=save or kept_in(), again=again, usage_log=usage_log, told=told)
            asked = found.table.asked
            if kept := found.n * len(found.flows) - asked:
                whole = f"{asked:,} asked now" if asked else "nothing was asked"
                self.screen.say(f"{several(kept, 'answer')} kept from before, {whole}; --again asks all again.")
            if self.given.split in TUNED:
                what = f"{several(found.n, 'question')} of the part {self.given.split}"
                later = "refused" if len(ready.marks) >= ENOUGH else "a warning"
                self.screen.say(
                    f"{what} looked at; reporting on them is {later} from now on: spolia data looks {self.data}"
                )
            return found, ready.chosen, _traces(run), planner_of(ready.items)

    def estimated(self, names: Sequence[str], measures: str) -> None:
        """Say what flows would cost, without asking a server."""
        ready = self.ready(names, measures, estimate=True)
        asked = list(Experiment(ready.flows, ready.items, ready.measures).asked)  # refuses what a run refuses
        sample = [Query(item.question) for item in drawn(asked, estimates.SAMPLE)]
        found = {name: estimates.estimate(flow, sample, (), len(asked)) for name, flow in ready.flows.items()}
        judged = any(isinstance(one, LanguageModel) for measure in ready.measures for one in inside(measure))
        note = ["The estimate leaves out judges; --budget-calls limits them too."] if judged else []
        estimates.tell_estimates(self.screen, found, len(asked), note)

    def baseline(
        self, name: str, measures: str, decides: Mapping[str, Any], *, overlap: bool = False
    ) -> tuple[Report, Baseline]:
        """What a flow makes of the questions now; what will decide is as for `gate`, and looked at first."""
        ready = self.ready([name], measures, _applying)
        refuse_what_decides_nothing(ready.measures, **decides)
        how: dict[str, Any] = {"by": (), "overlap": overlap, "degraded": self.given.degraded}
        experiment = Experiment(ready.flows, ready.items, ready.measures, data=self._about(ready), **how)
        with self._asking(ready) as (run, told), self._usage_log(ready) as usage_log:
            found, written = gate.recorded(experiment, run=run, path=kept_in(), told=told, usage_log=usage_log)
        for warning in found.warnings:
            self.screen.say(warning, "yellow")
        gate.refuse_idle(found, self.given.degraded)
        return found, written

    def gated(self, name: str, before: Baseline, baseline: Path, called: str = "", **how: Any) -> Gate:
        """A flow asked the questions of a baseline, which is in a file; what decides is as for `gate`. `called` is its
        name in messages, where that is another one."""
        ready = self.ready([name], ",".join(before.measures), lambda items, _: before.among(items))
        _refuse_without_model(name, ready.flows[name], before, baseline)
        items = before.among(ready.items)
        if (
            more := sum(any(one.applies(item) for one in ready.measures) for item in ready.items) - len(items)
        ) and not before.command.get("limit"):
            said = f"{several(more, 'question')} of {ready.data.name} not in the baseline"
            self.screen.say(f"{said}, and not asked.")
        flows = {called or name: ready.flows[name]}
        experiment = Experiment(flows, items, ready.measures, data=self._about(ready), degraded=self.given.degraded)
        with self._asking(ready) as (run, told):
            return gate.gate(experiment, before, **how, run=run, path=kept_in(), told=told)

    def _about(self, ready: EvaluationSetup) -> str:
        """What a report is about."""
        if self.given.llm != SIMULATED:
            return ready.data.name
        planner = planner_of(ready.items).replace("none", "no")
        return f"{ready.data.name} (simulated reader, {self.given.profile or IDEAL}, {planner} planner)"

    def _usage_log(self, ready: EvaluationSetup) -> AbstractContextManager[UsageLog]:
        return announced(UsageLog.of_data(self.data, kept_in(), ready.marks, self.given.split), self.screen)

    @contextmanager
    def _asking(self, ready: EvaluationSetup, *, replace: bool = False) -> Iterator[tuple[Run, Told]]:
        """A run that is recorded beside the store, and what tells how far it is."""
        with self._recorded(ready, replace=replace) as run, self.screen.progress("asking") as told:
            yield run, lambda flow, done, total: told(done, total, f"asking {flow}")

    @contextmanager
    def _recorded(self, ready: EvaluationSetup, **how: Any) -> Iterator[Run]:
        """A run that is recorded beside the store, and limited as the options say."""
        store = ready.parts.chunks.corpus.path
        given, models = self.given, [one for flow in ready.flows.values() for one in flow.resources]
        judges = [one for measure in ready.measures for one in inside(measure)]
        runs.refuse_unpriced(given.budget_usd, [*models, *judges])
        limit = runs.budget_of(given.budget_calls, given.budget_tokens, given.budget_usd)
        with runs.recorded(store, self.screen, budget=limit, values=given.keep_values, **how) as run:
            yield run
            has_steps = given.keep_values and _is_recorded(run)
        if has_steps:
            self.screen.say(f"What each step took and gave: spolia trace {run.id} --store {shlex.quote(str(store))}")

    def _flows(
        self, names: Sequence[str], parts: Parts, unsuited: str
    ) -> tuple[Mapping[str, Operator[Any, Any]], list[str]]:
        flows: dict[str, Operator[Any, Any]] = {}
        chosen = []
        for name in names:
            if name in flows:
                raise DataError(f"{name} is named twice. Name each flow once.")
            flows[name], why = flow_of(name, parts)
            why = f"bm25: {unsuited}" if unsuited and why else why
            chosen.append(why)
            if why:
                self.screen.say(f"{name} searches with {why}")
        return flows, chosen


def _refuse_without_model(name: str, flow: Operator[Any, Any], before: Baseline, baseline: Path) -> None:
    """Refuse a built-in flow that answers without a model now since none was named; a flow file names its own."""
    then = before.signature.get("models", {})
    if then and not is_file(name) and not any(isinstance(one, LanguageModel) for one in inside(flow)):
        models = ", ".join(then)
        raise DataError(
            f"{baseline} was made with the language model {models}, and {name} is asked without one. Write --llm URL "
            f"--model {next(iter(then))}, or a profile with [llm]; to go on without, write the baseline again: --write."
        )


def real_model(given: QuestionOptions) -> LanguageModel | None:
    """The language model that the options name; None for none, and for the simulated reader."""
    return (
        None
        if given.llm == SIMULATED
        else model_at(given.llm, given.model, profile_of(given.profile_file), given.think)
    )


def simulated_reader(given: QuestionOptions, data: DataSet, items: Sequence[Item]) -> LanguageModel:
    """The reader that knows the gold of these questions, and errs as the options say."""
    if isinstance(data.written, QuestionTable):
        raise DataError(
            f"{data.path} has no passages, and the simulated reader reads them from the data, not from a store. Give a "
            "folder with corpus.jsonl and questions.jsonl, or a language model: --llm URL."
        )
    return SimulatedReader.of(data, items, profile_named(given.profile or IDEAL), given.seed)


def planner_of(items: Iterable[Item]) -> str:
    """What the simulated reader plans with: `gold` sub-questions where the data have some, else `none`."""
    return "gold" if any(item.decomposition for item in items) else "none"


def refuse_misspelt(given: QuestionOptions) -> None:
    """Refuse a retriever that is none, and a model that was meant to be the simulated reader."""
    if given.retriever and given.retriever not in RETRIEVERS:
        near = get_close_matches(given.retriever.lower(), RETRIEVERS, 1)
        nearest = f"Did you mean {near[0]}? " if near else ""
        raise QueryError(f"--retriever {given.retriever}: no retriever. {nearest}Write {', '.join(RETRIEVERS)}.")
    is_place = "://" in given.llm or Path(given.llm).expanduser().exists()
    if given.llm != SIMULATED and not is_place and get_close_matches(given.llm.lower(), [SIMULATED], 1, 0.7):
        raise QueryError(f"--llm {given.llm}: no address, file or folder. Did you mean --llm {SIMULATED}?")


def kept_in() -> Path:
    """The folder that experiments are kept in which no one has named."""
    folder = cache_folder() / "experiments"
    make_folder(folder)
    return folder


def _is_recorded(run: Run) -> bool:
    """Whether steps of the run are kept: none are where all answers are from before."""
    if not isinstance(run.journal, Journal):
        return False
    run.journal.flush()
    return run.id in (one for one, _, _ in run.journal.runs())


def _traces(run: Run) -> Traces | None:
    """The steps of questions, as far as they are kept."""
    if run.journal is None:
        return None
    journal: Journal = run.journal
    journal.flush()

    @cache
    def by_lane(of: str) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = {}
        for span in journal.spans(of):
            found.setdefault(span.lane, []).append(span)
        return found

    return lambda of, lane: by_lane(of).get(lane, ())


def parts_over(
    data: DataSet,
    flows: Sequence[str],
    given: QuestionOptions,
    llm: LanguageModel | None,
    told: Callable[[int, int], None],
    known: tuple[Operator[Any, Any] | type, ...] = (),
    say: Callable[[str], object] = lambda told: None,
    fields: Sequence[str] = (),
    estimate: bool = False,
) -> tuple[Parts, str]:
    """The parts for running flows over a data set, indexed where it is not yet: with these fields, and with vectors
    where a flow has a use for them, unless it is an `estimate` and a server would make them; and why the embedder is
    not used, where only flows that choose would use it."""
    parts = Parts(STAND_IN.chunks, None, llm, scorer=scorer_for(given), ranker=given.ranker, known=known)
    wanted = [flow for flow in flows if embeds(flow, known, given.retriever or DEFAULT)]
    if not wanted:
        return parts.but(chunks=indexed(data, told=told, fields=fields)), ""
    embedder = embedder_for(given, None, MAIN, measures=not estimate)
    chooses = all(flow in CHOOSING and (given.retriever or DEFAULT) == DEFAULT for flow in wanted)
    if why := unsuited(data, embedder) if chooses else "":
        return parts.but(chunks=indexed(data, told=told, fields=fields)), why
    if isinstance(embedder, Remote):
        say(destination(embedder, TEXTS, would=estimate))
        if estimate:
            return parts.but(chunks=indexed(data, told=told, fields=fields), embedder=embedder), ""
    return parts.but(chunks=indexed(data, embedder, told=told, fields=fields), embedder=embedder), ""


def embeds(flow: str, known: tuple[Operator[Any, Any] | type, ...] = (), retriever: str = "default") -> bool:
    """Whether a flow embeds questions, so that its passages need vectors; raises if the flow does not exist."""
    if not is_file(flow):
        return named(retriever if flow in MODULES else flow) is not bm25
    return any(isinstance(part, Embedder) for part in from_file(flow, STAND_IN.but(known=known)).resources)


def unsuited(data: DataSet, embedder: Embedder) -> str:
    """Why an embedder does not suit a data set, so that nothing is embedded in vain; nothing when it does."""
    try:
        texts = [passage.text for passage in data.passages()]
        return covers(texts[:: max(1, len(texts) // SAMPLE)][:SAMPLE], embedder)
    except (WeightsError, MissingExtra) as error:
        return f"{embedder.name} cannot be used ({error})"


@dataclass(frozen=True)
class GateOptions(Value):
    """The options of a gate that its baseline keeps; empty ones are not set."""

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
        """What a baseline says, with paths from here; `DataError` if that is no options."""
        names = cls.__dataclass_fields__
        several = {name for name in names if isinstance(getattr(cls, name), tuple)}
        for name, value in command.items():
            fits = isinstance(value, list if name in several else str)
            fits &= name not in ("limit", "seed") or str(value).isdecimal()
            if name not in names or not fits or not all(isinstance(one, str) for one in value):
                raise DataError(
                    f"{baseline}: 'command' has {name!r}: {value!r}. Write a text there, or texts for tolerance and "
                    f"known, of: {', '.join(names)}."
                )
        plain: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in command.items()}
        return cls(**plain)._moved(baseline.resolve().parent, Path.cwd())

    def kept(self, baseline: Path) -> dict[str, str | list[str]]:
        """Return the settings that the baseline keeps, with paths relative to its file."""
        moved = self._moved(Path.cwd(), baseline.resolve().parent)
        said = {name: getattr(moved, name) for name in self.__dataclass_fields__}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in said.items() if value}

    def over(self, other: "GateOptions") -> Self:
        """These; the others fill in what is not set."""
        return self.but(**{name: getattr(self, name) or getattr(other, name) for name in self.__dataclass_fields__})

    def _moved(self, start: Path, to: Path) -> Self:
        """The paths as they are written in another folder; absolute ones stay."""

        def moved(path: str) -> str:
            found = path if os.path.isabs(path) else os.path.relpath(start / path, to)
            return Path(os.path.normpath(found)).as_posix()

        def named(module: str) -> str:
            place, colon, name = module.partition(":")
            return moved(place) + colon + name if place.endswith(".py") else module

        flow_is_path = bool(self.flow) and (is_file(self.flow) or "/" in self.flow or os.sep in self.flow)
        return self.but(
            flow=moved(self.flow) if flow_is_path else self.flow,
            data=moved(self.data) if self.data else "",
            store=moved(self.store) if self.store and "://" not in self.store else self.store,
            known=tuple(map(named, self.known)),
            prompts=moved(self.prompts) if self.prompts else "",
        )

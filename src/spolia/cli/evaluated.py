"""A data set made ready for flows, and the flows asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spolia.cli.over import parts_over
from spolia.cli.own import Own
from spolia.cli.parts import Parts, flow_of, judging, model_at, parts_of
from spolia.cli.recorded import recorded
from spolia.cli.screen import Screen
from spolia.cli.sending import tell_of_measured
from spolia.errors import DataError
from spolia.evaluation.corpus import cache_folder
from spolia.evaluation.datasets import DataSet, drawn
from spolia.evaluation.experiment import Experiment, Told
from spolia.evaluation.gate import gating
from spolia.evaluation.gate.comparable import refuse_what_decides_nothing
from spolia.evaluation.looks import LOOKS, TUNED, Looks, Marks, marks_of
from spolia.evaluation.measures.measure import SetMeasure
from spolia.evaluation.measures.parse import parse_measures
from spolia.evaluation.splits import part_of
from spolia.evaluation.wording import several
from spolia.models.minilm import MiniLM
from spolia.operator import Operator
from spolia.types import Item

if TYPE_CHECKING:
    from spolia.evaluation.gate.baseline import Baseline
    from spolia.evaluation.gate.gating import Gate
    from spolia.evaluation.pages.question import Traces
    from spolia.evaluation.report import Report
    from spolia.journal import Journal
    from spolia.run import Run


@dataclass(frozen=True)
class Ready:
    """Flows that can be asked.

    Args:
        data: where the questions are from.
        marks: which data set it is, whatever becomes of its passages.
        items: the questions.
        measures: what to measure.
        flows: by name.
        parts: what the flows are made of.
        chosen: what each flow is, where there was a choice.
    """

    data: DataSet
    marks: Marks
    items: Sequence[Item]
    measures: Sequence[SetMeasure]
    flows: Mapping[str, Operator[Any, Any]]
    parts: Parts
    chosen: Sequence[str]


@dataclass(frozen=True)
class Evaluated:
    """What the options of `spolia eval` say of data and models."""

    screen: Screen
    data: Path
    split: str
    limit: int | None
    seed: int
    llm: str
    model: str
    weights: str
    known: Own = field(default_factory=Own)
    store: str | None = None
    prompts: Path | None = None

    def ready(self, names: Sequence[str], measures: str) -> Ready:
        """The flows of these names, over the data set's passages or the store, and the questions to ask them."""
        source, reader = DataSet(str(self.data), self.split), model_at(self.llm, self.model)
        wanted = parse_measures(measures, llm=judging(reader), embedder=MiniLM(self.weights), own=self.known.measures)
        every = list(DataSet(str(self.data)).items(stored=self.store is not None))
        items = drawn([one for one in every if self.split in ("", part_of(one.id))], self.limit, self.seed)
        if not items:
            part = f" of the part {self.split}, and {len(every):,} of others. Name another one" if every else ""
            raise DataError(f"{source.path} has no questions{part or '. Write at least one'}.")
        if self.store is None:
            with self.screen.progress(f"indexing {source.name}") as told:
                parts, unsuited = parts_over(source, names, self.weights, reader, told, self.known.operators)
        else:
            parts, unsuited = parts_of(self.store, self.weights, reader).but(known=self.known.operators), ""
        parts = parts.but(prompts=self.prompts)
        if self.prompts is not None and (judges := self.prompts / "evaluation").is_dir():
            self.screen.say(
                f"{judges} is not used: a judge's prompt is a part of its measure. Write it in --measures, for example "
                "'Correctness(role=\"FILE\")'.",
                "yellow",
            )
        flows, chosen = self._flows(names, parts, unsuited)
        tell_of_measured(self.screen, flows.values(), wanted, reader)
        return Ready(source, marks_of(every), items, wanted, flows, parts, chosen)

    def report(
        self,
        names: Sequence[str],
        measures: str,
        *,
        by: Sequence[str] | None,
        correction: str,
        save: Path | None,
        again: bool,
        overlap: bool,
    ) -> tuple[Report, Sequence[str], Traces | None]:
        """Ask the flows of these names; and what each of them is, and where its steps are.

        Args:
            save: the file of the experiment; None for one in the cache directory.
        """
        ready = self.ready(names, measures)
        experiment = Experiment(
            ready.flows,
            ready.items,
            ready.measures,
            data=ready.data.name,
            by=by,
            correction=correction,
            overlap=overlap,
        )
        with self._asking(ready, anew=again) as (run, told):
            asked: list[str] = []

            def counted(flow: str, done: int, total: int) -> None:
                asked.append(flow)
                told(flow, done, total)

            found = experiment.run(run=run, path=save or kept_in(), again=again, looks=self._looks(ready), told=counted)
            if kept := found.n * len(found.flows) - len(asked):
                whole = f"{len(asked):,} asked now" if asked else "nothing was asked"
                self.screen.say(f"{several(kept, 'answer')} kept from before, {whole}; --again asks anew.")
            if self.split in TUNED:
                what = f"{several(found.n, 'question')} of the part {self.split}"
                self.screen.say(f"{what} looked at, and not reported on from now on: spolia data looks {self.data}")
            return found, ready.chosen, _traces(run)

    def baseline(self, name: str, measures: str, decides: Mapping[str, Any], *, overlap: bool = False) -> Baseline:
        """What a flow makes of the questions now; what will decide is as for `gate`, and looked at first."""
        ready = self.ready([name], measures)
        refuse_what_decides_nothing(ready.measures, **decides)
        experiment = Experiment(ready.flows, ready.items, ready.measures, data=ready.data.name, by=(), overlap=overlap)
        with self._asking(ready) as (run, told):
            _, written = gating.recorded(experiment, run=run, path=kept_in(), told=told, looks=self._looks(ready))
        return written

    def gated(self, name: str, before: Baseline, **how: Any) -> Gate:
        """A flow asked the questions of a baseline; what decides is as for `gate`."""
        ready = self.ready([name], ",".join(before.measures))
        items = before.among(ready.items)
        if (
            more := sum(any(one.applies(item) for one in ready.measures) for item in ready.items) - len(items)
        ) and not before.command.get("limit"):
            said = f"{several(more, 'question')} of {ready.data.name} not in the baseline"
            self.screen.say(f"{said}, and not asked.")
        experiment = Experiment(ready.flows, items, ready.measures, data=ready.data.name)
        with self._asking(ready) as (run, told):
            return gating.gate(experiment, before, **how, run=run, path=kept_in(), told=told)

    def _looks(self, ready: Ready) -> Looks:
        return Looks(kept_in() / LOOKS, ready.marks, self.split)

    @contextmanager
    def _asking(self, ready: Ready, *, anew: bool = False) -> Iterator[tuple[Run, Told]]:
        """A run that is recorded beside the store, and what tells how far it is."""
        store = ready.parts.chunks.corpus.path
        with recorded(store, self.screen, anew=anew) as run, self.screen.progress("asking") as told:
            yield run, lambda flow, done, total: told(done, total, f"asking {flow}")

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
                self.screen.say(why)
        return flows, chosen


def kept_in() -> Path:
    """The folder that experiments are kept in which no one has named."""
    folder = cache_folder() / "experiments"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _traces(run: Run) -> Traces | None:
    """The steps of questions, as far as they are kept."""
    if run.journal is None:
        return None
    journal: Journal = run.journal
    journal.flush()
    found: dict[str, dict[int, list[Any]]] = {}

    def spans(of: str, lane: int) -> Sequence[Any]:
        if of not in found:
            found[of] = {}
            for span in journal.spans(of):
                found[of].setdefault(span.lane, []).append(span)
        return found[of].get(lane, ())

    return spans

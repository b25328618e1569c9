"""A data set made ready for flows, and the flows asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spolia.cli.described import STAND_IN
from spolia.cli.parts import CHOOSING, Parts, flow_of, from_file, is_file, model_at
from spolia.cli.recorded import recorded
from spolia.cli.screen import Screen
from spolia.cli.sending import tell_of_models
from spolia.errors import DataError, MissingExtra, WeightsError
from spolia.evaluation.corpus import cache_folder, indexed
from spolia.evaluation.datasets import DataSet
from spolia.evaluation.experiment import Experiment
from spolia.evaluation.looks import TUNED, Looks
from spolia.evaluation.measures.parse import parse_measures
from spolia.flows.builtin import bm25, named
from spolia.flows.default import SAMPLE, covers
from spolia.models.minilm import MiniLM
from spolia.models.protocols import Embedder, LanguageModel
from spolia.operator import Operator
from spolia.types import digest_of

if TYPE_CHECKING:
    from spolia.evaluation.pages.question import Traces
    from spolia.evaluation.report import Report
    from spolia.journal import Journal
    from spolia.run import Run


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

    def report(
        self,
        names: Sequence[str],
        measures: str,
        *,
        by: Sequence[str],
        correction: str,
        save: Path | None,
        again: bool,
        overlap: bool,
    ) -> tuple[Report, list[str], Traces | None]:
        """Ask the flows of these names; and what each of them is, and where its steps are.

        Args:
            save: the file of the experiment; None for one in the cache directory.
        """
        source, reader = DataSet(str(self.data), self.split), model_at(self.llm, self.model)
        wanted = parse_measures(measures, llm=reader, embedder=MiniLM(self.weights))
        items = source.sample(self.limit, self.seed)
        with self.screen.progress(f"indexing {source.name}") as told:
            parts, unsuited = parts_over(source, names, self.weights, reader, told)
        flows, chosen = self._flows(names, parts, unsuited)
        looks = Looks(cache_folder() / "experiments" / "looks.jsonl")
        content, digests = source.content_hash(), {name: _told_apart(flow, parts) for name, flow in flows.items()}
        experiment = Experiment(
            flows,
            items,
            wanted,
            data=source.name,
            by=by,
            correction=correction,
            tuned_on=looks.tuned_on(content, digests.values()) if self.split not in TUNED else (),
            overlap=overlap,
        )
        looked = self._look(looks, content, digests, experiment)
        with recorded(parts.chunks.corpus.path, self.screen) as run, self.screen.progress("asking") as told:
            found = experiment.run(
                run=run,
                path=save or _kept(),
                again=again,
                told=lambda flow, done, total: told(done, total, f"asking {flow}"),
            )
            return found.but(looked=looked), chosen, _traces(run)

    def _look(self, looks: Looks, data: str, flows: Mapping[str, str], experiment: Experiment) -> int:
        """Write down that a part is looked at, before it is; and how many other experiments have."""
        if not self.split:
            return 0
        looks.note(data, self.split, flows, experiment.digest.hex())
        return looks.times(data, self.split) - 1

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
            tell_of_models(self.screen, flows[name], parts.llm)
        return flows, chosen


def parts_over(
    data: DataSet, flows: Sequence[str], weights: str, llm: LanguageModel | None, told: Callable[[int, int], None]
) -> tuple[Parts, str]:
    """The parts for running flows over a data set, indexed where it is not yet: with vectors where a flow has a use for
    them; and why the embedder is not used, where only flows that choose would use it."""
    embedder, wanted = MiniLM(weights), [flow for flow in flows if embeds(flow)]
    why = unsuited(data, embedder) if wanted and all(flow in CHOOSING for flow in wanted) else ""
    if why or not wanted:
        return Parts(indexed(data, told=told), None, llm), why
    return Parts(indexed(data, embedder, told=told), embedder, llm), ""


def embeds(flow: str) -> bool:
    """Whether a flow embeds questions, so that its passages need vectors; raises when there is no such flow."""
    if not is_file(flow):
        return named(flow) is not bm25
    return any(isinstance(part, Embedder) for part in from_file(flow, STAND_IN).resources)


def unsuited(data: DataSet, embedder: Embedder) -> str:
    """Why an embedder does not suit a data set, so that nothing is embedded in vain; nothing when it does."""
    try:
        texts = [passage.text for passage in data.passages()]
        return covers(texts[:: max(1, len(texts) // SAMPLE)][:SAMPLE], embedder)
    except (WeightsError, MissingExtra) as error:
        return f"{embedder.name} cannot be used ({error})"


def _told_apart(flow: Operator[Any, Any], parts: Parts) -> str:
    """A hash of a flow whatever store it searches: the same with and without vectors, wherever the cache is."""
    return digest_of(repr(flow).replace(parts.chunks.corpus.path, "")).hex()


def _kept() -> Path:
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

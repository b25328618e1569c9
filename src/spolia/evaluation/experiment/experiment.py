"""Flows, questions, measures: every flow gets the same questions, and each difference has its confidence interval."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spolia.core.plurals import several, were
from spolia.core.type_compatibility import fits
from spolia.errors import DataError
from spolia.evaluation.data.dataset import checked_part, part_of
from spolia.evaluation.data.usage_log import ALL, REPORT, LogEntry, UsageLog
from spolia.evaluation.experiment.comparison import MOST, TYPE, by_kind, fields_of
from spolia.evaluation.experiment.execution import DEGRADED, Told, ask
from spolia.evaluation.experiment.flows import (
    Flow,
    inside,
    named,
    named_together,
    questions,
    refuse_other_flows,
    row_name,
    written,
)
from spolia.evaluation.experiment.results import Report, reported
from spolia.evaluation.measures.measure import SetMeasure
from spolia.evaluation.measures.registry import as_measures
from spolia.evaluation.statistics.significance import CORRECTIONS
from spolia.models.trained_weights import TrainedWeights
from spolia.run import Run
from spolia.types import Item, Query, Ranking, Value

OF_PASSAGES = "R@1,R@5,R@10,full@5,full@10,MRR,nDCG@10"
OF_ANSWERS = "EM,F1"
OF_ANSWERS_IN_PASSAGES = "AnswerHit@1,AnswerHit@5,AnswerHit@10"
ENOUGH = 100
"""With this many questions, logged questions raise an error. With fewer, no part can be held out."""


def default_measures(items: Sequence[Item], flows: Iterable[Flow] | None = None) -> str:
    """Return the measures that are taken where none is named: of passages if the questions have gold, of answers if
    they have answers and a flow may answer, as flows that are not known yet may.

    >>> from spolia import BM25, Corpus, Extract
    >>> search = BM25(Corpus("notes.spolia").group("chunk"))
    >>> both = Item("q", "?", gold=(("a.md",),), answers=("Nokia",))
    >>> default_measures([both], [search]) == OF_PASSAGES, default_measures([both.but(gold=())], [search])
    (True, 'AnswerHit@1,AnswerHit@5,AnswerHit@10')
    >>> default_measures([both], [search, search >> Extract()])
    'R@1,R@5,R@10,full@5,full@10,MRR,nDCG@10,EM,F1'
    """
    has_gold, has_answers = any(item.gold for item in items), any(item.answers for item in items)
    may_answer = flows is None or any(not fits(Ranking, flow.gives(Query), {}) for flow in flows)
    chosen = [OF_PASSAGES] if has_gold or not has_answers else []
    if has_answers and may_answer:
        chosen.append(OF_ANSWERS)
    return ",".join(chosen) or OF_ANSWERS_IN_PASSAGES


@dataclass(frozen=True, init=False)
class Experiment(Value):
    """Ask every flow the same questions, and measure what they give.

    A question without the gold that any measure takes is left out and counted. A failed one scores 0 and is counted.

    Args:
        flows: one flow, several, or several by name; without a name a flow is called by its notation. Equal flows are
            one row, with all their names.
        items: questions with gold.
        measures: what to measure; texts are read by `parse_measures`, which takes models too. By default
            `default_measures`.
        data: what the questions are called.
        by: what to slice the questions by: `type`, or names of their metadata (`metadata.topic` inside an object); by
            default their type, where they have one.
        correction: of p-values, over all comparisons: `holm`, `bh` (Benjamini and Hochberg) or `none`.
        primary: the measure, as it is written, that decides: flows are compared on it alone, and the others describe.
        against: the baseline: flows are compared with this one alone. Fewer comparisons need less correction.
        tuned_on: the parts that a flow was tuned on (`tune`, `select`), in addition to the logged ones (`run`); their
            questions raise an error.
        overlap: whether to take them all the same, which the report says.
        degraded: what happens where a step of a flow fails on every call: `stop`, or `ok` to measure it all the same.
        seed: of what is drawn by lot.

    Raises:
        WiringError: a flow takes or gives something else, or two are called the same.
        DataError: there are no questions, two have the same id, no measure applies to any, or some were tuned on.

    >>> from spolia import Hit, Node, Query, Ranking, step
    >>> from spolia.evaluation.measures.rank_measures import Recall
    >>> @step
    ... def always_p1(query: Query) -> Ranking:
    ...     return Ranking(query, (Hit(Node("p1", "..."), 1.0),))
    >>> items = [Item("q1", "?", gold=(("p1",),)), Item("q2", "?", gold=(("p2",),))]
    >>> print(Experiment(always_p1, items, [Recall(5)]).run().flows[0].interval("R@5"))
    0.500 [0.026, 0.974]
    """

    flows: tuple[tuple[str, Flow], ...]
    items: tuple[Item, ...]
    measures: tuple[SetMeasure, ...]
    data: str = ""
    by: tuple[str, ...] = ()
    correction: str = "holm"
    primary: str = ""
    against: str = ""
    tuned_on: tuple[str, ...] = ()
    overlap: bool = False
    degraded: str = "stop"
    seed: int = 0
    names: tuple[tuple[str, ...], ...] = ()

    def __init__(
        self,
        flows: Flow | Sequence[Flow] | Mapping[str, Flow],
        items: Iterable[Item],
        measures: str | Iterable[str | SetMeasure] | None = None,
        *,
        data: str = "",
        by: str | Sequence[str] | None = None,
        correction: str = "holm",
        primary: str = "",
        against: str = "",
        tuned_on: str | Sequence[str] = (),
        overlap: bool = False,
        degraded: str = "stop",
        seed: int = 0,
    ) -> None:
        listed = questions(items)
        rows = named_together(named(flows))
        if measures is None:
            measures = default_measures(listed, (flow for _, flow in rows))
        against = next((row_name(names) for names, _ in rows if against in names), against)
        given: dict[str, Any] = {"names": tuple(names for names, _ in rows), "items": listed}
        given |= {"flows": tuple((row_name(names), flow) for names, flow in rows)}
        given |= {"data": data, "by": self._fields(listed, by)}
        given |= {"measures": tuple(dict.fromkeys(as_measures(measures))), "correction": correction}
        given |= {"primary": primary, "against": against, "degraded": degraded}
        parts = (tuned_on,) if isinstance(tuned_on, str) else tuned_on
        given |= {"tuned_on": tuple(map(checked_part, parts)), "overlap": overlap, "seed": seed}
        for name, value in given.items():
            object.__setattr__(self, name, value)
        self._check()

    @staticmethod
    def _fields(items: Sequence[Item], by: str | Sequence[str] | None) -> tuple[str, ...]:
        there = {name for item in items for name in fields_of(item)}
        if by is None:
            return (TYPE,) if 2 <= len(by_kind(items, TYPE)) <= MOST else ()
        wanted = (by,) if isinstance(by, str) else tuple(by)
        if unknown := [field for field in wanted if field not in there]:
            can = f"Slice by one of: {', '.join(sorted(there))}." if there else "They have no type and no metadata."
            raise DataError(f"No question has a field {unknown[0]!r}. {can}")
        return wanted

    def _check(self) -> None:
        for _, flow in self.flows:
            refuse_other_flows(flow)
        if self.correction not in CORRECTIONS:
            raise DataError(f"There is no correction {self.correction!r}. Write one of: {', '.join(CORRECTIONS)}.")
        if self.degraded not in DEGRADED:
            raise DataError(f"degraded={self.degraded!r} is unknown. Write one of: {', '.join(DEGRADED)}.")
        if not self.measures:
            raise DataError("No measures given. Give a measure, for example parse_measure('R@5').")
        for what, name, names in (
            ("primary measure", self.primary, [str(one) for one in self.measures]),
            ("flow to compare against", self.against, [name for name, _ in self.flows]),
        ):
            if name and name not in names:
                raise DataError(f"Unknown {what}: {name!r}. Write one of: {', '.join(names)}.")
        if self.against and len(self.flows) == 1:
            raise DataError(f"{self.against} is the only flow. Name another one to compare against it.")
        if twice := [id for id, times in Counter(item.id for item in self.items).items() if times > 1]:
            raise DataError(
                f"{several(len(twice), 'id')} of several questions each, the first {twice[0]!r}. Give each its own."
            )
        if not self.items:
            raise DataError(
                "There are no questions to ask. Give at least one Item with gold or answers. An iterator gives its "
                "items once: write list(data.items())."
            )
        if not self.asked:
            raise DataError(
                f"None of {several(len(self.items), 'question')} has gold for {', '.join(map(str, self.measures))}. "
                f"{self._measurable()}"
            )
        self._refuse(self.tuned)

    def _measurable(self) -> str:
        """What to write where no measure applies: measures that the questions have gold for, if there are any."""
        for there, listed in (("answers", "EM,F1"), ("gold passages", "R@5,MRR")):
            if any(measure.applies(item) for measure in as_measures(listed) for item in self.items):
                other = "; of a flow that only searches: AnswerHit@5" if there == "answers" else ""
                where = f"(in Python {listed!r}; of `spolia tune`, --objective)"
                return f"They have {there}. Write --measures {listed} {where}{other}."
        gold = "gold_ids (in a table a column 'file' or 'quote')"
        return f"Give questions with {gold}, or with answers for measures of answers."

    @property
    def asked(self) -> tuple[Item, ...]:
        """The questions to which any measure applies."""
        return tuple(item for item in self.items if any(measure.applies(item) for measure in self.measures))

    @property
    def tuned(self) -> tuple[str, ...]:
        """Ids of the questions that a flow was tuned on."""
        return self._among(self.tuned_on)

    def _among(self, parts: Sequence[str], entries: Sequence[LogEntry] = ()) -> tuple[str, ...]:
        ids = [item.id for item in self.asked]
        return tuple(id for id in ids if part_of(id) in parts or any(entry.chose_by(id) for entry in entries))

    @property
    def trained_on(self) -> tuple[str, ...]:
        """Ids of the questions that a part of a flow was trained on, as its card says."""
        every = {one for _, flow in self.flows for one in inside(flow) if isinstance(one, TrainedWeights)}
        ids = tuple(item.id for item in self.asked if any(one.was_trained_on(item.question) for one in every))
        if ids and not self.overlap and len(self.asked) >= ENOUGH:
            raise DataError(
                f"{len(ids)} of {several(len(self.asked), 'question')} {were(len(self.asked))} used to train a part of "
                f"a flow (the first: {ids[0]!r}), so their scores are too good. To go on, ask other questions; or "
                "allow it (--overlap; in Python overlap=True), and the report says so."
            )
        return ids

    def _refuse(
        self,
        tuned: Sequence[str],
        flows: Sequence[str] = (),
        usage_log: UsageLog | None = None,
        entry: LogEntry | None = None,
    ) -> None:
        """Raise for questions that a flow was tuned on; if only a log says so and they are few, the report warns."""
        n = len(self.asked)
        if not tuned or self.overlap or (usage_log is not None and n < ENOUGH):
            return
        said = (
            f"{len(tuned)} of {several(n, 'question')} {were(n)} used to tune or choose a flow "
            f"({'; '.join((*flows, f'the first: {tuned[0]!r}'))}), so their scores are too good."
        )
        ways = ["ask the part report, which nothing was chosen by (--split report; in Python data.split('report'))"]
        ways += ["allow it (--overlap; in Python overlap=True), and the report says so"]
        if usage_log is not None and entry is not None:
            by = [one for one in usage_log.chosen_on(entry) if any(map(one.chose_by, tuned))]
            said += f" Looked at {several(len(by), 'time')}, last {max(by, key=lambda one: one.at)}."
            if any(one.part == ALL for one in usage_log.chosen_on(entry.but(part=REPORT))):
                ways = ["ask new questions", *ways[1:]]
            ways += [
                f"if no flow was selected by these looks, strike them out of {usage_log.path}: {usage_log.forgetting}"
            ]
        raise DataError(f"{said} To go on, {'; or '.join(ways)}")

    def run(
        self,
        *,
        run: Run | None = None,
        path: str | Path | None = None,
        again: bool = False,
        usage_log: UsageLog | None = None,
        told: Told = lambda flow, done, total: None,
    ) -> Report:
        """Ask what was not asked yet, and report.

        Args:
            run: whose cache, journal, budget, threads and rights are used, by flows and by judges alike; by default
                one of its own.
            path, again: see `ask`. An answered question is never asked again, unless a server was down, and
                an interrupted experiment goes on.
            usage_log: where it is written which questions were looked at; by default in `looks.jsonl` beside the
                file, and nowhere without one. `UsageLog.of_data` is the file beside a data set.
            told: called with the flow, how many questions it was asked so far, and of how many.

        Raises:
            DataError: a flow was chosen by these questions before, and they are 100 or more.
            SpoliaError: all others that `ask` raises.
        """
        run = run if run is not None else Run()
        usage_log = UsageLog.beside(path) if usage_log is None else usage_log
        entry = usage_log.at(
            self.asked, {name: written(flow) for name, flow in self.flows}, list(map(str, self.measures))
        )
        chosen = usage_log.chosen_on(entry)
        tuned = self._among(self.tuned_on, chosen)
        names = tuple(dict.fromkeys(name for one in chosen for name in one.chose(entry)))
        self._refuse(tuned, names, usage_log, entry)
        used = {*tuned, *self.trained_on}
        how: dict[str, Any] = {"run": run, "path": path, "data": self.data or "questions", "again": again, "told": told}
        how |= {"degraded": self.degraded}
        table = ask(dict(self.flows), self.asked, self.measures, **how)
        usage_log.note(entry)  # what comes to no report was not looked at
        found = reported(self, table, run.threads)
        notes = (*found.notes, *filter(None, (usage_log.damage(),)))
        return found.but(tuned=len(used), tuned_flows=names, looked=usage_log.before(entry), notes=notes)

"""Flows, questions, measures: every flow gets the same questions, and each difference has its confidence interval."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spolia.core.deprecation import renamed_arguments
from spolia.core.plurals import several, were
from spolia.core.type_compatibility import fits
from spolia.errors import DataError
from spolia.evaluation.data.dataset import check_part, part_of
from spolia.evaluation.data.usage_log import ALL, REPORT, LogEntry, UsageLog
from spolia.evaluation.experiment.comparison import MOST, TYPE, fields_of, group_by_kind
from spolia.evaluation.experiment.execution import DEGRADED, QuestionCallback, ask
from spolia.evaluation.experiment.flows import (
    Flow,
    check_items,
    group_equal_flows,
    name_flows,
    portable_notation,
    refuse_other_flows,
    row_name,
    walk_parts,
)
from spolia.evaluation.experiment.results import Report, build_report
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
    """Return the default measures: of passages if the questions have gold, of answers if they have answers and a flow
    may answer (flows that are unknown yet may).

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
    """Experiment that asks every flow the same questions and measures the results.

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
        listed = check_items(items)
        rows = group_equal_flows(name_flows(flows))
        if measures is None:
            measures = default_measures(listed, (flow for _, flow in rows))
        against = next((row_name(names) for names, _ in rows if against in names), against)
        fields: dict[str, Any] = {"names": tuple(names for names, _ in rows), "items": listed}
        fields |= {"flows": tuple((row_name(names), flow) for names, flow in rows)}
        fields |= {"data": data, "by": self._check_fields(listed, by)}
        fields |= {"measures": tuple(dict.fromkeys(as_measures(measures))), "correction": correction}
        fields |= {"primary": primary, "against": against, "degraded": degraded}
        parts = (tuned_on,) if isinstance(tuned_on, str) else tuned_on
        fields |= {"tuned_on": tuple(map(check_part, parts)), "overlap": overlap, "seed": seed}
        for name, value in fields.items():
            # The dataclass is frozen, and its own __init__ would not accept the short forms of the
            # arguments.
            object.__setattr__(self, name, value)
        self._check()

    @staticmethod
    def _check_fields(items: Sequence[Item], by: str | Sequence[str] | None) -> tuple[str, ...]:
        present_fields = {name for item in items for name in fields_of(item)}
        if by is None:
            return (TYPE,) if 2 <= len(group_by_kind(items, TYPE)) <= MOST else ()
        requested_fields = (by,) if isinstance(by, str) else tuple(by)
        if unknown := [field for field in requested_fields if field not in present_fields]:
            can = (
                f"Slice by one of: {', '.join(sorted(present_fields))}."
                if present_fields
                else "They have no type and no metadata."
            )
            raise DataError(f"No question has a field {unknown[0]!r}. {can}")
        return requested_fields

    def _check(self) -> None:
        for _, flow in self.flows:
            refuse_other_flows(flow)
        if self.correction not in CORRECTIONS:
            raise DataError(f"There is no correction {self.correction!r}. Write one of: {', '.join(CORRECTIONS)}.")
        if self.degraded not in DEGRADED:
            raise DataError(f"degraded={self.degraded!r} is unknown. Write one of: {', '.join(DEGRADED)}.")
        if not self.measures:
            raise DataError("No measures given. Give a measure, for example parse_measure('R@5').")
        for role, name, names in (
            ("primary measure", self.primary, [str(measure) for measure in self.measures]),
            ("flow to compare against", self.against, [name for name, _ in self.flows]),
        ):
            if name and name not in names:
                raise DataError(f"Unknown {role}: {name!r}. Write one of: {', '.join(names)}.")
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
        if not self.measurable_items:
            raise DataError(
                f"None of {several(len(self.items), 'question')} has gold for {', '.join(map(str, self.measures))}. "
                f"{self._suggest_measures()}"
            )
        self._refuse_tuned(self.tuned)

    def _suggest_measures(self) -> str:
        """Suggest measures that the questions have gold for, where no given measure applies."""
        for gold_kind, listed in (("answers", "EM,F1"), ("gold passages", "R@5,MRR")):
            if any(measure.applies(item) for measure in as_measures(listed) for item in self.items):
                hint = "; of a flow that only searches: AnswerHit@5" if gold_kind == "answers" else ""
                option_text = f"(in Python {listed!r}; of `spolia tune`, --objective)"
                return f"They have {gold_kind}. Write --measures {listed} {option_text}{hint}."
        gold = "gold_ids (in a table a column 'file' or 'quote')"
        return f"Give questions with {gold}, or with answers for measures of answers."

    @property
    def measurable_items(self) -> tuple[Item, ...]:
        """Return the questions to which any measure applies."""
        return tuple(item for item in self.items if any(measure.applies(item) for measure in self.measures))

    @property
    def tuned(self) -> tuple[str, ...]:
        """Return the ids of the questions that a flow was tuned on."""
        return self._select_tuned_ids(self.tuned_on)

    def _select_tuned_ids(self, parts: Sequence[str], entries: Sequence[LogEntry] = ()) -> tuple[str, ...]:
        ids = [item.id for item in self.measurable_items]
        return tuple(id for id in ids if part_of(id) in parts or any(entry.bars_question(id) for entry in entries))

    @property
    def trained_on(self) -> tuple[str, ...]:
        """Return the ids of the questions that a part of a flow was trained on, as its card says."""
        weights = {part for _, flow in self.flows for part in walk_parts(flow) if isinstance(part, TrainedWeights)}
        ids = tuple(
            item.id for item in self.measurable_items if any(part.was_trained_on(item.question) for part in weights)
        )
        if ids and not self.overlap and len(self.measurable_items) >= ENOUGH:
            raise DataError(
                f"{len(ids)} of {several(len(self.measurable_items), 'question')} {were(len(self.measurable_items))} "
                f"used to train a part of a flow (the first: {ids[0]!r}), so their scores are too good. To go on, ask "
                "other questions; or allow it (--overlap; in Python overlap=True), and the report says so."
            )
        return ids

    def _refuse_tuned(
        self,
        tuned: Sequence[str],
        flows: Sequence[str] = (),
        usage_log: UsageLog | None = None,
        entry: LogEntry | None = None,
    ) -> None:
        """Raise DataError for questions that a flow was tuned on; if only a log says so and they are few, the report
        warns."""
        n = len(self.measurable_items)
        if not tuned or self.overlap or (usage_log is not None and n < ENOUGH):
            return
        message = (
            f"{len(tuned)} of {several(n, 'question')} {were(n)} used to tune or choose a flow "
            f"({'; '.join((*flows, f'the first: {tuned[0]!r}'))}), so their scores are too good."
        )
        ways = ["ask the part report, which nothing was chosen by (--split report; in Python data.split('report'))"]
        ways += ["allow it (--overlap; in Python overlap=True), and the report says so"]
        if usage_log is not None and entry is not None:
            looks = [
                log_entry for log_entry in usage_log.choosing_entries(entry) if any(map(log_entry.bars_question, tuned))
            ]
            message += (
                f" Looked at {several(len(looks), 'time')}, last {max(looks, key=lambda log_entry: log_entry.at)}."
            )
            if any(log_entry.part == ALL for log_entry in usage_log.choosing_entries(entry.but(part=REPORT))):
                ways = ["ask new questions", *ways[1:]]
            ways += [
                f"if no flow was selected by these looks, strike them out of {usage_log.path}: "
                f"{usage_log.forget_command}"
            ]
        raise DataError(f"{message} To go on, {'; or '.join(ways)}")

    @renamed_arguments(told="on_progress", again="ask_again")
    def run(
        self,
        *,
        run: Run | None = None,
        path: str | Path | None = None,
        ask_again: bool = False,
        usage_log: UsageLog | None = None,
        on_progress: QuestionCallback = lambda flow, done, total: None,
    ) -> Report:
        """Ask what was not asked yet, and report.

        Args:
            run: whose cache, journal, budget, threads and rights are used, by flows and by judges alike; by default
                one of its own.
            path, ask_again: see `ask`. An answered question is never asked again, unless a server was down, and
                an interrupted experiment goes on.
            usage_log: where it is written which questions were looked at; by default in `looks.jsonl` beside the
                file, and nowhere without one. `UsageLog.for_data` is the file beside a data set.
            on_progress: called with the flow, how many questions it was asked so far, and of how many.

        Raises:
            DataError: a flow was chosen by these questions before, and they are 100 or more.
            SpoliaError: all others that `ask` raises.
        """
        run = run if run is not None else Run()
        usage_log = UsageLog.for_rows(path) if usage_log is None else usage_log
        entry = usage_log.new_entry(
            self.measurable_items,
            {name: portable_notation(flow) for name, flow in self.flows},
            list(map(str, self.measures)),
        )
        looks = usage_log.choosing_entries(entry)
        tuned = self._select_tuned_ids(self.tuned_on, looks)
        names = tuple(dict.fromkeys(name for log_entry in looks for name in log_entry.chosen_flows(entry)))
        self._refuse_tuned(tuned, names, usage_log, entry)
        used = {*tuned, *self.trained_on}
        options: dict[str, Any] = {
            "run": run,
            "path": path,
            "data": self.data or "questions",
            "again": ask_again,
            "on_progress": on_progress,
        }
        options |= {"degraded": self.degraded}
        table = ask(dict(self.flows), self.measurable_items, self.measures, **options)
        usage_log.note(entry)  # what comes to no report was not looked at
        report = build_report(self, table, run.threads)
        notes = (*report.notes, *filter(None, (usage_log.damage(),)))
        return report.but(
            tuned_count=len(used), tuned_flows=names, look_count=usage_log.count_other_looks(entry), notes=notes
        )

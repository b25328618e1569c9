"""Run a flow over questions with gold, and say how good it is and how sure that is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spolia.errors import DataError, WiringError
from spolia.evaluation.bootstrap import Interval, bootstrap, paired
from spolia.evaluation.measures.measure import Measure, Result
from spolia.operator import Operator
from spolia.run import Run
from spolia.types import Answer, Failure, Item, Query, Ranking, Usage, Value
from spolia.wiring import fits, name_of

Scores = tuple[float | None, ...]


@dataclass(frozen=True)
class Evaluation(Value):
    """What a flow scored.

    Args:
        flow: what it is called.
        data: what the questions are called.
        ids: the questions that were asked.
        scores: by measure, as it is written: one number per question, None where the measure does not apply.
        failures: ids of the questions on which the flow failed, which score 0, with what happened.
        without_gold: how many questions were left out because no measure applies to them.
        usage: what the flow needed, results from a cache included.
        seconds: how long it took.
    """

    flow: str
    data: str
    ids: tuple[str, ...]
    scores: tuple[tuple[str, Scores], ...]
    failures: tuple[tuple[str, Failure], ...] = ()
    without_gold: int = 0
    usage: Usage = field(default=Usage())
    seconds: float = 0.0

    @property
    def n(self) -> int:
        return len(self.ids)

    def interval(self, measure: str, *, seed: int = 0) -> Interval:
        """The mean of a measure and its bootstrap interval."""
        return bootstrap([score for score in dict(self.scores)[measure] if score is not None], seed=seed)

    def over(self, other: Evaluation, measure: str, *, seed: int = 0) -> Interval:
        """By how much it is better than another one on the same questions, with a paired interval.

        Raises:
            DataError: the other one was asked other questions.
        """
        if self.ids != other.ids:
            raise DataError(f"{self.flow} and {other.flow} were asked different questions. Evaluate both on the same.")
        pairs = zip(dict(self.scores)[measure], dict(other.scores)[measure], strict=True)
        both = [(a, b) for a, b in pairs if a is not None and b is not None]
        return paired([a for a, _ in both], [b for _, b in both], seed=seed)

    def json(self) -> dict[str, Any]:
        """The report as plain data, means in 0 to 1."""
        intervals = {name: self.interval(name) for name, _ in self.scores}
        return {
            "flow": self.flow,
            "data": self.data,
            "n": self.n,
            "measures": {name: {"mean": i.mean, "low": i.low, "high": i.high} for name, i in intervals.items()},
            "usage": {name: getattr(self.usage, name) for name in Usage.__dataclass_fields__},
            "seconds": self.seconds,
            "failures": len(self.failures),
            "without_gold": self.without_gold,
        }


def evaluate(
    flow: Operator[Query, Result],
    items: Iterable[Item],
    measures: Sequence[Measure],
    *,
    name: str = "",
    data: str = "",
    run: Run | None = None,
    told: Callable[[int], None] = lambda done: None,
) -> Evaluation:
    """Ask a flow every question and measure what it gives.

    A failed question scores 0 and is counted; a question without the gold that any measure takes is left out and
    counted. Only scores are kept, so that memory does not grow with what the flow returns.

    Args:
        flow: gives a ranking or an answer for a query.
        items: questions with gold.
        measures: what to measure.
        name: what the flow is called in the report; by default its own notation.
        data: what the questions are called in the report.
        run: the run to use, with its cache, journal and budget; by default one of its own.
        told: called with the number of questions asked so far.

    Raises:
        WiringError: the flow takes or gives something else.
        DataError: no measure applies to any question.

    >>> from spolia.evaluation.measures.recall import Recall
    >>> from spolia.function import step
    >>> from spolia.types import Hit, Node
    >>> @step
    ... def always_p1(query: Query) -> Ranking:
    ...     return Ranking(query, (Hit(Node("p1", "..."), 1.0),))
    >>> items = [Item("q1", "?", gold=(("p1",),)), Item("q2", "?", gold=(("p2",),))]
    >>> evaluate(always_p1, items, [Recall(5)]).json()["measures"]
    {'R@5': {'mean': 0.5, 'low': 0.0, 'high': 1.0}}
    """
    refuse_other_flows(flow)
    listed = list(items)
    asked = [item for item in listed if any(measure.applies(item) for measure in measures)]
    if not asked:
        raise DataError(
            f"None of {len(listed)} questions has gold for {', '.join(map(str, measures)) or 'no measure'}. "
            "Give questions with gold_ids."
        )
    run = run if run is not None else Run()
    before, started = run.usage, time.perf_counter()
    rows: list[Scores] = []
    failures: list[tuple[str, Failure]] = []
    with run:
        for start in range(0, len(asked), run.window):
            window = asked[start : start + run.window]
            results = flow.batch([Query(item.question) for item in window])
            for item, result in zip(window, results, strict=True):
                if isinstance(result, Failure):
                    failures.append((item.id, result.but(error=None)))
                rows.append(tuple(_score(measure, result, item) for measure in measures))
            told(len(rows))
    return Evaluation(
        name or repr(flow),
        data,
        tuple(item.id for item in asked),
        tuple((str(measure), column) for measure, column in zip(measures, zip(*rows, strict=True), strict=True)),
        tuple(failures),
        len(listed) - len(asked),
        run.usage - before,
        time.perf_counter() - started,
    )


def refuse_other_flows(flow: Operator[Any, Any]) -> None:
    """Only what goes from a query to a ranking or an answer can be measured; else `WiringError`."""
    given = flow.gives(Query)
    if not fits(Ranking | Answer, given, {}):
        raise WiringError(
            f"The flow gives {name_of(given)}; a Ranking or an Answer can be measured. "
            "Add the step that makes one, for example a fusion after Branch(...)."
        )


def _score(measure: Measure, result: Result | Failure, item: Item) -> float | None:
    if not measure.applies(item):
        return None
    return 0.0 if isinstance(result, Failure) else measure.score(result, item)

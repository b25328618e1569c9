"""Choice of the best flow of a space on your own questions: some of them choose, others report."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from spolia.core.combinators.space import Point
from spolia.core.deprecation import renamed_arguments
from spolia.core.operator import Operator
from spolia.errors import DataError
from spolia.evaluation.data.usage_log import UsageLog
from spolia.evaluation.experiment.flows import open_stores
from spolia.evaluation.experiment.score_store import ScoreStore
from spolia.evaluation.measures.measure import SetMeasure
from spolia.optimizer.budget import TuningBudget
from spolia.optimizer.earlier_studies import EarlierStudies
from spolia.optimizer.objectives import Limit
from spolia.optimizer.plan import TuningPlan
from spolia.optimizer.progress import StudyCallback
from spolia.optimizer.strategies import Strategy
from spolia.optimizer.study import SCORES, STUDY, Study, refuse_other_study
from spolia.optimizer.sweeps import SweepExecutor
from spolia.optimizer.tuned_flow import TunedFlow
from spolia.run import Run
from spolia.types import Item, Query

SHARED_BYTES = 64 << 20


@renamed_arguments(told="on_progress")
def tune(
    flow: Operator[Query, Any],
    items: Iterable[Item],
    objective: str | SetMeasure | Sequence[SetMeasure],
    *,
    budget: str | TuningBudget | None = None,
    strategy: str | Strategy | None = None,
    seed: int = 0,
    prior: Sequence[Point] = (),
    run: Run | None = None,
    path: str | Path | None = None,
    usage_log: UsageLog | None = None,
    degraded: str = "stop",
    under: Sequence[str | Limit] = (),
    combine: str = "front",
    earlier: EarlierStudies | None = None,
    on_progress: StudyCallback = lambda progress: None,
    executor: SweepExecutor | None = None,
) -> TunedFlow:
    """Choose the best flow of a space, and report it on questions that did not choose.

    Questions of the parts `tune` and `select` choose, those of `report` report, whatever else is in the data. With
    fewer than 200 questions all of them choose, and the score is corrected for that by a bootstrap.

    Args:
        flow: with `Choice` and `vary`.
        items: questions with gold.
        objective: a measure, such as `nDCG@10`, or several, such as `nDCG@10,USD`: then the knee of the Pareto front is
            chosen.
        budget: `5%` of all flows × questions, `2000 rows`, `500 calls`, `200k tokens`, `2 USD`, or a time such as
            `10m`; None for all of them.
        strategy: how to search for the best flow, or its name in `STRATEGIES`; by default `HalvingWithNeighbours`, or
            `GridSearch` where the budget is enough for that.
        seed: of all that is drawn; the same study chooses the same flow.
        prior: points that were best elsewhere, best first: the search begins with them.
        run: whose cache, budget and rights are used; by default one of its own.
        path: a folder that keeps every score as it is computed, so that a killed study goes on where it was. None keeps
            them in memory.
        usage_log: file that records the questions used, so that no later report uses them again.
        degraded: what happens to a flow of which a step fails on every call: `stop` leaves it out, `ok` measures it.
        under: what measures may be at most in the mean, such as `USD=0.002`; of one of which more is better, at least.
        combine: how several objectives are one: `front` for the knee, or AutoRAG's `mean`, `rank`, `normalize_mean`.
        earlier: studies of other questions: the search begins with what was best there, after `prior`, and the record
            of this one is added.
        on_progress: called with how far the study is when more scores are there, by several threads.
        executor: computes searches that ask no model, such as `SweepProcesses(4)`: the result is the same.

    Raises:
        DataError: the space holds one flow only, no question has gold, the budget is too small, or the folder holds a
            study of something else; says what to write.
        StoreBusy: another process is at this study.
        StepFailed: every flow fails.

    >>> from spolia import Hit, Node, Ranking, step
    >>> @step
    ... def first_of(query: Query, *, passages: str = "pq") -> Ranking:
    ...     return Ranking(query, tuple(Hit(Node(one, one), 1.0) for one in passages))
    >>> questions = [Item(f"q{number}", f"{number}?", gold=(("q",),)) for number in range(40)]
    >>> found = tune(first_of.vary("order", passages=["pq", "qp", "p"]), questions, "MRR")
    >>> found.point, found.score.mean, found.rows
    ({'order': 1}, 1.0, 120)
    """
    options: dict[str, Any] = {"seed": seed, "under": under, "combine": combine}
    plan = TuningPlan.from_space(flow, items, objective, budget=budget, strategy=strategy, **options)
    is_timed = plan.objectives.are_timed
    # Timed flows must take their own time, so they share no steps.
    run = run if run is not None else Run(share=False if is_timed else SHARED_BYTES)
    if is_timed and (run.results is not None or run.cache is not None):
        raise DataError(
            "Flows that share steps or a cache do not take their own time. Write run=Run(), or leave Seconds out."
        )
    with run:
        open_stores([flow])  # groups that are not there yet are built first: the study then reads what it read before
    folder = None if path is None else Path(path)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with ScoreStore(None if folder is None else folder / SCORES) as store:
        if folder is not None:
            refuse_other_study(folder / STUDY, flow, plan)
        return Study(plan, run, folder, store, degraded, on_progress, executor).tune(
            prior, usage_log or UsageLog(), earlier
        )

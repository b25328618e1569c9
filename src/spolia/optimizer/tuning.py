"""The best flow of a space on your own questions: chosen on some of them, reported on others."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from spolia.core.combinators.space import Point
from spolia.core.operator import Operator
from spolia.core.plurals import several
from spolia.errors import BudgetSpent, DataError
from spolia.evaluation.data.dataset import part_of
from spolia.evaluation.data.usage_log import REPORT, TUNED, UsageLog
from spolia.evaluation.experiment.flows import changes, opened, reads, written
from spolia.evaluation.experiment.score_store import ScoreStore
from spolia.evaluation.measures.measure import SetMeasure
from spolia.optimizer.board import Board, ScoreRows
from spolia.optimizer.budget import TuningBudget
from spolia.optimizer.effects import main_effects
from spolia.optimizer.flow_scores import FlowScores
from spolia.optimizer.objectives import Limit
from spolia.optimizer.plan import TuningPlan
from spolia.optimizer.strategies import Strategy, find_best
from spolia.optimizer.tuned_flow import CORRECTED, FRESH, FinalScores, TunedFlow
from spolia.run import Run
from spolia.types import Item, Query, digest_of

FINALISTS = 16
SHARED_BYTES = 64 << 20
STUDY, SCORES = "study.json", "scores.experiment"
Told: TypeAlias = Callable[[int, int], None]
"""Called with how many scores are there, and how many there may be."""


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
    told: Told = lambda done, total: None,
) -> TunedFlow:
    """Choose the best flow of a space, and report it on questions that did not choose.

    Questions of the parts `tune` and `select` choose, those of `report` report, whatever else is in the data. With
    fewer than 200 questions all of them choose, and the score is corrected for that by a bootstrap.

    Args:
        flow: with `Choice` and `vary`.
        items: questions with gold.
        objective: a measure, such as `nDCG@10`, or several, such as `nDCG@10,USD`: then the knee of the Pareto front is
            chosen.
        budget: `5%` of all flows × questions, or `2000 rows`; None for all of them.
        strategy: how the best flow is looked for, or its name in `STRATEGIES`; by default `HalvingWithNeighbours`, or
            `GridSearch` where the budget is enough for that.
        seed: of all that is drawn; the same study chooses the same flow.
        prior: points that were best elsewhere, best first: the search begins with them.
        run: whose cache, budget and rights are used; by default one of its own.
        path: a folder that keeps every score as it is computed, so that a killed study goes on where it was. None keeps
            them in memory.
        usage_log: where it is written which questions were looked at, so that no report is made on them later.
        degraded: what happens to a flow of which a step fails on every call: `stop` leaves it out, `ok` measures it.
        under: what measures may be at most in the mean, such as `USD=0.002`; of one of which more is better, at least.
        told: called with how many scores are there, and how many there may be.

    Raises:
        DataError: there is nothing to choose, no question has gold, the budget is too small, or the folder holds a
            study of something else; says what to write.
        StoreBusy: another process is at this study.
        StepFailed: every flow fails.

    >>> from spolia import Hit, Node, Ranking, step
    >>> @step
    ... def first_of(query: Query, *, passages: str = "pq") -> Ranking:
    ...     return Ranking(query, tuple(Hit(Node(one, one), 1.0) for one in passages))
    >>> questions = [Item(f"q{number}", "?", gold=(("q",),)) for number in range(40)]
    >>> found = tune(first_of.vary("order", passages=["pq", "qp", "p"]), questions, "MRR")
    >>> found.point, found.score.mean, found.rows
    ({'order': 1}, 1.0, 120)
    """
    plan = TuningPlan.of(flow, items, objective, budget=budget, strategy=strategy, seed=seed, under=under)
    candidates, objectives, choosing, fresh = plan.candidates, plan.objectives, plan.choosing, plan.fresh
    board = plan.board(candidates.near(prior))
    run = run if run is not None else Run(share=False if objectives.are_timed else SHARED_BYTES)
    if objectives.are_timed and (run.results is not None or run.cache is not None):
        raise DataError(
            "Flows that share steps or a cache do not take their own time. Write run=Run(), or leave Seconds out."
        )
    with run:
        opened([flow])  # groups that are not there yet are built first: the study then reads what it read before
    folder = None if path is None else Path(path)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with ScoreStore(None if folder is None else folder / SCORES) as store:
        if folder is not None:
            _refuse_another(folder / STUDY, _described(flow, plan))
        done = 0

        def count(rows: int) -> None:
            nonlocal done
            told(done := done + rows, max(done, plan.rows))

        scores = FlowScores(candidates, [*choosing, *fresh], objectives, run, store, degraded, count)
        chosen, notes = _search(plan.strategy, board, scores)
        finalists = _finalists(board, chosen, len(fresh))
        if looked := _note_looks(usage_log or UsageLog(), plan, finalists):
            notes.append(f"The fresh questions were looked at {several(looked, 'time')} before.")
        final, computed = None, scores.rows
        try:
            finalists, final = _final(scores, finalists, range(len(choosing), len(choosing) + len(fresh)))
        except BudgetSpent as error:
            notes.append(f"The fresh questions were not asked: {error}")
        found, bound = FinalScores(board, objectives, finalists, final, seed).report()
    best = found[0]
    assert best.score is not None
    if board.excess([best.number])[0] > 0:
        limits = " and ".join(map(str, objectives.limits))
        notes.append(f"No flow was found that keeps within {limits} on the questions that chose; this is the nearest.")
    if board.is_constant:
        notes.append(f"All flows score the same on the {len(choosing)} questions; the first of the cheapest was taken.")
    return TunedFlow(
        candidates.flows[best.number],
        best.point,
        ", ".join(map(str, objectives.best)),
        repr(plan.strategy),
        best.score,
        FRESH if final else CORRECTED,
        bound,
        tuple(found),
        candidates.size,
        int((board.asked > 0).sum()),
        len(choosing),
        len(fresh) if final else 0,
        scores.rows,
        computed / plan.grid,
        scores.spent,
        tuple((repr(candidates.flows[flow]), str(error)) for flow, error in scores.excluded.items()),
        tuple(notes),
        tuple(main_effects(board)),
        tuple(board.behind(chosen)),
        objectives.best[0].range == (0.0, 1.0),
        run.exhausted,
    )


def _search(strategy: Strategy, board: Board, scores: FlowScores) -> tuple[int, list[str]]:
    """The strategy's choice, and what must be said of it."""
    notes: list[str] = []
    try:
        chosen = find_best(strategy, board, scores)
    except BudgetSpent as error:
        if not (best := board.finalists(1)):
            raise
        chosen, notes = best[0], [f"The search ended early: {error}"]
    if chosen in scores.excluded:
        raise scores.excluded[chosen]  # the best of them all
    return chosen, notes


def _finalists(board: Board, chosen: int, fresh: int) -> list[int]:
    """The chosen flow and those that were asked most, as many as take no more rows than the choice did."""
    most = max(2, min(FINALISTS, board.spent // max(1, fresh)))
    return list(dict.fromkeys([chosen, *board.finalists(most)]))[:most]


def _final(scores: FlowScores, flows: Sequence[int], fresh: range) -> tuple[list[int], ScoreRows | None]:
    """The finalists that fresh questions do not break, and their scores on those."""
    if not fresh:
        return list(flows), None
    found = scores(flows, fresh)
    kept = [at for at, flow in enumerate(flows) if flow not in scores.excluded]
    if not kept:
        raise scores.excluded[flows[0]]
    return [flows[at] for at in kept], ScoreRows(found.values[kept], found.costs[kept])


def _described(flow: Operator[Query, Any], plan: TuningPlan) -> dict[str, Any]:
    """What a study is about; scores of anything else have no place in it."""
    questions = digest_of(tuple(sorted(item.digest.hex() for item in plan.items))).hex()
    about = {
        "form": 1,
        "space": written(flow),
        "objective": ", ".join(map(str, plan.objectives.measures)),
        "questions": questions,
    }
    return about | {"reads": reads(flow)}


def _refuse_another(path: Path, about: Mapping[str, Any]) -> None:
    if path.exists():
        try:
            before = json.loads(path.read_text("utf-8"))
        except (ValueError, RecursionError):
            before = {}
        if differ := changes(before if isinstance(before, dict) else {}, json.loads(json.dumps(about))):
            raise DataError(
                f"{path.parent} holds a study of something else: {'; '.join(differ[:3])}. Name another folder, or "
                "delete this one."
            )
        return
    part = path.with_suffix(".part")
    part.write_text(json.dumps(about, indent=1), "utf-8")
    part.replace(path)


def _note_looks(log: UsageLog, plan: TuningPlan, flows: Sequence[int]) -> int:
    """Write down which questions choose, and how often those of the report were looked at before."""
    named = {f"{at}": written(plan.candidates.flows[flow]) for at, flow in enumerate(flows)}
    measures = [*map(str, plan.objectives.measures)]
    if not plan.fresh:
        log.note(log.at(plan.items, named, measures))
        return 0
    for part in TUNED:
        if some := [item for item in plan.items if part_of(item.id) == part]:
            log.note(replace(log, part=part).at(some, named, measures))
    entry = replace(log, part=REPORT).at(plan.fresh, named, measures)
    log.note(entry)
    return log.before(entry)

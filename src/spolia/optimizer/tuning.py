"""The best flow of a space on your own questions: chosen on some of them, reported on others."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from spolia.core.combinators.space import Point, Space
from spolia.core.operator import Operator
from spolia.errors import BudgetSpent, DataError
from spolia.evaluation.data.dataset import part_of
from spolia.evaluation.data.usage_log import REPORT, TUNED, UsageLog
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.flows import changes, reads, written
from spolia.evaluation.experiment.score_store import ScoreStore
from spolia.evaluation.measures.measure import CostMeasure, Measure, SetMeasure
from spolia.evaluation.measures.registry import as_measures
from spolia.evaluation.plurals import several
from spolia.optimizer.board import Board
from spolia.optimizer.budget import TuningBudget
from spolia.optimizer.candidates import Candidates
from spolia.optimizer.flow_scores import FlowScores
from spolia.optimizer.strategies import GridSearch, HalvingWithNeighbours, Strategy, find_best, strategy_named
from spolia.optimizer.tuned_flow import CORRECTED, FRESH, FinalScores, TunedFlow
from spolia.run import Run
from spolia.types import Item, Query, digest_of

FEW = 200
"""Questions below which none are kept for the report: all choose, and the score is corrected for the choice."""
FINALISTS = 16
SHARED_BYTES = 64 << 20
STUDY, SCORES = "study.json", "scores.experiment"
Told: TypeAlias = Callable[[int, int], None]
"""Called with how many scores are there, and how many there may be."""


def tune(
    flow: Operator[Query, Any],
    items: Iterable[Item],
    objective: str | SetMeasure,
    *,
    budget: str | TuningBudget | None = None,
    strategy: str | Strategy | None = None,
    seed: int = 0,
    prior: Sequence[Point] = (),
    run: Run | None = None,
    path: str | Path | None = None,
    usage_log: UsageLog | None = None,
    degraded: str = "stop",
    told: Told = lambda done, total: None,
) -> TunedFlow:
    """Choose the best flow of a space, and report it on questions that did not choose.

    Questions of the parts `tune` and `select` choose, those of `report` report, whatever else is in the data. With
    fewer than 200 questions all of them choose, and the score is corrected for that by a bootstrap.

    Args:
        flow: with `Choice` and `vary`.
        items: questions with gold.
        objective: a measure, such as `nDCG@10`.
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
    measure = _objective(objective)
    asked = Experiment(flow, items, [measure]).asked  # which refuses what cannot be measured
    candidates = Candidates(Space(flow), seed)
    choosing, fresh = _parts(asked, seed)
    strategy, allowed = _plan(candidates, len(choosing), budget, strategy)
    board = Board(candidates, len(choosing), allowed, seed, candidates.near(prior))
    _refuse_small(board, strategy)
    run = run if run is not None else Run(share=SHARED_BYTES)
    folder = None if path is None else Path(path)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with ScoreStore(None if folder is None else folder / SCORES) as store:
        if folder is not None:
            _refuse_another(folder / STUDY, _described(flow, asked, measure))
        done = 0

        def count(rows: int) -> None:
            nonlocal done
            told(done := done + rows, allowed)

        scores = FlowScores(candidates, [*choosing, *fresh], measure, run, store, degraded, count)
        chosen, notes = _search(strategy, board, scores)
        finalists = _finalists(board, chosen, len(fresh))
        if looked := _note_looks(usage_log or UsageLog(), asked, fresh, board, finalists, measure):
            notes.append(f"The fresh questions were looked at {several(looked, 'time')} before.")
        final, computed = None, scores.rows
        try:
            final = scores(finalists, range(len(choosing), len(asked))) if fresh else None
        except BudgetSpent as error:
            notes.append(f"The fresh questions were not asked: {error}")
        found, bound = FinalScores(board, measure, finalists, final, seed).report()
    best = found[0]
    if board.is_constant:
        notes.append(f"All flows score the same on the {len(choosing)} questions; the first of the cheapest was taken.")
    return TunedFlow(
        candidates.flows[best.number],
        best.point,
        str(measure),
        repr(strategy),
        best.score,
        FRESH if final else CORRECTED,
        bound,
        tuple(found),
        len(candidates.every) if candidates.is_listed else candidates.space.size,
        int((board.asked > 0).sum()),
        len(choosing),
        len(fresh) if final else 0,
        scores.rows,
        computed / (_size(candidates) * len(choosing)),
        scores.spent,
        tuple((repr(candidates.flows[flow]), str(error)) for flow, error in scores.excluded.items()),
        tuple(notes),
        measure.range == (0.0, 1.0),
        run.exhausted,
    )


def _objective(objective: str | SetMeasure) -> Measure | CostMeasure:
    measures = list(as_measures(objective if isinstance(objective, str) else [objective]))
    if len(measures) != 1 or not isinstance(measures[0], Measure | CostMeasure):
        raise DataError(
            f"{objective!s} cannot be tuned for: the objective must be one measure that is a mean over questions, such "
            "as nDCG@10, F1 or Calls."
        )
    return measures[0]


def _parts(items: Sequence[Item], seed: int) -> tuple[list[Item], list[Item]]:
    """The questions that choose, in the order in which they are asked, and those that report."""
    listed = list(items)
    fresh = [item for item in listed if part_of(item.id) == REPORT]
    choosing = [item for item in listed if part_of(item.id) != REPORT]
    if len(listed) < FEW or not fresh or not choosing:
        fresh, choosing = [], listed
    Random(seed).shuffle(choosing)
    return choosing, fresh


def _size(candidates: Candidates) -> int:
    return len(candidates.every) if candidates.is_listed else candidates.space.size


def _plan(
    candidates: Candidates, questions: int, budget: str | TuningBudget | None, strategy: str | Strategy | None
) -> tuple[Strategy, int]:
    """How the best flow is looked for, and how many scores may be asked for."""
    given = TuningBudget.parse(budget) if isinstance(budget, str) else budget
    size = _size(candidates)
    if size < 2:
        what = "gives the same flow at every point" if candidates.space.places else "has no open places"
        raise DataError(f"There is nothing to choose: the space {what}. Write Choice(...), or .vary(top_k=(5, 10)).")
    if not candidates.is_listed and (given is None or given.is_share):
        raise DataError(
            f"The space has about {size:.2g} points, too many to ask a share of them. Write a budget in rows, such as "
            f"'{40 * questions} rows'."
        )
    grid = size * questions
    allowed = grid if given is None else given.rows(grid)
    if isinstance(strategy, str):
        strategy = strategy_named(strategy)
    return strategy or (GridSearch() if allowed == grid else HalvingWithNeighbours()), allowed


def _refuse_small(board: Board, strategy: Strategy) -> None:
    grid = _size(board.candidates) * board.questions
    if board.rows < (least := min(grid, strategy.least(board))):
        raise DataError(
            f"A budget of {several(int(board.rows), 'row')} is too small for {strategy!r} on "
            f"{several(_size(board.candidates), 'flow')} and {several(board.questions, 'question')}. Write at least "
            f"'{least} rows', or {ceil(10_000 * least / grid) / 100:g}%."
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


def _described(flow: Operator[Query, Any], items: Sequence[Item], measure: SetMeasure) -> dict[str, Any]:
    """What a study is about; scores of anything else have no place in it."""
    questions = digest_of(tuple(sorted(item.digest.hex() for item in items))).hex()
    return {"form": 1, "space": written(flow), "objective": str(measure), "questions": questions, "reads": reads(flow)}


def _refuse_another(path: Path, about: Mapping[str, Any]) -> None:
    if path.exists():
        try:
            before = json.loads(path.read_text("utf-8"))
        except ValueError:
            before = {}
        if differ := changes(before, json.loads(json.dumps(about))):
            raise DataError(
                f"{path.parent} holds a study of something else: {'; '.join(differ[:3])}. Name another folder, or "
                "delete this one."
            )
        return
    part = path.with_suffix(".part")
    part.write_text(json.dumps(about, indent=1), "utf-8")
    part.replace(path)


def _note_looks(
    log: UsageLog, items: Sequence[Item], fresh: Sequence[Item], board: Board, flows: Sequence[int], measure: SetMeasure
) -> int:
    """Write down which questions choose, and how often those of the report were looked at before."""
    named = {f"{at}": written(board.candidates.flows[flow]) for at, flow in enumerate(flows)}
    if not fresh:
        log.note(log.at(items, named, [str(measure)]))
        return 0
    for part in TUNED:
        if some := [item for item in items if part_of(item.id) == part]:
            log.note(replace(log, part=part).at(some, named, [str(measure)]))
    entry = replace(log, part=REPORT).at(fresh, named, [str(measure)])
    log.note(entry)
    return log.before(entry)

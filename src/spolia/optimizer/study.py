"""One study: what a score takes, the search within the budget, and the report on fresh questions."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from spolia import checksums
from spolia.core.combinators.space import Point
from spolia.core.operator import Operator
from spolia.core.plurals import several, were
from spolia.errors import BudgetSpent, DataError, SpoliaError, StoreTooNew, pip_install
from spolia.evaluation.data.dataset import part_of
from spolia.evaluation.data.usage_log import REPORT, TUNED, UsageLog
from spolia.evaluation.experiment.flows import changes, reads, written
from spolia.evaluation.experiment.results import failure_warning
from spolia.evaluation.experiment.score_store import ANSWER, JUDGING, ScoreStore, usage_of
from spolia.journal.cache import Cache
from spolia.optimizer.budget import SECONDS, RowCost
from spolia.optimizer.contexts import FREE, Contexts
from spolia.optimizer.differences import FlowDifferences, QuestionDifference, most_different, result_of
from spolia.optimizer.earlier_studies import EarlierStudies, StudyRecord, WarmStart
from spolia.optimizer.flow_scores import FlowScores
from spolia.optimizer.pilot import Pilot, pilot_flows
from spolia.optimizer.plan import TuningPlan
from spolia.optimizer.progress import StudyProgress, Told
from spolia.optimizer.reader_scores import ReadScores, takes
from spolia.optimizer.score_board import FIRST, Board, Floats, ScoreRows, main_effects
from spolia.optimizer.strategies import find_best
from spolia.optimizer.sweeps import SweepExecutor
from spolia.optimizer.tuned_flow import CORRECTED, FRESH, Finalist, FinalScores, TunedFlow
from spolia.run import Run
from spolia.run.budget import Limiter
from spolia.types import Query, Usage, digest_of

STUDY, PILOT, WARM_START, SCORES = "study.json", "pilot.json", "warm_start.json", "scores.experiment"
FORM = 1
REPLIES = 1_000_000
"""Replies of models that are held in memory where the run has no cache."""


class Study:
    """A plan that is carried out, with every score kept as it is computed.

    Args:
        folder: where it is kept; None keeps it in memory.
        store: the scores in that folder.
        degraded: what happens to a flow of which a step fails on every call.
        told: called when more scores are there.
        executor: of searches that ask no model; None computes them here.
    """

    def __init__(
        self,
        plan: TuningPlan,
        run: Run,
        folder: Path | None,
        store: ScoreStore,
        degraded: str,
        told: Told,
        executor: SweepExecutor | None = None,
    ) -> None:
        self.plan, self.run, self.folder, self.store = plan, run, folder, store
        budget = plan.budget
        seconds = budget.amount if budget and budget.unit == SECONDS else float("inf")
        self.progress = StudyProgress(plan.rows, seconds, told)
        items = [*plan.choosing, *plan.fresh]
        asking = plan.objectives, run, store, degraded, self.progress.count, executor
        self.scores = FlowScores(plan.candidates, items, *asking)
        self.progress.scores = self.scores
        self.before = _paid(store)
        if run.replies is None and not plan.objectives.are_timed:
            run.replies = Cache(entries=REPLIES) if run.cache is None else run.cache
        self.contexts: Contexts | None = None
        self.notes = list[str]()
        for left_out, why in (
            (plan.trained, "a part of a candidate was trained on them"),
            (plan.copies, "they have the text of another question"),
            (plan.without_gold, f"no gold for {', '.join(map(str, plan.objectives.measures))}"),
        ):
            if left_out:
                self.notes.append(f"{several(left_out, 'question')} {were(left_out)} left out: {why}.")
        self.is_cut_short = False

    def tuned(self, prior: Sequence[Point], log: UsageLog, earlier: EarlierStudies | None) -> TunedFlow:
        """The choice and its report."""
        start = WarmStart() if earlier is None else self._warm_start(earlier)
        warm, self.contexts = self.plan.candidates.near([*prior, *start.points]), self._contexts()
        with self._limited(timed=False) as limiter:
            self._measure_costs(warm, limiter)
        plan = self.plan
        if start.points and plan.strategy.begins_with_prior:
            self.notes.append(str(start))
        board = self.progress.board = plan.board(warm, self.contexts)
        self.progress.total = self.progress.done + plan.rows + plan.finalists(plan.rows) * len(plan.fresh)
        with self._limited(plan.rows / (plan.rows + plan.finalists(plan.rows) * len(plan.fresh))):
            chosen = self._search(board)
        share = self.scores.rows / plan.grid
        if self.contexts is not None and share:
            share = board.spent / max(1, self.contexts.total)
        finalists = self._finalists(board, chosen)
        if looked := _log_report(log, plan, finalists):
            self.notes.append(f"Earlier reports used the fresh questions {several(looked, 'time')}.")
        with self._limited():
            finalists, final = self._final(finalists)
        for why, times in self.scores.lost.items():
            self.notes.append(f"Computed here {several(times, 'time')}: {why}.")
        found = self._found(board, chosen, FinalScores(board, plan.objectives, finalists, final, plan.seed), share)
        _log_choice(log, plan, [one.number for one in found.finalists])
        if earlier is not None and not self.is_cut_short:
            earlier.keep(StudyRecord.of(plan, found))
        return found

    def _warm_start(self, earlier: EarlierStudies) -> WarmStart:
        """That of the first time: what has ended since does not change a study that goes on."""
        path = None if self.folder is None else self.folder / WARM_START
        if path is not None and (before := WarmStart.read(path)) is not None:
            return before
        found = earlier.warm_start(self.plan)
        if path is not None:
            _write(path, found.json())
        return found

    def _contexts(self) -> Contexts | None:
        """What readers are shown, all that is free computed for the whole space."""
        found = self.plan.contexts(self.scores.items_for, self.run)
        if found is not None and takes(self.plan.objectives.measures):
            self.scores.read = ReadScores(self.scores, found)
        return found

    def _measure_costs(self, warm: Sequence[int], limiter: Limiter | None) -> None:
        """Make the plan for a budget that depends on what a score takes, measured once in a study."""
        if self.plan.budget is None or not self.plan.budget.is_cost:
            return
        flows = pilot_flows(self.plan.candidates, warm, self.plan.seed)
        path = None if self.folder is None else self.folder / PILOT
        before = None if path is None else Pilot.read(path)
        found, is_whole = Pilot.measured(self.scores, flows)  # the same scores again, which are kept
        self.scores.reread()
        if before is not None:
            found = before
        else:
            if limiter is not None:
                held = RowCost.of(limiter.peak, 0.0, 1).but(calls=0.0)
                found = found.but(held=held) if found.rows else Pilot(RowCost.of(limiter.peak, 0.0, 1))
            if path is not None and is_whole:
                _write(path, found.json())
        self.plan = self.plan.within(found.mean.times(self._shared(flows) if found.mean.calls else 1.0), found.held)

    def _shared(self, flows: Sequence[int]) -> float:
        """How many scores of a pilot shared a context; what is counted are contexts."""
        if self.contexts is None:
            return 1.0
        numbers = self.contexts.numbers(flows)[:, :FIRST]
        return float(numbers.size / max(1, (np.unique(numbers) != FREE).sum()))

    @contextmanager
    def _limited(self, share: float = 1.0, timed: bool = True) -> Iterator[Limiter | None]:
        """Within a share of the budget, what the study took before included; its time is that of one run."""
        limit = None if self.plan.budget is None else self.plan.budget.limit(share)
        self.progress.share = share if timed else float("inf")
        before = self.before + self.scores.spent
        with nullcontext() if limit is None else self.run.limited(limit, "this study", before) as limiter:
            yield limiter
            self.is_cut_short |= self.run.exhausted

    def _search(self, board: Board) -> int:
        """The strategy's choice."""
        try:
            chosen = find_best(self.plan.strategy, board, self.scores)
        except BudgetSpent as error:
            if not (best := board.finalists(1)):
                raise
            chosen, self.is_cut_short = best[0], True
            self.notes.append(f"The search ended early: {error}")
        if chosen in self.scores.excluded:
            raise self.scores.excluded[chosen]  # the best of them all
        return chosen

    def _finalists(self, board: Board, chosen: int) -> list[int]:
        """The chosen flow and the flows asked most, as many as take no more rows than the choice did."""
        most = self.plan.finalists(board.spent)
        return list(dict.fromkeys([chosen, *board.finalists(most)]))[:most]

    def _final(self, flows: Sequence[int]) -> tuple[list[int], ScoreRows | None]:
        """The finalists that fresh questions do not break, and their scores on those."""
        first = len(self.plan.choosing)
        fresh = range(first, first + len(self.plan.fresh))
        if not fresh:
            return list(flows), None
        try:
            found = self.scores(flows, fresh)
        except BudgetSpent as error:
            self.notes.append(f"The fresh questions were not asked: {error}")
            self.is_cut_short = True
            return list(flows), None
        kept = [at for at, flow in enumerate(flows) if flow not in self.scores.excluded]
        if not kept:
            raise self.scores.excluded[flows[0]]
        return [flows[at] for at in kept], ScoreRows(found.values[kept], found.costs[kept])

    def _found(self, board: Board, chosen: int, final: FinalScores, share: float) -> TunedFlow:
        plan, scores, objectives = self.plan, self.scores, self.plan.objectives
        candidates, on_fresh = plan.candidates, final.scores is not None
        found, bound = final.report()
        found = self._with_failures(board, found, on_fresh)
        best = found[0]
        assert best.score is not None
        self._note_space()
        self._note_choice(board, best.number)
        if on_fresh and best.on_front is False and len(objectives.best) > 1:
            self._note_dominated(found)
        return TunedFlow(
            candidates.flows[best.number],
            best.point,
            ", ".join(map(str, objectives.best)),
            repr(plan.strategy),
            best.score,
            FRESH if on_fresh else CORRECTED,
            bound,
            tuple(found),
            candidates.size,
            int((board.asked > 0).sum()),
            len(plan.choosing),
            len(plan.fresh) if on_fresh else 0,
            scores.rows,
            share,
            scores.spent,
            tuple(
                (
                    ", ".join(map("=".join, candidates.choices(flow))),
                    str(error).replace(repr(candidates.flows[flow]), "it"),
                )
                for flow, error in scores.excluded.items()
            ),
            tuple(self.notes),
            tuple(main_effects(board)),
            tuple(board.behind(chosen)),
            objectives.best[0].range == (0.0, 1.0),
            self.is_cut_short,
            tuple(self._differences(board, final, [one.number for one in found])),
        )

    def _with_failures(self, board: Board, finalists: Sequence[Finalist], on_fresh: bool) -> list[Finalist]:
        """Count the questions on which each finalist failed, and name the first of the chosen flow."""
        found, fresh = [], len(self.plan.fresh) if on_fresh else 0
        for one in finalists:
            failures, asked = self.scores.failures(one.number), int(board.asked[one.number]) + fresh
            if failures and one is finalists[0]:
                self.notes.append(failure_warning("The chosen flow", failures, asked))
            found.append(one.but(asked=asked, failed=len(failures)))
        if also := sum(one.failed > 0 for one in found[1:]):
            self.notes.append(
                f"{also} of {several(len(found) - 1, 'other finalist')} failed on questions, which score 0."
            )
        return found

    def _differences(self, board: Board, final: FinalScores, flows: Sequence[int]) -> Iterator[FlowDifferences]:
        """The chosen flow against the default and the runner-up, on all questions that both were asked."""
        rivals = {0: "the default flow", **dict.fromkeys(flows[1:2], "the runner-up")}
        for rival, name in rivals.items():
            if rival != flows[0]:
                ours, theirs = (self._all_scores(board, final, flow) for flow in (flows[0], rival))
                sign = float(self.plan.objectives.signs[0])
                gaps = np.round(ours - theirs, 12)
                gaps = np.where(np.abs(gaps) < self.plan.objectives.best[0].resolution, 0.0, gaps)
                places = most_different(gaps.tolist())
                results = self._results([flows[0], rival], places, sign * np.array([ours, theirs]))
                counts = (int((gaps > 0).sum()), int((gaps < 0).sum()), int((gaps == 0).sum()))
                if sum(counts):
                    yield FlowDifferences(name, self.plan.candidates.choices(rival), *counts, tuple(results))

    def _all_scores(self, board: Board, final: FinalScores, flow: int) -> Floats:
        """Scores on the first objective, on all questions; NaN where a flow was not asked."""
        scores = np.concatenate([board.scores[flow], np.full(len(self.plan.fresh), np.nan)])
        if final.scores is not None and flow in final.flows:
            scores[len(self.plan.choosing) :] = final.scores.values[list(final.flows).index(flow), :, 0]
        return scores

    def _results(self, flows: Sequence[int], places: Sequence[int], scores: Floats) -> list[QuestionDifference]:
        """What two flows gave at some places; answers of sweeps are made again and kept."""
        items = [self.scores.items[at] for at in places]
        try:
            ours, theirs = self.scores.cases(flows, places)
        except SpoliaError:  # what a budget or a server does not give now is left out
            return []
        return [
            QuestionDifference(
                item.id,
                item.question,
                result_of(ours[row], float(scores[0, at])),
                result_of(theirs[row], float(scores[1, at])),
                at >= len(self.plan.choosing),
            )
            for row, (item, at) in enumerate(zip(items, places, strict=True))
        ]

    def _note_space(self) -> None:
        """Say which places make no difference, and whether flows were drawn."""
        candidates = self.plan.candidates
        for place in candidates.idle_places():
            self.notes.append(
                f"All candidates of {place} are the same: nothing is chosen there. Write others, or no choice."
            )
        if candidates.size < 2:
            self.notes.append("The space has one flow: it is measured, and nothing is chosen.")
        if not candidates.is_listed:
            drawn, points = several(len(candidates.flows), "flow"), candidates.space.size
            self.notes.append(f"The space has {points:.2g} points, too many to list: {drawn} of it were drawn.")

    def _note_choice(self, board: Board, chosen: int) -> None:
        if board.excess([chosen])[0] > 0:
            limits = " and ".join(map(str, self.plan.objectives.limits))
            self.notes.append(
                f"No flow was found that keeps within {limits} on the questions that chose; this is the nearest."
            )
        best, n = self.plan.objectives.best, len(self.plan.choosing)
        constant, unscored = board.constant[: len(best)], board.unscored
        for measure, is_unscored in zip(self.plan.objectives.measures, unscored, strict=True):
            if is_unscored:
                self.notes.append(f"{measure} has no score on any of the {n} questions, and decided nothing.")
        if all(constant):
            if self.plan.candidates.size > 1:
                note = f"All flows score the same on the {n} questions; the first of the cheapest was taken."
                self.notes.append(note)
            return
        for measure, is_constant, is_unscored in zip(best, constant, unscored, strict=False):
            if is_constant and not is_unscored:
                self.notes.append(f"{measure} is the same for all flows on the {n} questions that chose.")
        if len(best) > 1 and (ties := len(board.tied(chosen)) - 1):
            self.notes.append(
                f"{several(ties, 'other flow')} tied with the chosen one in all objectives on the {n} questions that "
                "chose; the first of the cheapest was taken."
            )

    def _note_dominated(self, finalists: Sequence[Finalist]) -> None:
        """Say that a finalist beats the chosen flow on fresh questions, and which one does."""
        objectives = self.plan.objectives
        means = np.array([[mean for _, mean in one.means] for one in finalists]) * objectives.signs
        means = objectives.blurred(means)
        better = (means >= means[0]).all(axis=1) & (means > means[0]).any(axis=1)
        if not better.any():
            return  # it was behind by rounding alone
        rival = ", ".join(map("=".join, finalists[int(better.argmax())].choices))
        self.notes.append(
            f"On the {len(self.plan.fresh)} fresh questions the chosen flow is not on the Pareto front: {rival} is as "
            "good in all measures, and better in at least one. Only the questions that chose decide; more of them make "
            "the choice surer."
        )


def refuse_another(path: Path, flow: Operator[Query, Any], plan: TuningPlan) -> None:
    """Write down what a study is about, and refuse a folder with a study of something else."""
    questions = digest_of(tuple(sorted(item.digest.hex() for item in plan.items))).hex()
    objective = ", ".join(map(str, plan.objectives.measures))
    about = {"form": FORM, "space": written(flow), "objective": objective, "questions": questions}
    about |= {"reads": reads(flow)}
    if not path.exists():
        _write(path, about)
        return
    try:
        before = checksums.read(path)
    except ValueError as error:
        raise DataError(
            f"{path} is damaged: {error}. Restore it from a backup, or name another folder; the scores in this one are "
            "kept."
        ) from error
    form = before.get("form")
    if isinstance(form, int) and form > FORM:
        raise StoreTooNew(
            f"{path.parent} was written by a newer version of Spolia. Upgrade: {pip_install('', '-U')}; or name "
            "another folder."
        )
    if differ := changes(before, json.loads(json.dumps(about))):
        raise DataError(
            f"{path.parent} holds a study of something else: {'; '.join(differ[:3])}. Name another folder, or "
            "delete this one."
        )


def _write(path: Path, plain: Mapping[str, Any]) -> None:
    try:
        checksums.write(path, plain, indent=1)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror}. Free some space, or name another folder."
        ) from error


def _paid(store: ScoreStore) -> Usage:
    """What models took for all that is kept."""
    answers, judged = store.columns(ANSWER)["spent"], store.columns(JUDGING)["usage"]
    return usage_of(np.concatenate([answers, judged]).sum(axis=0)) if len(answers) + len(judged) else Usage()


def _log_report(log: UsageLog, plan: TuningPlan, finalists: Sequence[int]) -> int:
    """Write down that finalists are asked the fresh questions; return how often those were looked at before."""
    if not plan.fresh:
        return 0
    entry = replace(log, part=REPORT).at(plan.fresh, *_about(plan, finalists))
    log.note(entry)
    return log.before(entry)


def _log_choice(log: UsageLog, plan: TuningPlan, finalists: Sequence[int]) -> None:
    """Write down which questions chose the first of the finalists."""
    about, chosen = _about(plan, finalists), [f"{finalists[0]}"]
    if not plan.fresh:
        log.note(log.at(plan.items, *about, chosen))
        return
    for part in TUNED:
        if some := [item for item in plan.items if part_of(item.id) == part]:
            log.note(replace(log, part=part).at(some, *about, chosen))


def _about(plan: TuningPlan, flows: Sequence[int]) -> tuple[dict[str, str], list[str]]:
    """Flows as they are written, and the measures."""
    named = {f"{flow}": written(plan.candidates.flows[flow]) for flow in flows}
    return named, [*map(str, plan.objectives.measures)]

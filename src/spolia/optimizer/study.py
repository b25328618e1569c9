"""Study of a space: costs of a score, the search within the budget, and the report on fresh questions."""

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
from spolia.evaluation.experiment.flows import content_fingerprints, describe_changes, portable_notation
from spolia.evaluation.experiment.results import failure_warning
from spolia.evaluation.experiment.score_store import ANSWER, JUDGING, ScoreStore, usage_from_row
from spolia.journal.cache import Cache
from spolia.optimizer.budget import SECONDS, RowCost
from spolia.optimizer.contexts import FREE, Contexts
from spolia.optimizer.differences import FlowDifferences, QuestionDifference, most_different, summarise_result
from spolia.optimizer.earlier_studies import EarlierStudies, StudyRecord, WarmStart
from spolia.optimizer.flow_scores import FlowScores
from spolia.optimizer.pilot import Pilot, choose_pilot_flows
from spolia.optimizer.plan import TuningPlan
from spolia.optimizer.progress import StudyCallback, StudyProgress
from spolia.optimizer.reader_scores import ReaderScores, are_answer_only
from spolia.optimizer.score_board import FIRST_QUESTIONS, Board, Floats, ScoreRows, main_effects
from spolia.optimizer.strategies import find_best
from spolia.optimizer.sweeps import SweepExecutor
from spolia.optimizer.tuned_flow import ON_ALL_CORRECTED, ON_FRESH, Finalist, FinalScores, TunedFlow
from spolia.run import Run
from spolia.run.budget import Limiter
from spolia.types import Query, Usage, digest_of

STUDY, PILOT, WARM_START, SCORES = "study.json", "pilot.json", "warm_start.json", "scores.experiment"
FORM = 1
CACHED_REPLIES = 1_000_000
"""Replies of models that are held in memory where the run has no cache."""


class Study:
    """Execution of a plan, with every score stored as it is computed.

    Args:
        folder: where it is kept; None keeps it in memory.
        store: the scores in that folder.
        degraded: what happens to a flow of which a step fails on every call.
        on_progress: called when more scores are there.
        executor: of searches that ask no model; None computes them here.
    """

    def __init__(
        self,
        plan: TuningPlan,
        run: Run,
        folder: Path | None,
        store: ScoreStore,
        degraded: str,
        on_progress: StudyCallback,
        executor: SweepExecutor | None = None,
    ) -> None:
        self.plan, self.run, self.folder, self.store = plan, run, folder, store
        budget = plan.budget
        seconds = budget.amount if budget and budget.unit == SECONDS else float("inf")
        self.progress = StudyProgress(plan.rows, seconds, on_progress)
        items = [*plan.choosing, *plan.fresh]
        asking = plan.objectives, run, store, degraded, self.progress.add_rows, executor
        self.scores = FlowScores(plan.candidates, items, *asking)
        self.progress.scores = self.scores
        self.spent_before = _sum_spent(store)
        if run.replies is None and not plan.objectives.are_timed:
            # Flows of a space ask the same prompts: a reply in memory serves them all. Timed flows must
            # not share it.
            run.replies = Cache(entries=CACHED_REPLIES) if run.cache is None else run.cache
        self.contexts: Contexts | None = None
        self.notes = list[str]()
        for left_out, reason in (
            (plan.trained, "a part of a candidate was trained on them"),
            (plan.copies, "they have the text of another question"),
            (plan.without_gold, f"no gold for {', '.join(map(str, plan.objectives.measures))}"),
        ):
            if left_out:
                self.notes.append(f"{several(left_out, 'question')} {were(left_out)} left out: {reason}.")
        self.is_cut_short = False

    def tune(self, prior: Sequence[Point], log: UsageLog, earlier: EarlierStudies | None) -> TunedFlow:
        """Choose the best flow and report it."""
        start = WarmStart() if earlier is None else self._warm_start(earlier)
        warm, self.contexts = self.plan.candidates.find_near([*prior, *start.points]), self._compute_contexts()
        with self._limited(timed=False) as limiter:
            self._measure_costs(warm, limiter)
        plan = self.plan
        if start.points and plan.strategy.begins_with_prior:
            self.notes.append(str(start))
        board = self.progress.board = plan.make_board(warm, self.contexts)
        self.progress.total = self.progress.done + plan.rows + plan.count_finalists(plan.rows) * len(plan.fresh)
        with self._limited(plan.rows / (plan.rows + plan.count_finalists(plan.rows) * len(plan.fresh))):
            chosen = self._search(board)
        share = self.scores.rows / plan.grid
        if self.contexts is not None and share:
            share = board.rows_spent / max(1, self.contexts.total)
        finalists = self._choose_finalists(board, chosen)
        # Before they are asked: a study that is killed meanwhile has looked, too.
        if look_count := _log_report(log, plan, finalists):
            self.notes.append(f"Earlier reports used the fresh questions {several(look_count, 'time')}.")
        with self._limited():
            finalists, final = self._score_finalists(finalists)
        for reason, times in self.scores.worker_failures.items():
            self.notes.append(f"Computed here {several(times, 'time')}: {reason}.")
        result = self._build_result(
            board, chosen, FinalScores(board, plan.objectives, finalists, final, plan.seed), share
        )
        _log_choice(log, plan, [finalist.number for finalist in result.finalists])
        # What the budget has cut short does not tell which flow is best.
        if earlier is not None and not self.is_cut_short:
            earlier.store_record(StudyRecord.from_study(plan, result))
        return result

    def _warm_start(self, earlier: EarlierStudies) -> WarmStart:
        """Return the warm start saved when the study began, or find and save one."""
        path = None if self.folder is None else self.folder / WARM_START
        # A resumed study begins as it began before, whatever studies have ended since.
        if path is not None and (stored := WarmStart.read(path)) is not None:
            return stored
        start = earlier.find_warm_start(self.plan)
        if path is not None:
            _write_json(path, start.json())
        return start

    def _compute_contexts(self) -> Contexts | None:
        """Compute reader contexts that need no model call."""
        contexts = self.plan.make_contexts(self.scores.items_for, self.run)
        if contexts is not None and are_answer_only(self.plan.objectives.measures):
            self.scores.reader_scores = ReaderScores(self.scores, contexts)
        return contexts

    def _measure_costs(self, warm: Sequence[int], limiter: Limiter | None) -> None:
        """Plan for a budget that depends on what a score takes, measured once in a study."""
        if self.plan.budget is None or not self.plan.budget.is_cost:
            return
        flows = choose_pilot_flows(self.plan.candidates, warm, self.plan.seed)
        path = None if self.folder is None else self.folder / PILOT
        stored = None if path is None else Pilot.read(path)
        pilot, is_whole = Pilot.measure(self.scores, flows)  # the same scores again, which are kept
        # The rows of the pilot are in the store now, and are not asked again.
        self.scores.reread()
        if stored is not None:
            pilot = stored
        else:
            if limiter is not None:
                held_cost = RowCost.from_usage(limiter.peak, 0.0, 1).but(calls=0.0)
                pilot = pilot.but(held=held_cost) if pilot.rows else Pilot(RowCost.from_usage(limiter.peak, 0.0, 1))
            if path is not None and is_whole:
                _write_json(path, pilot.json())
        self.plan = self.plan.fit_budget(
            pilot.mean.scale(self._mean_contexts(flows) if pilot.mean.calls else 1.0), pilot.held
        )

    def _mean_contexts(self, flows: Sequence[int]) -> float:
        """Return how many scores of a pilot shared a context, since the budget counts contexts."""
        if self.contexts is None:
            return 1.0
        numbers = self.contexts.numbers(flows)[:, :FIRST_QUESTIONS]
        return float(numbers.size / max(1, (np.unique(numbers) != FREE).sum()))

    @contextmanager
    def _limited(self, share: float = 1.0, timed: bool = True) -> Iterator[Limiter | None]:
        """Limit models to a share of the budget, what the study took before included; its time is that of one run."""
        limit = None if self.plan.budget is None else self.plan.budget.limit(share)
        self.progress.share = share if timed else float("inf")
        spent_before = self.spent_before + self.scores.spent
        with nullcontext() if limit is None else self.run.limited(limit, "this study", spent_before) as limiter:
            yield limiter
            self.is_cut_short |= self.run.exhausted

    def _search(self, board: Board) -> int:
        """Run the strategy and return its choice."""
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

    def _choose_finalists(self, board: Board, chosen: int) -> list[int]:
        """Return the chosen flow and the flows asked most, as many as take no more rows than the choice did."""
        limit = self.plan.count_finalists(board.rows_spent)
        return list(dict.fromkeys([chosen, *board.finalists(limit)]))[:limit]

    def _score_finalists(self, flows: Sequence[int]) -> tuple[list[int], ScoreRows | None]:
        """Ask the finalists the fresh questions; return those that can run, and their scores."""
        first = len(self.plan.choosing)
        fresh = range(first, first + len(self.plan.fresh))
        if not fresh:
            return list(flows), None
        try:
            rows = self.scores(flows, fresh)
        except BudgetSpent as error:
            self.notes.append(f"The fresh questions were not asked: {error}")
            self.is_cut_short = True
            return list(flows), None
        runnable = [index for index, flow in enumerate(flows) if flow not in self.scores.excluded]
        if not runnable:
            raise self.scores.excluded[flows[0]]
        return [flows[index] for index in runnable], ScoreRows(rows.values[runnable], rows.costs[runnable])

    def _build_result(self, board: Board, chosen: int, final: FinalScores, share: float) -> TunedFlow:
        plan, scores, objectives = self.plan, self.scores, self.plan.objectives
        candidates, on_fresh = plan.candidates, final.scores is not None
        finalists, bound = final.report()
        finalists = self._with_failures(board, finalists, on_fresh)
        best = finalists[0]
        assert best.score is not None
        self._note_space()
        self._note_choice(board, best.number)
        if on_fresh and best.on_front is False and len(objectives.best) > 1:
            self._note_dominated(finalists)
        return TunedFlow(
            candidates.flows[best.number],
            best.point,
            ", ".join(map(str, objectives.best)),
            repr(plan.strategy),
            best.score,
            ON_FRESH if on_fresh else ON_ALL_CORRECTED,
            bound,
            tuple(finalists),
            candidates.size,
            int((board.question_counts > 0).sum()),
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
            tuple(board.leader_gaps(chosen)),
            objectives.best[0].range == (0.0, 1.0),
            self.is_cut_short,
            tuple(self._differences(board, final, [finalist.number for finalist in finalists])),
        )

    def _with_failures(self, board: Board, finalists: Sequence[Finalist], on_fresh: bool) -> list[Finalist]:
        """Count the questions on which each finalist failed, and note the first failure of the chosen flow."""
        updated, fresh = [], len(self.plan.fresh) if on_fresh else 0
        for finalist in finalists:
            failures, question_count = (
                self.scores.failures(finalist.number),
                int(board.question_counts[finalist.number]) + fresh,
            )
            if failures and finalist is finalists[0]:
                self.notes.append(failure_warning("The chosen flow", failures, question_count))
            updated.append(finalist.but(questions_asked=question_count, failed=len(failures)))
        if failing_count := sum(finalist.failed > 0 for finalist in updated[1:]):
            self.notes.append(
                f"{failing_count} of {several(len(updated) - 1, 'other finalist')} failed on questions, which score 0."
            )
        return updated

    def _differences(self, board: Board, final: FinalScores, flows: Sequence[int]) -> Iterator[FlowDifferences]:
        """Compare the chosen flow with the default and the runner-up, on all questions that both were asked."""
        rivals = {0: "the default flow", **dict.fromkeys(flows[1:2], "the runner-up")}
        for rival, name in rivals.items():
            if rival != flows[0]:
                ours, theirs = (self._all_scores(board, final, flow) for flow in (flows[0], rival))
                sign = float(self.plan.objectives.signs[0])
                # Rounding errors are no differences.
                gaps = np.round(ours - theirs, 12)
                gaps = np.where(np.abs(gaps) < self.plan.objectives.best[0].resolution, 0.0, gaps)
                places = most_different(gaps.tolist())
                results = self._results([flows[0], rival], places, sign * np.array([ours, theirs]))
                counts = (int((gaps > 0).sum()), int((gaps < 0).sum()), int((gaps == 0).sum()))
                if sum(counts):
                    yield FlowDifferences(name, self.plan.candidates.choices(rival), *counts, tuple(results))

    def _all_scores(self, board: Board, final: FinalScores, flow: int) -> Floats:
        """Return scores on the first objective, on all questions; NaN where a flow was not asked."""
        scores = np.concatenate([board.scores[flow], np.full(len(self.plan.fresh), np.nan)])
        if final.scores is not None and flow in final.flows:
            scores[len(self.plan.choosing) :] = final.scores.values[list(final.flows).index(flow), :, 0]
        return scores

    def _results(self, flows: Sequence[int], places: Sequence[int], scores: Floats) -> list[QuestionDifference]:
        """Return what two flows gave at some places; answers of sweeps are computed again and stored."""
        items = [self.scores.items[place] for place in places]
        try:
            ours, theirs = self.scores.cases(flows, places)
        except SpoliaError:  # what a budget or a server does not give now is left out
            return []
        return [
            QuestionDifference(
                item.id,
                item.question,
                summarise_result(ours[row], float(scores[0, place])),
                summarise_result(theirs[row], float(scores[1, place])),
                place >= len(self.plan.choosing),
            )
            for row, (item, place) in enumerate(zip(items, places, strict=True))
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
            drawn_count, points = several(len(candidates.flows), "flow"), candidates.space.size
            self.notes.append(f"The space has {points:.2g} points, too many to list: {drawn_count} of it were drawn.")

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
        if len(best) > 1 and (ties := len(board.find_tied(chosen)) - 1):
            self.notes.append(
                f"{several(ties, 'other flow')} tied with the chosen one in all objectives on the {n} questions that "
                "chose; the first of the cheapest was taken."
            )

    def _note_dominated(self, finalists: Sequence[Finalist]) -> None:
        """Note that a finalist beats the chosen flow on fresh questions, and which one does."""
        objectives = self.plan.objectives
        means = np.array([[mean for _, mean in finalist.means] for finalist in finalists]) * objectives.signs
        means = objectives.blur(means)
        better = (means >= means[0]).all(axis=1) & (means > means[0]).any(axis=1)
        if not better.any():
            return  # it was behind by rounding alone
        rival = ", ".join(map("=".join, finalists[int(better.argmax())].choices))
        self.notes.append(
            f"On the {len(self.plan.fresh)} fresh questions the chosen flow is not on the Pareto front: {rival} is as "
            "good in all measures, and better in at least one. Only the questions that chose decide; more of them make "
            "the choice surer."
        )


def refuse_other_study(path: Path, flow: Operator[Query, Any], plan: TuningPlan) -> None:
    """Write down what a study is about; raise DataError if the folder holds a study of something else."""
    questions = digest_of(tuple(sorted(item.digest.hex() for item in plan.items))).hex()
    objective = ", ".join(map(str, plan.objectives.measures))
    description = {"form": FORM, "space": portable_notation(flow), "objective": objective, "questions": questions}
    description |= {"reads": content_fingerprints(flow)}
    if not path.exists():
        _write_json(path, description)
        return
    try:
        stored = checksums.read(path)
    except ValueError as error:
        raise DataError(
            f"{path} is damaged: {error}. Restore it from a backup, or name another folder; the scores in this one are "
            "kept."
        ) from error
    form = stored.get("form")
    if isinstance(form, int) and form > FORM:
        raise StoreTooNew(
            f"{path.parent} was written by a newer version of Spolia. Upgrade: {pip_install('', '-U')}; or name "
            "another folder."
        )
    if differ := describe_changes(stored, json.loads(json.dumps(description))):  # tuples become lists, as in the file
        raise DataError(
            f"{path.parent} holds a study of something else: {'; '.join(differ[:3])}. Name another folder, or "
            "delete this one."
        )


def _write_json(path: Path, plain: Mapping[str, Any]) -> None:
    try:
        checksums.write(path, plain, indent=1)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror}. Free some space, or name another folder."
        ) from error


def _sum_spent(store: ScoreStore) -> Usage:
    """Return what models took for all stored answers and scores."""
    answers, judged = store.columns(ANSWER)["spent"], store.columns(JUDGING)["usage"]
    return usage_from_row(np.concatenate([answers, judged]).sum(axis=0)) if len(answers) + len(judged) else Usage()


def _log_report(log: UsageLog, plan: TuningPlan, finalists: Sequence[int]) -> int:
    """Log that finalists are asked the fresh questions; return how often those were looked at before."""
    if not plan.fresh:
        return 0
    entry = replace(log, part=REPORT).new_entry(plan.fresh, *_log_details(plan, finalists))
    log.note(entry)
    return log.count_other_looks(entry)


def _log_choice(log: UsageLog, plan: TuningPlan, finalists: Sequence[int]) -> None:
    """Log which questions chose the first of the finalists."""
    about, chosen = _log_details(plan, finalists), [f"{finalists[0]}"]
    if not plan.fresh:
        log.note(log.new_entry(plan.items, *about, chosen))
        return
    for part in TUNED:
        if part_items := [item for item in plan.items if part_of(item.id) == part]:
            log.note(replace(log, part=part).new_entry(part_items, *about, chosen))


def _log_details(plan: TuningPlan, flows: Sequence[int]) -> tuple[dict[str, str], list[str]]:
    """Return the notations of flows and of the measures."""
    notations = {f"{flow}": portable_notation(plan.candidates.flows[flow]) for flow in flows}
    return notations, [*map(str, plan.objectives.measures)]

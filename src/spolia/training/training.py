"""Training of any part: question split, resumable steps, weights with a card, score on other questions."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from spolia import checksums
from spolia.core.deprecation import renamed_arguments
from spolia.core.operator import Operator
from spolia.core.plurals import several
from spolia.core.run_context import check_cancelled
from spolia.errors import DataError
from spolia.evaluation.data.dataset import part_of, shared_id
from spolia.evaluation.data.json_lines import replace_files
from spolia.evaluation.data.usage_log import UsageLog
from spolia.evaluation.experiment.experiment import Experiment
from spolia.flow_files.files import dump
from spolia.models.onnx import safetensors
from spolia.models.trained_weights import CARD, JSON, TENSORS, TrainedWeights, hash_of, question_marks
from spolia.private_files import set_aside
from spolia.retrieval.array_files import DAMAGED, read_arrays, write_arrays
from spolia.run import Run
from spolia.stores.files import try_lock
from spolia.types import Item, Value, digest_of

if TYPE_CHECKING:
    from spolia.training.trainer import Trainer

TRAIN, VALIDATE, KEPT_APART = "tune", "select", "report"
"""Parts of a data set, as everywhere: what flows are tuned on, parts are trained on."""
FLOW, CHECKPOINT = "flow.yaml", "checkpoint.npz"
KEPT_EVERY_S = 10.0
"""Seconds of work that a kill can cost, about."""
KEPT_AT_MOST = 20
"""How many times longer than keeping takes nothing is kept after it: a large state costs a twentieth of the time."""
PILOT_STEPS = 3
PLANNED = 0.9
"""Share of a budget in time that is planned: later steps may take more than the first ones."""
CURVE_POINTS = 50
SHARES = {TRAIN: 0.6, VALIDATE: 0.15, KEPT_APART: 0.25}
"""Shares of the questions that share passages with others, whose ids cannot say the part."""
FEWEST = 8
"""Questions to train on below which the card warns."""
StepCallback: TypeAlias = Callable[[int, int, float, float | None], None]
"""Gets each step: its number, of how many, its loss, the validation loss if it was computed."""


@dataclass(frozen=True)
class QuestionSplit(Value):
    """Questions in three parts; none shares its id, its text or a gold passage with one of another part.

    >>> items = [Item("q1", "Who?", gold=(("p1",),)), Item("q3", "Whose?", gold=(("p1",), ("p2",))), Item("q7", "Why?")]
    >>> split = QuestionSplit.from_items(items)  # q1 and q3 share p1, so they stay together
    >>> [item.id for item in split.train], [item.id for item in split.kept_apart]
    (['q1', 'q3'], ['q7'])
    >>> split.counts
    'Of 3 questions: 2 to train on, 0 for validation, 1 kept apart for the score.'
    """

    train: tuple[Item, ...]
    validation: tuple[Item, ...] = ()
    kept_apart: tuple[Item, ...] = ()
    left_out: int = 0

    @classmethod
    def from_items(cls, items: Sequence[Item], kept_apart: Sequence[Item] | None = None) -> Self:
        """Split by groups of questions that share something, always in the same way; or hold out the given questions.

        A group stays together. If the ids of its questions name one part, it is of that part. The other groups are
        spread, the largest first, so that the parts come near to `SHARES`. A group too large for that is cut: what
        shares something with a question that is not trained on is left out.

        Raises:
            DataError: a question that was given to be kept apart shares something with one to train on.
        """
        if kept_apart is not None:
            _refuse_shared(items, kept_apart)
            return cls(tuple(items), (), tuple(kept_apart))
        parts: dict[str, list[Item]] = {name: [] for name in SHARES}
        mixed: list[list[Item]] = []
        for group in linked_groups(items):
            names = {part_of(item.id) for item in group}
            if len(names) == 1:
                parts[names.pop()] += group
            else:
                mixed.append(group)
        sizes = dict.fromkeys(SHARES, 0)
        total = sum(map(len, mixed))
        # Ids break ties, so that the order of the file does not matter.
        for group in sorted(mixed, key=lambda group: (-len(group), min(item.id for item in group))):
            if len(group) > SHARES[TRAIN] * len(items):
                pieces = _split_group(sorted(group, key=lambda item: item.id))
            else:
                widest = max(SHARES, key=lambda name: SHARES[name] * total - sizes[name])
                pieces = {widest: group}
            for name, piece in pieces.items():
                parts[name] += piece
                sizes[name] += len(piece)
        order = {id(item): number for number, item in enumerate(items)}
        train, validation, held_out = (
            tuple(sorted(parts[name], key=lambda item: order[id(item)])) for name in (TRAIN, VALIDATE, KEPT_APART)
        )
        return cls(train, validation, held_out, len(items) - len(train) - len(validation) - len(held_out))

    @property
    def counts(self) -> str:
        """Return a sentence with the number of questions in each part."""
        total = len(self.train) + len(self.validation) + len(self.kept_apart) + self.left_out
        shared = (
            f", {self.left_out} left out as they share a text or a gold passage with these" if self.left_out else ""
        )
        return (
            f"Of {several(total, 'question')}: {len(self.train)} to train on, {len(self.validation)} for validation, "
            f"{len(self.kept_apart)} kept apart for the score{shared}."
        )

    @property
    def warnings(self) -> list[str]:
        """Return warnings with advice if few questions are left to train on, or none for the score."""
        n = len(self.train)
        messages = []
        if n < FEWEST:
            count_text = f"only {several(n, 'question')} to train on, fewer than {FEWEST}: too few to rely on"
            messages.append(f"Warning: {count_text}. Give more questions.")
        if not self.kept_apart:
            messages.append(
                "Warning: no score, as no question is kept apart. Give more questions, or ones that do not share gold "
                "passages."
            )
        return messages

    @property
    def ids(self) -> dict[str, list[str]]:
        """Return the ids of the questions of each part."""
        return {name: [item.id for item in getattr(self, name)] for name in ("train", "validation", "kept_apart")}


def link_keys_of(item: Item) -> Iterator[tuple[str, str]]:
    """Yield the keys that link a question with others: its id, its text, each of its gold passages."""
    yield "id", shared_id(item.id)
    yield "text", " ".join(item.question.casefold().split())
    for document in sorted(item.documents):
        yield "passage", document


def linked_groups(items: Sequence[Item]) -> list[list[Item]]:
    """Group questions that share an id, a text or a gold passage, directly or through others.

    >>> items = [Item("a", "A?", gold=(("p",),)), Item("b", "B?"), Item("c", "C?", gold=(("q",), ("p",)))]
    >>> [[item.id for item in group] for group in linked_groups(items)]
    [['a', 'c'], ['b']]
    """
    parents = list(range(len(items)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]  # halves the path, so that long chains stay cheap
            number = parents[number]
        return number

    first: dict[tuple[str, str], int] = {}
    for number, item in enumerate(items):
        for mark in link_keys_of(item):
            low, high = sorted((root(first.setdefault(mark, number)), root(number)))
            parents[high] = low
    groups: dict[int, list[Item]] = {}
    for number, item in enumerate(items):
        groups.setdefault(root(number), []).append(item)
    return list(groups.values())


def _split_group(group: Sequence[Item]) -> dict[str, Sequence[Item]]:
    """Split a group into parts of which none shares anything with another; the questions in between are left out."""
    kept_apart, rest = _separate_questions(group, int(SHARES[KEPT_APART] * len(group)))
    validation, train = _separate_questions(rest, int(SHARES[VALIDATE] * len(group)))
    return {TRAIN: train, VALIDATE: validation, KEPT_APART: kept_apart}


def _separate_questions(group: Sequence[Item], room: int) -> tuple[list[Item], list[Item]]:
    """Choose questions that, with all linked to them, are at most `room`; return them and the untouched rest.

    Greedy: the next question is the one that touches the fewest others that are not touched yet.
    """
    by_mark: dict[tuple[str, str], set[int]] = {}
    for number, item in enumerate(group):
        for mark in link_keys_of(item):
            by_mark.setdefault(mark, set()).add(number)
    near = [set[int]().union(*(by_mark[mark] for mark in link_keys_of(item))) for item in group]
    chosen, touched = set[int](), set[int]()
    waiting = [(len(numbers), number) for number, numbers in enumerate(near)]
    heapify(waiting)
    while waiting:
        _, number = heappop(waiting)
        if number in chosen or len(near[number] | touched) > room:
            continue
        chosen.add(number)
        touched |= near[number]
        for neighbour in near[number] - chosen:
            # The old entry stays in the heap: this one is smaller, and comes out first.
            heappush(waiting, (len(near[neighbour] - touched), neighbour))
    return [group[number] for number in sorted(chosen)], [
        item for number, item in enumerate(group) if number not in touched
    ]


def _refuse_shared(items: Sequence[Item], kept_apart: Sequence[Item]) -> None:
    trained = {mark: item.id for item in items for mark in link_keys_of(item)}
    shared = [(item.id, trained[mark], mark) for item in kept_apart for mark in link_keys_of(item) if mark in trained]
    if shared:
        held_out_id, trained_id, (kind, value) = shared[0]
        count = len({item_id for item_id, _, _ in shared})
        raise DataError(
            f"{count} of the held-out questions cannot be reported on, the first {held_out_id!r}: it shares the "
            f"{kind} {value[:80]!r} with {trained_id!r}, which is trained on. Keep other questions apart, or "
            "leave these out of the training."
        )


@dataclass(frozen=True)
class Trained(Value):
    """Trained part: the address of its weights, its card, and a flow with it.

    Args:
        weights: their address, to put into a flow.
        card: what they were trained on, with what, how long, and what they scored.
        flow: the flow that was scored, as `flow.yaml` has it.
    """

    weights: TrainedWeights
    card: Mapping[str, Any] = field(compare=False)
    flow: Operator[Any, Any] = field(compare=False)

    @property
    def sha256(self) -> str:
        """Return the hash of the weights; the same questions, settings, seed and steps give the same."""
        return str(self.card["sha256"])


@renamed_arguments(told="on_progress", given="objects")
def train(
    part: Trainer,
    items: Sequence[Item],
    out: str | Path,
    *,
    kept_apart: Sequence[Item] | None = None,
    steps: int | None = None,
    budget_s: float | None = None,
    seed: int = 0,
    data: str = "",
    objects: Mapping[str, Any] | None = None,
    usage_log: UsageLog | None = None,
    run: Run | None = None,
    on_progress: StepCallback = lambda step, steps, loss, validation: None,
) -> Trained:
    """Train a part on questions with gold, and score it on others.

    One part of the questions is trained on, one gives the validation curve, and one the score (`QuestionSplit`); none
    shares a gold passage with one of another part. The same call again goes on where it was killed; after
    the end it returns the same.

    Args:
        part: what is trained, for example `RankerTrainer(group, embedder)`.
        out: folder for the weights, `card.json` and `flow.yaml`.
        kept_apart: questions for the score, in place of the split; all `items` are trained on then.
        steps: how many, at most; by default as many as the part makes.
        budget_s: time for the steps in seconds, in place of their number: a pilot says how many that is.
        seed: of everything that is drawn by lot.
        data: what the questions are called, for the card.
        objects: what `flow.yaml` writes by name, as `{use: chunks}`.
        usage_log: where it is written which questions were trained on, so that no later report has them.
        run: whose cache, budget, threads and rights are used; by default that around the call, or one of its own. With
            a cache, a killed training does not ask language models the same again.
        on_progress: called after each step with its number, the number of all, its loss and the validation loss.

    Raises:
        DataError: nothing can be learned from the questions; `out` holds another training; or questions that are kept
            apart share something with those to train on.
        StoreError, ModelError: what the part needs cannot be used.
    """
    if steps is not None and steps < 1:
        raise DataError(f"steps={steps}. Write a number of at least 1.")
    split = QuestionSplit.from_items(items, kept_apart)
    if not split.train:
        raise DataError(
            f"Of {several(len(items), 'question')} none is left to train on: {len(split.kept_apart)} are kept apart, "
            f"{len(split.validation)} validate, {split.left_out} share a passage with these. Give more questions."
        )
    with lock_folder(Path(out)) as folder, run or Run.current() or Run(share=True) as run:
        training = _TrainingRun(part, split, folder, steps, budget_s, seed, data)
        if (earlier := training.read_result()) is not None:
            return earlier
        training.make_steps(on_progress)
        trained = training.finish(dict(objects or {}), run)
    if usage_log is not None:
        _log_questions(usage_log, split, trained)
    return trained


class _TrainingRun:
    """One training of a part in its folder."""

    def __init__(
        self,
        part: Trainer,
        split: QuestionSplit,
        folder: Path,
        steps: int | None,
        budget_s: float | None,
        seed: int,
        data: str,
    ) -> None:
        self.part, self.split, self.folder, self.seed, self.data = part, split, folder, seed, data
        self.max_steps, self.steps, self.budget_s = steps, steps or part.steps, budget_s
        self.pilot: dict[str, Any] | None = None
        self.done, self.curve = 0, list[tuple[int, float, float | None]]()
        self.cpu_s = self.prepare_cpu_s = 0.0
        questions = [(item.id, item.question, item.gold, item.answers) for item in items_of(split)]
        self.data_hash = digest_of(tuple(questions)).hex()
        plan = (part.part, part.version, dump_json(part.settings()), seed, self.data_hash, dump_json(split.ids))
        self.identity = digest_of((*plan, steps, budget_s)).hex()

    def read_result(self) -> Trained | None:
        """Return the result if this training has ended before; DataError if the folder holds another one."""
        card = read_finished_card(self.folder)
        if card is None:
            return None
        if card.get("training") != self.identity:
            raise DataError(
                f"{self.folder} holds another training: a {card.get('part')} on {card.get('data', {}).get('name')!r}, "
                f"seed {card.get('seed')}. Write another folder, or delete this one."
            )
        return self._make_result(card)

    def make_steps(self, on_progress: StepCallback) -> None:
        began = time.process_time()
        try:
            self.part.prepare(self.split.train, self.split.validation, self.seed)
        except DataError as error:
            raise DataError(f"{error} {self.split.counts}") from error
        self.prepare_cpu_s = time.process_time() - began
        self.steps = self.max_steps or self.part.steps  # some know it by the rows that they have prepared
        self._resume()
        if self.budget_s is not None and self.pilot is None:
            self._plan_steps(self.budget_s)
        saved_at, save_seconds = time.monotonic(), 0.0
        interval = max(1, self.steps // CURVE_POINTS)
        while self.done < self.steps and not self.part.converged:
            check_cancelled()
            began = time.process_time()
            loss = self._make_step()
            is_last = self.done == self.steps or self.part.converged
            validation = self.part.validate() if self.done % interval == 0 or is_last else None
            if self.done % interval == 0 or is_last:
                self.curve.append((self.done, loss, validation))
            self.cpu_s += time.process_time() - began
            on_progress(self.done, self.steps, loss, validation)
            if (save_began := time.monotonic()) - saved_at > max(KEPT_EVERY_S, KEPT_AT_MOST * save_seconds):
                self._write_checkpoint()
                saved_at = time.monotonic()
                save_seconds = saved_at - save_began

    def _make_step(self) -> float:
        loss = self.part.step(self.done / self.steps)
        self.done += 1
        if not abs(loss) < float("inf"):
            raise DataError(
                f"The loss of step {self.done} is {loss}. Look for numbers that are not finite in what is trained on, "
                "or lower the learning rate."
            )
        return loss

    def _plan_steps(self, budget_s: float) -> None:
        """Set the number of steps that fit a time, from the speed of a few steps, which are taken back."""
        # Copies: steps change the arrays in place.
        start = {name: array.copy() for name, array in self.part.state().items()}
        began = time.perf_counter()
        pilot_steps = 0
        while pilot_steps < PILOT_STEPS and not self.part.converged:
            self.part.step(0.0)
            pilot_steps += 1
        seconds_a_step = (time.perf_counter() - began) / max(1, pilot_steps)
        self.part.restore(start)
        self.steps = max(1, int(PLANNED * budget_s / max(seconds_a_step, 1e-9)))
        self.pilot = {"steps": pilot_steps, "seconds_a_step": seconds_a_step, "budget_s": budget_s}
        self._write_checkpoint()  # after a kill, another speed would give another number of steps

    # Kills.

    def _write_checkpoint(self) -> None:
        """Write a checkpoint."""
        progress = {"training": self.identity, "steps": self.steps, "pilot": self.pilot, "done": self.done}
        progress |= {"curve": self.curve, "cpu_s": self.cpu_s}
        arrays = {f"state.{name}": array for name, array in self.part.state().items()}
        try:
            write_arrays(
                self.folder / CHECKPOINT, {"said": np.frombuffer(dump_json(progress).encode(), np.uint8), **arrays}
            )
        except OSError as error:
            raise DataError(
                f"{self.folder / CHECKPOINT} cannot be written: {error.strerror or error}. Free some space, or check "
                "the permissions, and run the same command again: it goes on from the last checkpoint."
            ) from error

    def _resume(self) -> None:
        """Continue from the checkpoint; start from the beginning if it is missing or damaged."""
        try:
            with read_arrays(self.folder / CHECKPOINT) as arrays:
                progress = json.loads(arrays["said"].tobytes())
                state = {name.removeprefix("state."): arrays[name] for name in arrays if name.startswith("state.")}
        except FileNotFoundError:
            return
        except DAMAGED:
            set_aside(self.folder / CHECKPOINT)
            return
        if progress["training"] != self.identity:
            raise DataError(
                f"{self.folder} holds another training that was interrupted. Write another folder, or delete this one."
            )
        self.steps, self.pilot, self.done, self.cpu_s = (
            progress["steps"],
            progress["pilot"],
            progress["done"],
            progress["cpu_s"],
        )
        self.curve = [(step, loss, validation) for step, loss, validation in progress["curve"]]
        self.part.restore(state)

    # The end.

    def finish(self, objects: Mapping[str, Any], run: Run) -> Trained:
        """Score the part, and write weights, flow and card; the card comes last and marks the training as ended."""
        weights = self.part.weights()
        is_plain = not all(hasattr(value, "dtype") for value in weights.values())
        file = JSON if is_plain else TENSORS
        with replace_files(self.folder / file) as (path,):
            if is_plain:
                path.write_text(dump_json(weights) + "\n", "utf-8")
            else:
                safetensors.write(path, weights)
        if (write_extra_files := getattr(self.part, "write_extra_files", None)) is not None:
            write_extra_files(self.folder, self.folder / file)
        card = self._build_card(file)
        self._write_file(
            CARD, dump_json(card)
        )  # the scored flow reads it; without an identity the training has not ended
        result = self._make_result(card)
        card["score"] = self._score_flow(self._flow_to_score(result), run)
        card["notes"] += no_gain_notes(card["score"])
        self._write_file(FLOW, dump(result.flow, objects, self.folder))
        self._write_file(CARD, format_card({**card, "training": self.identity}))
        with suppress(OSError):  # what is left of a checkpoint only takes space
            (self.folder / CHECKPOINT).unlink(missing_ok=True)
        return self._make_result(card)

    def _write_file(self, name: str, text: str) -> None:
        with replace_files(self.folder / name) as (path,):
            path.write_text(text, "utf-8")

    def _make_result(self, card: Mapping[str, Any]) -> Trained:
        weights = TrainedWeights(str(self.folder), str(card["sha256"]))
        return Trained(weights, card, self.part.trained(weights))

    def _flow_to_score(self, result: Trained) -> Operator[Any, Any]:
        """Return the flow to score; some parts have a form that needs nothing new in the store."""
        make_flow: Callable[[TrainedWeights], Operator[Any, Any]] | None = getattr(self.part, "scored_flow", None)
        return result.flow if make_flow is None else make_flow(result.weights)

    def _score_flow(self, flow: Operator[Any, Any], run: Run) -> dict[str, Any] | None:
        """Compare the flows with and without the part on the held-out questions; None without held-out questions."""
        if not self.split.kept_apart:
            return None
        flows = {"untrained": self.part.untrained(), "trained": flow}
        report = Experiment(flows, self.split.kept_apart, self.part.measure, seed=self.seed).run(run=run)
        means = {flow_report.flow: flow_report.json()["measures"][self.part.measure] for flow_report in report.flows}
        comparison = report.compare("trained", "untrained", self.part.measure)
        gain = comparison.interval if comparison.better == "trained" else comparison.interval.reversed
        return {"measure": self.part.measure, "n": report.n, **means, "difference": gain.json()}

    def _unconverged_notes(self) -> Iterator[str]:
        if self.done < self.part.steps and not self.part.converged:
            yield f"{several(self.done, 'step')} of {self.part.steps}: it had not converged."

    def _build_card(self, file: str) -> dict[str, Any]:
        return {
            "part": self.part.part,
            "sha256": hash_of(self.folder / file),
            "file": file,
            "score": None,
            "data": {"name": self.data, "hash": self.data_hash},
            "questions": {name: len(ids) for name, ids in self.split.ids.items()} | {"left_out": self.split.left_out},
            "trained_on": question_marks(item.question for item in (*self.split.train, *self.split.validation)),
            "settings": self.part.settings(),
            "seed": self.seed,
            "steps": {"made": self.done, "most": self.steps, "converged": self.part.converged, "pilot": self.pilot},
            "curve": [dict(zip(("step", "loss", "validation"), point, strict=True)) for point in self.curve],
            "cost": {"prepare_cpu_s": round(self.prepare_cpu_s, 3), "steps_cpu_s": round(self.cpu_s, 3)},
            "versions": {"part": self.part.version, "python": platform.python_version()}
            | {name: version(name) for name in ("spolia", "numpy")},
            "notes": [self.split.counts, *self.split.warnings, *self._unconverged_notes(), *self.part.notes],
        }


def no_gain_notes(score: Mapping[str, Any] | None) -> list[str]:
    """Return the note of a card whose score shows no gain over the untrained flow; nothing if it shows one.

    >>> no_gain_notes({"measure": "R@5", "n": 40, "difference": {"mean": 0.02, "low": -0.01, "high": 0.05}})
    ['No gain shown: R@5 changes by +2.0 points [-1.0, +5.0] on 40 questions.']
    >>> no_gain_notes({"measure": "R@5", "n": 40, "difference": {"mean": 0.1, "low": 0.05, "high": 0.15}})
    []
    >>> no_gain_notes(None)
    ['No gain shown: no question was kept apart for a score.']
    """
    if score is None:
        return ["No gain shown: no question was kept apart for a score."]
    low = score["difference"]["low"]
    if low is not None and low > 0:
        return []
    changes = f"changes by {points_of(score['difference'])} on {several(score['n'], 'question')}"
    return [f"No gain shown: {score['measure']} {changes}."]


def points_of(difference: Mapping[str, float | None]) -> str:
    """Write a difference of scores in points of 100, with its interval.

    >>> points_of({"mean": -0.167, "low": None, "high": None})
    '-16.7 points [?, ?]'
    """
    ends = (difference[end] for end in ("mean", "low", "high"))
    # + 0.0, since -0.0 would be shown as -0.0.
    mean, low, high = ("?" if end is None else f"{round(100 * end, 1) + 0.0:+.1f}" for end in ends)
    return f"{mean} points [{low}, {high}]"


def items_of(split: QuestionSplit) -> Iterator[Item]:
    """Return all questions of a split."""
    return chain(split.train, split.validation, split.kept_apart)


@contextmanager
def lock_folder(folder: Path) -> Iterator[Path]:
    """Create and lock a folder for this process; DataError if another process trains into it."""
    folder = folder.expanduser().resolve()
    existed = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The folder itself is locked, so that no file of a lock is left.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise DataError(f"{folder} cannot be written to: {error.strerror or error}. Write another folder.") from error
    try:
        if not try_lock(descriptor):
            raise DataError(f"Another process trains into {folder} now. Wait for it, or write another folder.")
        yield folder
    finally:
        os.close(descriptor)
        if not existed and not any(folder.iterdir()):  # a training that was refused leaves nothing
            folder.rmdir()


def _log_questions(log: UsageLog, split: QuestionSplit, trained: Trained) -> None:
    """Log that a part was trained on these questions."""
    for name, items in ((TRAIN, split.train), (VALIDATE, split.validation)):
        if items:
            log.note(replace(log, part=name).new_entry(items, {trained.card["part"]: trained.sha256}, ["training"]))


def format_card(card: Mapping[str, Any]) -> str:
    """Format a card with its digest, one line for each entry."""
    lines = (f" {dump_json(name)}: {dump_json(value)}" for name, value in checksums.sign(card).items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def dump_json(value: Any) -> str:
    """Write a value as JSON on one line, equal for equal values."""
    return json.dumps(value, sort_keys=True, allow_nan=False)


def read_finished_card(folder: Path) -> dict[str, Any] | None:
    """Read the card of the training that has ended in a folder; None if no training has ended."""
    card = checksums.recall(folder / CARD)
    return card if card and "training" in card else None

"""Account of one question: what its steps took and found while a lane is open."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar
from weakref import ref

from spolia.core.operator import Operator, walk_values
from spolia.types import Ranking, Usage, Value
from spolia.types.value import unchecked_constructor


@dataclass(frozen=True)
class StepCalls(Value):
    """Count of the calls of one step of a flow, and of what was out of order."""

    step: str  # the name of its class, with a number where the flow has several of them: `Reader 2` is the second
    calls: int = 0  # how often it gave something, or failed
    failed: int = 0  # of these, how often it failed, or could not do what it is for
    asked: int = 0  # of these, how often it asked a model
    idle: int = 0  # of these, how often it neither failed nor asked one, such as a reranker on an empty ranking
    reasons: tuple[tuple[str, int], ...] = ()  # what was out of order, and how often: failed, degraded, repaired calls

    @property
    def trials(self) -> int:
        """Return the calls that tell whether the step works: not those of an asking step that had nothing to ask."""
        return self.calls - self.idle if self.asked else self.calls

    @property
    def never_worked(self) -> bool:
        """Return whether it was called, and failed on every call that tells whether it works."""
        return 0 < self.trials <= self.failed


_step_calls = unchecked_constructor(StepCalls)
_NOTHING = Usage()

UNPLANNED_ENDS = frozenset(("budget", "error"))
"""Why a flow ended that did not plan it; `cap`, `forced` and `exhausted` are ends that are written in the flow."""


class CountedFrame(Protocol):
    """Frame of a step, as an account sees it."""

    @property
    def op(self) -> Operator[Any, Any] | None: ...
    @property
    def parent(self) -> Self | None: ...
    @property
    def account(self) -> "Lane | None": ...
    @property
    def logical(self) -> Usage | None: ...
    @property
    def spent(self) -> Usage | None: ...
    @property
    def spared(self) -> float: ...


F = TypeVar("F", bound=CountedFrame)


class Lane:
    """Account of one question; `Run.lane` opens it.

    A retrieval is a step that made a ranking of a query, without another such step inside it: what a flow is composed
    of tells, not what the steps are called. Simultaneous ones are in the order in which they ended.
    """

    __slots__ = (
        "_frame", "_sums", "cached", "calls", "ends", "failure_reason", "interrupted", "number", "reasons",
        "retrievals", "shares",
    )  # fmt: skip

    def __init__(self, shares: bool = True) -> None:
        self.shares = shares  # whether steps that cost nothing are shared too, where the run shares
        self.retrievals: list[Ranking] = []  # what each call of a retriever found, in order
        self.cached = False  # a step's result was taken from the cache
        self.interrupted = False  # a step failed for a reason that may pass: tomorrow it may be different
        self.failure_reason = ""  # what the first step that failed said
        self.number = 0  # of the question's first span in the journal; 0 without one
        # Every call that ended, but those that pass on what failed inside: whether it failed, whether it used a model.
        self.calls: list[tuple[Operator[Any, Any] | None, bool, bool]] = []
        # What was out of order, by the step of the flow in which it was, and whether that degrades the result.
        self.reasons: list[tuple[Operator[Any, Any] | None, str, bool]] = []
        self.ends: set[str] = set()  # why its loops ended
        self._frame: CountedFrame | None = None
        self._sums = (_NOTHING, _NOTHING, 0.0)

    def attach_frame(self, frame: "CountedFrame") -> None:
        """Count everything inside this frame on the account."""
        self._frame = frame

    def close(self) -> None:
        """Keep the sums and let go of the frame: with it a cycle would hold the question's results until the garbage
        collection."""
        self._sums = (self.usage, self.spent, self.spared)
        self._frame = None

    @property
    def usage(self) -> Usage:
        """Return what was needed, results taken from the cache included."""
        return self._sums[0] if self._frame is None else self._frame.logical or _NOTHING

    @property
    def spent(self) -> Usage:
        """Return what was really spent."""
        return self._sums[1] if self._frame is None else self._frame.spent or _NOTHING

    @property
    def spared(self) -> float:
        """Return the seconds that cached results took when computed; NaN if another process computed one."""
        return self._sums[2] if self._frame is None else self._frame.spared

    def record_failure(self, error: Exception | None) -> None:
        self.failure_reason = self.failure_reason or (f"{type(error).__name__}: {error}" if error is not None else "")
        self.interrupted |= getattr(error, "transient", False)

    def step_of(self, frame: F) -> F | None:
        """Return the innermost step around a frame that is part of the flow itself, not made by a running step."""
        ancestors: list[F] = []
        ancestor: F | None = frame
        while ancestor is not None and ancestor.account is self:
            if ancestor.op is not None:
                ancestors.append(ancestor)
            ancestor = ancestor.parent
        if not ancestors:
            return None
        names = numbered_step_names(ancestors[-1].op)
        return next(candidate for candidate in ancestors if id(candidate.op) in names)

    def count_calls(self, flow: Operator[Any, Any]) -> tuple[StepCalls, ...]:
        """Count the calls of each step of a flow that was called, in the order of the flow."""
        names = numbered_step_names(flow)
        calls: dict[int, list[int]] = {}
        for op, has_failed, used_model in self.calls:
            counts = calls.setdefault(id(op), [0, 0, 0, 0])
            counts[0] += 1
            counts[1] += has_failed
            counts[2] += used_model
            counts[3] += not has_failed and not used_model
        reasons: dict[int, Counter[str]] = {}
        for op, reason, _ in self.reasons:
            reasons.setdefault(id(op), Counter())[reason] += 1
        return tuple(
            _step_calls(name, *calls[step_id], tuple(reasons[step_id].most_common()) if step_id in reasons else ())
            for step_id, name in names.items()
            if step_id in calls
        )


_NAMES: dict[int, tuple[ref[Any], Mapping[int, str]]] = {}
"""By the `id` of each flow that lives, which is walked through once, not for each question."""


def numbered_step_names(flow: Any) -> Mapping[int, str]:
    """Return the steps of a flow by `id`: the class of each, with a number if several are of one class."""
    reference, names = _NAMES.get(id(flow), (None, {}))
    if reference is None or reference() is not flow:
        flow_id, names = id(flow), _number_steps(flow)
        _NAMES[flow_id] = ref(flow, lambda _: _NAMES.pop(flow_id, None)), names
    return names


def _number_steps(flow: Any) -> dict[int, str]:
    steps = {id(step): type(step).__name__ for step in walk_values(flow) if isinstance(step, Operator)}
    class_counts, numbers = Counter(steps.values()), Counter[str]()
    for step_id, name in steps.items():
        numbers[name] += 1
        steps[step_id] = f"{name} {numbers[name]}" if class_counts[name] > 1 else name
    return steps


def count_reasons(steps: Iterable[StepCalls]) -> dict[str, dict[str, int]]:
    """Return what was out of order, by step and reason, as plain data."""
    return {calls.step: dict(calls.reasons) for calls in steps if calls.reasons}


def sum_calls(questions: Iterable[tuple[Iterable[StepCalls], int]]) -> tuple[StepCalls, ...]:
    """Add up calls of a flow's steps over several questions, each question with its weight."""
    sums: dict[str, StepCalls] = {}
    reasons: dict[str, Counter[str]] = {}
    for steps, times in questions:
        for calls in steps:
            previous, counts = sums.get(calls.step, StepCalls(calls.step)), reasons.setdefault(calls.step, Counter())
            names = ("calls", "failed", "asked", "idle")
            changes = {name: getattr(previous, name) + times * getattr(calls, name) for name in names}
            sums[calls.step] = previous.but(**changes)
            for reason, n in calls.reasons:
                counts[reason] += times * n
    return tuple(calls.but(reasons=tuple(reasons[calls.step].most_common())) for calls in sums.values())

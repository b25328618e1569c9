"""What one question took and found: the account of everything that is called while a lane is open."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ref

from spolia.core.operator import Operator, inside
from spolia.types import Ranking, Usage, Value
from spolia.types.value import maker

if TYPE_CHECKING:
    from spolia.run.frame import Frame


@dataclass(frozen=True)
class StepCalls(Value):
    """How often a step of a flow was called, and what was out of order."""

    step: str  # the name of its class, with a number where the flow has several of them: `Reader 2` is the second
    calls: int = 0  # how often it gave something, or failed
    failed: int = 0  # of these, how often it failed, or could not do what it is for
    asked: int = 0  # of these, how often it asked a model
    idle: int = 0  # of these, how often it neither failed nor asked one, such as a reranker on an empty ranking
    reasons: tuple[tuple[str, int], ...] = ()  # what was out of order, and how often: failed, degraded, repaired calls

    @property
    def trials(self) -> int:
        """The calls that tell whether it works: of a step that asks models, not those that had nothing to ask."""
        return self.calls - self.idle if self.asked else self.calls

    @property
    def never_worked(self) -> bool:
        """Whether it was called, and failed on every call that tells whether it works."""
        return 0 < self.trials <= self.failed


_step_calls = maker(StepCalls)
_NOTHING = Usage()

CUT_SHORT = frozenset(("budget", "error"))
"""Why a flow ended that did not plan it; `cap`, `forced` and `exhausted` are ends that are written in the flow."""


class Lane:
    """The account of one question; `Run.lane` opens it.

    A retrieval is a step that made a ranking of a query, without another such step inside it: what a flow is composed
    of tells, not what the steps are called. Simultaneous ones are in the order in which they ended.
    """

    __slots__ = (
        "_frame", "_sums", "cached", "calls", "ends", "interrupted", "number", "reasons", "retrievals", "shares", "why",
    )  # fmt: skip

    def __init__(self, shares: bool = True) -> None:
        self.shares = shares  # whether steps that cost nothing are shared too, where the run shares
        self.retrievals: list[Ranking] = []  # what each call of a retriever found, in order
        self.cached = False  # a step's result was taken from the cache
        self.interrupted = False  # a step failed for a reason that may pass: tomorrow it may be different
        self.why = ""  # what the first step that failed said
        self.number = 0  # of the question's first span in the journal; 0 without one
        # Every call that ended, but those that pass on what failed inside: whether it failed, whether it used a model.
        self.calls: list[tuple[Operator[Any, Any] | None, bool, bool]] = []
        # What was out of order, by the step of the flow in which it was, and whether that degrades the result.
        self.reasons: list[tuple[Operator[Any, Any] | None, str, bool]] = []
        self.ends: set[str] = set()  # why its loops ended
        self._frame: Frame | None = None
        self._sums = (_NOTHING, _NOTHING, 0.0)

    def opened(self, frame: "Frame") -> None:
        """Everything inside this frame is on the account."""
        self._frame = frame

    def close(self) -> None:
        """Keep what was spent, and let go of the frame, which knows its lane: a cycle would keep all that the question
        found until the garbage collection."""
        self._sums = (self.usage, self.spent, self.spared)
        self._frame = None

    @property
    def usage(self) -> Usage:
        """What was needed, results taken from the cache included."""
        return self._sums[0] if self._frame is None else self._frame.logical or _NOTHING

    @property
    def spent(self) -> Usage:
        """What was really spent."""
        return self._sums[1] if self._frame is None else self._frame.spent or _NOTHING

    @property
    def spared(self) -> float:
        """The seconds that results taken from the cache took when they were computed; NaN if another process did it."""
        return self._sums[2] if self._frame is None else self._frame.spared

    def failed(self, error: Exception | None) -> None:
        self.why = self.why or (f"{type(error).__name__}: {error}" if error is not None else "")
        self.interrupted |= getattr(error, "transient", False)

    def step_of(self, frame: "Frame") -> "Frame | None":
        """The innermost step around a frame that is written in the flow, not made by such a step while it runs."""
        around: list[Frame] = []
        above: Frame | None = frame
        while above is not None and above.account is self:
            if above.op is not None:
                around.append(above)
            above = above.parent
        if not around:
            return None
        written = step_names(around[-1].op)
        return next(one for one in around if id(one.op) in written)

    def steps(self, flow: Operator[Any, Any]) -> tuple[StepCalls, ...]:
        """How often each step of a flow was called, in the order in which they are written; only called ones."""
        names = step_names(flow)
        calls: dict[int, list[int]] = {}
        for op, has_failed, asked in self.calls:
            counts = calls.setdefault(id(op), [0, 0, 0, 0])
            counts[0] += 1
            counts[1] += has_failed
            counts[2] += asked
            counts[3] += not has_failed and not asked
        reasons: dict[int, Counter[str]] = {}
        for op, reason, _ in self.reasons:
            reasons.setdefault(id(op), Counter())[reason] += 1
        return tuple(
            _step_calls(name, *calls[at], tuple(reasons[at].most_common()) if at in reasons else ())
            for at, name in names.items()
            if at in calls
        )


_NAMES: dict[int, tuple[ref[Any], Mapping[int, str]]] = {}
"""By the `id` of each flow that lives, which is walked through once, not for each question."""


def step_names(flow: Any) -> Mapping[int, str]:
    """The steps of a flow by `id`: the class of each, with a number where several are of one class."""
    kept, names = _NAMES.get(id(flow), (None, {}))
    if kept is None or kept() is not flow:
        at, names = id(flow), _named(flow)
        _NAMES[at] = ref(flow, lambda _: _NAMES.pop(at, None)), names
    return names


def _named(flow: Any) -> dict[int, str]:
    steps = {id(one): type(one).__name__ for one in inside(flow) if isinstance(one, Operator)}
    times, numbers = Counter(steps.values()), Counter[str]()
    for at, name in steps.items():
        numbers[name] += 1
        steps[at] = f"{name} {numbers[name]}" if times[name] > 1 else name
    return steps


def counted_reasons(steps: Iterable[StepCalls]) -> dict[str, dict[str, int]]:
    """What was out of order, by step and reason, as plain data."""
    return {one.step: dict(one.reasons) for one in steps if one.reasons}


def summed(questions: Iterable[tuple[Iterable[StepCalls], int]]) -> tuple[StepCalls, ...]:
    """Calls of a flow's steps over several questions, each question with its weight."""
    found: dict[str, StepCalls] = {}
    reasons: dict[str, Counter[str]] = {}
    for steps, times in questions:
        for one in steps:
            before, told = found.get(one.step, StepCalls(one.step)), reasons.setdefault(one.step, Counter())
            names = ("calls", "failed", "asked", "idle")
            more = {name: getattr(before, name) + times * getattr(one, name) for name in names}
            found[one.step] = before.but(**more)
            for reason, n in one.reasons:
                told[reason] += times * n
    return tuple(one.but(reasons=tuple(reasons[one.step].most_common())) for one in found.values())

"""A step repeated over a state."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from spolia.core.call_bounds import times, total
from spolia.core.combinators.get import part_of, parts_of
from spolia.core.operator import Operator, checked_operator
from spolia.core.run_context import degrade
from spolia.core.type_compatibility import fits, name_of
from spolia.errors import BudgetSpent, StepFailed, WiringError
from spolia.types import Failure, State, Verdict
from spolia.types.value import later

S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class Stopped(Operator[State, Verdict]):
    """The judge that leaves it to the body: stop when the body has set `stop`.

    >>> Stopped()(State(stop="answered"))
    Verdict(stop=True, reason='answered')
    """

    def apply(self, value: State, /) -> Verdict:
        return Verdict(bool(value.stop), value.stop)


@dataclass(frozen=True)
class Loop(Operator[S, S]):
    """Repeat a body until it stops itself, a judge stops it, or a cap is reached.

    The state that comes out says why in `stop`: the body's own reason, the judge's, `cap`, or `budget` if the budget
    was spent before a call. A state that has already stopped is returned unchanged.

    Args:
        body: one step.
        until: the judge, asked after every step: it gives a `Verdict`, or whether to stop (`judged`). One that looks at
            a part of the state gets it by `Get`: `until=Get("found") >> Sufficient(llm)`.
        max_steps: the cap, in steps.
        appends: the body's text is part of the answer, so that it may be streamed.
        answers: each step ends with an answer, so that of a budget no call is kept for one after the loop.

    >>> from spolia.core.function import step
    >>> from spolia.types import Chain, Query
    >>> @step
    ... def ask_on(chain: Chain) -> Chain:
    ...     return chain.but(pairs=(*chain.pairs, ("And then?", "Nothing.")))
    >>> ended = Loop(ask_on, max_steps=3)(Chain(Query("What happened?")))
    >>> len(ended.pairs), ended.stop
    (3, 'cap')
    """

    body: Operator[S, S]
    until: Operator[S, Verdict | bool] = field(default_factory=Stopped)
    max_steps: int = 10
    appends: bool = False
    answers: bool = later(False)
    version: ClassVar[int] = 2
    composes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checked_operator(self.body, "the body of Loop")
        checked_operator(self.until, "the judge of Loop")
        if self.max_steps < 1:
            raise WiringError(f"max_steps is {self.max_steps}; a loop needs at least 1. Take it out to do nothing.")
        self.gives(self.body.takes())

    @property
    def optional(self) -> bool:  # type: ignore[override]
        """Whether one call is kept for an answer after the loop."""
        return not self.answers

    def apply(self, value: S, /) -> S:
        (state,) = self._run([value])
        if isinstance(state, Failure):
            raise state.raised()
        return state

    def apply_batch(self, values: Sequence[S], /) -> list[S | Failure]:
        return self._run(values, batched=True)

    def _run(self, values: Sequence[S], *, batched: bool = False) -> list[S | Failure]:
        """All rows step by step; a row that has stopped takes no further part."""
        states: list[S | Failure] = list(values)
        for _ in range(self.max_steps):
            active = self._active(states)
            if not active:
                return states
            self._step(self.body, states, active, batched)
            judged = self._active(states)
            before = [states[row] for row in judged]
            self._step(self.until, states, judged, batched)
            for row, state in zip(judged, before, strict=True):
                if not isinstance(judged_so := states[row], State | Failure):
                    states[row] = self._after(state, judged_so)
        for row in self._active(states):
            states[row] = states[row].but(stop="cap")
        return states

    def _after(self, state: S, judged: Any) -> S | Failure:
        verdict = Verdict(judged) if isinstance(judged, bool) else judged
        if not isinstance(verdict, Verdict):
            said = f"The judge of Loop, {self.until.short}, gave {judged!r:.80}. Give a Verdict, or whether to stop."
            return Failure.of(StepFailed(said), self.until.short)
        return state.but(stop=verdict.reason or "judged") if verdict.stop else state

    def _active(self, states: Sequence[Any]) -> list[int]:
        return [row for row, state in enumerate(states) if not isinstance(state, Failure) and not state.stop]

    def _step(self, op: Operator[Any, Any], states: list[Any], rows: list[int], batched: bool) -> None:
        """Replace the states of some rows by what an operator gives for them; a spent budget stops the row."""
        if batched:
            results = op.batch([states[row] for row in rows], rows=rows)
        else:
            results = [self._one(op, states[row]) for row in rows]
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, Failure) and isinstance(result.error, BudgetSpent):
                degrade(result.message, row=row, partly=True)
                result = states[row].but(stop="budget")
            states[row] = result

    def _one(self, op: Operator[Any, Any], state: S) -> Any:
        try:
            return op(state)
        except BudgetSpent as error:
            return Failure.of(error)

    def takes(self) -> Any:
        return self.body.takes()

    def gives(self, taken: Any, /) -> Any:
        found = self.body.gives(taken)
        if not fits(State, found, {}):
            raise WiringError(f"The body of Loop gives {name_of(found)}; it must give the state that it takes.")
        try:
            judged = self.until.gives(found)
        except WiringError as error:
            said = (
                str(error)
                if fits(self.until.takes(), found, {})
                else f"{str(error).rstrip('.')}. {self._advice(found)}"
            )
            raise WiringError(f"The judge of Loop: {said}") from error
        if not fits(Verdict | bool, judged, {}):
            raise WiringError(f"The judge of Loop gives {name_of(judged)}; it must give a Verdict, or whether to stop.")
        self.body.gives(found)
        return found

    def _advice(self, state: Any) -> str:
        taken = self.until.takes()
        fitting = [name for name in parts_of(state) if fits(taken, part_of(state, name), {})]
        if not fitting:
            return f"Give the state a field with {name_of(taken)}, and put Get('the field') >> before the judge."
        return f"Put Get({fitting[0]!r}) >> before it."

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        return (self.body,) if self.appends else ()

    def calls(self, rows: int | None = None, /) -> int | None:
        return times(self.max_steps, total((self.body.calls(), self.until.calls())))

"""A step repeated over a state."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from spolia.core.call_bounds import times, total
from spolia.core.combinators.get import field_names, field_type
from spolia.core.operator import Operator, checked_operator
from spolia.core.run_context import degrade
from spolia.core.type_compatibility import fits, name_of
from spolia.errors import BudgetSpent, StepFailed, WiringError
from spolia.types import Failure, State, Verdict
from spolia.types.value import added_field

S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class Stopped(Operator[State, Verdict]):
    """Judge that leaves it to the body: stop when the body has set `stop`.

    >>> Stopped()(State(stop="answered"))
    Verdict(stop=True, reason='answered')
    """

    def apply(self, value: State, /) -> Verdict:
        return Verdict(bool(value.stop), value.stop)


@dataclass(frozen=True)
class Loop(Operator[S, S]):
    """Body that repeats until it stops itself, a judge stops it, or a cap is reached.

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
    answers: bool = added_field(False)
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
        """Return whether one call is kept for an answer after the loop."""
        return not self.answers

    def apply(self, value: S, /) -> S:
        (state,) = self._run([value])
        if isinstance(state, Failure):
            raise state.raised()
        return state

    def apply_batch(self, values: Sequence[S], /) -> list[S | Failure]:
        return self._run(values, batched=True)

    def _run(self, values: Sequence[S], *, batched: bool = False) -> list[S | Failure]:
        """Run all rows step by step, without those that have stopped."""
        states: list[S | Failure] = list(values)
        for _ in range(self.max_steps):
            active = self._active(states)
            if not active:
                return states
            self._step(self.body, states, active, batched)
            judged = self._active(states)
            previous = [states[row] for row in judged]
            self._step(self.until, states, judged, batched)
            for row, state in zip(judged, previous, strict=True):
                # a judge without budget has left the stopped state here
                if not isinstance(verdict := states[row], State | Failure):
                    states[row] = self._apply_verdict(state, verdict)
        for row in self._active(states):
            states[row] = states[row].but(stop="cap")
        return states

    def _apply_verdict(self, state: S, judged: Any) -> S | Failure:
        verdict = Verdict(judged) if isinstance(judged, bool) else judged
        if not isinstance(verdict, Verdict):
            problem = f"The judge of Loop, {self.until.short}, gave {judged!r:.80}. Give a Verdict, or whether to stop."
            return Failure.from_error(StepFailed(problem), self.until.short)
        return state.but(stop=verdict.reason or "judged") if verdict.stop else state

    def _active(self, states: Sequence[Any]) -> list[int]:
        return [row for row, state in enumerate(states) if not isinstance(state, Failure) and not state.stop]

    def _step(self, op: Operator[Any, Any], states: list[Any], rows: list[int], batched: bool) -> None:
        """Replace the states of some rows by an operator's results; a spent budget stops the row."""
        if batched:
            results = op.batch([states[row] for row in rows], rows=rows)
        else:
            results = [self._call_step(op, states[row]) for row in rows]
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, Failure) and isinstance(result.error, BudgetSpent):
                degrade(result.message, row=row, partly=True)
                result = states[row].but(stop="budget")
            states[row] = result

    def _call_step(self, op: Operator[Any, Any], state: S) -> Any:
        try:
            return op(state)
        except BudgetSpent as error:
            return Failure.from_error(error)

    def takes(self) -> Any:
        return self.body.takes()

    def gives(self, input_type: Any, /) -> Any:
        state_type = self.body.gives(input_type)
        if not fits(State, state_type, {}):
            raise WiringError(f"The body of Loop gives {name_of(state_type)}; it must give the state that it takes.")
        try:
            judged = self.until.gives(state_type)
        except WiringError as error:
            problem = (
                str(error)
                if fits(self.until.takes(), state_type, {})
                else f"{str(error).rstrip('.')}. {self._advice(state_type)}"
            )
            raise WiringError(f"The judge of Loop: {problem}") from error
        if not fits(Verdict | bool, judged, {}):
            raise WiringError(f"The judge of Loop gives {name_of(judged)}; it must give a Verdict, or whether to stop.")
        self.body.gives(state_type)
        return state_type

    def _advice(self, state: Any) -> str:
        judge_input = self.until.takes()
        fitting = [name for name in field_names(state) if fits(judge_input, field_type(state, name), {})]
        if not fitting:
            return f"Give the state a field with {name_of(judge_input)}, and put Get('the field') >> before the judge."
        return f"Put Get({fitting[0]!r}) >> before it."

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        return (self.body,) if self.appends else ()

    def calls(self, rows: int | None = None, /) -> int | None:
        return times(self.max_steps, total((self.body.calls(), self.until.calls())))

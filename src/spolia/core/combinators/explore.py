"""Search over states: recursion, trees, beams."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from spolia.core.call_bounds import times, total
from spolia.core.combinators.each import element
from spolia.core.operator import Operator, checked_operator
from spolia.core.run_context import degrade
from spolia.core.type_compatibility import fits, name_of
from spolia.errors import BudgetSpent, WiringError
from spolia.ranking.fusion import descending_key
from spolia.types import Failure, State

S = TypeVar("S", bound=State)
Scored = tuple[float, S]


@dataclass(frozen=True)
class Explore(Operator[S, tuple[S, ...]]):
    """Level-by-level expansion of states that gives every chain that ended, best first.

    No state is visited twice, compared by `State.identity`: of a `Chain`, "Who?" and "who?" are one question. Every
    state that comes out says why it ended in `stop`: its own reason, `exhausted` (it could not be expanded), `cap`
    (depth or number of states) or `budget`.

    Args:
        expand: the successors of a state.
        max_depth: levels, at most.
        max_states: states made, at most.
        score: how good a state is, higher is better, NaN worst; without it the order is that of discovery.
        width: how many of a level are expanded further (the beam); all without it.

    >>> from spolia.core.function import step
    >>> from spolia.types import Chain, Query
    >>> @step
    ... def ask_two(chain: Chain) -> tuple[Chain, ...]:
    ...     return tuple(chain.but(pairs=(*chain.pairs, (question, "?"))) for question in ("Who?", "Where?"))
    >>> ended = Explore(ask_two, max_depth=2)(Chain(Query("What happened?")))
    >>> [(" ".join(question for question, _ in chain.pairs), chain.stop) for chain in ended]
    [('Who? Who?', 'cap'), ('Who? Where?', 'cap'), ('Where? Who?', 'cap'), ('Where? Where?', 'cap')]
    """

    expand: Operator[S, tuple[S, ...]]
    max_depth: int
    max_states: int = 100
    score: Operator[S, float] | None = None
    width: int | None = None
    # 2: NaN is the lowest score; 3: spellings of a question are one state; 4: NFC and NFD too
    version: ClassVar[int] = 4
    optional: ClassVar[bool] = True
    composes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checked_operator(self.expand, "the expansion of Explore")
        for name, limit in (("max_depth", self.max_depth), ("max_states", self.max_states), ("width", self.width)):
            if limit is not None and limit < 1:
                raise WiringError(f"{name} is {limit}; Explore needs at least 1.")
        if self.width is not None and self.score is None:
            raise WiringError("width needs a score to know which states are the best. Write Explore(..., score=...).")
        self.gives(self.expand.takes())

    def apply(self, value: S, /) -> tuple[S, ...]:
        ended: list[Scored[S]] = []
        frontier: list[Scored[S]] = [(0.0, value)]
        visited = {value.identity}
        state_count = 0
        for _ in range(self.max_depth):
            alive = self._set_aside(frontier, ended)
            if not alive or state_count >= self.max_states:
                break
            children = self._children(alive, visited, ended, self.max_states - state_count)
            state_count += len(children)
            frontier = self._best(children, ended)
        else:
            alive = self._set_aside(frontier, ended)
        ended.extend((score, state.but(stop="cap")) for score, state in alive)
        if self.score is not None:
            ended.sort(key=lambda scored: descending_key(scored[0]))
        return tuple(state for _, state in ended)

    def _set_aside(self, frontier: Sequence[Scored[S]], ended: list[Scored[S]]) -> list[Scored[S]]:
        """Move the states that have stopped to the ended ones and give back the others."""
        ended.extend(scored for scored in frontier if scored[1].stop)
        return [scored for scored in frontier if not scored[1].stop]

    def _children(self, alive: Sequence[Scored[S]], visited: set[bytes], ended: list[Scored[S]], room: int) -> list[S]:
        children: list[S] = []
        for (score, parent), successors in zip(alive, self.expand.batch([state for _, state in alive]), strict=True):
            if isinstance(successors, Failure):
                if not isinstance(successors.error, BudgetSpent):
                    raise successors.raised()
                degrade(successors.message, partly=True)
                ended.append((score, parent.but(stop="budget")))
                continue
            # backwards: of equal children the first one
            firsts = {child.identity: child for child in reversed(successors)}
            fresh = [c for c in successors if firsts[c.identity] is c and c.identity not in visited]
            if not fresh:
                ended.append((score, parent.but(stop="exhausted")))
            elif len(children) + len(fresh) > room:
                ended.append((score, parent.but(stop="cap")))
                continue
            visited.update(child.identity for child in fresh)
            children.extend(fresh)
        return children

    def _best(self, children: Sequence[S], ended: list[Scored[S]]) -> list[Scored[S]]:
        """Score a level and keep the beam; states that stopped by themselves are always kept."""
        if self.score is None:
            return [(0.0, child) for child in children]
        scored: list[Scored[S]] = []
        for child, score in zip(children, self.score.batch(children), strict=True):
            if isinstance(score, Failure):
                if not isinstance(score.error, BudgetSpent):
                    raise score.raised()
                degrade(score.message, partly=True)
                ended.append((float("-inf"), child.but(stop=child.stop or "budget")))
            else:
                scored.append((float(score), child))
        scored.sort(key=lambda pair: descending_key(pair[0]))
        open_states = [pair for pair in scored if not pair[1].stop]
        return [pair for pair in scored if pair[1].stop] + open_states[: self.width]

    def takes(self) -> Any:
        return self.expand.takes()

    def gives(self, input_type: Any, /) -> Any:
        output_type = self.expand.gives(input_type)
        child = element(output_type, self.short)
        if not fits(State, child, {}):
            raise WiringError(f"The expansion of Explore gives {name_of(output_type)}; it must give a tuple of states.")
        if self.score is not None and not fits(float, score := self.score.gives(child), {}):
            raise WiringError(f"The score of Explore gives {name_of(score)}; it must give a number.")
        return output_type

    def calls(self, rows: int | None = None, /) -> int | None:
        # the first state is expanded too, and counts as none
        expanded = self.max_states + 1 if self.width is None else 1 + self.width * (self.max_depth - 1)
        score = self.score.calls() if self.score is not None else 0
        return total((times(min(expanded, self.max_states + 1), self.expand.calls()), times(self.max_states, score)))

    def fanout(self, rows: int | None = None, /) -> int | None:
        return self.max_states + 1

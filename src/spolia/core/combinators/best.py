"""Several random draws of one value, and the best of several values."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, ClassVar, TypeVar

from spolia.core.call_bounds import times
from spolia.core.combinators.branch import survivors
from spolia.core.combinators.each import element
from spolia.core.operator import Operator, checked_operator
from spolia.core.run_context import degrade
from spolia.core.type_compatibility import fits, name_of
from spolia.errors import BudgetSpent, StepFailed, WiringError
from spolia.ranking.fusion import descending_key
from spolia.types import Failure, Value

T = TypeVar("T")
V = TypeVar("V", bound=Value)


@dataclass(frozen=True)
class Samples(Operator[V, tuple[V, ...]]):
    """Copies of a value that differ in `sample`: a model draws again for each, and each is cached separately.

    The idiom for best-of-n is `Samples(n) >> Each(path) >> Best(score)`. The path needs a step with a temperature above
    0, or your own step that reads `sample`; `check` reports a path that has neither.

    >>> from spolia.types import Query
    >>> [query.sample for query in Samples[Query](3)(Query("why?"))]
    [0, 1, 2]
    """

    n: int
    composes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.n < 1:
            raise WiringError(f"n is {self.n}; Samples needs at least 1.")

    def apply(self, value: V, /) -> tuple[V, ...]:
        first = getattr(value, "sample", 0) * self.n  # samples of samples differ from each other too
        return tuple(value.but(sample=first + draw) for draw in range(self.n))

    def gives(self, input_type: Any, /) -> Any:
        field_names = getattr(input_type, "__dataclass_fields__", None)
        if field_names is not None and "sample" not in field_names:
            raise WiringError(
                f"Samples takes a value with a field `sample` (Query, Prompt, a State), not {name_of(input_type)}"
            )
        return tuple[input_type, ...]

    def fanout(self, rows: int | None = None, /) -> int | None:
        return self.n


@dataclass(frozen=True)
class Best(Operator[Sequence[T], T]):
    """Choice of the value with the highest score; of equal scores the first. NaN counts as the lowest.

    If a budget ends, values without a score count as NaN; one call is left over for an answer after it.

    Args:
        score: how good a value is, higher is better.

    Raises:
        StepFailed: the value has no candidates.

    >>> from spolia.core.function import step
    >>> @step
    ... def size(text: str) -> float:
    ...     return len(text)
    >>> Best(size)(("a", "ccc", "bbb"))
    'ccc'
    """

    score: Operator[T, float]

    version: ClassVar[int] = 3  # 2: NaN is the lowest score; 3: a spent budget leaves values without a score
    optional: ClassVar[bool] = True
    composes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checked_operator(self.score, "the score of Best")

    def apply(self, value: Sequence[T], /) -> T:
        if not value:
            raise StepFailed("Best was given 0 values, it needs at least 1.")
        results = self.score.batch(value)
        over_budget = [
            result for result in results if isinstance(result, Failure) and isinstance(result.error, BudgetSpent)
        ]
        if over_budget:
            degrade(over_budget[0].message, partly=True)
        scores = survivors([nan if result in over_budget else result for result in results], None, "score", self)
        return value[min(range(len(value)), key=lambda index: descending_key(scores[index]))]

    def takes(self) -> Any:
        return Sequence[self.score.takes()]  # type: ignore[misc]

    def gives(self, input_type: Any, /) -> Any:
        item_type = element(input_type, self.short)
        if not fits(float, score_type := self.score.gives(item_type), {}):
            raise WiringError(f"The score of Best gives {name_of(score_type)}; it must give a number.")
        return item_type

    def calls(self, rows: int | None = None, /) -> int | None:
        return times(rows, self.score.calls())

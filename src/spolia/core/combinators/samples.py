"""Several random draws of one value."""

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from spolia.core.operator import Operator
from spolia.core.type_compatibility import name_of
from spolia.errors import WiringError
from spolia.types import Value

V = TypeVar("V", bound=Value)


@dataclass(frozen=True)
class Samples(Operator[V, tuple[V, ...]]):
    """Give `n` copies of a value that differ in `sample`, so that a model draws again for each and each is cached
    apart.

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

    def gives(self, taken: Any, /) -> Any:
        known = getattr(taken, "__dataclass_fields__", None)
        if known is not None and "sample" not in known:
            raise WiringError(
                f"Samples takes a value with a field `sample` (Query, Prompt, a State), not {name_of(taken)}"
            )
        return tuple[taken, ...]

    def fanout(self, rows: int | None = None, /) -> int | None:
        return self.n

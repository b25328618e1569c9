"""What a measure is: what it sees of each question, and what that adds up to.

    SetMeasure        seen(case) -> numbers or None, total(numbers of all) -> number      BLEU, AURC, F1 of abstaining
    ├── Measure       score(result, item) -> number or None; the total is their mean      nDCG@10, F1, Faithfulness
    └── CostMeasure   cost(case) -> number; the total is their mean                       ATC, calls of a source

All that a total is made of is seen question by question, so that any measure can be resampled, paired and kept in rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from math import inf, isfinite
from typing import Any, ClassVar, TypeAlias

from spolia.errors import MeasureError
from spolia.types import Answer, Failure, Item, Ranking, Usage, Value

Result: TypeAlias = Ranking | Answer
Seen: TypeAlias = tuple[float, ...]
"""The numbers that one question adds to a total."""
SLACK = 1e-6
"""By which a score may be outside of its range: cosines of single precision."""


@dataclass(frozen=True)
class Case(Value):
    """One question that a flow was asked.

    Args:
        usage: what that took, results from a cache included; without what a judge takes afterwards.
        retrievals: what each call of a retriever found, in order; `Ranking.source` says whom it asked.
        seconds: how long it took; None where that says nothing: a cache answered, or it was the flow's first question,
            for which models are loaded.
    """

    item: Item
    result: Result | Failure
    usage: Usage = field(default=Usage())
    retrievals: tuple[Ranking, ...] = ()
    seconds: float | None = None


class SetMeasure(Value, ABC):
    """How good a flow is on a set of questions. `str(measure)` is how it is written: `nDCG@10`, `F1(rule="hotpotqa")`.

    A subclass is a frozen dataclass; its fields decide what is measured, and are written where they are not the
    default.

    Class attributes:
        called: its name as it is written.
        lower_is_better: whether it measures something bad.
        range: where its numbers can lie, which decides how sure they are and whether they are shown times 100.
        resolution: differences of means below it are noise.
        additive: whether the total follows from the sums of the columns of what was seen.
        rules: what its field `rule` may name, a variant of it.
    """

    called: ClassVar[str]
    lower_is_better: ClassVar[bool] = False
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    resolution: ClassVar[float] = 0.0
    additive: ClassVar[bool] = False
    rules: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if self.rules:
            checked_rule(self.called, getattr(self, "rule", ""), self.rules)

    @property
    def made(self) -> tuple[Value, ...]:
        """What it makes of its fields and depends on, such as the role of a prompt file."""
        return ()

    @abstractmethod
    def applies(self, item: Item) -> bool:
        """Whether the item has the gold that it takes."""

    @abstractmethod
    def seen(self, case: Case) -> Seen | None:
        """What a question to which it applies adds; None where that could not be determined."""

    def all_seen(self, cases: Sequence[Case]) -> list[Seen | None]:
        """`seen` of every case; overridden where many at once are faster."""
        return [self.seen(case) for case in cases]

    @abstractmethod
    def total(self, seen: Sequence[Seen]) -> float | None:
        """The number for the whole set; None where it is not defined."""

    def curve(self, seen: Sequence[Seen]) -> list[tuple[float, float]]:
        """The points of the curve under which the number lies, from 0 to 1 both ways; none where there is no curve."""
        return []

    def __str__(self) -> str:
        k: int | None = getattr(self, "k", None)
        named = [f for f in fields(self) if f.name != "k"]  # type: ignore[arg-type]
        shown = [(f, getattr(self, f.name)) for f in named if f.repr and getattr(self, f.name) != f.default]
        inside = ", ".join(f"{f.name}={_written(value, f.default)}" for f, value in shown)
        return self.called + (f"@{k}" if k is not None else "") + (f"({inside})" if inside else "")


class Measure(SetMeasure):
    """How good the result for one question is; higher is better. A set is measured by the mean, a failure counts 0."""

    @abstractmethod
    def score(self, result: Result, item: Item) -> float | None:
        """The number, for an item to which it applies; None where it could not be determined."""

    def seen(self, case: Case) -> Seen | None:
        if isinstance(case.result, Failure):
            return (0.0,)
        score = self.score(case.result, case.item)
        if score is None or not isfinite(score):
            return None
        checked_score(self, score)
        return (float(score),)

    def total(self, seen: Sequence[Seen]) -> float | None:
        return mean(seen)


class CostMeasure(SetMeasure):
    """What a question takes, whatever its gold; lower is better. A failed question costs what it took until then."""

    lower_is_better: ClassVar[bool] = True
    range: ClassVar[tuple[float, float]] = (0.0, inf)

    @abstractmethod
    def cost(self, case: Case) -> float:
        """The number of one question."""

    def applies(self, item: Item) -> bool:
        return True

    def seen(self, case: Case) -> Seen | None:
        return (float(self.cost(case)),)

    def total(self, seen: Sequence[Seen]) -> float | None:
        return mean(seen)


def checked_item(measure: SetMeasure, item: Item) -> None:
    """Refuse an item to which a measure does not apply: whatever it scored would mean nothing."""
    if not measure.applies(item):
        raise MeasureError(
            f"{measure} does not apply to the item {item.id!r}, which has no gold for it. Ask applies(item) first, or "
            "call measured(measure, cases), which leaves such items out and counts them."
        )


def checked_score(measure: SetMeasure, score: float) -> None:
    """Refuse a number that cannot be: how sure it is would be wrong."""
    low, high = measure.range
    if not low - SLACK <= score <= high + SLACK:
        raise MeasureError(
            f"{measure} gave {score:g}, which is outside of its range from {low:g} to {high:g}. Write in its class "
            f"where its numbers can lie, for example range: ClassVar = (0.0, {max(2.0, score):g})."
        )


def mean(seen: Sequence[Seen]) -> float | None:
    """The mean of what was seen, one number a question.

    >>> mean([(1.0,), (0.0,)])
    0.5
    """
    return sum(one for (one,) in seen) / len(seen) if seen else None


def _written(value: object, default: Any) -> str:
    """A field as it is written: a measure by its notation, a model by its name, a role by the prompt file that it has
    in place of another."""
    if isinstance(value, SetMeasure):
        return str(value)
    file = getattr(value, "prompt", None)
    called = file if file and hasattr(default, "prompt") and value == default.but(prompt=file) else None
    called = getattr(value, "name", called)
    return f'"{value}"' if isinstance(value, str) else f'"{called}"' if called is not None else repr(value)


def checked_rule(called: str, rule: str, known: Collection[str]) -> None:
    """Refuse a variant that is not known.

    >>> checked_rule("F1", "hotpot", ("squad2", "hotpotqa"))
    Traceback (most recent call last):
    spolia.errors.MeasureError: F1 has no rule 'hotpot'. Write one of: "squad2", "hotpotqa"; or none for the textbook's.
    """
    if rule and rule not in known:
        names = ", ".join(f'"{name}"' for name in known)
        raise MeasureError(f"{called} has no rule {rule!r}. Write one of: {names}; or none for the textbook's.")


@dataclass(frozen=True)
class Measured(Value):
    """A measure over `n` cases, of which `failed` failed; its value is None if no case was scored.

    Left out are `undetermined` cases, of which the measure could not tell, and those whose item lacks the gold. `seen`
    is what each case adds; None where it was left out.
    """

    measure: str
    value: float | None
    n: int
    failed: int
    undetermined: int
    without_gold: int
    seen: tuple[Seen | None, ...]

    def __str__(self) -> str:
        said = "nothing" if self.value is None else f"{self.value:.4g}"
        left = ((self.failed, "failed"), (self.undetermined, "undetermined"), (self.without_gold, "without gold"))
        return ", ".join([f"{self.measure} {said} of {self.n}", *(f"{n} {what}" for n, what in left if n)])


def measured(measure: SetMeasure, cases: Sequence[Case]) -> Measured:
    """What a measure says of cases. A judged one asks its model: inside a run, with its cache, budget and threads.

    >>> from spolia.evaluation.measures.answers.string_match import ExactMatch
    >>> from spolia.types import Answer, Item
    >>> asked = [Item("q1", "?", answers=("Nokia",)), Item("q2", "?", answers=("1508",)), Item("q3", "?")]
    >>> print(measured(ExactMatch(), [Case(item, Answer("Nokia.")) for item in asked]))
    EM 0.5 of 2, 1 without gold
    """
    applies = [measure.applies(case.item) for case in cases]
    asked = [case for case, one in zip(cases, applies, strict=True) if one]
    found = iter(measure.all_seen(asked))
    seen = tuple(next(found) if one else None for one in applies)
    known = [one for one in seen if one is not None]
    told = [case for case, one in zip(cases, seen, strict=True) if one is not None]
    failed = sum(isinstance(case.result, Failure) for case in told)
    return Measured(
        str(measure),
        measure.total(known) if known else None,
        len(known),
        failed,
        len(asked) - len(known),
        len(cases) - len(asked),
        seen,
    )

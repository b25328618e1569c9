"""Measures: what they observe of each question, and how the observations add up.

    SetMeasure        observe(case) -> numbers or None, total(observations) -> number     BLEU, AURC, F1 of abstaining
    ├── Measure       score(result, item) -> number or None; the total is their mean      nDCG@10, F1, Faithfulness
    └── CostMeasure   cost(case) -> number; the total is their mean                       ATC, calls of a source

A total depends on nothing but its observations, so any measure can be resampled, paired and kept in rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from math import inf, isfinite
from typing import Any, ClassVar, TypeAlias
from warnings import warn

from spolia.core.deprecation import RenamedAttribute
from spolia.errors import MeasureError
from spolia.types import Answer, Failure, Item, Ranking, Usage, Value

Result: TypeAlias = Ranking | Answer
Observation: TypeAlias = tuple[float, ...]
"""The numbers that one question adds to a total."""
FORMER_NAMES = {"called": "notation", "made": "dependencies", "seen": "observe", "all_seen": "observe_all"}
"""By what was written in a class of measures before, what is written now."""
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
    """Score of a flow on a set of questions. `str(measure)` is its notation: `nDCG@10`, `F1(rule="hotpotqa")`.

    A subclass is a frozen dataclass; its fields decide what is measured, and are written where they are not the
    default.

    Class attributes:
        notation: its name, as it is written before `@` and the fields.
        lower_is_better: whether it measures something bad.
        range: where its numbers can lie, which decides how sure they are and whether they are shown times 100.
        resolution: differences of means below it are noise.
        additive: whether the total follows from the sums of the columns of the observations.
        rules: the variants that its field `rule` may name.
    """

    notation: ClassVar[str]
    called: ClassVar[str]  # the former name of `notation`
    lower_is_better: ClassVar[bool] = False
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    resolution: ClassVar[float] = 0.0
    additive: ClassVar[bool] = False
    rules: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "notation" in vars(cls):
            cls.called = cls.notation
        for former, name in FORMER_NAMES.items():
            if former in vars(cls) and name not in vars(cls):
                setattr(cls, name, vars(cls)[former])
                warn(
                    f"{cls.__qualname__}.{former} is {name} now. The former name goes with the next minor version.",
                    DeprecationWarning,
                    stacklevel=3,
                )

    def __post_init__(self) -> None:
        if self.rules:
            check_rule(self.notation, getattr(self, "rule", ""), self.rules)

    @property
    def dependencies(self) -> tuple[Value, ...]:
        """Return values made from the fields that scores depend on, such as the role of a prompt file."""
        return ()

    @abstractmethod
    def applies(self, item: Item) -> bool:
        """Return whether the item has the gold that the measure needs."""

    @abstractmethod
    def observe(self, case: Case) -> Observation | None:
        """Return the numbers that a question adds, if the measure applies to it; None if they are undetermined."""

    def observe_all(self, cases: Sequence[Case]) -> list[Observation | None]:
        """Observe every case; overridden where many together are faster."""
        return [self.observe(case) for case in cases]

    @abstractmethod
    def total(self, observations: Sequence[Observation]) -> float | None:
        """Compute the number for the whole set; None if it is not defined."""

    def curve(self, observations: Sequence[Observation]) -> list[tuple[float, float]]:
        """Return the curve whose area is the total, with both axes from 0 to 1; empty if there is no curve."""
        return []

    def __str__(self) -> str:
        k: int | None = getattr(self, "k", None)
        options = [f for f in fields(self) if f.name != "k"]  # type: ignore[arg-type]
        changed = [(f, getattr(self, f.name)) for f in options if f.repr and getattr(self, f.name) != f.default]
        arguments = ", ".join(f"{f.name}={_format_field(value, f.default)}" for f, value in changed)
        return self.notation + (f"@{k}" if k is not None else "") + (f"({arguments})" if arguments else "")


class Measure(SetMeasure):
    """Score of the result for one question; higher is better. A set scores the mean, and a failure counts 0."""

    @abstractmethod
    def score(self, result: Result, item: Item) -> float | None:
        """Score the result for an item to which the measure applies; None if undetermined."""

    def observe(self, case: Case) -> Observation | None:
        if isinstance(case.result, Failure):
            return (0.0,)
        score = self.score(case.result, case.item)
        # Numbers that are not finite would spoil the mean of all questions.
        if score is None or not isfinite(score):
            return None
        check_score(self, score)
        return (float(score),)

    def total(self, observations: Sequence[Observation]) -> float | None:
        return mean(observations)


class CostMeasure(SetMeasure):
    """Cost of a question, whatever its gold; lower is better. A failed question costs what it used until it failed."""

    lower_is_better: ClassVar[bool] = True
    range: ClassVar[tuple[float, float]] = (0.0, inf)

    @abstractmethod
    def cost(self, case: Case) -> float:
        """Return the cost of one question."""

    def applies(self, item: Item) -> bool:
        return True

    def observe(self, case: Case) -> Observation | None:
        return (float(self.cost(case)),)

    def total(self, observations: Sequence[Observation]) -> float | None:
        return mean(observations)


def check_item(measure: SetMeasure, item: Item) -> None:
    """Raise MeasureError for an item to which a measure does not apply: its score would mean nothing."""
    if not measure.applies(item):
        raise MeasureError(
            f"{measure} does not apply to the item {item.id!r}, which has no gold for it. Ask applies(item) first, or "
            "call measured(measure, cases), which leaves such items out and counts them."
        )


def check_score(measure: SetMeasure, score: float) -> None:
    """Raise MeasureError for a score out of its range: its interval would be wrong."""
    low, high = measure.range
    if not low - SLACK <= score <= high + SLACK:
        raise MeasureError(
            f"{measure} gave {score:g}, which is outside of its range from {low:g} to {high:g}. Write in its class "
            f"where its numbers can lie, for example range: ClassVar = (0.0, {max(2.0, score):g})."
        )


def mean(observations: Sequence[Observation]) -> float | None:
    """Return the mean of observations that are one number each.

    >>> mean([(1.0,), (0.0,)])
    0.5
    """
    return sum(number for (number,) in observations) / len(observations) if observations else None


def _format_field(value: object, default: Any) -> str:
    """Format a field: a measure by its notation, a model by its name, a role by the prompt file in its place."""
    if isinstance(value, SetMeasure):
        return str(value)
    file = getattr(value, "prompt", None)
    # Only a role that differs from the default by its prompt alone can be written as a file.
    name = file if file and hasattr(default, "prompt") and value == default.but(prompt=file) else None
    name = getattr(value, "name", name)
    return f'"{value}"' if isinstance(value, str) else f'"{name}"' if name is not None else repr(value)


def check_rule(notation: str, rule: str, rules: Collection[str]) -> None:
    """Raise MeasureError for an unknown rule.

    >>> check_rule("F1", "hotpot", ("squad2", "hotpotqa"))
    Traceback (most recent call last):
    spolia.errors.MeasureError: F1 has no rule 'hotpot'. Write one of: "squad2", "hotpotqa"; or none for the textbook's.
    """
    if rule and rule not in rules:
        names = ", ".join(f'"{name}"' for name in rules)
        raise MeasureError(f"{notation} has no rule {rule!r}. Write one of: {names}; or none for the textbook's.")


@dataclass(frozen=True)
class Measurement(Value):
    """A measure over `n` cases, of which `failed` failed; its value is None if no case was scored.

    Left out are `undetermined` cases, of which the measure could not tell, and those whose item lacks the gold.
    `observations` is what each case adds; None where it was left out.
    """

    measure: str
    value: float | None
    n: int
    failed: int
    undetermined: int
    without_gold: int
    observations: tuple[Observation | None, ...]

    seen = RenamedAttribute("observations")

    def __str__(self) -> str:
        score = "nothing" if self.value is None else f"{self.value:.4g}"
        counts = ((self.failed, "failed"), (self.undetermined, "undetermined"), (self.without_gold, "without gold"))
        return ", ".join([f"{self.measure} {score} of {self.n}", *(f"{n} {label}" for n, label in counts if n)])


def measured(measure: SetMeasure, cases: Sequence[Case]) -> Measurement:
    """Apply a measure to cases. A judged one asks its model: inside a run, with its cache, budget and threads.

    >>> from spolia.evaluation.measures.answers.string_match import ExactMatch
    >>> from spolia.types import Answer, Item
    >>> asked = [Item("q1", "?", answers=("Nokia",)), Item("q2", "?", answers=("1508",)), Item("q3", "?")]
    >>> print(measured(ExactMatch(), [Case(item, Answer("Nokia.")) for item in asked]))
    EM 0.5 of 2, 1 without gold
    """
    flags = [measure.applies(case.item) for case in cases]
    applicable = [case for case, flag in zip(cases, flags, strict=True) if flag]
    results = iter(measure.observe_all(applicable))
    observations = tuple(next(results) if flag else None for flag in flags)
    determined = [observation for observation in observations if observation is not None]
    scored_cases = [case for case, observation in zip(cases, observations, strict=True) if observation is not None]
    failed = sum(isinstance(case.result, Failure) for case in scored_cases)
    return Measurement(
        str(measure),
        measure.total(determined) if determined else None,
        len(determined),
        failed,
        len(applicable) - len(determined),
        len(cases) - len(applicable),
        observations,
    )

"""Checks of a flow before it costs anything."""

import builtins
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, Literal, get_args, get_origin

from spolia import errors
from spolia.core.codec import plan_of
from spolia.core.codec.shape import EncodeContext
from spolia.core.combinators import Best, Branch, Choice, Each, Guard, Identity, Loop, Route, Samples, Stopped, places
from spolia.core.combinators.space import join_path, settle
from spolia.core.operator import Operator, Then, Vary, checked_operator
from spolia.core.sweepable import Rearrangement
from spolia.core.type_compatibility import fits, name_of
from spolia.errors import CodecError, SpoliaError, WiringError
from spolia.types import Addressed, Value

MAX_DECIDED_FORMS = 1_000
"""Decided forms of a step that are looked at."""


@dataclass(frozen=True)
class Problem(Value):
    """Mistake at a place of a flow (`steps.1.arms.0.top_k`; empty for the flow itself), and what to write."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


@dataclass(frozen=True)
class CheckResult(Value):
    """Result of `check`.

    Args:
        takes: the type that the flow takes, as it is written.
        gives: the type that it gives.
        calls: calls to language models for one value, at most; None when no bound is known.
        problems: in the order of the flow; none means that it may be run.
        open: places that are still to be decided, each with the number of its candidates.
    """

    takes: str
    gives: str
    calls: int | None
    problems: tuple[Problem, ...] = ()
    open: tuple[tuple[str, int], ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether there are no problems."""
        return not self.problems

    def __str__(self) -> str:
        noun = "call" if self.calls == 1 else "calls"
        calls = "no known bound on calls" if self.calls is None else f"at most {self.calls} {noun}"
        lines = [f"{self.takes} → {self.gives}, {calls} to language models"]
        lines += [f"open: {place} ({size} candidates)" for place, size in self.open]
        return "\n".join(lines + [f"problem: {problem}" for problem in self.problems])


def check(flow: Operator[Any, Any], *, takes: Any = None, gives: Any = None) -> CheckResult:
    """Report what would go wrong, without running anything.

    Found are: fields of a wrong type, arms and fallbacks that can never run, loops that nothing can end before the
    cap, samples that cannot differ, models that lack a capability, limits that never or always bind, candidates that
    come twice.

    Args:
        takes: what the flow will be given, for example `Query`; by default what it says itself.
        gives: what it must give.

    >>> from spolia import Guard, Identity, Query, Samples
    >>> print(check(Guard(Samples[Query](3)), takes=Query))
    Query → tuple[Query, ...], at most 0 calls to language models
    problem: Guard has neither a limit nor a fallback and does nothing. Give it max_calls or fallback, or take it out.
    """
    checked_operator(flow, "what is checked")
    problems = list(_find_problems(flow, ""))
    input_type = flow.takes() if takes is None else takes
    try:
        output_type = flow.gives(input_type)
        if gives is not None and not fits(gives, output_type, {}):
            problems.append(Problem("", f"The flow gives {name_of(output_type)}; {name_of(gives)} is required."))
    except WiringError as error:
        output_type = Any
        problems.append(Problem("", str(error)))
    try:
        undecided = tuple((place.name, len(place.values)) for place in places(flow).values())
    except SpoliaError as error:
        undecided = ()
        problems.append(Problem("", str(error)))
    return CheckResult(name_of(input_type), name_of(output_type), flow.calls(), tuple(problems), undecided)


def _find_problems(
    op: Operator[Any, Any], place: str, candidates: Sequence[Operator[Any, Any]] = ()
) -> Iterator[Problem]:
    """Yield the problems of an operator and of those inside it.

    Args:
        candidates: what the operator may be once its open fields are decided; by default itself.
    """
    problems = [
        problem
        for form in candidates or (op,)
        for problem in (*_check_fields(form), *_check_capabilities(form), *_check_structure(form))
    ]
    for problem in dict.fromkeys(problems):  # the decided forms of a step share most of them
        yield Problem(".".join(filter(None, (place, problem.place))), problem.message)
    for inner_place, inner in op.inner():
        decided = tuple(op.decided()) if isinstance(op, Vary) and inner is op.body and op._few() else ()
        yield from _find_problems(inner, join_path(place, inner_place), decided)


def _decided_forms(op: Operator[Any, Any]) -> Iterator[Operator[Any, Any]]:
    """Yield the forms of a step with all open places decided; the step itself if there are too many."""
    size = math.prod(len(place.values) for place in places(op).values())
    return (form for _, form in settle(op)) if 1 < size <= MAX_DECIDED_FORMS else iter((op,))


class _Shallow(EncodeContext):
    """Context that writes inner operators and addresses by name, so that only the fields themselves are checked."""

    def __init__(self) -> None:
        super().__init__(plan_of, {"it": None})

    def name_of(self, value: object) -> str | None:
        return "it" if isinstance(value, (Operator, Addressed)) else None


def _check_fields(op: Operator[Any, Any]) -> Iterator[Problem]:
    """Yield fields whose values do not have the declared types."""
    try:
        plan = plan_of(type(op))
    except CodecError as error:
        yield Problem("", str(error))
        return
    for field in plan.places:
        try:
            plan.shape_at(field, vars(op)).encode(getattr(op, field.name), _Shallow())
        except CodecError as error:
            yield Problem(".".join(map(str, (field.name, *error.place))), error.reason)


def _check_capabilities(op: Operator[Any, Any]) -> Iterator[Problem]:
    """Yield models that lack a capability that the operator needs."""
    for name, needed in op.needs.items():
        models = getattr(op, name)
        for model in models if isinstance(models, tuple) else (models,):
            offered = getattr(model, "capabilities", None)
            if model is None:
                continue
            if offered is None:
                yield Problem(name, f"{type(op).__name__} needs a model here; {model!r} states no capabilities.")
            elif lacking := sorted(needed - offered):
                yield Problem(
                    name,
                    f"{type(op).__name__} needs {', '.join(lacking)} of this model; {model!r} has "
                    f"{', '.join(sorted(offered)) or 'nothing'}. Give a model that has it.",
                )


def _check_structure(op: Operator[Any, Any]) -> Iterator[Problem]:
    """Yield what is well typed and yet makes no sense."""
    if isinstance(op, Route):
        yield from _check_route(op)
    elif isinstance(op, Guard):
        yield from _check_guard(op)
    elif isinstance(op, Loop):
        yield from _check_loop(op)
    elif isinstance(op, Then):
        yield from _check_samples(op)
        yield from _check_fusions(op)
    elif isinstance(op, Choice):
        yield from _check_duplicates("options", op.options)
    elif isinstance(op, Vary):
        for name, values in op.ranges:
            yield from _check_duplicates(f"ranges.{name}", values)


def _check_duplicates(place: str, candidates: tuple[Any, ...]) -> Iterator[Problem]:
    for index, candidate in enumerate(candidates):
        first = candidates.index(candidate)
        if first < index:
            yield Problem(f"{place}.{index}", f"This candidate is number {first} again. Take it out.")


def _check_route(op: Route[Any, Any]) -> Iterator[Problem]:
    router_names: dict[str, None] = {}
    for router in _decided_forms(op.router):
        try:
            output_type = router.gives(op.takes())
        except WiringError:
            return
        if get_origin(output_type) is not Literal:
            return
        router_names |= dict.fromkeys(get_args(output_type))
    arms = [name for name, _ in op.arms]
    for name in arms:
        if name not in router_names and name != op.default:
            yield Problem(
                f"arms.{name}",
                f"This arm can never run: the router only names {', '.join(router_names)}. Rename the arm, or take it "
                "out.",
            )
    for name in router_names:
        if name not in arms:
            yield Problem(
                "arms", f"The router may name {name!r}, which is not an arm. Add it, or the default is taken."
            )


def _check_guard(op: Guard[Any, Any]) -> Iterator[Problem]:
    if op.fallback is None and op.max_calls is None:
        yield Problem(
            "",
            "Guard has neither a limit nor a fallback and does nothing. Give it max_calls or fallback, or take it out.",
        )
    if op.fallback is not None and not op.on:
        yield Problem("fallback", "The fallback can never run: on names no errors. Name some, or take it out.")
    if op.fallback is not None and op.fallback == op.body:
        yield Problem("fallback", "The fallback is the body again. Give another one, or take it out.")
    if op.max_calls is not None and op.body.calls() == 0:
        yield Problem("max_calls", "The body asks no model, so that this limit is never reached. Take it out.")
    if op.max_calls == 0 and op.body.calls() != 0:
        yield Problem("max_calls", "With 0 calls the body can never ask its model. Allow at least 1.")
    error_names = {name for names in (vars(errors), vars(builtins)) for name in names}
    for index, name in enumerate(op.on):
        # Of a package that is not imported yet no error is known, so only a near miss is taken for a mistake.
        near = get_close_matches(name, tuple(_error_names()), 1, 0.85)
        if name not in error_names and near not in ([], [name]):
            yield Problem(f"on.{index}", f"No error is called {name!r}. Did you mean {near[0]}?")


def _error_names() -> Iterator[str]:
    stack: list[type] = [Exception]
    while stack:
        subclasses: list[type] = stack.pop().__subclasses__()
        yield from (cls.__name__ for cls in subclasses)
        stack.extend(subclasses)


def _check_loop(op: Loop[Any]) -> Iterator[Problem]:
    if isinstance(op.until, Stopped) and _changes_nothing(op.body):
        yield Problem(
            "body",
            "This loop cannot end before its cap: the body changes nothing, and only the body could stop it. "
            "Give another body, or a judge: until=...",
        )
    for judge in _receivers(op.until):
        steps = op.max_steps if _is_known(op.body) else math.inf  # a user's step may add more than one
        if (beyond := getattr(judge, "beyond", None)) is not None and (reason := beyond(steps, op.takes())):
            yield Problem("until", reason)


def _is_known(op: Operator[Any, Any]) -> bool:
    """Return whether an operator and all inside it are Spolia's."""
    return type(op).__module__.startswith("spolia.") and all(_is_known(inner) for _, inner in op.inner())


def _check_fusions(op: Then[Any, Any]) -> Iterator[Problem]:
    """Yield fusions that have no weight for a source before them."""
    sources: frozenset[str] | None = None
    for index, step in enumerate(op.steps):
        for fusion in _receivers(step):
            weighted = getattr(fusion, "fuses", None)
            if sources is not None and weighted is not None and (lacking := sorted(sources - set(weighted))):
                yield Problem(
                    f"steps.{index}",
                    f"{type(fusion).__name__} has no weight or minimum for the source {lacking[0]!r}, only for "
                    f"{', '.join(map(repr, weighted)) or 'none'}. Add it, or give the retriever one of these.",
                )
                break
        sources = _sources(step, sources)


def _receivers(op: Operator[Any, Any]) -> Iterator[Operator[Any, Any]]:
    """Yield a step, and the operators inside it that get the same value."""
    yield op
    if isinstance(op, (Branch, Choice, Guard, Route)):
        inner = [arm for place, arm in op.inner() if place != "router"]
    else:
        inner = [op.steps[0]] if isinstance(op, Then) else list(_options(op))
    for receiver in inner:
        yield from _receivers(receiver)


def _options(op: Operator[Any, Any]) -> Iterator[Operator[Any, Any]]:
    """Yield the operators that may take an operator's place once it is decided."""
    decided = op.decided() if isinstance(op, Vary) and op._few() else ()
    for option in op.options if isinstance(op, Choice) else decided:
        yield option
        yield from _options(option)


def _sources(op: Operator[Any, Any], sources: frozenset[str] | None) -> frozenset[str] | None:
    """Return the possible `source` of rankings after a step, from those before it; None if unknown."""
    if isinstance(op, Then):
        for step in op.steps:
            sources = _sources(step, sources)
        return sources
    if isinstance(op, Identity) or (isinstance(op, Rearrangement) and type(op).apply is Rearrangement.apply):
        return sources
    if isinstance(op, (Branch, Each, Choice, Route, Guard)):
        arms = [inner for place, inner in op.inner() if place != "router"]
    elif isinstance(op, Vary):
        arms = list(_options(op)) or [op.body]
    else:
        source = getattr(op, "source", None) if type(op).__module__.startswith("spolia.") else None
        return frozenset((source,)) if isinstance(source, str) else None
    arm_sources = [_sources(arm, sources) for arm in arms]
    return None if None in arm_sources else frozenset().union(*(names for names in arm_sources if names is not None))


def _check_samples(op: Then[Any, Any]) -> Iterator[Problem]:
    """Yield `Samples` that no later step can make differ."""
    for index, samples in enumerate(op.steps):
        later_steps = list(takewhile(lambda step: not isinstance(step, Best), op.steps[index + 1 :]))
        if isinstance(samples, Samples) and samples.n > 1 and later_steps and not any(map(_may_vary, later_steps)):
            yield Problem(
                f"steps.{index}",
                f"The {samples.n} samples come out equal: no step after Samples({samples.n}) draws at random. Give its "
                "model's step a temperature above 0, for example temperature=0.7, or take Samples out.",
            )


def _may_vary(op: Operator[Any, Any]) -> bool:
    """Return whether two samples may differ after this step. A user's own step may do anything with `sample`."""
    temperatures = [getattr(op, "temperature", 0.0)] if hasattr(op, "llm") else []
    if isinstance(op, Vary):
        temperatures += [value for name, values in op.ranges if name == "temperature" for value in values]
    own = not type(op).__module__.startswith("spolia.")
    return own or max(temperatures, default=0.0) > 0 or any(_may_vary(inner) for _, inner in op.inner())


def _changes_nothing(op: Operator[Any, Any]) -> bool:
    if isinstance(op, Then):
        return all(_changes_nothing(step) for step in op.steps)
    return isinstance(op, Identity)

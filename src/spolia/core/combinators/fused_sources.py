"""Sources of rankings where candidates of one place are fused by name."""

from collections.abc import Iterator
from typing import Any

from spolia.core.combinators.choice import Choice
from spolia.core.combinators.identity import Identity
from spolia.core.operator import Operator, Then, Vary
from spolia.core.sweepable import Rearrangement


def fused_sources(flow: Operator[Any, Any]) -> frozenset[str]:
    """Return the sources that any fusion of a flow, or of a space of flows, has a weight for."""
    return frozenset(name for step in _walk_steps(flow) for name in getattr(step, "fuses", ()))


def with_fused_source(
    option: Operator[Any, Any], choice: Choice[Any, Any], fused: frozenset[str]
) -> Operator[Any, Any]:
    """Give an option without a weight of its own the first source of the choice that has one, if its source is its
    class's default: `Choice(BM25(group), TFIDF(group))` takes one weight."""
    source_step = _source_step(option)
    if not fused or source_step is None:
        return option
    own_source = source_step.source  # type: ignore[attr-defined]
    if own_source in fused or own_source != _default_source(source_step):
        return option
    sources = (getattr(_source_step(candidate), "source", None) for candidate in choice.options)
    fused_source = next((candidate for candidate in sources if candidate in fused), None)
    return option if fused_source is None else _set_source(option, fused_source)


def _walk_steps(op: Operator[Any, Any]) -> Iterator[Operator[Any, Any]]:
    yield op
    if isinstance(op, Vary):
        for name, values in op.ranges:
            yield from (op.body.but(**{name: value}) for value in values)
    for _, inner in op.inner():
        yield from _walk_steps(inner)


def _keeps_source(op: Operator[Any, Any]) -> bool:
    return isinstance(op, Identity) or (isinstance(op, Rearrangement) and type(op).apply is Rearrangement.apply)


def _source_step(op: Operator[Any, Any]) -> Operator[Any, Any] | None:
    """Return the step whose field `source` names the ranking; None if no step has that field."""
    if isinstance(op, Then):
        return next((_source_step(step) for step in reversed(op.steps) if not _keeps_source(step)), None)
    if isinstance(op, Vary):
        return _source_step(op.body)
    return op if isinstance(getattr(op, "source", None), str) else None


def _default_source(op: Operator[Any, Any]) -> object:
    return getattr(type(op), "source", None)


def _set_source(op: Operator[Any, Any], source: str) -> Operator[Any, Any]:
    if not isinstance(op, Then):
        return op.but(source=source)
    index = max(index for index, step in enumerate(op.steps) if not _keeps_source(step))
    return op.from_fields({"steps": (*op.steps[:index], _set_source(op.steps[index], source), *op.steps[index + 1 :])})

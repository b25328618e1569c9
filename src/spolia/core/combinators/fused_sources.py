"""What rankings are called where candidates of one place are fused by name."""

from collections.abc import Iterator
from typing import Any

from spolia.core.combinators.choice import Choice
from spolia.core.combinators.identity import Identity
from spolia.core.operator import Operator, Then, Vary
from spolia.core.sweepable import Rearrangement


def fused_sources(flow: Operator[Any, Any]) -> frozenset[str]:
    """The sources that any fusion of a flow, or of a space of flows, has a weight for."""
    return frozenset(name for one in _every(flow) for name in getattr(one, "fuses", ()))


def as_weighed(option: Operator[Any, Any], choice: Choice[Any, Any], fused: frozenset[str]) -> Operator[Any, Any]:
    """An option of a choice under the source of the first one that fusions have a weight for, where they have none for
    its own, which is the default of its class: `Choice(BM25(group), TFIDF(group))` takes one weight.
    """
    named = _named(option)
    if not fused or named is None or (mine := named.source) in fused or mine != _default(named):  # type: ignore[attr-defined]
        return option
    others = (getattr(_named(other), "source", None) for other in choice.options)
    theirs = next((other for other in others if other in fused), None)
    return option if theirs is None else _renamed(option, theirs)


def _every(op: Operator[Any, Any]) -> Iterator[Operator[Any, Any]]:
    yield op
    if isinstance(op, Vary):
        for name, values in op.ranges:
            yield from (op.body.but(**{name: value}) for value in values)
    for _, inner in op.inner():
        yield from _every(inner)


def _keeps_source(op: Operator[Any, Any]) -> bool:
    return isinstance(op, Identity) or (isinstance(op, Rearrangement) and type(op).apply is Rearrangement.apply)


def _named(op: Operator[Any, Any]) -> Operator[Any, Any] | None:
    """The step that gives the ranking its source; None where no field of a step says it."""
    if isinstance(op, Then):
        return next((_named(step) for step in reversed(op.steps) if not _keeps_source(step)), None)
    if isinstance(op, Vary):
        return _named(op.body)
    return op if isinstance(getattr(op, "source", None), str) else None


def _default(op: Operator[Any, Any]) -> object:
    return getattr(type(op), "source", None)


def _renamed(op: Operator[Any, Any], source: str) -> Operator[Any, Any]:
    if not isinstance(op, Then):
        return op.but(source=source)
    at = max(at for at, step in enumerate(op.steps) if not _keeps_source(step))
    return op.made({"steps": (*op.steps[:at], _renamed(op.steps[at], source), *op.steps[at + 1 :])})

"""Every operator, address and value that Spolia defines, found by walking its modules."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, get_args, get_type_hints

import pytest

import spolia
from spolia.core.function import Function
from spolia.core.operator import Operator
from spolia.types import Value

T = TypeVar("T")
APART = ("spolia.__main__", "spolia.testing", "spolia.cli", "spolia.training")
HOLDS_GOLD = "spolia.evaluation.simulation"
"""Its reader knows the answers: no flow file names it."""


def few(cases: Iterable[T], step: int = 10) -> list[Any]:
    """Cases that the same code decides: `make check` runs every tenth, `make test` all of them."""
    return [
        case if index % step == 0 else pytest.param(case, marks=pytest.mark.slow) for index, case in enumerate(cases)
    ]


@cache
def modules() -> tuple[str, ...]:
    """Names of all modules that can be imported here."""
    names = []
    for info in pkgutil.walk_packages(spolia.__path__, "spolia."):
        if not info.name.startswith(APART):
            try:
                import_module(info.name)
            except ImportError as error:
                if (error.name or "spolia").partition(".")[0] == "spolia":
                    raise
                continue
            names.append(info.name)
    return tuple(names)


def classes(base: Any) -> list[Any]:
    """Public concrete classes below a base, in the order of their names."""
    modules()
    kinds = {cls for cls in _subclasses_below(base) if cls.__module__.partition(".")[0] == "spolia"}
    public = [cls for cls in kinds if not inspect.isabstract(cls) and not cls.__qualname__.startswith("_")]
    excluded = (*APART, HOLDS_GOLD)
    listed = [cls for cls in public if "<locals>" not in cls.__qualname__ and not cls.__module__.startswith(excluded)]
    return sorted(listed, key=lambda cls: (cls.__qualname__, cls.__module__))


def _subclasses_below(base: type) -> Iterator[type]:
    kinds: list[type] = base.__subclasses__()
    for cls in kinds:
        yield cls
        yield from _subclasses_below(cls)


def operators() -> list[type[Operator[Any, Any]]]:
    """Every operator except plain functions."""
    return [cls for cls in classes(Operator) if not issubclass(cls, Function)]


@cache
def written_in_flows() -> frozenset[type]:
    """What a flow file may name: operators, addresses, and the values that their fields hold."""
    kinds: set[type] = set(operators())
    open_ = [*kinds, *(cls for cls in classes(Value) if _is_address(cls))]
    while open_:
        cls = open_.pop()
        kinds.add(cls)
        for kind in _kinds_held(cls):
            open_ += [part for part in (kind, *_subclasses_below(kind)) if part in values() and part not in kinds]
    return frozenset(kinds)


@cache
def values() -> frozenset[type]:
    return frozenset(filter(is_dataclass, classes(Value)))


def _is_address(cls: type) -> bool:
    return is_dataclass(cls) and hasattr(cls, "scoped") and hasattr(cls, "fingerprint")


def _kinds_held(cls: Any) -> Iterator[type]:
    hints = get_type_hints(cls)
    for f in fields(cls):
        if f.compare:
            yield from _named_kinds(hints[f.name])


def _named_kinds(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and issubclass(hint, Value):
        yield hint
    origin = getattr(hint, "__origin__", None)
    if isinstance(origin, type) and issubclass(origin, Value):
        yield origin
    for arg in get_args(hint):
        yield from _named_kinds(arg)

"""A hash of what a function does; `spolia.core.fingerprint` says what is looked at."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from importlib import import_module
from importlib.util import resolve_name
from types import FunctionType, ModuleType
from typing import Any

from spolia.core.fingerprint.definition import definition_digest
from spolia.core.fingerprint.packages import is_own, version
from spolia.core.fingerprint.source_text import (
    Import,
    NameChain,
    Named,
    beside_functions,
    changed,
    compiled,
    functions_of,
    tree_of,
    written,
)
from spolia.types import digest_of

MOST = 1_000  # functions and classes that are looked at
LARGEST = 100_000  # items of constants that are looked at; of larger ones how many there are
DEEPEST = 20
FILLING = frozenset(("add", "append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"))

Told = Any  # what has a content hash: scalars, tuples and lists


def code_digest(function: Callable[..., Any], source: str = "") -> bytes:
    """A hash of what a function or class does; `source` of the function if it was read before (`source_of`)."""
    if isinstance(function, type) and function.__module__.partition(".")[0] == "spolia":
        return definition_digest(function)
    return _Reading(function, source).digest()


def source_of(function: Callable[..., Any]) -> str:
    """A function as it is written, in one form, without decorators, comments and docstring; empty where unknown."""
    return written(tree_of(function), decorated=False) if isinstance(function, FunctionType) else ""


class _Reading:
    """One look at a function and all that it refers to."""

    def __init__(self, function: Callable[..., Any], source: str) -> None:
        self.first, self.source = function, source
        self.home = getattr(function, "__module__", None) or ""
        self.found: list[Any] = []
        self.known: set[int] = set()  # which of them, by identity: nothing else gets it as long as they are here
        self.items = 0

    def digest(self) -> bytes:
        parts = [self.told(self.first)]
        for value in self.found:  # which grows meanwhile
            parts.append(self._class(value) if isinstance(value, type) else self._function(value))
        return digest_of(parts)

    # Values.

    def told(self, value: Any, depth: int = 0) -> Told:
        """What is known of a value; functions and classes of the user's own are put down to be looked at."""
        self.items += 1
        kind = type(value)
        if value is None or kind in (bool, int, float, str, bytes):
            return value
        if depth > DEEPEST or self.items > LARGEST:
            return kind.__qualname__, len(value) if hasattr(kind, "__len__") else 0
        if kind in (tuple, list, dict, set, frozenset):
            return kind.__name__, self._items(value, depth + 1)
        if isinstance(value, (FunctionType, type)):
            return self._put_down(value)
        if isinstance(value, ModuleType):
            return value.__name__, "" if self._is_own(value.__name__) else version(value.__name__)
        return self._instance(value, depth + 1)

    def _items(self, value: Any, depth: int) -> Told:
        if isinstance(value, dict):
            return [(self.told(key, depth), self.told(item, depth)) for key, item in value.items()]
        found = [self.told(item, depth) for item in value]
        return sorted(found, key=digest_of) if isinstance(value, (set, frozenset)) else found

    def _instance(self, value: Any, depth: int) -> Told:
        kind = type(value)
        if isinstance(value, re.Pattern):
            return "pattern", self.told(value.pattern, depth), value.flags
        if isinstance(value, Enum):
            return self.told(kind, depth), value.name
        if isinstance(value, partial):
            return "partial", [self.told(part, depth) for part in (value.func, value.args, value.keywords)]
        if isinstance(function := getattr(kind, "function", None), FunctionType):  # `spolia.core.function.Function`
            return "operator", value.version, self.told(value.arguments, depth), self.told(function, depth)
        if isinstance(wrapped := getattr(value, "__wrapped__", None), FunctionType):  # `functools.cache`
            return self.told(wrapped, depth)
        if isinstance(digest := _digest(value), bytes):
            return digest
        names = [f.name for f in fields(value) if f.compare] if is_dataclass(value) else []
        return self.told(kind, depth), [(name, self.told(getattr(value, name, None), depth)) for name in names]

    def _put_down(self, value: FunctionType | type) -> Told:
        module = value.__module__ or ""
        name = f"{module}:{value.__qualname__}"
        if not self._is_own(module):
            return name, version(module)
        if id(value) not in self.known and len(self.found) < MOST:
            self.known.add(id(value))
            self.found.append(value)
        return name

    def _is_own(self, module: str) -> bool:
        return is_own(module, self.home)

    # Functions and classes.

    def _function(self, function: FunctionType) -> Told:
        tree, code = tree_of(function), function.__code__
        source = self.source if function is self.first and self.source else written(tree)
        return (
            source or compiled(code),
            self.told((function.__defaults__, function.__kwdefaults__)),
            self._closed(function),
            self._named(function, changed(tree)),
        )

    def _class(self, cls: type) -> Told:
        tree, functions = tree_of(cls), list(functions_of(cls))
        names, own = getattr(sys.modules.get(cls.__module__), "__dict__", {}), changed(tree)
        return (
            written(tree) or [compiled(function.__code__) for function in functions],
            [self.told(base) for base in cls.__bases__],
            self._resolved(names, beside_functions(tree), own),
            [(self._named(function, own), self._closed(function)) for function in functions],
        )

    def _closed(self, function: FunctionType) -> Told:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        return [(name, self._held(cell)) for name, cell in cells]

    def _held(self, cell: Any) -> Told:
        try:
            return self.told(cell.cell_contents)
        except ValueError:  # the name is bound later
            return None

    # Names.

    def _named(self, function: FunctionType, state: set[str]) -> Told:
        named, names = Named(state=state).read(function.__code__), function.__globals__
        found = self._resolved(names, named.chains, named.state)
        return found, [self._imported(names, one) for one in sorted(named.imports)]

    def _resolved(self, names: Mapping[str, Any], chains: Iterable[NameChain], state: set[str]) -> Told:
        """What names stand for, but for what code changes itself, and what says where it is."""
        there = [chain for chain in sorted(chains) if chain[0] in names]
        return [
            (chain, self._value(names[chain[0]], chain[1:]))
            for chain in there
            if chain[0] not in state and not chain[0].startswith("__")
        ]

    def _value(self, value: Any, attributes: NameChain) -> Told:
        for name in attributes:
            if isinstance(value, (list, dict, set)) and name in FILLING:
                return ""
            if not isinstance(value, ModuleType) or not self._is_own(value.__name__):
                break
            value = getattr(value, name, None)
        return self.told(value)

    def _imported(self, names: Mapping[str, Any], one: Import) -> Told:
        level, module, wanted = one
        package = names.get("__package__") or str(names.get("__name__", "")).rpartition(".")[0]
        try:
            full = resolve_name("." * level + module, package) if level else module
            if not self._is_own(full):
                return full, version(full)
            found = import_module(full)
        except (ImportError, ValueError):
            return module
        if not wanted:
            return full, written(tree_of(found))
        return full, [(name, self.told(getattr(found, name, None))) for name in sorted(wanted)]


def _digest(value: Any) -> object:
    """The content hash of a value or operator that has one."""
    try:
        return getattr(value, "digest", None)
    except TypeError:
        return None

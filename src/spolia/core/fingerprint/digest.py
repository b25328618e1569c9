"""Hash of what a function does; see `spolia.core.fingerprint`."""

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
    CodeNames,
    Import,
    NameChain,
    bytecode_form,
    class_level_names,
    functions_of,
    mutated_names,
    normalized_source,
    tree_of,
)
from spolia.types import digest_of

MAX_DEFINITIONS = 1_000  # functions and classes that are looked at
MAX_ITEMS = 100_000  # items of constants that are looked at; of larger ones how many there are
MAX_DEPTH = 20
FILLING = frozenset(("add", "append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"))

Digestible = Any  # what has a content hash: scalars, tuples and lists


def code_digest(function: Callable[..., Any], source: str = "") -> bytes:
    """Hash what a function or class does; `source` is the function's, if it was read before (`source_of`)."""
    if isinstance(function, type) and function.__module__.partition(".")[0] == "spolia":
        return definition_digest(function)
    return _CodeScan(function, source).digest()


def source_of(function: Callable[..., Any]) -> str:
    """Return a function's source in one form, without decorators, comments and docstring; empty if unknown."""
    return normalized_source(tree_of(function), decorated=False) if isinstance(function, FunctionType) else ""


class _CodeScan:
    """Scan of a function and all that it refers to."""

    def __init__(self, function: Callable[..., Any], source: str) -> None:
        self.first, self.source = function, source
        self.home = getattr(function, "__module__", None) or ""
        self.definitions: list[Any] = []
        self.known_ids: set[int] = set()  # which of them, by identity: nothing else gets it as long as they are here
        self.items = 0

    def digest(self) -> bytes:
        parts = [self.describe(self.first)]
        for value in self.definitions:  # which grows meanwhile
            parts.append(self._class(value) if isinstance(value, type) else self._function(value))
        return digest_of(parts)

    # Values.

    def describe(self, value: Any, depth: int = 0) -> Digestible:
        """Describe a value by what can be hashed; queue functions and classes of the user's own."""
        self.items += 1
        kind = type(value)
        if value is None or kind in (bool, int, float, str, bytes):
            return value
        if depth > MAX_DEPTH or self.items > MAX_ITEMS:
            return kind.__qualname__, len(value) if hasattr(kind, "__len__") else 0
        if kind in (tuple, list, dict, set, frozenset):
            return kind.__name__, self._items(value, depth + 1)
        if isinstance(value, (FunctionType, type)):
            return self._queue(value)
        if isinstance(value, ModuleType):
            return value.__name__, "" if self._is_own(value.__name__) else version(value.__name__)
        return self._instance(value, depth + 1)

    def _items(self, value: Any, depth: int) -> Digestible:
        if isinstance(value, dict):
            return [(self.describe(key, depth), self.describe(item, depth)) for key, item in value.items()]
        described = [self.describe(item, depth) for item in value]
        # a set has no order
        return sorted(described, key=digest_of) if isinstance(value, (set, frozenset)) else described

    def _instance(self, value: Any, depth: int) -> Digestible:
        kind = type(value)
        if isinstance(value, re.Pattern):
            return "pattern", self.describe(value.pattern, depth), value.flags
        if isinstance(value, Enum):
            return self.describe(kind, depth), value.name
        if isinstance(value, partial):
            return "partial", [self.describe(part, depth) for part in (value.func, value.args, value.keywords)]
        if isinstance(function := getattr(kind, "function", None), FunctionType):  # `spolia.core.function.Function`
            return "operator", value.version, self.describe(value.arguments, depth), self.describe(function, depth)
        if isinstance(wrapped := getattr(value, "__wrapped__", None), FunctionType):  # `functools.cache`
            return self.describe(wrapped, depth)
        if isinstance(digest := _digest(value), bytes):
            return digest
        names = [f.name for f in fields(value) if f.compare] if is_dataclass(value) else []
        return self.describe(kind, depth), [(name, self.describe(getattr(value, name, None), depth)) for name in names]

    def _queue(self, value: FunctionType | type) -> Digestible:
        module = value.__module__ or ""
        name = f"{module}:{value.__qualname__}"
        if not self._is_own(module):
            return name, version(module)
        if id(value) not in self.known_ids and len(self.definitions) < MAX_DEFINITIONS:
            self.known_ids.add(id(value))
            self.definitions.append(value)
        return name

    def _is_own(self, module: str) -> bool:
        return is_own(module, self.home)

    # Functions and classes.

    def _function(self, function: FunctionType) -> Digestible:
        tree, code = tree_of(function), function.__code__
        source = self.source if function is self.first and self.source else normalized_source(tree)
        return (
            source or bytecode_form(code),
            self.describe((function.__defaults__, function.__kwdefaults__)),
            self._closure_values(function),
            self._global_values(function, mutated_names(tree)),
        )

    def _class(self, cls: type) -> Digestible:
        tree, functions = tree_of(cls), list(functions_of(cls))
        names, own = getattr(sys.modules.get(cls.__module__), "__dict__", {}), mutated_names(tree)
        return (
            normalized_source(tree) or [bytecode_form(function.__code__) for function in functions],
            [self.describe(base) for base in cls.__bases__],
            self._resolve(names, class_level_names(tree), own),
            [(self._global_values(function, own), self._closure_values(function)) for function in functions],
        )

    def _closure_values(self, function: FunctionType) -> Digestible:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        return [(name, self._cell_value(cell)) for name, cell in cells]

    def _cell_value(self, cell: Any) -> Digestible:
        try:
            return self.describe(cell.cell_contents)
        except ValueError:  # the name is bound later
            return None

    # Names.

    def _global_values(self, function: FunctionType, state: set[str]) -> Digestible:
        code_names, names = CodeNames(state=state).read(function.__code__), function.__globals__
        values = self._resolve(names, code_names.chains, code_names.state)
        return values, [self._imported_values(names, entry) for entry in sorted(code_names.imports)]

    def _resolve(self, names: Mapping[str, Any], chains: Iterable[NameChain], state: set[str]) -> Digestible:
        """Return the values of names, without those that the code changes itself and those like `__file__`."""
        bound_chains = [chain for chain in sorted(chains) if chain[0] in names]
        return [
            (chain, self._value(names[chain[0]], chain[1:]))
            for chain in bound_chains
            if chain[0] not in state and not chain[0].startswith("__")
        ]

    def _value(self, value: Any, attributes: NameChain) -> Digestible:
        for name in attributes:
            if isinstance(value, (list, dict, set)) and name in FILLING:
                return ""
            if not isinstance(value, ModuleType) or not self._is_own(value.__name__):
                break
            value = getattr(value, name, None)
        return self.describe(value)

    def _imported_values(self, names: Mapping[str, Any], entry: Import) -> Digestible:
        level, module, attributes = entry
        package = names.get("__package__") or str(names.get("__name__", "")).rpartition(".")[0]
        try:
            full = resolve_name("." * level + module, package) if level else module
            if not self._is_own(full):
                return full, version(full)
            imported_module = import_module(full)
        except (ImportError, ValueError):
            return module
        if not attributes:
            return full, normalized_source(tree_of(imported_module))
        return full, [(name, self.describe(getattr(imported_module, name, None))) for name in sorted(attributes)]


def _digest(value: Any) -> object:
    """Return the content hash of a value or operator, None if it has none."""
    try:
        return getattr(value, "digest", None)
    except TypeError:
        return None

"""References of code: stores and models that are not in fields, and whether code can call a language model at all."""

import builtins
import functools
import sys
from abc import ABC
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType, UnionType
from typing import Any, Generic, Literal, Union, get_args, get_origin, get_type_hints

from spolia.core.fingerprint.packages import is_own
from spolia.core.fingerprint.source_text import CodeNames, functions_of
from spolia.types import Addressed

MAX_VALUES = 1_000  # values that are looked at

PURE = frozenset((
    "bisect", "builtins", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools",
    "hashlib", "heapq", "html", "itertools", "json", "math", "numpy", "operator", "random", "re", "statistics",
    "string", "textwrap", "time", "typing", "unicodedata",
))  # fmt: skip
"""Packages of which nothing calls a language model, unless it is given what does."""
CONSTANT = (
    "spolia.types.", "spolia.errors.", "spolia.filters.", "spolia.stores.definition.Part.",
    "spolia.stores.definition.Piece.", "datetime.", "decimal.", "fractions.", "re.",
)  # fmt: skip
"""Types of values that hold nothing else than values: all of a package, or one."""
OPEN = frozenset((
    "__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "locals", "__globals__", "__builtins__",
    "__subclasses__", "__closure__",
))  # fmt: skip
"""Names by which code can reach what it does not name."""
CONTAINERS = (tuple, list, dict, set, frozenset)
"""Types that are opaque until their content is declared or seen."""
_BUILTINS = frozenset(dir(builtins))

CodeReference = tuple[str, Any]  # how the code writes it, and what it is: an address, or a model without one


def references(cls: type) -> list[CodeReference]:
    """Return stores and models that a class's functions reach without getting them from a field."""
    return list(_Search(cls.__module__).search_class(cls, with_defaults=False))


class _Search:
    def __init__(self, home: str) -> None:
        self.home = home
        self.known_values: dict[int, Any] = {}  # by identity; holding them keeps the identities

    def search_class(self, cls: type, *, with_defaults: bool = True) -> Iterator[CodeReference]:
        """Yield what the functions and attributes of a class reach, perhaps with the defaults of its fields."""
        for base in cls.__mro__:
            if is_own(base.__module__, self.home):
                for function in functions_of(base):
                    yield from self.search_value(function.__qualname__, function)
                declared = () if with_defaults else getattr(cls, "__dataclass_fields__", ())
                own = {name: value for name, value in vars(base).items() if name not in declared}
                yield from self._items((name, value) for name, value in own.items() if not name.startswith("__"))

    def search_value(self, name: str, value: Any) -> Iterator[CodeReference]:
        """Yield a value, if it is a store or model, and all that it reaches."""
        if id(value) in self.known_values or len(self.known_values) >= MAX_VALUES:
            return
        self.known_values[id(value)] = value
        if isinstance(value, FunctionType):
            if is_own(value.__module__ or "", self.home):
                yield from self._search_function(value)
        elif isinstance(value, type):
            yield from self.search_class(value)
        elif isinstance(value, MethodType):
            yield from self._items(((name, value.__self__), (name, value.__func__)))
        elif isinstance(value, partial):
            yield from self._items((name, part) for part in (value.func, value.args, value.keywords))
        elif isinstance(value, Mapping):
            yield from self._items((f"{name}[{key!r}]", item) for key, item in list(value.items()))
        elif isinstance(value, (tuple, list, set, frozenset)):
            yield from self._items((name, item) for item in list(value))
        elif not isinstance(value, ModuleType):
            yield from self._search_instance(name, value)

    def _items(self, pairs: Iterable[tuple[str, Any]]) -> Iterator[CodeReference]:
        for name, value in pairs:
            yield from self.search_value(name, value)

    def _search_instance(self, name: str, value: Any) -> Iterator[CodeReference]:
        resources = getattr(value, "resources", None) if hasattr(value, "apply_batch") else None  # an operator
        if isinstance(resources, tuple):
            yield from ((name, resource) for resource in resources)
        elif isinstance(value, Addressed) or callable(getattr(value, "generate", None)):  # a model, by its method
            yield name, value
            return
        if (wrapped := getattr(value, "__wrapped__", None)) is not None:
            yield from self.search_value(name, wrapped)
        if is_own(type(value).__module__, self.home):
            yield from self.search_value(name, type(value))
            yield from self._items((f"{name}.{part}", item) for part, item in getattr(value, "__dict__", {}).items())

    def _search_function(self, function: FunctionType) -> Iterator[CodeReference]:
        code_names, names = CodeNames().read(function.__code__), function.__globals__
        for chain in sorted(code_names.chains):
            if chain[0] in names:
                yield from self.search_value(*_resolve_chain(chain[0], names[chain[0]], chain[1:]))
        for cell_name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                yield from self.search_value(cell_name, cell.cell_contents)
            except ValueError:  # the name is bound later
                continue
        for _, module, attributes in code_names.imports:
            imported_module = sys.modules.get(module)  # as far as it is imported: to look for models must run no code
            yield from self._items((name, getattr(imported_module, name, None)) for name in attributes)
        yield from self._items(
            (f"a default of {function.__name__}", default) for default in function.__defaults__ or ()
        )
        yield from self._items((function.__kwdefaults__ or {}).items())


def _resolve_chain(name: str, value: Any, attributes: tuple[str, ...]) -> tuple[str, Any]:
    """Follow a chain of attributes as far as nothing has to be computed."""
    for attribute in attributes:
        if isinstance(value, ModuleType):
            inner = getattr(value, attribute, None)
        elif attribute in getattr(value, "__dict__", {}) and not isinstance(value, type):
            inner = value.__dict__[attribute]
        else:
            break
        name, value = f"{name}.{attribute}", inner
    return name, value


def calls_no_model(cls: type, input_type: Any, known_base: type) -> bool:
    """Return whether the code of a class, given values of a type, provably calls no model; attributes of `known_base`
    are known."""
    proof = _Proof(cls.__module__)
    bases = [vars(base) for base in cls.__mro__ if is_own(base.__module__, cls.__module__)]
    own = [
        (name, value) for base in bases for name, value in base.items() if not name.startswith(("__", "_abc", "calls"))
    ]
    return proof.holds_for_type(input_type) and all(
        proof.holds_for_part(value) for name, value in own if is_code(value) or not hasattr(known_base, name)
    )


def is_code(value: Any) -> bool:
    """Return whether an attribute of a class is a function or property of it."""
    return isinstance(value, (FunctionType, staticmethod, classmethod, property)) or hasattr(value, "compute")


def is_constant(value: Any) -> bool:
    """Return whether a value holds scalars, tuples and values of Spolia only."""
    if isinstance(value, (tuple, frozenset)):
        return all(map(is_constant, value))
    plain = value is None or isinstance(value, (bool, int, float, str, bytes))
    return plain or _is_value(type(value))


class _Proof:
    """Proof that code calls no language model: what is unknown could call one; recursion is assumed to hold."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.assumed: list[Any] = []

    def holds_for_part(self, value: Any) -> bool:
        if isinstance(value, property):
            return all(map(self.holds_for, (value.fget, value.fset)))
        return self.holds_for(getattr(value, "__func__", getattr(value, "compute", value)))

    def holds_for(self, value: Any) -> bool:
        """Return whether a value, named in code, calls no language model."""
        if is_constant(value) or any(value is assumed for assumed in self.assumed):
            return True
        if isinstance(value, (tuple, frozenset)):
            return all(map(self.holds_for, value))
        if isinstance(value, FunctionType):
            is_wrapper = value.__closure__ is not None and value.__module__ == functools.__name__  # of what is wrapped
            own = is_own(value.__module__ or "", self.home)
            return (_is_pure(value.__module__) and not is_wrapper) or (own and self._holds_for_function(value))
        if isinstance(value, BuiltinFunctionType):
            return _is_pure(value.__module__) and value.__name__ not in OPEN
        return self.holds_for_type(type(value) if isinstance(value, Enum) else value)

    def holds_for_type(self, kind: Any) -> bool:
        """Return whether the methods of a type, and the values in its fields, call no language model."""
        if args := get_args(kind):
            origin_holds = get_origin(kind) in (Union, UnionType, *CONTAINERS) or self.holds_for_type(get_origin(kind))
            return get_origin(kind) is Literal or (origin_holds and all(map(self.holds_for_type, args)))
        if kind is None or kind is Ellipsis or any(kind is member for member in self.assumed):
            return True
        if not isinstance(kind, type) or kind in (object, type, Any, *CONTAINERS):
            return False
        if kind.__module__ in ("collections.abc", "typing", "abc"):
            return kind in (Sequence, Mapping, Set, Generic, ABC)
        if _is_pure(kind.__module__) or _is_value(kind):
            return True
        if not is_own(kind.__module__, self.home):
            return False
        self.assumed.append(kind)
        try:
            hints = get_type_hints(kind)
        except (NameError, TypeError):
            return False
        bases = [base for base in kind.__bases__ if base is not object]
        methods = [function for function in functions_of(kind) if not _is_generated(function)]
        values = [member.value for member in kind] if issubclass(kind, Enum) else _class_values(kind)
        return all(map(self.holds_for_type, (*hints.values(), *bases))) and all(
            map(self.holds_for, (*methods, *values))
        )

    def _holds_for_function(self, function: FunctionType) -> bool:
        self.assumed.append(function)
        code_names, names = CodeNames().read(function.__code__), function.__globals__
        try:
            closure_values = [cell.cell_contents for cell in function.__closure__ or ()]
        except ValueError:  # a name that is bound later
            return False
        bound_values = (*closure_values, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        return (
            not code_names.state
            and not OPEN & _attributes(function.__code__)
            and all(not level and _is_pure(module) for level, module, _ in code_names.imports)
            and all(map(self.holds_for, bound_values))
            and all(self._holds_for_chain(chain, names) for chain in code_names.chains)
        )

    def _holds_for_chain(self, chain: tuple[str, ...], names: Mapping[str, Any]) -> bool:
        if chain[0] not in names:
            return chain[0] in _BUILTINS
        value = names[chain[0]]
        if value is None:  # it is given later
            return False
        for attribute in chain[1:]:
            if not isinstance(value, ModuleType):
                break
            if not _is_pure(value.__name__):
                return False
            value = getattr(value, attribute, None)
            if not isinstance(value, ModuleType):
                return True
        return self.holds_for(value)


def _is_pure(module: str | None) -> bool:
    return module is not None and (module.partition(".")[0] in PURE or f"{module}.".startswith(CONSTANT))


def _is_value(kind: type) -> bool:
    return f"{kind.__module__}.{kind.__qualname__}.".startswith(CONSTANT)


def _class_values(kind: type) -> list[Any]:
    """Return the attributes of a class without its functions and what Python puts there."""
    own = ((name, value) for name, value in vars(kind).items() if not name.startswith(("__", "_abc", "_field")))
    return [value for _, value in own if not is_code(value) and not isinstance(value, MemberDescriptorType)]


def _attributes(code: CodeType) -> set[str]:
    """Return all names in a piece of code, and in the functions in it."""
    inner = [_attributes(const) for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*inner)


def _is_generated(function: FunctionType) -> bool:
    """Return whether `dataclasses` has written a method."""
    return function.__name__.startswith("__") and function.__code__.co_filename == "<string>"

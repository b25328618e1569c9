"""Shapes: how the values of one declared type look as plain data."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from spolia import types
from spolia.core.operator import Operator
from spolia.deferred import difflib
from spolia.errors import CodecError
from spolia.types import Value

Plain: TypeAlias = Any


class Shape(Protocol):
    """Encoder and decoder of the values of one declared type."""

    def encode(self, value: Any, writing: "EncodeContext") -> Plain: ...
    def decode(self, plain: Plain, reading: "DecodeContext") -> Any: ...

    @property
    def words(self) -> str:
        """Return what belongs there, for messages: `a whole number`."""


MAX_EXAMPLES = 4
"""Names that an error lists at most, of those that might be meant."""


def describe_plain(plain: object) -> str:
    """Describe plain data in a few words: `the text 'abc'`, `a list of 2`."""
    if plain is None:
        return "nothing"
    if isinstance(plain, bool):
        return str(plain).lower()
    if isinstance(plain, str):
        return f"the text {plain if len(plain) <= 60 else plain[:57] + '...'!r}"
    if isinstance(plain, (int, float)):
        return f"the number {plain!r:.60}"
    if isinstance(plain, (list, tuple)):
        return f"a {type(plain).__name__} of {len(plain)}"
    if isinstance(plain, Mapping):
        keys = ", ".join(f"{key!s:.40}" for key in list(plain)[:5])
        return f"a mapping with {keys}" if keys else "an empty mapping"
    return f"{type(plain).__name__} {plain!r:.80}"


def mismatch_error(words: str, plain: object, hint: str = "") -> CodecError:
    """Return the error for plain data of another shape."""
    return CodecError(f"Here belongs {words}; there was {describe_plain(plain)}.{' ' + hint if hint else ''}")


def type_id(cls: type) -> str:
    """Return the id of a class in plain data: its name, prefixed by its package outside Spolia."""
    if issubclass(cls, Operator):
        return cls.type_id()
    package = cls.__module__.partition(".")[0]
    return cls.__qualname__ if package == "spolia" else f"{package}:{cls.__qualname__}"


class ImportedClasses(Mapping[str, type]):
    """Imported classes of values and operators, by id; looking one up imports nothing."""

    def __getitem__(self, name: str) -> type:
        nouns = getattr(types, name, None)
        if isinstance(nouns, type) and issubclass(nouns, Value):
            return nouns
        # The end of each id is the class's name, which costs a tenth to compare: thousands of classes may be imported.
        classes = [cls for cls in _descendants() if name.endswith(cls.__qualname__) and type_id(cls) == name]
        if not classes:
            raise KeyError(name)
        if len(modules := sorted({cls.__module__ for cls in classes})) > 1:
            raise CodecError(f"{name} is a class in {' and in '.join(modules)}. Give one of them another name.")
        return classes[-1]  # of the same module: the one that was defined last, as in a notebook

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(map(type_id, _descendants())))

    def __len__(self) -> int:
        return len(list(iter(self)))


def _descendants() -> Iterator[type]:
    stack: list[type] = [Value, Operator]
    while stack:
        subclasses: list[type] = stack.pop().__subclasses__()
        yield from subclasses
        stack.extend(subclasses)


IMPORTED = ImportedClasses()


class ClassPlace(Protocol):
    """Place in plain data that takes values of some classes."""

    @property
    def kind(self) -> str: ...

    @property
    def words(self) -> str: ...

    def accepts(self, value: Any) -> bool: ...

    def takes(self, cls: Any) -> bool: ...

    def names(self, cls: Any) -> bool: ...


@dataclass
class EncodeContext:
    """Plans of classes, and the names under which objects are written instead of their content."""

    plan: Callable[[type], Any]
    objects: Mapping[str, Any]

    def name_of(self, value: object) -> str | None:
        for name, candidate in self.objects.items():
            if candidate is value or (type(candidate) is type(value) and candidate == value):
                return name
        return None


@dataclass
class DecodeContext:
    """Classes that plain data may name and objects that they may use."""

    plan: Callable[[type], Any]
    classes: Mapping[str, Any]
    objects: Mapping[str, Any]
    accept: Callable[[Any], None] | None = None
    class_cache: dict[str, Any] = field(default_factory=dict)  # to ask `classes` may import a module

    def find_class(self, name: str) -> Any | None:
        """Return the class (or the operator made of a function) with this id, None if unknown."""
        if name not in self.class_cache:
            self.class_cache[name] = self.classes.get(name)
        return self.class_cache[name]

    def find_object(self, name: object) -> Any:
        """Return the object that `{use: name}` refers to."""
        if not isinstance(name, str):
            raise mismatch_error("the name of something given to load", name, "Write {use: name}.")
        if name in self.objects:
            return self.objects[name]
        names = ", ".join(self.objects) or "nothing"
        near = nearest_name(name, self.objects)
        raise CodecError(
            f"Unknown name {name!r}. Available: {names}."
            + (f" Write {{use: {near}}}." if near else f" Give it: load(..., objects={{{name!r}: ...}}).")
        )

    def unknown_class_error(self, name: str, place: ClassPlace) -> CodecError:
        """Return the error for an unknown class id, with the nearest one that the place takes."""
        if name.lower().endswith((".yaml", ".yml", ".json")) and place.kind == "operator":
            return CodecError(f"There is no operator {name!r}. For the flow of a file write {{use: {name}}}.")
        package, _, rest = name.partition(":")
        nouns = vars(types) if place.kind == "operator" else {}
        ids = [candidate for candidate in self.classes if candidate not in nouns and bool(rest) is (":" in candidate)]
        fitting = [candidate for candidate, value in self.objects.items() if place.accepts(value)]
        near = next((candidate for candidate in self.classes if candidate.endswith(f":{name}")), None) or nearest_name(
            name,
            [*ids, *fitting],
            lambda known: known in fitting or ":" in known or place.takes(self.find_class(known)),
        )
        if rest and near is None:
            return CodecError(
                f"Unknown operator {name!r}: no installed package {package!r} offers it as an operator. "
                "Install the package, or pass the operator itself: load(..., operators=(it,))."
            )
        own = "" if near and ":" in near else "If it is your own, load(..., operators=(it,))."
        advice = f"Did you mean {near}? {own}".rstrip() if near else own
        if near in fitting or (fitting and near is None and place.kind == "value"):
            advice = f"Write {{use: {near or fitting[0]}}}."
        return CodecError(f"There is no {place.kind} {name!r}. {advice}")

    def misplaced_error(self, problem: str, place: ClassPlace) -> CodecError:
        """Return the error for a class or object that does not fit, with the objects that do, else classes."""
        fitting = [f"{{use: {name}}}" for name, value in self.objects.items() if place.accepts(value)]
        if not fitting:
            fitting = [name for name in self.classes if ":" not in name and place.names(self.find_class(name))]
        advice = f" Write {' or '.join(fitting[:MAX_EXAMPLES])}." if fitting else ""
        if len(fitting) > MAX_EXAMPLES and place.kind == "operator":
            advice = f" Write one of: {', '.join(fitting)}."
        return CodecError(f"Here belongs {place.words}; {problem}.{advice}")


def nearest_name(name: str, names: Iterable[str], fits: Callable[[str], bool] = lambda _: True) -> str | None:
    """Return the most similar name that fits, None if there is no similar one."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    matches = difflib.get_close_matches(name.lower(), by_lower, 10, 0.55)  # ten, since the nearest ones may not fit
    return next((by_lower[lower] for lower in matches if fits(by_lower[lower])), None)

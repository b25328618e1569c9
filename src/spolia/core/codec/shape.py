"""A shape: how the values of one declared type look as plain data."""

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
    """How the values of one declared type are written and read."""

    def encode(self, value: Any, writing: "EncodeContext") -> Plain: ...
    def decode(self, plain: Plain, reading: "DecodeContext") -> Any: ...

    @property
    def words(self) -> str:
        """What belongs there, for messages: `a whole number`."""


EXAMPLES = 4
"""Names that an error lists at most, of those that might be meant."""


def seen(plain: object) -> str:
    """The value that was found, in a few words: `the text 'abc'`, `a list of 2`."""
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


def wanted(words: str, found: object, hint: str = "") -> CodecError:
    """The error that something else belongs there."""
    return CodecError(f"Here belongs {words}; there was {seen(found)}.{' ' + hint if hint else ''}")


def type_id(cls: type) -> str:
    """How plain data call a class: its name, prefixed by its package outside Spolia."""
    if issubclass(cls, Operator):
        return cls.type_id()
    package = cls.__module__.partition(".")[0]
    return cls.__qualname__ if package == "spolia" else f"{package}:{cls.__qualname__}"


class Imported(Mapping[str, type]):
    """Every class of values and operators that is imported, by id: looking one up imports nothing."""

    def __getitem__(self, name: str) -> type:
        nouns = getattr(types, name, None)
        if isinstance(nouns, type) and issubclass(nouns, Value):
            return nouns
        # The end of each id is the class's name, which costs a tenth to compare: thousands of classes may be imported.
        found = [cls for cls in _descendants() if name.endswith(cls.__qualname__) and type_id(cls) == name]
        if not found:
            raise KeyError(name)
        if len(modules := sorted({cls.__module__ for cls in found})) > 1:
            raise CodecError(f"{name} is a class in {' and in '.join(modules)}. Give one of them another name.")
        return found[-1]  # of the same module: the one that was defined last, as in a notebook

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(map(type_id, _descendants())))

    def __len__(self) -> int:
        return len(list(iter(self)))


def _descendants() -> Iterator[type]:
    stack: list[type] = [Value, Operator]
    while stack:
        below: list[type] = stack.pop().__subclasses__()
        yield from below
        stack.extend(below)


IMPORTED = Imported()


class ClassPlace(Protocol):
    """A place in plain data that takes values of some classes."""

    @property
    def kind(self) -> str: ...

    @property
    def words(self) -> str: ...

    def accepts(self, value: Any) -> bool: ...

    def takes(self, cls: Any) -> bool: ...

    def names(self, cls: Any) -> bool: ...


@dataclass
class EncodeContext:
    """The names under which objects are written instead of what they hold."""

    plan: Callable[[type], Any]
    given: Mapping[str, Any]

    def name_of(self, value: object) -> str | None:
        for name, held in self.given.items():
            if held is value or (type(held) is type(value) and held == value):
                return name
        return None


@dataclass
class DecodeContext:
    """The classes that plain data may name and the objects that they may use."""

    plan: Callable[[type], Any]
    known: Mapping[str, Any]
    given: Mapping[str, Any]
    accept: Callable[[Any], None] | None = None
    found: dict[str, Any] = field(default_factory=dict)

    def named(self, name: str) -> Any | None:
        """The class (or the operator made of a function) of this id, None when it is unknown."""
        if name not in self.found:
            self.found[name] = self.known.get(name)
        return self.found[name]

    def used(self, name: object) -> Any:
        """The object that `{use: name}` means."""
        if not isinstance(name, str):
            raise wanted("the name of something given to load", name, "Write {use: name}.")
        if name in self.given:
            return self.given[name]
        names = ", ".join(self.given) or "nothing"
        near = nearest(name, self.given)
        raise CodecError(
            f"Unknown name {name!r}. Available: {names}."
            + (f" Write {{use: {near}}}." if near else f" Give it: load(..., given={{{name!r}: ...}}).")
        )

    def unknown(self, name: str, place: ClassPlace) -> CodecError:
        """The error that no class has this id, with the nearest of what the place takes."""
        if name.lower().endswith((".yaml", ".yml", ".json")) and place.kind == "operator":
            return CodecError(f"There is no operator {name!r}. For the flow of a file write {{use: {name}}}.")
        package, _, rest = name.partition(":")
        nouns = vars(types) if place.kind == "operator" else {}
        ids = [known for known in self.known if known not in nouns and bool(rest) is (":" in known)]
        given = [known for known, value in self.given.items() if place.accepts(value)]
        near = next((known for known in self.known if known.endswith(f":{name}")), None) or nearest(
            name, [*ids, *given], lambda known: known in given or ":" in known or place.takes(self.named(known))
        )
        if rest and near is None:
            return CodecError(
                f"Unknown operator {name!r}: no installed package {package!r} offers it as an operator. "
                "Install the package, or pass the operator itself: load(..., operators=(it,))."
            )
        own = "" if near and ":" in near else "If it is your own, load(..., operators=(it,))."
        advice = f"Did you mean {near}? {own}".rstrip() if near else own
        if near in given or (given and near is None and place.kind == "value"):
            advice = f"Write {{use: {near or given[0]}}}."
        return CodecError(f"There is no {place.kind} {name!r}. {advice}")

    def misplaced(self, said: str, place: ClassPlace) -> CodecError:
        """The error that a known thing is of no use here, with what is: the given values, else classes."""
        fitting = [f"{{use: {name}}}" for name, value in self.given.items() if place.accepts(value)]
        if not fitting:
            fitting = [name for name in self.known if ":" not in name and place.names(self.named(name))]
        advice = f" Write {' or '.join(fitting[:EXAMPLES])}." if fitting else ""
        if len(fitting) > EXAMPLES and place.kind == "operator":
            advice = f" Write one of: {', '.join(fitting)}."
        return CodecError(f"Here belongs {place.words}; {said}.{advice}")


def nearest(name: str, known: Iterable[str], fits: Callable[[str], bool] = lambda _: True) -> str | None:
    """The known name most like this one, if any that fits is."""
    by_lower = {other.lower(): other for other in known}
    found = difflib.get_close_matches(name.lower(), by_lower, 10, 0.55)
    return next((by_lower[lower] for lower in found if fits(by_lower[lower])), None)

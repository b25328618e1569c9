"""What users write by hand is told at once where a name or a type in it is wrong, and what to write."""

from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from functools import cache, wraps
from inspect import CO_VARKEYWORDS, unwrap
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from spolia.errors import WiringError


def refuse_unknown_names(cls: Any, given: Iterable[str]) -> None:
    """Raise `WiringError` for a name that the constructor of a class does not take, and say which is meant."""
    known = _names_of(cls.__init__)
    if known is None:
        return
    _refuse_others(cls.__name__, known, given)


def _refuse_others(whose: str, known: Collection[str], given: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            advice = f"Write {near[0]}=." if near else f"It takes: {', '.join(known) or 'nothing'}."
            raise WiringError(f"{whose} takes no {name!r}. {advice}")


@cache
def _names_of(constructor: Any) -> dict[str, None] | None:
    """Names that it takes, in their order; None where it takes any."""
    code = getattr(unwrap(constructor), "__code__", None)
    if code is None or code.co_flags & CO_VARKEYWORDS:
        return None
    return dict.fromkeys(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])


class ByHand:
    """What users write by hand: its constructor refuses names that it does not take. Nothing made by the million."""

    if not TYPE_CHECKING:  # a checker sees the names themselves

        def __new__(cls, *_: Any, **given: Any) -> Self:
            if given:
                refuse_unknown_names(cls, given)
            return object.__new__(cls)


P = ParamSpec("P")
T = TypeVar("T")


def names_checked(function: Callable[P, T]) -> Callable[P, T]:
    """A function that is called by hand, which says what is meant by a name that it does not take.

    >>> @names_checked
    ... def cut(text: str, width: int = 80) -> str:
    ...     return text[:width]
    >>> cut("stones", widht=3)
    Traceback (most recent call last):
    spolia.errors.WiringError: cut takes no 'widht'. Write width=.
    """
    code: Any = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @wraps(function)
    def called(*args: P.args, **given: P.kwargs) -> T:
        _refuse_others(function.__name__, known, given)
        return function(*args, **given)

    return called


def refuse_type(value: object, name: str, advice: str) -> None:
    """Raise `WiringError` for what a field holds, and say what to write."""
    given = getattr(value, name)
    said = f"{type(value).__name__} has {name}={given!r:.80} ({type(given).__name__})"
    raise WiringError(f"{said}. Write {advice}.")

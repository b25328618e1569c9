"""Former names of keyword arguments and attributes, accepted for one minor version."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from warnings import warn

P = ParamSpec("P")
Result = TypeVar("Result")


def renamed_arguments(**names: str) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Accept keyword arguments of a function by their former names too, with a `DeprecationWarning`.

    Args:
        names: the present name of each argument, by its former one.

    Raises:
        TypeError: when the function is called with both names of an argument.

    >>> @renamed_arguments(told="on_progress")
    ... def tune(on_progress: str) -> str:
    ...     return on_progress
    >>> tune(on_progress="bar")
    'bar'
    """

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        @wraps(function)
        def call(*args: P.args, **arguments: P.kwargs) -> Result:
            for former in names.keys() & arguments.keys():
                name = names[former]
                if name in arguments:
                    raise TypeError(f"{function.__qualname__}() got both {former} and {name}. Write {name}.")
                warn(
                    f"{function.__qualname__}({former}=…) is {function.__qualname__}({name}=…) now. "
                    "The former name goes with the next minor version.",
                    DeprecationWarning,
                    stacklevel=2,
                )
                arguments[name] = arguments.pop(former)
            return function(*args, **arguments)

        return call

    return decorate


class RenamedAttribute:
    """An attribute of a class by its former name, with a `DeprecationWarning`.

    >>> class Report:
    ...     looks = 2
    ...     looked = RenamedAttribute("looks")
    >>> Report().looked
    2
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __set_name__(self, owner: type, former: str) -> None:
        self.text = f"{owner.__qualname__}.{former} is {owner.__qualname__}.{self.name} now."

    def __get__(self, instance: object, owner: type) -> Any:
        warn(f"{self.text} The former name goes with the next minor version.", DeprecationWarning, stacklevel=2)
        return getattr(owner if instance is None else instance, self.name)

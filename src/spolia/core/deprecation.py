"""Former names of keyword arguments, accepted for one minor version."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar
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

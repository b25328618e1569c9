"""Former names of keyword arguments and methods, accepted for one minor version."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from warnings import warn

P = ParamSpec("P")
Result = TypeVar("Result")
Class = TypeVar("Class", bound=type)


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


def renamed_methods(**names: str) -> Callable[[Class], Class]:
    """Accept calls of methods of a class by their former names too, with a `DeprecationWarning`.

    Args:
        names: the present name of each method, by its former one.
    """

    def decorate(cls: Class) -> Class:
        for former, name in names.items():
            setattr(cls, former, _former_method(f"{cls.__qualname__}.{former}", name))
        return cls

    return decorate


def _former_method(label: str, name: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **arguments: Any) -> Any:
        text = f"{label} is {name} now. The former name goes with the next minor version."
        warn(text, DeprecationWarning, stacklevel=2)
        return getattr(self, name)(*args, **arguments)

    return call

"""Views of values, as text and as HTML, by functions that are registered from above.

A value does not import what renders it. The `__init__` of the package that renders it registers the function, and the
function's module is imported when the value is first shown.
"""

from typing import Any

from spolia.core.public_names import load_name

_RENDERERS: dict[tuple[str, str], str] = {}


def register_view(cls: str, kind: str, function: str) -> None:
    """Register the function that renders values of a class and its subclasses, both as `module:name`."""
    _RENDERERS[cls, kind] = function


def render_view(value: Any, kind: str) -> str:
    """Render a value as `text` or `html`, by the function of the nearest class that has one."""
    names = (f"{cls.__module__}:{cls.__qualname__}" for cls in type(value).__mro__)
    function = next(_RENDERERS[name, kind] for name in names if (name, kind) in _RENDERERS)
    module, _, name = function.partition(":")
    view: str = load_name(module, name)(value)
    return view

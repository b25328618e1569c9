"""Type stubs of the packages that export lazily, made from the registry: `python -m tests.stubs` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from spolia.core.public_names import MODULE_OF, names_of


def packages() -> Iterator[str]:
    """Packages whose names are imported on first use."""
    parents = {".".join(module.split(".")[:depth]) for module in MODULE_OF.values() for depth in (1, 2, 3)}
    for package in sorted(parents - set(MODULE_OF.values())):
        if hasattr(import_module(package), "__all__") and "__getattr__" in vars(import_module(package)):
            yield package


def file_of(package: str) -> Path:
    return Path(str(import_module(package).__file__)).with_suffix(".pyi")


def stub(package: str) -> str:
    """What a type checker sees of a package."""
    lines = sorted(f"from {module} import {name} as {name}\n" for name, module in names_of(package).items())
    if package == "spolia":
        return "".join([*lines, "\n__version__: str\n"])
    modules = {found.name for found in iter_modules(import_module(package).__path__)} - names_of(package).keys()
    return "".join([*(f"from {package} import {name} as {name}\n" for name in sorted(modules)), *lines])


if __name__ == "__main__":
    for package in packages():
        file_of(package).write_text(stub(package))

"""Type stubs of the packages that export lazily, made from the registry: `python -m tests.stubs` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import spolia
from spolia.core.public_names import names_of


def packages() -> Iterator[str]:
    """Packages whose names or modules are imported on first use."""
    root = Path(str(spolia.__file__)).parent
    for path in sorted(root.rglob("__init__.py")):
        if "\n__getattr__" in path.read_text("utf-8"):
            yield ".".join(("spolia", *path.parent.relative_to(root).parts))


def file_of(package: str) -> Path:
    return Path(str(import_module(package).__file__)).with_suffix(".pyi")


def public(package: str) -> dict[str, str]:
    """The public names that a package offers, with the module of each."""
    return dict(names_of(package)) if hasattr(import_module(package), "__all__") else {}


def stub(package: str) -> str:
    """What a type checker sees of a package."""
    names = public(package)
    lines = sorted(f"from {module} import {name} as {name}\n" for name, module in names.items())
    if package == "spolia":
        return "".join([*lines, "\n__version__: str\n"])
    modules = {module_info.name for module_info in iter_modules(import_module(package).__path__)} - names.keys()
    return "".join([*(f"from {package} import {name} as {name}\n" for name in sorted(modules)), *lines])


if __name__ == "__main__":
    for package in packages():
        file_of(package).write_text(stub(package))

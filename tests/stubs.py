"""Type stubs of the packages that export lazily, made from the registry: `python -m tests.stubs` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from spolia.core.public_names import MODULE_OF, names_of


def packages() -> Iterator[str]:
    """Packages whose names are imported on first use."""
    for package in sorted({"spolia", *(".".join(module.split(".")[:2]) for module in MODULE_OF.values())}):
        if "__getattr__" in vars(import_module(package)):
            yield package


def file_of(package: str) -> Path:
    return Path(str(import_module(package).__file__)).with_suffix(".pyi")


def stub(package: str) -> str:
    """What a type checker sees of a package."""
    lines = sorted(f"from {module} import {name} as {name}\n" for name, module in names_of(package).items())
    return "".join([*lines, "\n__version__: str\n"] if package == "spolia" else lines)


if __name__ == "__main__":
    for package in packages():
        file_of(package).write_text(stub(package))

"""All code of a package that one of its modules reaches, as a hash."""

from __future__ import annotations

import re
from functools import cache
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

IMPORTED = re.compile(r"^[ \t]*(?:from ([\w.]+) import (\([^)]*\)|.*)|import ([\w.]+))", re.MULTILINE)
FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t]+.*\n|\n)+", re.MULTILINE)


@cache
def reached_digest(module: str) -> str:
    """A hash of the source of a module and of all modules of its package that it imports, directly or not, when it is
    loaded or when a function of it runs; without those that it needs for annotations alone, and without the package's
    `errors`: what an error is called or says is no result, and a new one changes none.

    What is imported by a name in a text is not looked at, nor are the files of packages that are imported from only.

    Args:
        module: of a package with absolute imports, such as Spolia.

    >>> reached_digest("spolia.evaluation.data.dataset") == reached_digest("spolia.evaluation.data.dataset")
    True
    """
    digest, waiting, known = blake2b(digest_size=8), [module], {module}
    errors = f"{module.partition('.')[0]}.errors"
    while waiting:
        new = _read(waiting.pop())[1] - known - {errors}
        known |= new
        waiting += new
    for name in sorted(known):
        source = _read(name)[0].encode()
        digest.update(f"{name} {len(source)}\n".encode() + source)
    return digest.hexdigest()


@cache
def _read(module: str) -> tuple[str, frozenset[str]]:
    """The source of a module, and the modules of its package that it imports."""
    file = _file(module)
    source, package = file.read_text("utf-8") if file else "", module.partition(".")[0]
    found = set[str]()
    for origin, names, whole in IMPORTED.findall(FOR_TYPES.sub("", source)):
        if (origin or whole).partition(".")[0] == package:
            inner = {f"{origin}.{name}" for name in re.findall(r"\w+", names)}
            modules = {one for one in inner if _is_package(origin) and _file(one)}
            found |= modules or {origin or whole}
    return source, frozenset(found)


@cache
def _file(module: str) -> Path | None:
    """The file of a module; None where there is none."""
    place = _root(module.partition(".")[0]).joinpath(*module.split(".")[1:])
    return next((one for one in (place / "__init__.py", place.with_suffix(".py")) if one.is_file()), None)


def _is_package(module: str) -> bool:
    file = _file(module) if module else None
    return file is not None and file.name == "__init__.py"


@cache
def _root(package: str) -> Path:
    return Path(str(import_module(package).__file__)).parent

"""Ownership of packages: the user's own code, or code that a version stands for."""

import os
import re
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from spolia.deferred import metadata


@cache
def is_installed(package: str) -> bool:
    """Return whether a package was installed, so that its version stands for its code; True if it is not found."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return True
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
    return not any(places) or any(re.search(r"[/\\](site|dist)-packages\b", place) for place in places)


@cache
def version(module: str) -> str:
    """Return the version of a module's package; empty for Python's own, Spolia, and packages that state none."""
    package = module.partition(".")[0]
    if package in sys.stdlib_module_names or package == "spolia":
        return ""

    try:
        return metadata.version(package)
    except (metadata.PackageNotFoundError, ValueError):
        stated = getattr(sys.modules.get(package), "__version__", "")
        return stated if isinstance(stated, str) else ""


def is_own(module: str, home: str) -> bool:
    """Return whether a module belongs to the code base of `home`: the same package, or one that is not installed."""
    top = module.partition(".")[0]
    if module == home:
        return True
    if top in sys.stdlib_module_names or top == "spolia":
        return False
    return top == home.partition(".")[0] or not is_installed(top)


IN_STEP = "In the step "
_OTHERS = (str(Path(__file__).parents[2]), str(Path(os.__file__).parent))


def place_of(error: BaseException) -> str:
    """Return file and line of the user's code that raised an error, or called what raised it; empty if none did."""
    place, traceback = "", error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        # Code without a file counts only if somebody typed it.
        if not re.search(r"[/\\](site|dist)-packages\b|^<(?!stdin|ipython)", file) and not file.startswith(_OTHERS):
            place = f"{file}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place

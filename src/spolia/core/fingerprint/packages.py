"""Whose code a package is: the user's own, or one that a version stands for."""

import os
import re
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from spolia.deferred import metadata


@cache
def is_installed(package: str) -> bool:
    """Whether a package was installed, so that its version stands for its code; or is not to be found."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return True
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
    return not any(places) or any(re.search(r"[/\\](site|dist)-packages\b", place) for place in places)


@cache
def version(module: str) -> str:
    """The version of the package of a module; empty for Python's own, Spolia, and what states none."""
    package = module.partition(".")[0]
    if package in sys.stdlib_module_names or package == "spolia":
        return ""

    try:
        return metadata.version(package)
    except (metadata.PackageNotFoundError, ValueError):
        stated = getattr(sys.modules.get(package), "__version__", "")
        return stated if isinstance(stated, str) else ""


def is_own(module: str, home: str) -> bool:
    """Whether a module belongs to the code base of another one, `home`: its package, and what is not installed."""
    top = module.partition(".")[0]
    if module == home:
        return True
    if top in sys.stdlib_module_names or top == "spolia":
        return False
    return top == home.partition(".")[0] or not is_installed(top)


IN_STEP = "In the step "
_OTHERS = (str(Path(__file__).parents[2]), str(Path(os.__file__).parent))


def place_of(error: BaseException) -> str:
    """File and line of the user's code in which an error was raised, or which called what raised it; empty for none."""
    found, at = "", error.__traceback__
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if not re.search(r"[/\\](site|dist)-packages\b|^<(?!stdin|ipython)", file) and not file.startswith(_OTHERS):
            found = f"{file}, line {at.tb_lineno}"
        at = at.tb_next
    return found

"""What is collected, and which tests are slow by what they use."""

from __future__ import annotations

import gc
import os
import re
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

# No test depends on how fast the machine is: another program may have it, too.
# Each run draws other examples: fifty a run are hundreds a day.
settings.register_profile("spolia", max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("quick", settings.get_profile("spolia"), max_examples=10)  # `make check`, many times a day
settings.load_profile("spolia")

TORCH = re.compile(r"^    import torch$", re.MULTILINE)
SLOW_MODULE = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.slow\b", re.MULTILINE)
MEMORY = "/dev/shm"
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**32:
    # Stores sync to disk what they write, which costs milliseconds there; a killed process does not tell it apart.
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules that are slow as a whole where no slow test is wanted: to import them takes seconds."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    is_slow = SLOW_MODULE if collection_path.name.startswith("test_") else TORCH
    return True if is_slow.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """Without the modules that show no example: half of them, each of which would be imported."""
    found = yield
    if any(isinstance(one, DoctestModule) for one in found) and ">>>" not in file_path.read_text(encoding="utf-8"):
        return [one for one in found if not isinstance(one, DoctestModule)]
    return found


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Ten thousand tests are kept to the end: to look through them for garbage again and again is in vain."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who uses a PostgreSQL server is slow."""
    for item in items:
        given = getattr(item, "callspec", None)
        asked = getattr(item, "fixturenames", ())
        if "server" in asked or (given is not None and given.params.get("address") == "PostgreSQL"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="session")
def installed_from_the_index() -> Generator[None, None, None]:
    """Hints of what to install are the same wherever this checkout lies."""
    with patch("spolia.errors._origin", dict):
        yield

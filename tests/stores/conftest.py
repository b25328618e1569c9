"""Folders and stores for the tests of stores."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spolia.stores.corpus import Corpus
from tests.stores.scenario import FIRST, sync


@pytest.fixture
def fast_folder() -> Iterator[Path]:
    """A folder in memory where there is one: a killed process does not tell it from a disk, and fsync costs nothing."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="spolia-", dir=memory))
    folder.chmod(0o755)  # for tests that read as somebody else
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def corpus(fast_folder: Path) -> Corpus:
    """A store with the first state of the scenario."""
    found = Corpus(str(fast_folder / "notes.spolia")).create()
    sync(found, FIRST)
    return found

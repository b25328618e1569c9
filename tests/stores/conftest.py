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
def fast_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a killed process does not tell it from a disk, and fsync costs nothing."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="spolia-", dir=memory))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def corpus(fast_folder: Path) -> Corpus:
    """A store with the first state of the scenario."""
    found = Corpus(str(fast_folder / "notes.spolia")).create()
    sync(found, FIRST)
    return found

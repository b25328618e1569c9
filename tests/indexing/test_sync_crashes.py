"""A run of `sync` that is killed anywhere loses nothing, and the next one ends where an undisturbed one does."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spolia.stores.files import FAIL_POINTS
from tests.stores.test_crashes import results

KILLS = 12
NOT_BY_SYNC = {
    "redefine.write",
    "drop.write",
    "migrate.step",
    "migrate.commit",
    "declare.write",
    "unmade.write",
    "clear.nodes",
    "readers.document",
    "readers.nodes",
}
"""What only a caller of the writer does."""


@pytest.fixture
def folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="spolia-", dir=memory if memory.is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.slow
def test_killed_at_each_fail_point_it_ends_with_the_same_rows(folder: Path) -> None:
    end, *killed = results(folder, *FAIL_POINTS, module="tests.indexing.kills")
    assert end["wrong"] == []
    passed = {result["at"] for result in killed if result["killed"]}
    elsewhere = ("graphs.", "databases.", "vectors.join", "vectors.move")
    assert {point for point in FAIL_POINTS if not point.startswith(elsewhere)} - passed == NOT_BY_SYNC
    for result in killed:
        if result["at"].startswith("forget"):  # the damage is there until it is mended
            assert "damaged" in result["wrong"].pop("at once")[0]
    assert {result["at"]: result["wrong"] for result in killed if result["wrong"]} == {}


@pytest.mark.slow
def test_killed_at_random_it_ends_with_the_same_rows(folder: Path) -> None:
    end, *killed = results(folder, "--random", str(KILLS), "2", module="tests.indexing.kills")
    assert end["wrong"] == []
    assert sum(result["killed"] for result in killed) == KILLS
    assert {result["at"]: result["wrong"] for result in killed if result["wrong"]} == {}

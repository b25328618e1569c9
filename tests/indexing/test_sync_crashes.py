"""A run of `sync` that is killed anywhere loses nothing, and the next one ends where an undisturbed one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.stores.files import FAIL_POINTS
from tests.stores.test_crashes import problems_after, run_kills

KILLS = 4
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


@pytest.mark.slow
def test_killed_anywhere_it_ends_with_the_same_rows(fast_folder: Path) -> None:
    end, *killed = run_kills(fast_folder, *FAIL_POINTS, "--random", str(KILLS), "2", module="tests.indexing.kills")
    assert end["wrong"] == []
    assert problems_after(killed) == {}
    passed = {result["at"] for result in killed if result["killed"]}
    elsewhere = ("graphs.", "databases.", "vectors.join", "vectors.move")
    assert {point for point in FAIL_POINTS if not point.startswith(elsewhere)} - passed == NOT_BY_SYNC

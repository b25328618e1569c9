"""Nothing that a database acknowledged is lost when the process that has it open is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores.adapters.crashing import kills

KILLS = 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LanceDB", "Chroma", "Qdrant", "Milvus"])
def test_killed_at_random_nothing_acknowledged_is_lost_and_repeating_gives_what_was_wanted(
    name: str, fast_folder: Path
) -> None:
    results = list(kills(name, fast_folder / "database", KILLS, seed=1))
    assert sum(result["killed"] for result in results) == KILLS
    assert any(result["acknowledged"] > 0 for result in results)
    assert [result for result in results if result["wrong"]] == []

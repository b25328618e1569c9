"""Nothing that a database acknowledged is lost when the process that has it open is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores.test_crashes import run_kills

KILLS = 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LanceDB", "Chroma", "Qdrant", "Milvus"])
def test_killed_at_random_nothing_acknowledged_is_lost_and_repeating_gives_what_was_wanted(
    name: str, fast_folder: Path
) -> None:
    kill_reports = run_kills(fast_folder, name, str(KILLS), "1", module="tests.stores.adapters.kills")
    assert sum(result["killed"] for result in kill_reports) == KILLS
    assert any(result["acknowledged"] > 0 for result in kill_reports)
    assert [result for result in kill_reports if result["wrong"]] == []

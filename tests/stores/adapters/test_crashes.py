"""Nothing that a database acknowledged is lost when the process that has it open is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
KILLS = 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LanceDB", "Chroma", "Qdrant", "Milvus"])
def test_killed_at_random_nothing_acknowledged_is_lost_and_repeating_gives_what_was_wanted(
    name: str, fast_folder: Path
) -> None:
    command = [sys.executable, "-m", "tests.stores.adapters.crashing", name, str(fast_folder), str(KILLS), "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(result["killed"] for result in results) == KILLS
    assert any(result["acknowledged"] > 0 for result in results)
    assert [result for result in results if result["wrong"]] == []

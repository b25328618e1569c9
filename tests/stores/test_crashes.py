"""Nothing that was published is lost, and nothing half is seen, wherever the writer is killed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import spolia
from spolia.stores.corpus import Corpus
from spolia.stores.files import FAIL_POINTS, POSTGRES_FAIL_POINTS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
KILLS = 5
"""At random, besides; benchmarks/kills.py does 300 for each store."""
SOURCES = Path(spolia.__file__).parent
ELSEWHERE = ("graphs.", "databases.", "migrate.", "vectors.join", "vectors.move")
"""What this ingestion does not come past: killed in the tests of graphs, of what is beside a store, of migrations, of
compaction."""


def run_kills(folder: Path, *arguments: str, module: str = "tests.stores.kills") -> list[dict[str, Any]]:
    command = [sys.executable, "-m", module, str(folder), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def problems_after(killed: list[dict[str, Any]]) -> dict[str, Any]:
    """What is wrong after each kill, without the damage that is there until it is mended."""
    for result in killed:
        if str(result["at"]).startswith("forget") and result["killed"]:
            assert "damaged" in result["wrong"].pop("at once")[0]
    return {str(result["at"]): result["wrong"] for result in killed if result["wrong"]}


def test_the_list_of_fail_points_names_every_call_once() -> None:
    calls = Counter(
        name for path in SOURCES.rglob("*.py") for name in re.findall(r'fail_point\("([^"]+)"\)', path.read_text())
    )
    assert sorted(calls) == sorted(FAIL_POINTS + POSTGRES_FAIL_POINTS)
    assert len(FAIL_POINTS) == len(set(FAIL_POINTS))
    assert {name for name, count in calls.items() if count > 1} <= {"publish.commit"}


def test_what_a_killed_maker_left_beside_the_store_is_swept(fast_folder: Path) -> None:
    path = fast_folder / "[a] b.spolia"
    left = path.with_name("[a] b.spolia.tmp99999999")
    left.mkdir()
    (path.with_name("[a] b.spolia.tmp1")).mkdir()  # a process that lives
    Corpus(str(path)).create()
    assert sorted(entry.name for entry in fast_folder.iterdir()) == ["[a] b.spolia", "[a] b.spolia.tmp1"]


def test_killed_anywhere_nothing_is_lost_and_repeating_gives_the_same(fast_folder: Path) -> None:
    points = [point for point in FAIL_POINTS if not point.startswith(ELSEWHERE)]
    end, *killed = run_kills(fast_folder, *points, "--random", str(KILLS), "1")
    assert end["wrong"] == []
    assert problems_after(killed) == {}
    assert {result["at"] for result in killed if result["killed"]} >= set(points)

"""The table of flows: every flow is measured, a run that was killed goes on, and the page says that it is simulated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spolia.flows.catalogue import MODULES, find_flow

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "flows.py"
pytestmark = pytest.mark.slow


def run_benchmark(folder: Path) -> tuple[dict[str, Any], str]:
    """The result of a quick run, and what it printed."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(SCRIPT),
        "--quick",
        "--out",
        str(folder / "flows.json"),
        "--kept",
        str(folder),
    ]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads((folder / "flows.json").read_text()), printed


def test_a_run_measures_every_flow_and_a_killed_one_goes_on(tmp_path: Path) -> None:
    result, printed = run_benchmark(tmp_path)
    trained = {name for name in MODULES if "scorer" in find_flow(name).needs}
    flows = {row["flow"] for row in result["table"]}
    assert flows >= MODULES.keys() - {"multi-head"}  # which needs an embedder
    assert set(result["with a simulated scorer"]) == trained
    for table_row in (result, *result["table"]):
        assert (table_row["simulated"], table_row["planner"]) == (True, "gold")
    assert '"simulated": true, "planner": "gold"' in (tmp_path / "flows.md").read_text()
    assert "cells left" in printed

    cells = tmp_path / "cells.jsonl"
    lines = cells.read_text().splitlines(keepends=True)
    cells.write_text("".join(lines[:-3]) + lines[-3][:40])  # killed while it wrote
    second_result, printed = run_benchmark(tmp_path)
    assert second_result["table"] == result["table"]
    left = [int(line.split(": ")[1].split()[0]) for line in printed.splitlines() if line.endswith("cells left")]
    assert all(count <= 3 for count in left)

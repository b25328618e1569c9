"""A study that is killed goes on where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .killed_study import study


@pytest.mark.slow
@pytest.mark.parametrize("rows", [60, 150])
def test_a_killed_study_goes_on_and_ends_with_the_same_best(tmp_path: Path, rows: int) -> None:
    whole = study(str(tmp_path / "whole"))
    code = "import sys; from tests.optimizer.killed_study import study; study(sys.argv[1], float(sys.argv[2]))"
    command = [sys.executable, "-c", code, str(tmp_path / "killed"), str(rows)]
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(root / "src"), str(root)))}
    killed = subprocess.run(command, cwd=root, env=environment, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    rest = study(str(tmp_path / "killed"))
    assert 0 < rest.rows < whole.rows
    assert (rest.point, rest.score, rest.finalists) == (whole.point, whole.score, whole.finalists)
    assert study(str(tmp_path / "killed")).rows == 0

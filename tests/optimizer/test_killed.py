"""A study that is killed goes on where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest

from .killed_study import study


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "by", "processes"), [(60, signal.SIGKILL, 0), (150, signal.SIGKILL, 1), (60, signal.SIGINT, 2)]
)
def test_a_killed_study_goes_on_and_ends_with_the_same_best(tmp_path: Path, rows: int, by: int, processes: int) -> None:
    whole = study(str(tmp_path / "whole"))
    code = "import sys; from tests.optimizer.killed_study import study; study(sys.argv[1], *map(int, sys.argv[2:]))"
    command = [sys.executable, "-c", code, str(tmp_path / "killed"), *map(str, (rows, by, processes))]
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(root / "src"), str(root)))}
    with subprocess.Popen(command, cwd=root, env=environment, start_new_session=True) as killed:
        assert killed.wait(600) == -by
    for _ in range(100):  # no worker is left
        try:
            os.killpg(killed.pid, 0)
        except ProcessLookupError:
            break
        sleep(0.05)
    else:
        pytest.fail("a worker goes on")
    rest = study(str(tmp_path / "killed"))
    assert 0 < rest.rows < whole.rows
    assert (rest.point, rest.score, rest.finalists) == (whole.point, whole.score, whole.finalists)
    assert study(str(tmp_path / "killed")).rows == 0

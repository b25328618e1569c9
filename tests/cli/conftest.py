"""The command line, run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from spolia.cli.app import app


@dataclass(frozen=True)
class Ran:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout, which must be one JSON object and nothing else."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        assert self.out.count("\n") == 1
        return found


Spolia = Callable[..., Ran]


@pytest.fixture
def spolia(capfd: pytest.CaptureFixture[str]) -> Spolia:
    def run(*args: object) -> Ran:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            app([str(arg) for arg in args])
        out, err = capfd.readouterr()
        code = ended.value.code
        return Ran(code if isinstance(code, int) else 0, out, err)

    return run

"""What every result says of itself: what was measured, the limit, whether it is reached, and on what machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PLACES = 4


@dataclass(frozen=True)
class Limit:
    """What a number is to be: at most, or at least, so much."""

    most: float | None = None
    least: float | None = None

    def holds(self, number: float) -> bool:
        return (self.most is None or number <= self.most) and (self.least is None or number >= self.least)

    def said(self) -> dict[str, float]:
        """As it stands in a result."""
        return {name: bound for name, bound in (("at_most", self.most), ("at_least", self.least)) if bound is not None}


def most(bound: float) -> Limit:
    return Limit(most=bound)


def least(bound: float) -> Limit:
    return Limit(least=bound)


Judged = Mapping[str, tuple[float, Limit | None]]
"""By name what was measured and what it is to be; without a limit, it is noted and no more."""


def machine() -> dict[str, Any]:
    """On what was measured, and how much else was going on there: load, the mean of the last five minutes."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[1], 1),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "commit": commit(Path(__file__).parent),
    }


def commit(checkout: Path) -> str:
    """The version that a checkout has, with a plus where files differ from it; empty where git does not tell."""
    command = ["git", "describe", "--always", "--abbrev=7", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True).stdout.strip()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def told(judged: Judged) -> dict[str, Any]:
    """The fields that every result has; `reached` is null where nothing has a limit."""
    limits = {name: limit for name, (_, limit) in judged.items() if limit is not None}
    return {
        "measured": {name: round(number, PLACES) for name, (number, _) in judged.items()},
        "limit": {name: limit.said() for name, limit in limits.items()},
        "reached": all(limit.holds(judged[name][0]) for name, limit in limits.items()) if limits else None,
    }


def publish(name: str, result: Mapping[str, Any], out: Path | None) -> None:
    """Print a result, judged by the limits of its name, and write it to a file, if one is given."""
    from limits import JUDGES

    text = json.dumps({**result, **told(JUDGES[name](result)), "machine": machine()}, indent=1)
    print(text)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n", encoding="utf-8")

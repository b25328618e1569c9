"""The same benchmarks of this checkout and of another one, in turns, as ratios.

    python benchmarks/compare.py OTHER [--rounds N] [--seconds S] [--out FILE] NAME ...

`OTHER` is a checkout of an earlier version with its environment in `.venv`. Each benchmark that both have runs in each
of them, now one first and now the other, so that what the machine does beside it meets both. The medians of the rounds
stand beside each other; a ratio of 1.1 says that the number is a tenth larger here. A result that is there already
keeps the benchmarks that are not named.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from limits import JUDGES
from results import PLACES, commit, machine

ROOT = Path(__file__).resolve().parents[1]


def measure(checkout: Path, name: str, seconds: float) -> dict[str, float]:
    """The numbers of one run, by what they are of; none where it failed or took too long."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "result.json")
        command = [checkout / ".venv" / "bin" / "python", checkout / "benchmarks" / f"{name}.py", "--out", out]
        try:
            done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            print(f"{name} in {checkout.name}: more than {seconds:g} s")
            return {}
        if done.returncode or not out.exists():
            print(f"{name} in {checkout.name} failed: {done.stderr[-300:]}")
            return {}
        return {figure: number for figure, (number, _) in JUDGES[name](json.loads(out.read_text())).items()}


def compare(other_checkout: Path, name: str, rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Before, now, and the ratio, by what was measured."""
    runs: dict[Path, list[dict[str, float]]] = {other_checkout: [], ROOT: []}
    for number in range(rounds):
        for checkout in (other_checkout, ROOT) if number % 2 == 0 else (ROOT, other_checkout):
            runs[checkout].append(measure(checkout, name, seconds))
    rows = {}
    for figure in dict.fromkeys(figure for numbers in runs[ROOT] for figure in numbers):
        previous_values, now = (
            [numbers[figure] for numbers in runs[checkout] if figure in numbers] for checkout in (other_checkout, ROOT)
        )
        if previous_values and now:
            rows[figure] = _row(median(previous_values), median(now))
            print(f"{name:14} {figure:58} {rows[figure]}", flush=True)
    return rows


def _row(earlier: float, now: float) -> dict[str, float]:
    row = {"before": round(earlier, PLACES), "now": round(now, PLACES)}
    return row | ({"ratio": round(now / earlier, 3)} if earlier else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, metavar="OTHER")
    parser.add_argument("names", nargs="+", choices=sorted(JUDGES), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=600.0, help="for each run")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    has_output = options.out and options.out.exists()
    result: dict[str, Any] = json.loads(options.out.read_text()) if has_output else {"benchmarks": {}}
    for name in options.names:
        rows = compare(options.other.resolve(), name, options.rounds, options.seconds)
        report = {"before": commit(options.other), "rounds": options.rounds, "machine": machine()}
        result["benchmarks"][name] = {**report, "numbers": rows}
        if options.out:
            options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

"""All results beside their limits, and what is not reached.

    python benchmarks/table.py [--judge] [NAME ...]

`--judge` first judges the results anew by the limits as they are now, without measuring anything.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from limits import JUDGES
from results import told

RESULTS = Path(__file__).parent / "results"
SIGNS = {"at_most": "≤", "at_least": "≥"}
UNNOTED = {"noted": "not at the time"}


def judge_again(name: str, result: Any) -> Any:
    """A result with the fields that every result has."""
    if isinstance(result, list):
        return [judge_again(name, part) for part in result]
    machine = result.get("machine")
    known_machine = machine if isinstance(machine, dict) else {"system": machine} if machine else UNNOTED
    if isinstance(load := result.get("load"), float):
        known_machine = {**known_machine, "load": load}
    if python := result.get("python"):
        known_machine = {**known_machine, "python": python}
    return {**result, **told(JUDGES[name](result)), "machine": known_machine}


def rows(name: str, result: Any) -> Iterator[tuple[str, str, str, str, str]]:
    """Result, what was measured, number, limit, verdict."""
    if isinstance(result, list):
        for part in result:
            yield from rows(name, part)
        return
    for figure, number in result["measured"].items():
        bounds = result["limit"].get(figure, {})
        limit = ", ".join(f"{SIGNS[side]} {bound:g}" for side, bound in bounds.items())
        holds = all(number <= bound if side == "at_most" else number >= bound for side, bound in bounds.items())
        yield name, figure, f"{number:g}", limit, ("yes" if holds else "NO") if bounds else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    table = [("result", "what", "measured", "limit", "reached")]
    for path in sorted(RESULTS.glob("*.json")):
        if path.stem in JUDGES and (not options.names or path.stem in options.names):
            result = json.loads(path.read_text())
            if options.judge:
                result = judge_again(path.stem, result)
                path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            table += rows(path.stem, result)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    failed = [
        f"{name}: {figure} {number}, limit {limit}" for name, figure, number, limit, verdict in table if verdict == "NO"
    ]
    print("\nNot reached:\n" + "\n".join(failed) if failed else "\nEverything that has a limit is reached.")


if __name__ == "__main__":
    main()

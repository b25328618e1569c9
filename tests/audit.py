"""Look for known holes in what `requirements.lock` pins, by pip-audit: `make audit`.

Exit code 1 if a package has one. If the database cannot be reached, nothing was looked at: you are told, without error.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.lock import LOCK

COMMAND = ["-m", "pip_audit", "--requirement", str(LOCK), "--require-hashes", "--disable-pip", "--format", "json",
           "--progress-spinner", "off", "--timeout", "15"]  # fmt: skip


def verdict(text: str, errors: str) -> tuple[int, str]:
    """Return the exit code and what to print, from the output of pip-audit.

    >>> verdict('{"dependencies": [{"name": "a", "skip_reason": "not found"}]}', "")
    (0, 'Skipped: no package could be looked up (not found).')
    """
    try:
        rows: list[dict[str, Any]] = json.loads(text)["dependencies"]
    except (ValueError, KeyError):
        reason = errors.strip().splitlines()[-1] if errors.strip() else "no output"
        return 0, f"Skipped: the database of vulnerabilities could not be asked ({reason})."
    looked_up = [row for row in rows if "skip_reason" not in row]
    holes = [
        f"{row['name']} {row['version']}: {hole['id']}, fixed in {', '.join(hole['fix_versions']) or 'no version'}"
        for row in looked_up
        for hole in row["vulns"]
    ]
    if not looked_up:
        return 0, f"Skipped: no package could be looked up ({rows[0]['skip_reason'] if rows else 'the lock is empty'})."
    if holes:
        return 1, "\n".join(holes)
    left = len(rows) - len(looked_up)
    return 0, f"No known hole in {len(looked_up)} packages" + (f"; {left} could not be looked up." if left else ".")


def main() -> None:
    ran = subprocess.run([sys.executable, *COMMAND], capture_output=True, text=True)
    code, text = verdict(ran.stdout, ran.stderr)
    sys.stdout.write(f"{text}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()

"""Runs commands in a folder: `python -m tests.commands FOLDER`, with one on each line of stdin.

Those of `spolia` run in forks of this process, so modules are imported once. Ends at the first command that fails.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from spolia.cli import main as spolia

QUIET = ("spolia", "typer", "yaml", "urllib3", "sqlite3")
"""Packages that start no threads when they are imported."""


def forked(command: list[str], imported: Path) -> int:
    """The exit code of a command of `spolia`; what it imports is imported here too, where that starts no threads."""
    if not (pid := os.fork()):
        sys.argv = command
        try:
            spolia()
        finally:
            imported.write_text("\n".join(name for name in sys.modules if name.partition(".")[0] in QUIET))
        sys.exit()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for name in imported.read_text().split():
        import_module(name)
    return code


def main(folder: Path) -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the command sets it: this process may have no threads
    lines = sys.stdin.read().splitlines()
    imported = folder.with_name("imported")
    os.chdir(folder)
    for line in lines:
        command = shlex.split(line, comments=True)
        code = forked(command, imported) if command[0] == "spolia" else subprocess.run(command, check=False).returncode
        if code:
            sys.exit(f"exit {code}: {line}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

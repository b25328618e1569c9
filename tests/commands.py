"""Runs commands and programs, each in a fork of this process: what they need is imported once.

Each line of stdin is a request in JSON, with a folder, an environment and either commands or a program. Each line of
stdout says how it ended: the exit code, stdout and stderr, up to the first command that fails.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the command sets it: this process may have no threads

from spolia.cli import main as spolia

QUIET = ("spolia", "click", "yaml", "urllib3", "sqlite3")
"""Packages that start no threads when they are imported."""


def run_in_child(work: Callable[[], object], folder: Path, environment: dict[str, str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of work in a folder. What it imports is imported here too, if that is quiet."""
    out, err, imported = (folder.with_name(name) for name in ("out", "err", "imported"))
    imported.unlink(missing_ok=True)
    if not (pid := os.fork()):
        for number, path in enumerate((Path(os.devnull), out, err)):
            os.dup2(os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC), number)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        try:
            work()
        finally:
            imported.write_text("\n".join(name for name in sys.modules if name.partition(".")[0] in QUIET))
        sys.exit()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for name in imported.read_text().split() if imported.exists() else ():
        import_module(name)
    return code, out.read_text(), err.read_text()


def command(line: str) -> None:
    sys.argv = shlex.split(line, comments=True)
    if sys.argv[0] != "spolia":
        os.execvp(sys.argv[0], sys.argv)
    spolia()


def program(text: str) -> None:
    sys.argv, sys.modules["__main__"] = ["-c"], (module := ModuleType("__main__"))
    exec(compile(text, "<string>", "exec"), vars(module))


def answer_commands(
    folder: str, environment: dict[str, str], commands: Sequence[str] = (), text: str = ""
) -> dict[str, Any]:
    if text:
        code, out, err = run_in_child(partial(program, text), Path(folder), environment)
        return {"code": code, "out": out, "err": err}
    printed = ""
    for line in commands:
        code, out, err = run_in_child(partial(command, line), Path(folder), environment)
        printed += f"$ {line}\n{out}{err}"
        if code:
            return {"code": code, "out": printed, "err": err}
    return {"code": 0, "out": printed, "err": ""}


if __name__ == "__main__":
    for request in sys.stdin:
        sys.stdout.write(json.dumps(answer_commands(**json.loads(request))) + "\n")
        sys.stdout.flush()

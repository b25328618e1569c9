"""What stands around every command: errors become one line and an exit code, signals stop it in order."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, ParamSpec

import typer

from spolia.cli.exits import Exit, exit_of
from spolia.cli.screen import Screen
from spolia.errors import Cancelled, SpoliaError

P = ParamSpec("P")


class Terminated(KeyboardInterrupt):
    """SIGTERM: stops what Ctrl-C stops."""


def guarded(body: Callable[P, Exit]) -> Callable[P, None]:
    """A command for typer from a function that returns its exit code."""

    @functools.wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        before = signal.signal(signal.SIGTERM, _terminate)
        try:
            code = body(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = Exit.PIPE
        except (KeyboardInterrupt, Cancelled, Exception) as error:
            if os.environ.get("SPOLIA_TRACEBACK"):
                raise
            code = _explained(error, Screen(json=bool(kwargs.get("json"))))
        finally:
            signal.signal(signal.SIGTERM, before)
        raise typer.Exit(int(code))

    return run


def _explained(error: BaseException, screen: Screen) -> Exit:
    """Print what went wrong, for people and for programs, and say which exit code it is."""
    if isinstance(error, SpoliaError):
        code, message = exit_of(error), str(error)
    elif isinstance(error, Terminated):
        code, message = Exit.TERMINATED, "Terminated. What was published stays; run the same command again to go on."
    elif isinstance(error, (KeyboardInterrupt, Cancelled)):
        code, message = Exit.INTERRUPTED, "Stopped. What was published stays; run the same command again to go on."
    elif isinstance(error, OSError):
        code, message = Exit.USAGE, f"The system refused: {error}. Check the path, its permissions and the free space."
    else:
        code = Exit.FAULT
        message = (
            f"A fault of Spolia itself, {type(error).__name__}: {error}. "
            "Set SPOLIA_TRACEBACK=1 and run again to see where, and report it."
        )
    screen.fail(message)
    screen.give(error={"kind": type(error).__name__, "message": message}, exit_code=int(code))
    return code


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated

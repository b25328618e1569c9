"""Exit codes of the commands, and the errors behind them."""

import functools
import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from enum import IntEnum
from types import FrameType
from typing import NoReturn, ParamSpec

import click

from spolia import errors
from spolia.cli.screen import Screen
from spolia.core.fingerprint.packages import place_of
from spolia.egress.offline import offline
from spolia.errors import Cancelled, SpoliaError


class Exit(IntEnum):
    """Exit codes of all commands.

    >>> exit_of(errors.StoreBusy("...")), exit_of(errors.QueryError("..."))
    (<Exit.STORE: 3>, <Exit.USAGE: 2>)
    """

    DONE = 0
    FAULT = 1
    WORSE = 1
    USAGE = 2
    STORE = 3
    MODEL = 4
    PARTLY = 5
    NOTHING = 6
    INTERRUPTED = 130
    PIPE = 141
    TERMINATED = 143


MEANING = {
    Exit.DONE: "done",
    Exit.FAULT: "`gate` failed; of other commands: a fault of Spolia itself",
    Exit.USAGE: "wrong usage or bad input: a question, a flow, a prompt, a data set, a folder, your code",
    Exit.STORE: "the store cannot be used",
    Exit.MODEL: "a model or its server cannot be used",
    Exit.PARTLY: "done, but some documents or questions failed; or a step of a flow failed on every call",
    Exit.NOTHING: "nothing found, or no answer in the passages",
    Exit.INTERRUPTED: "interrupted; published data stays",
    Exit.PIPE: "the output pipe closed",
    Exit.TERMINATED: "terminated; published data stays",
}


OF_ERROR = (
    (errors.PromptError, Exit.USAGE), (errors.NeverWorked, Exit.PARTLY), (errors.StoreError, Exit.STORE),
    (errors.ModelError, Exit.MODEL), (errors.BudgetSpent, Exit.MODEL),
)  # fmt: skip
"""The first kind that an error is; all others are wrong usage."""


def exit_of(error: errors.SpoliaError) -> Exit:
    return next((code for kind, code in OF_ERROR if isinstance(error, kind)), Exit.USAGE)


P = ParamSpec("P")
ESTIMATE = (
    "--estimate sends nothing to a server, and this needs one. Index first (spolia index), or run the command without "
    "--estimate."
)


class Terminated(KeyboardInterrupt):
    """SIGTERM: stops what Ctrl-C stops."""


def guard_command(body: Callable[P, Exit]) -> Callable[P, None]:
    """Make a command for click from a function that returns its exit code."""

    @functools.wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        previous_handler = signal.signal(signal.SIGTERM, _terminate)
        try:
            with offline(ESTIMATE) if kwargs.get("estimate") else nullcontext():
                code = body(*args, **kwargs)
            # A closed pipe shows when Python flushes, here while the exit code can still say so.
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes stdout again at exit, which would fail on the closed pipe.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = Exit.PIPE
        except (KeyboardInterrupt, Cancelled, Exception) as error:
            if os.environ.get("SPOLIA_TRACEBACK"):
                raise
            code = _report_error(error, Screen(json=bool(kwargs.get("json"))))
        finally:
            signal.signal(signal.SIGTERM, previous_handler)  # of a program that calls the command as a function
        raise click.exceptions.Exit(int(code))

    return run


def refusal(error: OSError) -> str:
    return f"The system refused: {error}. Check the path, its permissions and the free space."


def _report_error(error: BaseException, screen: Screen) -> Exit:
    """Print what went wrong, for people and for programs; return the exit code."""
    notes = getattr(error, "__notes__", [])
    if isinstance(error, SpoliaError):
        code, message = exit_of(error), " ".join((str(error), *notes))
    elif isinstance(error, Terminated):
        code, message = Exit.TERMINATED, "Terminated. Published data stays; run the same command again to go on."
    elif isinstance(error, (KeyboardInterrupt, Cancelled)):
        code, message = Exit.INTERRUPTED, "Stopped. Published data stays; run the same command again to go on."
    elif place := place_of(error):
        notes = notes or [f"In {place}."]
        code, message = Exit.USAGE, " ".join((f"Your code failed with {type(error).__name__}: {error}.", *notes))
    elif isinstance(error, OSError):
        code, message = Exit.USAGE, refusal(error)
    else:
        code = Exit.FAULT
        message = (
            f"A fault of Spolia itself, {type(error).__name__}: {error}. "
            "Set SPOLIA_TRACEBACK=1 and run again to see where, and report it."
        )
    screen.fail(message)
    counts = {name: getattr(error, name) for name in ("degraded", "never_worked") if hasattr(error, name)}
    screen.give(error={"kind": type(error).__name__, "message": message}, **counts, exit_code=int(code))
    return code


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated

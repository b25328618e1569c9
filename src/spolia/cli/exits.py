"""What the exit code says."""

from __future__ import annotations

from enum import IntEnum

from spolia import errors


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
    Exit.FAULT: "of `gate`: worse than its baseline, or not shown not to be; else a fault of Spolia itself",
    Exit.USAGE: "wrong usage or bad input: a question, a flow, a prompt, a data set, a folder",
    Exit.STORE: "the store cannot be used",
    Exit.MODEL: "a model or its server cannot be used",
    Exit.PARTLY: "done, but some documents or questions failed",
    Exit.NOTHING: "nothing found, or no answer in what was found",
    Exit.INTERRUPTED: "interrupted; what was published stays",
    Exit.PIPE: "whoever read the output went away",
    Exit.TERMINATED: "terminated; what was published stays",
}


def exit_of(error: errors.SpoliaError) -> Exit:
    """The code for an error."""
    if isinstance(error, errors.PromptError):
        return Exit.USAGE
    if isinstance(error, errors.StoreError):
        return Exit.STORE
    if isinstance(error, (errors.ModelError, errors.BudgetSpent)):
        return Exit.MODEL
    return Exit.USAGE

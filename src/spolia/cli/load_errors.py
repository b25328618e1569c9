"""Errors of loaded files, in words of the command line."""

from collections.abc import Iterator
from contextlib import contextmanager

from spolia.errors import FlowFileError

_OWN = "If it is your own, write --known FILE.py, or its module's name."
IN_PYTHON = {
    "Give it: load(": "Write {use: chunks} or {use: embedder}; {use: llm} needs --llm URL --model NAME, "
    "and {use: web} in a flow needs --web CONDITION.",
    "If it is your own, load(": f"`spolia show --schema` has the others. {_OWN}",
    "Install the package, or pass the operator itself: load(": _OWN,
    "with an operator, for example Identity, or": "with a flow, or a built-in one: `spolia flows` lists them.",
}
"""What loading a file advises callers in Python to do, and what to do on the command line."""


@contextmanager
def reword_load_errors() -> Iterator[None]:
    """Reword errors in a file so that they name options of the command line."""
    try:
        yield
    except FlowFileError as error:
        for advice, replacement in IN_PYTHON.items():
            start, matched_advice, _ = str(error).partition(advice)
            if matched_advice:
                raise FlowFileError(start + replacement) from error
        raise

"""Readers of files: those of the user's modules and the built-in ones, and what is redacted of what they read."""

from collections.abc import Sequence

from spolia.cli.user_modules import load_module, load_user_modules
from spolia.core.redaction import Patterns, Redactor, Redactors
from spolia.errors import QueryError
from spolia.indexing.readers.registry import READERS, Readers, redacting_readers


def redactor_of(named: Sequence[str] | None) -> Redactor | None:
    """What finds the kinds that are named, or is `FILE.py:NAME`; None for nothing."""
    kinds, each = list[str](), list[Redactor]()
    for one in named or ():
        place, _, name = one.rpartition(":")
        if not place:
            kinds.append(one)
            continue
        value = getattr(load_module(place, "--redact"), name, None)
        value = value() if isinstance(value, type) else value
        if not isinstance(value, Redactor):
            raise QueryError(f"--redact {one}: {place} has no redactor {name!r}. Write an object with found(text).")
        each.append(value)
    every = [*([Patterns(tuple(kinds))] if kinds else []), *each]
    return Redactors(tuple(every)) if every else None


def readers_of(known: Sequence[str] | None, redact: Sequence[str] | None) -> Readers:
    """The readers of the user's modules and the built-in ones, which hide what is to be redacted."""
    found = load_user_modules(known).readers or READERS
    return found if (redactor := redactor_of(redact)) is None else redacting_readers(redactor, found)

"""Readers of files: the user's own and the built-in ones, with redaction of what they read."""

from collections.abc import Sequence
from typing import Any

from spolia.cli.user_modules import load_user_module, load_user_modules
from spolia.core.redaction import Patterns, Redactor, Redactors
from spolia.errors import QueryError
from spolia.indexing.readers.registry import READERS, Readers, redacting_readers


def build_redactor(names: Sequence[str] | None) -> Redactor | None:
    """Build the redactor of kinds, or of `FILE.py:NAME`; None if nothing is named."""
    kinds, own_redactors = list[str](), list[Redactor]()
    for notation in names or ():
        place, _, name = notation.rpartition(":")
        if not place:
            kinds.append(notation)
            continue
        value: Any = getattr(load_user_module(place, "--redact"), name, None)
        value = value() if isinstance(value, type) else value
        if not isinstance(value, Redactor) and not hasattr(value, "found"):  # its former name
            raise QueryError(
                f"--redact {notation}: {place} has no redactor {name!r}. Write an object with find_sensitive(text)."
            )
        own_redactors.append(value)
    redactors = [*([Patterns(tuple(kinds))] if kinds else []), *own_redactors]
    return Redactors(tuple(redactors)) if redactors else None


def build_readers(modules: Sequence[str] | None, redact: Sequence[str] | None) -> Readers:
    """Return the readers of the user's modules and the built-in ones, with redaction if any is named."""
    readers = load_user_modules(modules).readers or READERS
    return readers if (redactor := build_redactor(redact)) is None else redacting_readers(redactor, readers)

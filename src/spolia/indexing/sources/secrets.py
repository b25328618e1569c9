"""Secrets of a source: it names environment variables, as `${TOKEN}`; what they hold is read when it is needed."""

from __future__ import annotations

import os
import re

from spolia.errors import SourceError

_NAMED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def with_secrets(text: str) -> str:
    """A text with the values of the environment variables that it names.

    Raises:
        SourceError: one of them is not set, or holds a line break or another character that belongs into no secret.

    >>> os.environ["SPOLIA_DOCTEST"] = "abc"
    >>> with_secrets("Bearer ${SPOLIA_DOCTEST}")
    'Bearer abc'
    >>> with_secrets("${SPOLIA_NOT_SET}")
    Traceback (most recent call last):
    spolia.errors.SourceError: The environment variable SPOLIA_NOT_SET is not set. Write: export SPOLIA_NOT_SET=…
    """
    return _NAMED.sub(lambda found: _value(found[1]), text)


def without_secrets(text: str, *described: str) -> str:
    """A text, as an error message, without the values of the variables that descriptions name."""
    for name in {name for one in described for name in _NAMED.findall(one)}:
        if value := os.environ.get(name, "").strip():
            text = text.replace(value, f"${{{name}}}")
    return text


def _value(name: str) -> str:
    if (found := os.environ.get(name, "").strip()) == "":
        raise SourceError(f"The environment variable {name} is not set. Write: export {name}=…")
    if not found.isprintable():
        raise SourceError(f"The environment variable {name} has a line break or another odd character. Set it anew.")
    return found

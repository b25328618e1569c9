"""Regular expressions that are compiled on first use: large ones cost milliseconds of every import."""

import re
from typing import Any, cast

NO_PATTERN = (re.error, OverflowError, RecursionError)
"""What `re.compile` raises for a text that is no pattern, repeats too often, or is nested too deep."""


class _LazyPattern:
    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(re.compile(*self._arguments), name)  # which `re` keeps, for the next name
        setattr(self, name, attribute)
        return attribute


def pattern(text: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Compile a pattern when one of its methods or attributes is first used."""
    return cast(re.Pattern[str], _LazyPattern(text, flags))


def is_match(text: str, flags: int, method: str, value: str) -> bool:
    """Return whether a pattern matches a value, by `search` or `fullmatch`; for a worker, as no thread can stop it."""
    return getattr(re.compile(text, flags), method)(value) is not None

"""Regular expressions that are compiled when they are first used: large ones cost milliseconds of every import."""

import re
from typing import Any, cast

NO_PATTERN = (re.error, OverflowError, RecursionError)
"""What `re.compile` raises for a text that is no pattern, repeats too often, or is nested too deep."""


class _Pattern:
    def __init__(self, *given: Any) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(*self._given), name)  # which `re` keeps, for the next name
        setattr(self, name, found)
        return found


def pattern(text: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """`re.compile`, when a method or attribute of the pattern is first asked for."""
    return cast(re.Pattern[str], _Pattern(text, flags))


def is_match(text: str, flags: int, method: str, value: str) -> bool:
    """Whether a pattern matches a value, by `search` or `fullmatch`; for a worker, as no thread can break it off."""
    return getattr(re.compile(text, flags), method)(value) is not None

"""Published variants of a measure: each under a name of its own, never the default."""

from __future__ import annotations

from collections.abc import Collection

from spolia.errors import MeasureError


def checked_rule(called: str, rule: str, known: Collection[str]) -> None:
    """Refuse a variant that is not known.

    >>> checked_rule("F1", "hotpot", ("squad2", "hotpotqa"))
    Traceback (most recent call last):
    spolia.errors.MeasureError: F1 has no rule 'hotpot'. Write one of: "squad2", "hotpotqa"; or none for the textbook's.
    """
    if rule and rule not in known:
        names = ", ".join(f'"{name}"' for name in known)
        raise MeasureError(f"{called} has no rule {rule!r}. Write one of: {names}; or none for the textbook's.")

"""A switch that keeps a process from sending anything."""

from collections.abc import Iterator
from contextlib import contextmanager

from spolia.errors import EgressRefused

_reasons: list[str] = []


@contextmanager
def offline(reason: str) -> Iterator[None]:
    """Refuse every request of this process until the block ends; `reason` is what the error says."""
    _reasons.append(reason)
    try:
        yield
    finally:
        _reasons.pop()


def refuse_offline() -> None:
    """Raise EgressRefused if the process may not send anything.

    >>> with offline("an estimate sends nothing."):
    ...     refuse_offline()
    Traceback (most recent call last):
    spolia.errors.EgressRefused: an estimate sends nothing.
    """
    if _reasons:
        raise EgressRefused(_reasons[-1])

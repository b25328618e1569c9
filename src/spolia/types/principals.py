"""Lists of principals: who may read something."""

from __future__ import annotations

from collections.abc import Iterable

from spolia.errors import StoreError


def principals(said: object, who_says: str) -> tuple[str, ...]:
    """A list of principals as it was given.

    A text is none: its letters would be taken for principals, and an empty one would be for everybody.

    Args:
        said: the list; empty for everybody.
        who_says: begins the message.

    Raises:
        StoreError: it is no list of texts that are not empty.

    >>> principals(["ann", "staff"], "You gave")
    ('ann', 'staff')
    >>> principals("ann", "You gave")
    Traceback (most recent call last):
    spolia.errors.StoreError: You gave 'ann'. Give a list of principals, each a text that is not empty: ['ann'].
    """
    listed = tuple(said) if isinstance(said, Iterable) and not isinstance(said, (str, bytes)) else None
    if listed is None or not all(isinstance(name, str) and name for name in listed):
        raise StoreError(f"{who_says} {said!r:.80}. Give a list of principals, each a text that is not empty: ['ann'].")
    for name in listed:
        if not is_unicode(name):
            raise StoreError(
                f"{who_says} the principal {name!r}, which no encoding of Unicode has. Give it as it is written "
                "elsewhere."
            )
    return listed


def is_unicode(text: str) -> bool:
    """Whether a text can be written down.

    >>> is_unicode("é"), is_unicode("\\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

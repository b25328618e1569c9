"""Where texts that a function gives stand in the text that it was given."""

from __future__ import annotations

SEARCHES = 1_000
"""So many texts of a part are searched for in all of it; those that go on where the last one ended cost nothing."""
GAP = 100
"""Characters at most that are passed over between two texts one after the other."""


class Places:
    """Finds texts one after the other. Each place is true: the text stands there.

    A text that goes on where the last one ended, but for blanks and punctuation, was cut there. Any other has a place
    where it occurs exactly once; for an ambiguous one there is none.

    >>> places = Places("One. Two, three. Two.")
    >>> [places.of(text) for text in ("One", "Two", "three", "Four", "Two")]
    [0, 5, 10, None, 17]
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._searches = SEARCHES

    def of(self, text: str) -> int | None:
        """Where it begins; None where it does not occur, or nobody can say which of several it is."""
        at = self._following(text)
        if at is None and self._searches > 0:
            self._searches -= 1
            at = self._only(text)
        if at is not None:
            self._end = at + len(text)
        return at

    def _following(self, text: str) -> int | None:
        at = self._text.find(text, self._end, self._end + GAP + len(text))
        return None if at < 0 or any(map(str.isalnum, self._text[self._end : at])) else at

    def _only(self, text: str) -> int | None:
        at = self._text.find(text)
        return None if at < 0 or self._text.find(text, at + 1) >= 0 else at

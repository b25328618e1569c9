"""What is searched of a query's text: all of it, unless it is empty or endless."""

from __future__ import annotations

from spolia.errors import QueryError
from spolia.surrounding import note
from spolia.types import Query

LONGEST_CHARACTERS = 10_000
"""A question longer than that has a document pasted into it, with what is asked before or after it."""


def searched(query: Query, *, row: int | None = None) -> str:
    """The text to search for: of an endless one the two ends, which is recorded, so that the time is bounded.

    Args:
        row: which value of a batch the query is.

    Raises:
        QueryError: there is none.

    >>> searched(Query("Who employed Carsten Olsen?"))
    'Who employed Carsten Olsen?'
    """
    text = query.text
    if len(text) > LONGEST_CHARACTERS:
        note(
            f"The question has {len(text)} characters; its first and last {LONGEST_CHARACTERS // 2} are searched.",
            row=row,
        )
        text = f"{text[: LONGEST_CHARACTERS // 2]} {text[-LONGEST_CHARACTERS // 2 :]}"
    if not text or text.isspace():
        raise QueryError(f"The question is empty: {text[:20]!r}. Write what to look for, in at least one word.")
    return text

"""Plain text of what engines quote: without markup, however much of it there is."""

from __future__ import annotations

import html
import re

LONGEST = 20_000
"""Characters of a quote that are looked at."""
_HIDDEN = re.compile(r"<(script|style)\b.*?(?:</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[/!?a-zA-Z][^<>]*(?:>|\Z)")
_UNWRITABLE = re.compile("[\ud800-\udfff\x00-\x08\x0b-\x1f]")


def plain(quote: object) -> str:
    """A quote without tags, with its entities as characters and its white space as blanks.

    >>> plain("The <b>pull</b> of the moon &amp; sun<script>alert(1)</script>"), plain(None)
    ('The pull of the moon & sun', '')
    """
    if not isinstance(quote, str):
        return ""
    shown = _TAG.sub("", _HIDDEN.sub(" ", quote[:LONGEST]))
    return " ".join(_UNWRITABLE.sub(" ", html.unescape(shown)).split())

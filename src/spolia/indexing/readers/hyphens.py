"""Putting together words that were broken at the end of a line.

PDFium marks the place with U+FFFE and takes the line end away, other writers leave a soft hyphen. The mark does not
tell a word that was broken (`effi-cient`) from one that has a hyphen anyway (`dual-encoder`); the rest of the document
does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HYPHEN = "\ufffe"
_MARK = re.compile("(?:\ufffe|\u00ad)+[ \t]*+\n?[ \t]*+")
_BEFORE, _AFTER = re.compile(r"\w+\Z"), re.compile(r"\w+")
_LONGEST = 40
_WORD = re.compile(
    "(?<![-\\w\ufffe\u00ad])\\w+(?:-\\w+)*+(?![-\\w\ufffe\u00ad])"
)  # a whole one, not a part before a mark


def joined_words(pages: Sequence[str]) -> list[str]:
    """The pages without marks of broken words.

    >>> joined_words(["An effi\\ufffecient dual\\ufffeencoder.", "A dual-encoder is efficient."])
    ['An efficient dual-encoder.', 'A dual-encoder is efficient.']
    """
    if not any(HYPHEN in page or "\u00ad" in page for page in pages):
        return list(pages)
    words: set[str] = set()
    for page in pages:
        words.update(word.casefold() for word in _WORD.findall(page))

    def joined(mark: re.Match[str]) -> str:
        page, start, end = mark.string, mark.start(), mark.end()
        left = _BEFORE.search(page, max(0, start - _LONGEST), start)
        right = _AFTER.match(page, end, end + _LONGEST)
        return "-" if left and right and _has_hyphen(left[0], right[0], words) else ""

    return [_MARK.sub(joined, page) for page in pages]


def _has_hyphen(left: str, right: str, words: set[str]) -> bool:
    """Whether the hyphen belongs to the word: it is written so elsewhere, or only its two parts are words."""
    a, b = left.casefold(), right.casefold()
    if a + b in words:
        return False
    if f"{a}-{b}" in words or (right[0].isupper() and not (left + right).isupper()) or right[0].isdigit():
        return True
    return len(a) > 3 and len(b) > 3 and a in words and b in words

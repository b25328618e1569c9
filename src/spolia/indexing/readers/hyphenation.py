"""Putting together words that were broken at the end of a line.

PDFium marks the place with U+FFFE and takes the line end away, other writers leave a soft hyphen. The mark does not
tell a word that was broken (`effi-cient`) from one that has a hyphen anyway (`dual-encoder`); the rest of the document
does.
"""

import re
from collections.abc import Sequence

HYPHEN = "\ufffe"
_SOFT = "\u00ad"
_MARK = re.compile("\ufffe+[ \t]*+\n?[ \t]*+")
_LETTERS = re.compile(r"\w*")
_LONGEST = 40
_WORD = re.compile("[-\\w\ufffe]+")
Change = tuple[int, int, str]
"""Start and end of what goes, and what comes in its place."""


def joints(pages: Sequence[str]) -> list[list[Change]]:
    """What becomes of the marks on each page, in the order of its text."""
    pages = [page.replace(_SOFT, HYPHEN) for page in pages]
    if not any(HYPHEN in page for page in pages):
        return [[] for _ in pages]
    words: set[str] = set()
    for page in pages:
        words.update(_WORD.findall(page.casefold()))
    words.update(f"-{word.rpartition('-')[2]}" for word in tuple(words) if "-" in word)

    def change(mark: re.Match[str]) -> Change:
        page, start, end = mark.string, mark.start(), mark.end()
        left = _first_word(page[max(0, start - _LONGEST) : start][::-1])[::-1]
        right = _first_word(page[end : end + _LONGEST])
        return start, end, "-" if left and right and _has_hyphen(left, right, words) else ""

    return [[change(mark) for mark in _MARK.finditer(page)] for page in pages]


def changed(text: str, changes: Sequence[Change]) -> str:
    """The text after changes, which are in its order."""
    pieces: list[str] = []
    at = 0
    for start, end, instead in changes:
        pieces += text[at:start], instead
        at = end
    return "".join((*pieces, text[at:])) if changes else text


def _first_word(text: str) -> str:
    found = _LETTERS.match(text)
    return found[0] if found else ""


def _has_hyphen(left: str, right: str, words: set[str]) -> bool:
    """Whether the hyphen is the word's: it is written so elsewhere, others end so, or only its two parts are words."""
    a, b = left.casefold(), right.casefold()
    if a + b in words:
        return False
    if f"{a}-{b}" in words or (len(b) > 3 and f"-{b}" in words):
        return True
    if right[0].isdigit() or (right[0].isupper() and not (left + right).isupper()):
        return True
    return len(a) > 3 and len(b) > 3 and a in words and b in words

"""Words in a row, as a reader sees them: whole words, in any case, with accents or without, not stemmed."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from spolia.stores.lexical.analysis import UNSEEN, UNSPACED

_LETTERS = f"\\w\u0900-\u0dff{UNSPACED}"  # Indic vowel signs are marks, which \\w leaves out
_WORD = re.compile(f"(?:(?!_)[{_LETTERS}])+")
_GAP = f"(?:[^{_LETTERS}]|_)+"
_BEGINS = f"(?:(?<=[_{UNSPACED}])|(?<![{_LETTERS}]))"
_ENDS = f"(?:(?=[_{UNSPACED}])|(?![{_LETTERS}]))"
_UNSPACED = re.compile(f"[{UNSPACED}]")


def holds(text: str, phrase: str) -> bool:
    """Whether the words of a phrase stand in a text one after the other, with anything but words between them.

    A phrase without words stands nowhere. Where a script puts no spaces between words, characters are compared.

    >>> holds("An APPLE-PIE, please", "apple pie"), holds("apple and pie", "apple pie"), holds("applause", "app")
    (True, False, False)
    >>> holds("東京タワーは高い", "タワー"), holds("Zürich", "zurich")
    (True, True)
    """
    found = _pattern(phrase)
    return found is not None and found.search(_folded(text)) is not None


def words(phrase: str) -> list[str]:
    """The words of a phrase.

    >>> words("Apple-pie!"), words("?!")
    (['apple', 'pie'], [])
    """
    return _WORD.findall(_folded(phrase))


@lru_cache(maxsize=1024)
def _pattern(phrase: str) -> re.Pattern[str] | None:
    found = words(phrase)
    if not found:
        return None
    before = "" if _UNSPACED.match(found[0][0]) else _BEGINS
    after = "" if _UNSPACED.match(found[-1][-1]) else _ENDS
    return re.compile(before + _GAP.join(map(re.escape, found)) + after)


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", UNSEEN.sub("", unicodedata.normalize("NFKD", text))).casefold()

"""When two replies say the same, word by word."""

from __future__ import annotations

import re
import unicodedata

_MARKER = re.compile(r"\s*\[\d{1,4}\]")
_SIGNED = re.compile(r"(?<!\w)[-\u2212](?=\d)")


def plain_words(reply: str) -> str:
    """A reply without case, accents' other spellings, widths, punctuation and citation markers: equal for equal words.

    Letters, their marks, digits and symbols stay, in any script; a sign before a number does too.

    >>> plain_words("The café (Ｎokia).") == plain_words("the CAFE\\u0301 nokia [1]")
    True
    >>> plain_words("-5 °C"), plain_words("C++"), plain_words("「東京」。")
    ('−5 °c', 'c++', '東京')
    """
    said = unicodedata.normalize("NFKC", _MARKER.sub("", reply)).casefold()
    said = _SIGNED.sub("\u2212", said)
    kept = (letter if unicodedata.category(letter)[0] in "LMNS" else " " for letter in said)
    return unicodedata.normalize("NFC", " ".join("".join(kept).split()))

"""Where a text may be cut without tearing apart what a reader sees as one character.

After Unicode Standard Annex 29 (text segmentation), from the properties that the standard library has; besides, Thai
and Lao vowels stay with their consonant.
"""

from __future__ import annotations

import unicodedata

_JOINER = "\u200d"
_MARKS = frozenset(["Mn", "Mc", "Me"])
_CLINGING = frozenset("\u200d\u0e30\u0e32\u0e33\u0e45\u0eb0\u0eb2\u0eb3\uff9e\uff9f")
_LEADING = frozenset("\u0e40\u0e41\u0e42\u0e43\u0e44\u0ec0\u0ec1\u0ec2\u0ec3\u0ec4\u06dd\u070f\u08e2")
_FLAGS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
_VIRAMA = 9  # canonical combining class


def may_cut(text: str, at: int) -> bool:
    """Whether `text[:at]` and `text[at:]` are whole characters to a reader.

    >>> [may_cut("e\u0301x", at) for at in (1, 2)]
    [False, True]
    """
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300":
        return not (before == "\r" and after == "\n")
    if after in _CLINGING or before in _LEADING or unicodedata.category(after) in _MARKS:
        return False
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return False  # skin tones, and the tags of the flags of regions
    if before == _JOINER:
        return after.isalnum()
    if _is_flag(before) and _is_flag(after):
        return _flags_before(text, at) % 2 == 0
    if unicodedata.combining(before) == _VIRAMA and unicodedata.category(after) == "Lo":
        return False
    return not _is_syllable(_jamo(before), _jamo(after))


def cut_before(text: str, low: int, high: int) -> int:
    """The last place in (low, high] where the text may be cut; `high` if there is none."""
    return next((at for at in range(high, low, -1) if may_cut(text, at)), high)


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flags_before(text: str, at: int) -> int:
    before = text[max(0, at - 256) : at]
    return len(before) - len(before.rstrip(_FLAGS))


def _jamo(character: str) -> str:
    """L, V or T for a part of a Hangul syllable, LV or LVT for a whole one, else nothing."""
    code = ord(character)
    if 0x1100 <= code <= 0x115F or 0xA960 <= code <= 0xA97C:
        return "L"
    if 0x1160 <= code <= 0x11A7 or 0xD7B0 <= code <= 0xD7C6:
        return "V"
    if 0x11A8 <= code <= 0x11FF or 0xD7CB <= code <= 0xD7FB:
        return "T"
    if 0xAC00 <= code <= 0xD7A3:
        return "LVT" if (code - 0xAC00) % 28 else "LV"
    return ""


def _is_syllable(before: str, after: str) -> bool:
    """Whether two parts belong to one syllable."""
    if before == "L":
        return after in ("L", "V", "LV", "LVT")
    if before in ("V", "LV"):
        return after in ("V", "T")
    return before in ("T", "LVT") and after == "T"

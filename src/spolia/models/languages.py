"""The language in which a model is spoken to: that of what it is asked about, as far as the script tells."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

ENGLISH: Final = "en"
LANGUAGES: Final = (ENGLISH, "zh", "ko", "ja")
"""English for whatever is in another script than these."""

_HAN = re.compile("[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa\u31f0-\u31ff\uff66-\uff9d]")
_HANGUL = re.compile("[\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff]")
_FEWEST = 3  # one letter in so many: a name in another script makes no other language, a term in Latin letters neither
_KANA_AT_LEAST = 8  # one in so many: of Japanese prose every other is kana, of Chinese none but in names
_READ = 20_000  # characters


def language_of(text: str) -> str:
    """Which of `LANGUAGES` a text is in, by its script; of Japanese without kana nobody can tell that it is none.

    >>> [language_of(text) for text in ("什么是 BM25？", "누가 썼습니까?", "誰が書いたのか", "Who wrote 紅樓夢?", "")]
    ['zh', 'ko', 'ja', 'en', 'en']
    """
    read = text[:_READ]
    han, kana, hangul = (len(script.findall(read)) for script in (_HAN, _KANA, _HANGUL))
    if _FEWEST * (han + kana + hangul) < sum(map(str.isalpha, read)) or not han + kana + hangul:
        return ENGLISH
    if hangul > han + kana:
        return "ko"
    return "ja" if _KANA_AT_LEAST * kana >= han + kana else "zh"


def beside(place: str, language: str) -> str:
    """Where the same file in another language is: in the same folder, with the language before its ending.

    >>> beside("spolia:indexing/prompts/summary.txt", "ko"), beside("mine", "ja"), beside("mine.txt", "en")
    ('spolia:indexing/prompts/summary.ko.txt', 'mine.ja', 'mine.txt')
    """
    ending = PurePosixPath(place).suffix
    return place if language == ENGLISH else f"{place.removesuffix(ending)}.{language}{ending}"

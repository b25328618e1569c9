"""Texts in legacy encodings that are read exactly, of real sentences in 27 languages.

    python benchmarks/encodings.py [--out FILE]

The sentences are the translations that Sphinx ships. From each language, pieces of 25, 60 and 2,000 characters are
drawn with a fixed seed, written in the encodings that the language was commonly stored in, and read again.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import sphinx
from babel.messages.pofile import read_po
from results import publish

from spolia.errors import DocumentError
from spolia.indexing.readers.text import decode

ENCODINGS = {
    "ar": "cp1256 iso8859-6", "bg": "cp1251", "cs": "cp1250 iso8859-2", "da": "cp1252", "de": "cp1252",
    "el": "cp1253 iso8859-7", "es": "cp1252", "et": "cp1257", "fi": "cp1252", "fr": "cp1252 iso8859-15", "he": "cp1255",
    "hr": "cp1250", "hu": "cp1250 iso8859-2", "it": "cp1252", "ja": "cp932 euc_jp", "ko": "cp949", "lt": "cp1257",
    "lv": "cp1257", "nb_NO": "cp1252", "nl": "cp1252", "pl": "cp1250 iso8859-2", "pt_BR": "cp1252", "ro": "cp1250",
    "ru": "cp1251 koi8-r cp866 iso8859-5", "sk": "cp1250", "sl": "cp1250", "sv": "cp1252", "tr": "cp1254 iso8859-9",
    "uk_UA": "cp1251", "vi": "cp1258", "zh_CN": "gb18030", "zh_TW": "big5",
}  # fmt: skip
DRAWS = {25: 12, 60: 12, 2_000: 4}
"""Pieces of each length, by their characters."""


def sentences(language: str) -> list[str]:
    path = Path(sphinx.__file__).parent / "locale" / language / "LC_MESSAGES" / "sphinx.po"
    if not path.exists():
        return []
    with path.open("rb") as file:
        strings = [message.string for message in read_po(file)]
    return [string for string in strings if isinstance(string, str) and len(string) > 6 and "%" not in string]


def pieces() -> Iterator[tuple[int, str, bytes]]:
    """Length, text and bytes of each piece; pieces that are valid UTF-8 as well are left out."""
    draw = random.Random(7)
    for language, encodings in ENCODINGS.items():
        texts = sentences(language)
        for encoding in encodings.split() if texts else ():
            for length, count in DRAWS.items():
                for _ in range(count):
                    draw.shuffle(texts)
                    whole = " ".join(texts).encode(encoding, "ignore").decode(encoding)
                    start = draw.randrange(max(1, len(whole) - length))
                    text = whole[start : start + length]
                    data = text.encode(encoding)
                    try:
                        data.decode()
                    except UnicodeDecodeError:
                        yield length, text, data


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    exact, counts = Counter[int](), Counter[int]()
    for length, text, data in pieces():
        counts[length] += 1
        try:
            exact[length] += decode(data, "piece.txt").text == text
        except DocumentError:
            continue
    shares = {f"{length} characters": round(exact[length] / counts[length], 4) for length in DRAWS}
    publish("encodings", {"exact": shares, "pieces": sum(counts.values())}, out)


if __name__ == "__main__":
    main()

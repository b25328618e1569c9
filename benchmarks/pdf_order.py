"""Reading order of PDF: the share of each file's words that stand in the same order as in the text of `mutool draw`.

    python benchmarks/pdf_order.py FOLDER [--worst 10] [--out FILE]

For each PDF of a folder, page by page: the longest common subsequence of the words of both texts, as a share of
the words that both have. 1 is the same order; a text of two columns read across has about .5. Words are those of
letters and digits; marks, notes and broken words that only one of both joins do not count. Files without 50 common
words are left out. Needs MuPDF's `mutool`; it is no judge of right and wrong, so look at the worst files by eye.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from results import publish

from spolia.errors import SpoliaError
from spolia.indexing.readers.pdf.reader import PdfReader
from spolia.indexing.readers.reader import Blob

LEAST_WORDS = 50
WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    return WORD.findall(text.casefold())


def same_order(ours: Sequence[str], theirs: Sequence[str]) -> tuple[int, int]:
    """The words in the same order, and those that both texts have.

    >>> same_order("the old wall the new gate".split(), "the new gate the old wall".split())
    (3, 6)
    """
    common = sum((Counter(ours) & Counter(theirs)).values())
    places: dict[str, list[int]] = {}
    for place, word in enumerate(theirs):
        places.setdefault(word, []).append(place)
    tails: list[int] = []  # Hunt and Szymanski 1977: the longest common subsequence as a rising one of places
    for word in ours:
        for place in reversed(places.get(word, ())):
            index = bisect_left(tails, place)
            tails[index : index + 1] = [place]
    return len(tails), common


def page_words(path: Path) -> list[list[str]]:
    """Ours, page by page."""
    document = PdfReader(ocr=None).read(Blob(path.name, path)).document
    starts = [*document.pages, len(document.text)]
    return [words(document.text[start:end]) for start, end in pairwise(starts)]


def mutool_words(path: Path) -> list[list[str]]:
    command = ["mutool", "draw", "-q", "-F", "txt", str(path)]
    output = subprocess.run(command, capture_output=True, timeout=120, check=False).stdout
    return [words(page) for page in output.decode("utf-8", "replace").split("\f")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--worst", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    shares: dict[str, float] = {}
    for path in sorted(options.folder.glob("*.pdf")):
        try:
            ours = page_words(path)
        except SpoliaError:
            continue
        pairs = [same_order(*pages) for pages in zip(ours, mutool_words(path), strict=False)]
        same, common = (sum(column) for column in zip(*pairs, strict=True)) if pairs else (0, 0)
        if common >= LEAST_WORDS:
            shares[path.name] = same / common
    for name, share in sorted(shares.items(), key=lambda item: item[1])[: options.worst]:
        print(f"{share:.3f} {name}")
    version = subprocess.run(["mutool", "-v"], capture_output=True, text=True, check=False).stderr.strip()
    result = {
        "unit": "share of the words in mutool's order, mean over files",
        "files": len(shares),
        "order": round(statistics.mean(shares.values()), 4),
        "median": round(statistics.median(shares.values()), 4),
        "files_below_0.9": sum(share < 0.9 for share in shares.values()),
        "mutool": version,
    }
    publish("pdf_order", result, options.out)


if __name__ == "__main__":
    main()

"""Places of words in a text that a model has copied."""

import re
from collections.abc import Sequence

from spolia.types import Node

_LEFT_OUT = re.compile(r"\s*[\[(]?(?:\.{3,}|…+)[\])]?\s*")


def parts_of(words: str, passages: Sequence[Node]) -> list[str]:
    """The words; if no passage has them, those before and after each ellipsis (`...`)."""
    if any(place_of(words, node.text) for node in passages):
        return [words]
    return [part for part in _LEFT_OUT.split(words) if part] or [words]


_SHAPES = ("'’‘‛`", '"“”„‟', "-‐‑‒–—−")


def place_of(words: str, text: str) -> tuple[int, int] | None:
    """Where words stand first in a text, start and end; None where they do not.

    >>> place_of("Keld's 'mine'  closed.", "So Keld’s ‘mine’\\nclosed in May.")
    (3, 23)
    >>> place_of("the mine", "a mine")
    """
    for said in (words, words.rstrip(" .。…")):
        written = r"\s+".join(map(re.escape, said.split()))
        for shapes in _SHAPES:
            written = re.sub("|".join(re.escape(re.escape(one)) for one in shapes), f"[{re.escape(shapes)}]", written)
        if written and (found := re.search(written, text)):
            return found.span()
    return None

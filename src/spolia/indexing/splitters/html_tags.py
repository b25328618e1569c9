"""Where the tags of a page stand. A parser does not say it, and a piece must be found in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from spolia.indexing.readers.elements import HEADINGS, LINES, PARAGRAPHS
from spolia.indexing.splitters.layers import Unit

_TAG = re.compile(r"<(?:(?P<comment>!--)|(?P<close>/?)(?P<name>[a-zA-Z][\w:-]{0,40})[^<>]*>|[!?][^<>]*>)")
_PAGE = re.compile(r"<(?:!doctype\s+html|html|body|h[1-6]|p|div|table|ul|ol|section|article|main)\b[^<>]*>", re.I)
_UNSEEN = {name: re.compile(rf"</{name}\b[^<>]*>", re.IGNORECASE) for name in ("script", "style")}


def is_page(text: str) -> bool:
    """Whether a text is HTML as it was written.

    >>> is_page("<p class=a>One"), is_page("a < b, and p > q")
    (True, False)
    """
    return _PAGE.search(text) is not None


@dataclass
class Tags:
    """Places in a page, in order.

    Attributes:
        headings: where those begin that begin a piece.
        blocks: where a block begins or ends, deeper headings among them.
        ends: where any tag begins or ends.
        unseen: stretches without text: scripts, styles, comments and tags that are longer than a piece should be.
    """

    headings: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    unseen: list[tuple[int, int]] = field(default_factory=list)

    def seen(self, length: int) -> Iterator[Unit]:
        """What is between the stretches without text."""
        start = 0
        for begin, end in self.unseen:
            yield Unit(start, begin)
            start = end
        yield Unit(start, length)


def tags_of(text: str, level: int, longest: int) -> Tags:
    """The tags of a page, in one pass.

    Args:
        level: the deepest heading that is counted as one.
        longest: characters of a stretch without text that may be in a piece.
    """
    found, at = Tags(), 0
    while tag := _TAG.search(text, at):
        start, at = tag.start(), _end(text, tag)
        name = (tag["name"] or "").lower()
        if at - start > longest:
            found.unseen.append((start, at))
        elif HEADINGS.get(name, level + 1) <= level and not tag["close"]:
            found.headings.append(start)
        elif name in PARAGRAPHS or name in LINES:
            found.blocks.append(at if tag["close"] else start)
        if not found.ends or found.ends[-1] != start:
            found.ends.append(start)
        found.ends.append(at)
    return found


def _end(text: str, tag: re.Match[str]) -> int:
    """Where a tag ends, together with what it hides; what is never closed goes to the end of the page."""
    if tag["comment"]:
        end = text.find("-->", tag.end())
        return end + 3 if end >= 0 else len(text)
    closing = _UNSEEN.get((tag["name"] or "").lower()) if not tag["close"] else None
    if closing is None:
        return tag.end()
    end_tag = closing.search(text, tag.end())
    return end_tag.end() if end_tag else len(text)

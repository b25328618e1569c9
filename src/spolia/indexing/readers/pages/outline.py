"""What the file itself says of its contents: its title and its bookmarks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from spolia.indexing.readers.pages.line import NO_TEXT
from spolia.types import Heading

_NO_TITLE = re.compile(
    r"untitled|anonymous|microsoft|\.(?:docx?|pdf|tex|dvi|indd|pptx?|odt|rtf|qxd)\b|^\S*[-_\d]\S*$", re.IGNORECASE
)
_MOST = 10_000
_DEEPEST = 6


class Bookmark(NamedTuple):
    """Page from 0, level from 1 and title."""

    page: int
    level: int
    title: str


def title_of(pdf: Any) -> str:
    """What the metadata say, unless that is a file name."""
    found = _folded(pdf.get_metadata_value("Title"))
    return "" if _NO_TITLE.search(found) else found


def bookmarks(pdf: Any) -> Iterator[Bookmark]:
    """The outline, in its order; PDFium leaves out those that lead back to themselves."""
    for number, item in enumerate(pdf.get_toc(max_depth=_DEEPEST)):
        if number == _MOST:
            return
        target = item.get_dest()
        page = target.get_index() if target is not None else None
        title = _folded(item.get_title())
        if page is not None and 0 <= page < len(pdf) and title:
            yield Bookmark(page, item.level + 1, title)


def outlined(marks: Sequence[Bookmark], pages: Sequence[str], starts: Sequence[int]) -> tuple[Heading, ...]:
    """The bookmarks whose title stands on a line of their page; a bookmark alone does not say where on the page."""
    found: dict[int, Heading] = {}
    for page, level, title in marks:
        words = r"\s+".join(re.escape(word) for word in title.split()[:40])
        for line in re.finditer(rf"(?mi)^[\dIVXA-Z.)§ \t]{{0,12}}{words}[ \t.:]*$", pages[page]):
            at = starts[page] + line.start()
            if at not in found:
                found[at] = Heading(at, level, title)
                break
    return tuple(found[at] for at in sorted(found))


def _folded(text: str) -> str:
    return " ".join(NO_TEXT.sub("", text).split())

"""A line of a page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spolia.indexing.readers.hyphens import HYPHEN
from spolia.indexing.readers.pages.area import Area

if TYPE_CHECKING:
    from spolia.indexing.readers.pages.tables import Table

NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\uffff]")
_VERTICAL = 3


@dataclass(slots=True, eq=False)
class Line:
    """A line: what it says, without blanks around; a mark at its end where a word goes on in the next.

    Args:
        text: its characters.
        area: where they stand.
        at: number of its first character on the page, for PDFium; -1 for what does not come from there.
        size: of its letters, in points; 0 where nobody asked.
        bold: whether they are; known only where it matters.
        heading: whether its words may be those of a heading; known only where somebody looked.
        table: that it is a row of; None for running text.
    """

    text: str
    area: Area
    at: int = -1
    size: float = 0.0
    bold: bool = False
    heading: bool = False
    table: Table | None = None

    @property
    def vertical(self) -> bool:
        """Whether it runs up or down the page, as stamps at the margin do."""
        left, top, right, bottom = self.area
        return bottom - top > _VERTICAL * (right - left) and len(self.text) > 4

    @property
    def broken(self) -> bool:
        """Whether its last word goes on in the next line."""
        return self.text.endswith(HYPHEN)

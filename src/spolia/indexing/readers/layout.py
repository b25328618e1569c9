"""Writing the text of a formatted document: blanks folded, paragraphs apart, headings noted where they stand."""

from __future__ import annotations

import re

from spolia.types import Heading

SPACE, LINE, BLANK_LINE = 1, 2, 3
_GAPS = ("", " ", "\n", "\n\n")
_BLANKS = re.compile(r"[ \t\n\r\f\v\u00a0\u200b]+")
# No text, and no store takes half of a surrogate pair.
_REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class Layout:
    """A text that grows.

    Attributes:
        headings: so far, in order.
        exact: above 0, blanks are kept as they are.
        beside: whether a cell of the present table row is written already.

    >>> layout = Layout()
    >>> layout.write("One "), layout.write(" two"), layout.gap(BLANK_LINE), layout.write(" three ")
    (None, None, None, None)
    >>> layout.text()
    'One two\\n\\nthree'
    """

    def __init__(self) -> None:
        self.headings: list[Heading] = []
        self.exact = 0
        self.beside = False
        self._pieces: list[str] = []
        self._length = 0
        self._gap = 0
        self._heading: tuple[int, int] | None = None  # number of pieces and place where it began

    def __len__(self) -> int:
        return self._length

    def text(self) -> str:
        """All that was written."""
        return "".join(self._pieces)

    def gap(self, size: int) -> None:
        """At least so much space before what comes next."""
        self._gap = max(self._gap, size)

    def write(self, text: str, *, exactly: bool = False) -> None:
        """Add text; outside of preformatted parts, blanks are folded into one."""
        text = _REFUSED.sub("", text)
        if self.exact or exactly:
            self._add(text.replace("\r\n", "\n"))
            return
        words = _BLANKS.sub(" ", text)
        if words.startswith(" "):
            self.gap(SPACE)
        if words := words.strip(" "):
            self._add(words)
            if text[-1] != words[-1]:
                self.gap(SPACE)

    def _add(self, text: str) -> None:
        if not text:
            return
        before = _GAPS[self._gap] if self._length else ""
        if before == " " and self._pieces[-1].endswith((" ", "\n")):
            before = ""
        self._pieces.append(before + text)
        self._length += len(before) + len(text)
        self._gap = 0

    def cell(self) -> None:
        """A cell of a table row begins."""
        if self.beside:
            self.write(" | ")

    def open_heading(self) -> None:
        """What is written from here on is a heading."""
        self._heading = (len(self._pieces), self._length + (len(_GAPS[self._gap]) if self._length else 0))

    def close_heading(self, level: int) -> None:
        """The heading ends here; one without words is none."""
        if self._heading is None:
            return
        first, start = self._heading
        self._heading = None
        words = " ".join("".join(self._pieces[first:]).split())
        if words:
            self.headings.append(Heading(start, level, words))

"""XML of any kind: the text of its elements, a line for each that holds text alone."""

from dataclasses import dataclass

from spolia.errors import DocumentError
from spolia.indexing.readers.layout import BLANK_LINE, LINE, SPACE, Layout, LayoutTable
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.safe_xml import characters, events
from spolia.types import Value

_INLINE = frozenset([
    "a", "abbr", "b", "bold", "code", "em", "emphasis", "ext-link", "i", "italic", "link", "monospace",
    "named-content", "sc", "span", "strong", "styled-content", "sub", "sup", "tt", "u", "underline", "xref",
])  # fmt: skip
"""Elements that stand within sentences, in XHTML, JATS, DocBook and TEI."""
_SECTIONS = frozenset(
    ["appendix", "body", "chapter", "div", "part", "sec", "section", *(f"sect{n}" for n in range(1, 6))]
)
_ROWS = {"tr": "row", "row": "row", "td": "cell", "th": "cell", "entry": "cell"}


@dataclass(frozen=True)
class XmlReader(Value):
    """Reads XML. A `title` in a section is a heading, as in JATS and DocBook; tables keep their cells.

    Entities are not expanded and nothing is fetched; a document that declares entities is refused.

    >>> page = b"<book><title>Stones</title><stone><name>Basalt</name><t>3.0</t></stone></book>"
    >>> document = XmlReader().read(Blob("a.xml", page)).document
    >>> document.title, document.text.split("\\n")
    ('Stones', ['Stones', '', 'Basalt', '3.0'])
    """

    name = "xml"
    version = 1
    media_type = "application/xml"
    suffixes = (".xml", ".nxml", ".dbk", ".tei", ".rss", ".atom", ".opml", ".svg")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        if not blob.data.strip():
            raise DocumentError(f"{blob.uri} is no XML that can be read: it is empty.")
        found = characters(blob.data, blob.uri)
        writing = _Writing()
        events(found.text, blob.uri, writing.start, writing.end, writing.layout.write)
        layout = writing.layout
        title = layout.headings[0].text if layout.headings else ""
        return layout.reading(self, blob, title=title, encoding=found.encoding, warnings=found.warnings)


class _Writing:
    def __init__(self) -> None:
        self.layout = Layout()
        self._depth = 0
        self._tables: list[LayoutTable] = []

    def start(self, name: str, said: dict[str, str]) -> None:
        tag = name.rpartition("}")[2].lower()
        if tag in _INLINE:
            return
        self._depth += tag in _SECTIONS
        if tag in ("table", "tgroup"):
            self.layout.gap(BLANK_LINE)
            self._tables.append(LayoutTable(self.layout))
        elif self._tables and tag in _ROWS:
            self._tables[-1].enter(_ROWS[tag])
        elif self._tables and self._tables[-1].in_cell:
            self.layout.gap(SPACE)
        else:
            self.layout.gap(BLANK_LINE if tag in ("p", "para", "title", "sec", "section") else LINE)
        if tag in ("title", "article-title", "booktitle") and not self._tables:
            self.layout.open_heading()

    def end(self, name: str) -> None:
        tag = name.rpartition("}")[2].lower()
        if tag in _INLINE:
            return
        if tag in ("title", "article-title", "booktitle") and not self._tables:
            self.layout.close_heading(min(9, self._depth + 1))
            self.layout.gap(BLANK_LINE)
        self._depth -= tag in _SECTIONS
        if tag in ("table", "tgroup") and self._tables:
            self._tables.pop().close()
        elif self._tables and tag in _ROWS:
            self._tables[-1].leave(_ROWS[tag])
        else:
            self.layout.gap(SPACE if self._tables and self._tables[-1].in_cell else LINE)

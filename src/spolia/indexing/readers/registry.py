"""The reader of each file, chosen by the file name.

The content must agree with the name: a reader refuses another format and says which one it is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from spolia.core.function import untold
from spolia.errors import GroupError
from spolia.indexing.readers.archives import PackedReader, TarReader, ZipReader
from spolia.indexing.readers.html import HtmlReader
from spolia.indexing.readers.mails.mime import EmlReader, MboxReader
from spolia.indexing.readers.mails.msg import MsgReader
from spolia.indexing.readers.markup.latex import LatexReader
from spolia.indexing.readers.markup.line_markup import AsciiDocReader, RstReader
from spolia.indexing.readers.markup.markdown import MarkdownReader
from spolia.indexing.readers.markup.source_code import CodeReader
from spolia.indexing.readers.office.docx import DocxReader
from spolia.indexing.readers.office.epub import EpubReader
from spolia.indexing.readers.office.excel import XlsxReader
from spolia.indexing.readers.office.odf import OdfReader
from spolia.indexing.readers.office.pptx import PptxReader
from spolia.indexing.readers.office.rtf import RtfReader
from spolia.indexing.readers.pdf.reader import PdfReader
from spolia.indexing.readers.pictures.image import ImageReader
from spolia.indexing.readers.reader import Blob, FileReader, Reading, is_pattern
from spolia.indexing.readers.records.csv_files import CsvReader
from spolia.indexing.readers.records.json_files import JsonLinesReader, JsonReader, NotebookReader
from spolia.indexing.readers.records.xml_files import XmlReader
from spolia.indexing.readers.text import TextReader
from spolia.types import Document, Value, kept

Reads: TypeAlias = Callable[[Blob], "str | Document | Reading"]


@dataclass(frozen=True)
class FunctionReader(Value):
    """Reads files by a function.

    Args:
        function: takes the `Blob` (its name, bytes, or the file to open) and gives the text, a `Document`, of which all
            but `id` and `uri` count, or a whole `Reading`.
        suffixes: suffixes or patterns of the names that it reads.
        version: count it up when the function gives another text for the same bytes.
        media_type: what its documents are.

    Raises:
        GroupError: for a lambda, or a function that depends on names of the function around it: a store remembers by
            what its documents were read, and could not tell it from another one.

    >>> def shouted(blob: Blob) -> str:
    ...     return blob.data.decode().upper()
    >>> FunctionReader(shouted, ("*.foo",)).read(Blob("a.foo", b"stones")).document.text
    'STONES'
    """

    function: Reads = field(compare=False)
    suffixes: tuple[str, ...]
    version: int = 1
    media_type: str = "text/plain"
    place: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        if reason := untold(self.function):
            raise GroupError(f"A store cannot remember that its documents were read by this function: {reason}")
        object.__setattr__(self, "place", f"{self.function.__module__}:{self.function.__qualname__}")

    @kept
    def name(self) -> str:
        """The function's name; ids of documents end with it."""
        return self.function.__name__

    def read(self, blob: Blob, /) -> Reading:
        found = self.function(blob)
        if isinstance(found, Reading):
            return found.but(document=self._own(found.document, blob))
        if isinstance(found, Document):
            return Reading(self._own(found, blob))
        if isinstance(found, str):
            return Reading(blob.document(self, found))
        raise TypeError(f"{self.name} gave {type(found).__name__}. Give a text, a Document or a Reading.")

    def _own(self, document: Document, blob: Blob) -> Document:
        """The document under the id that says from which bytes and how it was read."""
        own = blob.document(self, "")
        return document.but(id=own.id, uri=own.uri)


READERS: tuple[FileReader, ...] = (
    TextReader(), MarkdownReader(), HtmlReader(), PdfReader(), ImageReader(), DocxReader(), PptxReader(),
    XlsxReader(), OdfReader(), RtfReader(), EpubReader(), RstReader(), AsciiDocReader(), LatexReader(),
    CsvReader(), JsonReader(), JsonLinesReader(), NotebookReader(), XmlReader(), CodeReader(), EmlReader(),
    MsgReader(), MboxReader(), ZipReader(), TarReader(), PackedReader(),
)  # fmt: skip
Readers: TypeAlias = Sequence[FileReader] | Mapping[str, FileReader | Reads]
"""All of them; or, by suffix or pattern, those that read some files otherwise than the built-in ones."""


def by_suffix(readers: Readers = READERS) -> dict[str, FileReader]:
    """The reader of each pattern and suffix, patterns first; where two know one, the later one.

    Raises:
        GroupError: a function that a store could not tell from another one, or that nothing names the files of.

    >>> by_suffix()[".md"]
    MarkdownReader()
    >>> from spolia.indexing.readers.reader import Blob, reader_of
    >>> def shouted(blob: Blob) -> str:
    ...     return blob.data.decode().upper()
    >>> reader_of("notes/a.foo", by_suffix({"*.foo": shouted})).read(Blob("a.foo", b"stones")).document.text
    'STONES'
    """
    found = {_suffix(known): reader for known, reader in _pairs(readers)}
    patterns = {known: reader for known, reader in reversed(found.items()) if is_pattern(known)}
    return patterns | {known: reader for known, reader in found.items() if known not in patterns}


def _pairs(readers: Readers) -> Iterator[tuple[str, FileReader]]:
    if isinstance(readers, Mapping):
        yield from _pairs(READERS)
        for known, reader in readers.items():
            yield known, reader if isinstance(reader, FileReader) else FunctionReader(reader, (known,))
    else:
        for reader in readers:
            if not isinstance(reader, FileReader):
                name = getattr(reader, "__name__", "READER")
                raise GroupError(
                    f"{reader!r:.80} ({type(reader).__name__}) is no reader. Write which files it reads: "
                    f"readers={{'*.foo': {name}}}."
                )
            yield from ((known, reader) for known in reader.suffixes)


def _suffix(known: str) -> str:
    """`*.foo` and `.foo` are the same."""
    plain = known.lower()
    return plain[1:] if plain.startswith("*.") and not is_pattern(plain[1:]) else plain


BUILT_IN = by_suffix(READERS)
"""The reader of each pattern and suffix, unless the caller names others."""

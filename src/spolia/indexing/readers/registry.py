"""The reader of each file, chosen by the file name.

The content must agree with the name: a reader refuses another format and says which one it is.
"""

from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from typing import Any, TypeAlias

from spolia.core.function import hidden_dependency
from spolia.core.public_names import load_name
from spolia.core.redaction import Redactor, mask_places
from spolia.errors import GroupError
from spolia.indexing.readers.reader import (
    Blob,
    Container,
    FileReader,
    ProgramReader,
    Reading,
    for_web,
    is_isolated,
    is_pattern,
)
from spolia.types import Document, Value, lazy_property

Reads: TypeAlias = Callable[[Blob], "str | Document | Reading"]


@dataclass(frozen=True)
class FunctionReader(Value):
    """Reader that calls a function.

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
        if reason := hidden_dependency(self.function):
            raise GroupError(f"A store cannot remember that its documents were read by this function: {reason}")
        # Compared instead of the function, which is another object in each process.
        object.__setattr__(self, "place", f"{self.function.__module__}:{self.function.__qualname__}")

    @lazy_property
    def name(self) -> str:
        """Return the function's name, with which ids of documents end."""
        return self.function.__name__

    def read(self, blob: Blob, /) -> Reading:
        result = self.function(blob)
        if isinstance(result, Reading):
            return result.but(document=self._identify(result.document, blob))
        if isinstance(result, Document):
            return Reading(self._identify(result, blob))
        if isinstance(result, str):
            return Reading(blob.document(self, result))
        raise TypeError(f"{self.name} gave {type(result).__name__}. Give a text, a Document or a Reading.")

    def _identify(self, document: Document, blob: Blob) -> Document:
        """Give a document the id and uri that this reader's documents of a blob have."""
        identified = blob.document(self, "")
        return document.but(id=identified.id, uri=identified.uri)


_BUILT_IN_SUFFIXES: Mapping[str, str] = {
    "text.TextReader": ".txt .text .log",
    "subtitles.SubtitleReader": ".srt .vtt",
    "markup.markdown.MarkdownReader": ".md .markdown .mdown .mkd",
    "html.HtmlReader": ".html .htm .xhtml",
    "pdf.reader.PdfReader": ".pdf",
    "pictures.image.ImageReader": ".png .jpg .jpeg .gif .webp .tif .tiff .bmp",
    "office.docx.DocxReader": ".docx .docm .dotx .dotm",
    "office.pptx.PptxReader": ".pptx .pptm .ppsx .ppsm .potx",
    "office.excel.XlsxReader": ".xlsx .xlsm .xltx .xls",
    "office.odf.OdfReader": ".odt .ods .odp .ott .ots .otp",
    "office.rtf.RtfReader": ".rtf",
    "office.epub.EpubReader": ".epub",
    "markup.line_markup.RstReader": ".rst .rest",
    "markup.line_markup.AsciiDocReader": ".adoc .asciidoc .asc",
    "markup.line_markup.OrgReader": ".org",
    "markup.latex.LatexReader": ".tex .latex .ltx",
    "records.CsvReader": ".csv .tsv .tab .psv",
    "records.JsonReader": ".json .geojson .jsonld",
    "records.JsonLinesReader": ".jsonl .ndjson",
    "records.NotebookReader": ".ipynb",
    "records.XmlReader": ".xml .nxml .dbk .tei .rss .atom .opml .svg",
    "markup.source_code.CodeReader": (
        ".py .pyi .pyw .js .mjs .cjs .jsx .ts .tsx .java .kt .kts .scala .groovy .c .h .cc .cpp .cxx .hpp .hh "
        ".cs .go .rs .swift .m .rb .php .pl .pm .r .jl .lua .sh .bash .zsh .ps1 .sql .hs .ml .ex .exs .erl "
        ".clj .lisp .el .dart .zig .nim .f90 .f .pas .vb .asm .s .css .scss .less .vue .svelte .proto "
        ".graphql .tf .yaml .yml .toml .ini .cfg .cmake"
    ),
    "mails.EmlReader": ".eml .mht .mhtml",
    "mails.MsgReader": ".msg",
    "calendars.CalendarReader": ".ics .ical",
    "mails.MboxReader": ".mbox .mbx",
    "archives.ZipReader": ".zip",
    "archives.TarReader": ".tar .tar.gz .tgz .tar.bz2 .tbz2 .tar.xz .txz",
    "archives.PackedReader": ".gz .bz2 .xz",
}
"""The built-in readers, below this package, and the suffixes of their files. The module of one is loaded when its first
file is found: to load all takes 0.1 s."""


@cache
def _load_reader(place: str) -> FileReader:
    # Cached: readers are immutable, so one of each is enough.
    module, _, name = place.rpartition(".")
    reader: FileReader = load_name(f"{__package__}.{module}", name)()
    return reader


class _BuiltInReaders(Sequence[FileReader]):
    """Built-in readers, each constructed at its first use."""

    def __len__(self) -> int:
        return len(_BUILT_IN_SUFFIXES)

    def __getitem__(self, index: Any) -> Any:
        places = tuple(_BUILT_IN_SUFFIXES)[index]
        return _load_reader(places) if isinstance(places, str) else tuple(map(_load_reader, places))

    def __repr__(self) -> str:
        return "READERS"


class _ReaderMap(UserDict[str, Any]):
    """Readers by pattern and suffix; built-in ones are loaded at their first use."""

    def __getitem__(self, key: str) -> FileReader:
        entry: FileReader | str = self.data[key]
        return _load_reader(entry) if isinstance(entry, str) else entry


READERS: Sequence[FileReader] = _BuiltInReaders()
Readers: TypeAlias = Sequence[FileReader] | Mapping[str, FileReader | Reads]
"""All of them; or, by suffix or pattern, those that read some files otherwise than the built-in ones."""


def by_suffix(readers: Readers = READERS) -> Mapping[str, FileReader]:
    """Map each pattern and suffix to its reader, patterns first. If two readers claim one, the later one wins.

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
    return _by_built_in_suffix() if readers is READERS else _by_suffix(_pairs(readers))


@cache  # for each text that is added, it would take half a millisecond
def _by_built_in_suffix() -> Mapping[str, FileReader]:
    return _by_suffix(_pairs(READERS))


def _by_suffix(pairs: Iterable[tuple[str, FileReader | str]]) -> Mapping[str, FileReader]:
    readers = {_normalize_key(pattern): reader for pattern, reader in pairs}
    # Reversed: of patterns that fit one name, the later one wins.
    patterns = {pattern: reader for pattern, reader in reversed(readers.items()) if is_pattern(pattern)}
    return _ReaderMap(patterns | {pattern: reader for pattern, reader in readers.items() if pattern not in patterns})


def _pairs(readers: Readers) -> Iterator[tuple[str, FileReader | str]]:
    if readers is READERS:
        yield from ((key, place) for place, suffixes in _BUILT_IN_SUFFIXES.items() for key in suffixes.split())
    elif isinstance(readers, Mapping):
        yield from _pairs(READERS)
        for key, reader in readers.items():
            yield key, reader if isinstance(reader, FileReader) else FunctionReader(reader, (key,))
    else:
        for reader in readers:
            if not isinstance(reader, FileReader):
                name = getattr(reader, "__name__", "READER")
                raise GroupError(
                    f"{reader!r:.80} ({type(reader).__name__}) is not a reader. Write which files it reads: "
                    f"readers={{'*.foo': {name}}}."
                )
            yield from ((key, reader) for key in reader.suffixes)


@dataclass(frozen=True)
class RedactingReader(Value):
    """Reader that redacts the result of another reader: text, title, headings, tables and fields.

    The text stays as long as it was, so quotes, pages and boxes are right. Pictures are left out: nobody has looked
    into them.
    """

    reader: FileReader
    redactor: Redactor

    @lazy_property
    def name(self) -> str:
        return f"{self.reader.name}-redacted-{blake2b(repr(self.redactor).encode(), digest_size=4).hexdigest()}"

    @property
    def version(self) -> int:
        return self.reader.version

    @property
    def media_type(self) -> str:
        return self.reader.media_type

    @property
    def suffixes(self) -> tuple[str, ...]:
        return self.reader.suffixes

    @property
    def isolated(self) -> bool:
        return is_isolated(self.reader)

    def for_web(self) -> "RedactingReader":
        return self.but(reader=for_web(self.reader))

    def lacking(self) -> str:
        return self.reader.lacking() if isinstance(self.reader, ProgramReader) else ""

    def read(self, blob: Blob, /) -> Reading:
        reading = self.reader.read(blob)
        document = reading.document
        regions = tuple(
            region.but(
                rows=tuple(tuple(map(self._redact, row)) for row in region.rows), caption=self._redact(region.caption)
            ).but(image="")
            for region in document.regions
        )
        headings = tuple(heading.but(text=self._redact(heading.text)) for heading in document.headings)
        meta = tuple((key, self._redact(value) if isinstance(value, str) else value) for key, value in document.meta)
        redacted = document.but(
            id=f"{blob.content_hash}.{self.name}",
            text=self._redact(document.text),
            title=self._redact(document.title),
            headings=headings,
            regions=regions,
            meta=meta,
        )
        dropped = dict(reading.dropped) | ({"pictures, since it is redacted": n} if (n := len(reading.images)) else {})
        return reading.but(document=redacted, images=(), linked_images=(), dropped=tuple(sorted(dropped.items())))

    def _redact(self, text: str) -> str:
        return mask_places(text, self.redactor)


@dataclass(frozen=True)
class RedactingContainer(RedactingReader):
    """Redacting reader with parts, such as the attachments of a mail. Their own readers read those."""

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        assert isinstance(self.reader, Container)
        return self.reader.parts(blob)


def redacting_readers(redactor: Redactor, readers: Readers = READERS) -> Mapping[str, FileReader]:
    """Wrap readers so that they redact, for `sync(readers=…)`.

    >>> from spolia.core.redaction import Patterns
    >>> from spolia.indexing.readers.reader import Blob
    >>> redacting_readers(Patterns())[".txt"].read(Blob("a.txt", b"Ask ann@example.org.")).document.text
    'Ask ███████████████.'
    """
    wrapped: dict[str, FileReader] = {}
    for key, reader in by_suffix(readers).items():
        kind = RedactingContainer if isinstance(reader, Container) else RedactingReader
        wrapped[key] = kind(reader, redactor) if hasattr(reader, "read") else reader
    return wrapped


def _normalize_key(key: str) -> str:
    """Lower the case of a key, and shorten `*.foo` to `.foo`."""
    plain = key.lower()
    return plain[1:] if plain.startswith("*.") and not is_pattern(plain[1:]) else plain

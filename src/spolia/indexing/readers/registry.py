"""The reader of each file, chosen by the file name.

The content must agree with the name: a reader refuses another format and says which one it is.
"""

from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from importlib import import_module
from typing import Any, TypeAlias

from spolia.core.function import untold
from spolia.core.redaction import Redactor, masked
from spolia.errors import GroupError
from spolia.indexing.readers.reader import Blob, Container, Equipped, FileReader, Reading, for_web, is_pattern
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


_PLACES: Mapping[str, str] = {
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
def _made(place: str) -> FileReader:
    module, _, name = place.rpartition(".")
    reader: FileReader = getattr(import_module(f"{__package__}.{module}"), name)()
    return reader


class _BuiltIn(Sequence[FileReader]):
    """All built-in readers; each is made when it is asked for."""

    def __len__(self) -> int:
        return len(_PLACES)

    def __getitem__(self, at: Any) -> Any:
        places = tuple(_PLACES)[at]
        return _made(places) if isinstance(places, str) else tuple(map(_made, places))

    def __repr__(self) -> str:
        return "READERS"


class _BySuffix(UserDict[str, Any]):
    """Readers by pattern and suffix, built-in ones by their place until they are asked for."""

    def __getitem__(self, known: str) -> FileReader:
        found: FileReader | str = self.data[known]
        return _made(found) if isinstance(found, str) else found


READERS: Sequence[FileReader] = _BuiltIn()
Readers: TypeAlias = Sequence[FileReader] | Mapping[str, FileReader | Reads]
"""All of them; or, by suffix or pattern, those that read some files otherwise than the built-in ones."""


def by_suffix(readers: Readers = READERS) -> Mapping[str, FileReader]:
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
    return _by_built_in_suffix() if readers is READERS else _by_suffix(_pairs(readers))


@cache  # for each text that is added, it would take half a millisecond
def _by_built_in_suffix() -> Mapping[str, FileReader]:
    return _by_suffix(_pairs(READERS))


def _by_suffix(pairs: Iterable[tuple[str, FileReader | str]]) -> Mapping[str, FileReader]:
    found = {_suffix(known): reader for known, reader in pairs}
    patterns = {known: reader for known, reader in reversed(found.items()) if is_pattern(known)}
    return _BySuffix(patterns | {known: reader for known, reader in found.items() if known not in patterns})


def _pairs(readers: Readers) -> Iterator[tuple[str, FileReader | str]]:
    if readers is READERS:
        yield from ((known, place) for place, suffixes in _PLACES.items() for known in suffixes.split())
    elif isinstance(readers, Mapping):
        yield from _pairs(READERS)
        for known, reader in readers.items():
            yield known, reader if isinstance(reader, FileReader) else FunctionReader(reader, (known,))
    else:
        for reader in readers:
            if not isinstance(reader, FileReader):
                name = getattr(reader, "__name__", "READER")
                raise GroupError(
                    f"{reader!r:.80} ({type(reader).__name__}) is not a reader. Write which files it reads: "
                    f"readers={{'*.foo': {name}}}."
                )
            yield from ((known, reader) for known in reader.suffixes)


@dataclass(frozen=True)
class RedactingReader(Value):
    """Reads files as another reader does, and covers what a redactor finds: in the text, the title, tables and fields.

    The text stays as long as it was, so quotes, pages and boxes are right. Pictures are left out: nobody has looked
    into them.
    """

    reader: FileReader
    redactor: Redactor

    @kept
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
    def apart(self) -> bool:
        return getattr(self.reader, "apart", False)

    def for_web(self) -> "RedactingReader":
        return self.but(reader=for_web(self.reader))

    def lacking(self) -> str:
        return self.reader.lacking() if isinstance(self.reader, Equipped) else ""

    def read(self, blob: Blob, /) -> Reading:
        found = self.reader.read(blob)
        document = found.document
        regions = tuple(
            one.but(
                rows=tuple(tuple(map(self._covered, row)) for row in one.rows), caption=self._covered(one.caption)
            ).but(image="")
            for one in document.regions
        )
        headings = tuple(one.but(text=self._covered(one.text)) for one in document.headings)
        meta = tuple((key, self._covered(value) if isinstance(value, str) else value) for key, value in document.meta)
        covered = document.but(
            id=f"{blob.content_hash}.{self.name}",
            text=self._covered(document.text),
            title=self._covered(document.title),
            headings=headings,
            regions=regions,
            meta=meta,
        )
        dropped = dict(found.dropped) | ({"pictures, since it is redacted": n} if (n := len(found.images)) else {})
        return found.but(document=covered, images=(), beside=(), dropped=tuple(sorted(dropped.items())))

    def _covered(self, text: str) -> str:
        return masked(text, self.redactor)


@dataclass(frozen=True)
class RedactingContainer(RedactingReader):
    """A reader that also gives parts, such as the attachments of a mail; those are read by their own readers."""

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        assert isinstance(self.reader, Container)
        return self.reader.parts(blob)


def redacting(redactor: Redactor, readers: Readers = READERS) -> Mapping[str, FileReader]:
    """Readers that cover what a redactor finds, as `sync(readers=…)` takes them.

    >>> from spolia.core.redaction import Patterns
    >>> from spolia.indexing.readers.reader import Blob
    >>> redacting(Patterns())[".txt"].read(Blob("a.txt", b"Ask ann@example.org.")).document.text
    'Ask ███████████████.'
    """
    found: dict[str, FileReader] = {}
    for known, reader in by_suffix(readers).items():
        kind = RedactingContainer if isinstance(reader, Container) else RedactingReader
        found[known] = kind(reader, redactor) if hasattr(reader, "read") else reader
    return found


def _suffix(known: str) -> str:
    """`*.foo` and `.foo` are the same."""
    plain = known.lower()
    return plain[1:] if plain.startswith("*.") and not is_pattern(plain[1:]) else plain

"""Optional readers: converters to Markdown (Docling, Xberg, pandoc), and a server that turns speech into text."""

import asyncio
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import Any

from spolia.deferred import docling_converter, docling_models, xberg
from spolia.errors import DocumentError, EncryptedDocument, MissingExtra, require
from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.layout import LINE, Layout
from spolia.indexing.readers.markup.markdown import MarkdownReader, headings_of, regions_of
from spolia.indexing.readers.reader import Blob, FileReader, Reading
from spolia.models.http.transcriber import Transcriber
from spolia.types import Meta, Value

_PAGE_BREAK = "\n\n"
_XBERG_ADVICE = "Fetch it again, or use another reader."


def markdown_reading(
    reader: FileReader,
    blob: Blob,
    pages: Sequence[str],
    *,
    title: str = "",
    meta: Meta = (),
    warnings: tuple[str, ...] = (),
    is_paged: bool = True,
) -> Reading:
    """Build the reading of pages of Markdown, with headings and regions. `pages`: at least one. `is_paged`: whether
    they are pages of the file; else it has none."""
    pages = [page.strip() for page in pages]
    text = _PAGE_BREAK.join(pages)
    starts = tuple(accumulate((len(page) + len(_PAGE_BREAK) for page in pages[:-1]), initial=0))
    headings = tuple(headings_of(text))
    document = blob.document(
        reader,
        text,
        title=title or next((heading.text for heading in headings if heading.level == 1), ""),
        pages=starts if is_paged else (),
        headings=headings,
        regions=tuple(regions_of(text)),
        meta=meta,
    )
    empty = tuple(number for number, page in enumerate(pages, 1) if not page) if is_paged else ()
    return Reading(document, empty_pages=empty, warnings=warnings)


@dataclass(frozen=True)
class DoclingReader(Value):
    """Reader of what Docling reads, as Markdown. Tables and code are regions, pages are those of the file.

    It is not among the built-in readers: `sync(..., readers={"*.pdf": DoclingReader()})`. For PDF and pictures it
    fetches models when it is first used, and needs torch.

    Args:
        suffixes: that it reads where it is in a list of readers.
        most_pages: a longer document raises.
    """

    suffixes: tuple[str, ...] = (".pdf",)
    most_pages: int = 5000

    name = "docling"
    version = 1
    media_type = "text/markdown"

    def read(self, blob: Blob, /) -> Reading:
        require(docling_converter, f"Reading {blob.uri}")
        stream = docling_models.DocumentStream(name=blob.uri.rpartition("/")[2], stream=BytesIO(blob.data))
        try:
            result = docling_converter.DocumentConverter().convert(
                stream, raises_on_error=True, max_num_pages=self.most_pages
            )
            document = result.document
            numbers = sorted(document.pages)
            pages = [document.export_to_markdown(page_no=number) for number in numbers]
            pages = pages or [document.export_to_markdown()]
        except Exception as error:  # it raises ConversionError, and whatever its back ends and models do
            reason = f"{type(error).__name__}: {error}"
            raise _reading_error(blob, "Docling", reason, "Use another reader for it.") from error
        warnings = tuple(f"Docling: {problem.error_message}" for problem in result.errors)
        return markdown_reading(self, blob, pages, warnings=warnings, is_paged=bool(numbers))


@dataclass(frozen=True)
class XbergReader(Value):
    """Reader of whatever Xberg reads, as Markdown. Tables and code are regions.

    It is not among the built-in readers: `sync(..., readers={"*.doc": XbergReader(), "*.pages": XbergReader()})`.

    Args:
        suffixes: that it reads where it is in a list of readers.
        ocr: whether scans are read, with the Tesseract that it brings or finds.
        timeout_s: seconds for a file.
    """

    suffixes: tuple[str, ...] = (".doc", ".ppt", ".xlsb", ".pages", ".numbers", ".key", ".org", ".typ", ".fb2", ".hwp")
    ocr: bool = False
    timeout_s: int = 300

    name = "xberg"
    version = 1
    isolated = True
    media_type = "text/markdown"

    def read(self, blob: Blob, /) -> Reading:
        result = self._extract(blob)
        metadata = result.metadata
        pages = [page.content for page in result.pages or ()]
        return markdown_reading(
            self,
            blob,
            pages or [result.content],
            title=" ".join((metadata.title or "").split()),
            meta=fields(
                author=metadata.authors,
                date=metadata.created_at,
                modified=metadata.modified_at,
                subject=metadata.subject,
                keywords=metadata.keywords,
                language=metadata.language,
            ),
            warnings=tuple(f"Xberg: {warning.message}" for warning in result.processing_warnings),
            is_paged=bool(pages),
        )

    def _extract(self, blob: Blob) -> Any:
        require(xberg, f"Reading {blob.uri}")
        config = xberg.ExtractionConfig(
            output_format="markdown",
            use_cache=False,  # a store keeps what was read; a cache would keep private texts a second time
            disable_ocr=not self.ocr,
            extraction_timeout_secs=self.timeout_s,
            pages=xberg.PageConfig(extract_pages=True),
        )
        source = xberg.ExtractInput(kind="bytes", bytes=blob.data, filename=blob.uri.rpartition("/")[2])
        with ThreadPoolExecutor(1) as executor:  # the caller's thread may have a loop of its own
            try:
                result = executor.submit(asyncio.run, xberg.extract(source, config)).result()
            except Exception as error:  # it raises RuntimeError for most of what can go wrong
                raise _reading_error(blob, "Xberg", str(error), _XBERG_ADVICE) from error
        if not result.results:
            reason = "; ".join(problem.message for problem in result.errors) or "it found no document"
            raise _reading_error(blob, "Xberg", reason, _XBERG_ADVICE)
        return result.results[0]


_PANDOC_FORMATS = {
    ".tex": "latex", ".latex": "latex", ".ltx": "latex", ".org": "org", ".typ": "typst", ".fb2": "fb2", ".wiki":
    "mediawiki", ".textile": "textile", ".muse": "muse", ".t2t": "t2t", ".dj": "djot", ".bib": "bibtex", ".ris": "ris",
    ".docx": "docx", ".odt": "odt", ".epub": "epub", ".rst": "rst", ".html": "html", ".opml": "opml",
}  # fmt: skip
_PANDOC_MARKDOWN = "-".join((
    "markdown", "header_attributes", "link_attributes", "bracketed_spans", "raw_attribute", "fenced_code_attributes",
    "inline_code_attributes", "simple_tables", "multiline_tables", "fenced_divs", "native_divs", "native_spans",
    "raw_html", "smart", "implicit_figures",
))  # fmt: skip
"""What pandoc writes: Markdown without what only pandoc reads; a table that spans cells is drawn as a grid."""


@dataclass(frozen=True)
class PandocReader(Value):
    """Reader of what pandoc reads, as Markdown with its headings, tables, formulas and code. Macros of LaTeX are
    expanded.

    It is not among the built-in readers: `sync(..., readers={"*.tex": PandocReader()})`. It runs the program `pandoc`
    (2.15 or later) from the PATH, else the one that the extra `pandoc` brings, in its sandbox: no file is read besides.

    Args:
        suffixes: that it reads where it is in a list of readers.
        format: as pandoc names it (`pandoc --list-input-formats`); empty: by the suffix.
        timeout_s: seconds for a file.
        memory_mb: for a file.

    Source: https://pandoc.org/MANUAL.html
    """

    suffixes: tuple[str, ...] = (".tex", ".latex", ".ltx", ".org", ".typ", ".fb2", ".wiki", ".textile", ".muse", ".t2t")
    format: str = ""
    timeout_s: float = 60.0
    memory_mb: int = 1_024

    name = "pandoc"
    version = 1
    media_type = "text/markdown"

    def read(self, blob: Blob, /) -> Reading:
        suffix = f".{blob.uri.rpartition('.')[2].lower()}"
        format_name = self.format or _PANDOC_FORMATS.get(suffix)
        if format_name is None:
            raise DocumentError(
                f"{blob.uri}: which format pandoc should read it as is not known from {suffix!r}. Write it: "
                "PandocReader(format='docbook'); pandoc --list-input-formats lists them."
            )
        markdown, warnings = self._convert(blob, format_name)
        reading = MarkdownReader().read(Blob(blob.uri, markdown))
        document = reading.document.but(id=blob.document(self, "").id, media_type=self.media_type)
        return reading.but(document=document, encoding="", warnings=(*warnings, *reading.warnings))

    def _convert(self, blob: Blob, format_name: str) -> tuple[bytes, tuple[str, ...]]:
        """Convert a blob to Markdown; also return pandoc's warnings."""
        command = [
            pandoc_program(f"Reading {blob.uri}"), "+RTS", f"-M{self.memory_mb}M", "-RTS", "--sandbox", "--standalone",
            "--wrap=none", "--markdown-headings=atx", f"--from={format_name}", f"--to={_PANDOC_MARKDOWN}",
        ]  # fmt: skip
        try:
            process = subprocess.run(
                # In no folder of the caller's: whatever a document includes by a relative name is not there.
                command,
                input=blob.data,
                capture_output=True,
                timeout=self.timeout_s,
                check=False,
                cwd="/",
            )
        except subprocess.TimeoutExpired as error:
            reason = f"it took more than {self.timeout_s:g} s"
            raise _reading_error(blob, "pandoc", reason, "PandocReader(timeout_s=...) allows more.") from error
        except OSError as error:
            raise _reading_error(blob, "pandoc", f"it could not be started: {error}", "Install it again.") from error
        messages = " ".join(process.stderr.decode("utf-8", "replace").split())
        if process.returncode:
            raise _reading_error(
                blob, "pandoc", messages or f"it ended with {process.returncode}", "Correct it at that place."
            )
        return process.stdout, (f"pandoc: {messages:.300}",) if messages else ()


def pandoc_program(purpose: str) -> str:
    """Return the program on the PATH, else the one that the extra brings.

    Raises:
        MissingExtra: neither is there.
    """
    if on_path := shutil.which("pandoc"):
        return on_path
    package = find_spec("pypandoc")
    for folder in (package.submodule_search_locations or ()) if package else ():
        if program := shutil.which("pandoc", path=str(Path(folder) / "files")):
            return program
    raise MissingExtra("pandoc", "the program pandoc", purpose)


def _reading_error(blob: Blob, library: str, reason: str, advice: str) -> DocumentError:
    if "password" in reason.lower() or "encrypted" in reason.lower():
        return EncryptedDocument(
            f"{blob.uri} is locked with a password. Write a copy without one. {library} says: {reason:.300}"
        )
    return DocumentError(f"{blob.uri} could not be read by {library}: {reason:.300}. {advice}")


@dataclass(frozen=True)
class MediaReader(Value):
    """Reader of recordings, through a server that turns speech into text. Each timed segment is a region, cited by its
    time.

    It is not among the built-in readers, since it sends the files to a server:
    `sync(..., readers={"*.mp3": MediaReader(Transcriber("whisper-1", "https://api.openai.com/v1"))})`.

    >>> from spolia.testing import OpenAIServer, ServedReply
    >>> body = b'{"text": "Old stones.", "segments": [{"start": 61.0, "end": 62.5, "text": " Old stones."}]}'
    >>> with OpenAIServer(ServedReply(body=body)) as server:
    ...     document = MediaReader(Transcriber("whisper-1", server.url)).read(Blob("a.mp3", b"...")).document
    >>> document.text, document.regions[0].kind, document.regions[0].seconds
    ('Old stones.', 'segment', (61.0, 62.5))
    """

    transcriber: Transcriber

    name = "recording"
    version = 2
    media_type = "text/plain"
    suffixes = (
        ".mp3", ".m4a", ".wav", ".ogg", ".oga", ".opus", ".flac", ".mpga", ".mp4", ".m4v", ".mpeg", ".webm", ".mov",
    )  # fmt: skip

    def read(self, blob: Blob, /) -> Reading:
        transcript = self.transcriber.transcribe(blob.uri.rpartition("/")[2], blob.data)
        layout = Layout()
        for segment in transcript.segments:
            layout.gap(LINE)
            mark = layout.mark()
            layout.write(segment.text)
            layout.add_region("segment", mark, seconds=(segment.start_s, segment.end_s))
        if not transcript.segments:
            layout.write(transcript.text)
        meta = fields(language=transcript.language, duration_s=transcript.duration_s or None)
        return layout.build_reading(self, blob, meta=meta)

"""Opening a PDF: its password, and what is said of one that cannot be opened."""

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_ulong
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pypdfium2 import PdfDocument, PdfiumError, raw

from spolia.errors import DocumentError, EncryptedDocument
from spolia.indexing.readers.pdf.lines import NO_TEXT
from spolia.indexing.readers.reader import Blob
from spolia.types import Heading

ONE_AT_A_TIME = threading.RLock()
"""PDFium may be used by one thread only."""
_PASSWORD = 4  # FPDF_ERR_PASSWORD


class PdfFile:
    """A PDF that is open.

    Attributes:
        form: its form, which must be there before a page is; None without fields.
        kind: of the form, as PDFium numbers it; 0 for none.
    """

    def __init__(self, blob: Blob, passwords: tuple[tuple[str, str], ...]) -> None:
        self._blob, self._passwords = blob, passwords
        self._open()

    def _open(self) -> None:
        with ONE_AT_A_TIME:
            self.pdf = _document(self._blob, self._passwords)
            self.kind = self.pdf.get_formtype()
            if self.kind:
                self.pdf.init_forms()
            self.form = self.pdf.formenv.raw if self.kind else None

    def renew(self) -> None:
        """Open it again: PDFium keeps what it has read of each page until a document is closed."""
        self.close()
        self._open()

    def close(self) -> None:
        with ONE_AT_A_TIME:
            self.pdf.close()


@contextmanager
def opened(blob: Blob, passwords: tuple[tuple[str, str], ...] = ()) -> Iterator[PdfFile]:
    """The file, read from its path where it has one; what fails while it is open is a `DocumentError`. `passwords`:
    patterns of uris, each with the name of an environment variable; the first that fits counts."""
    if not blob.size:
        raise DocumentError(f"{blob.uri} is no PDF: it has 0 bytes. Put the whole file there, or take it away.")
    file = PdfFile(blob, passwords)
    try:
        yield file
    except (PdfiumError, ValueError, OSError, OverflowError, RecursionError) as error:
        raise damaged(blob, error) from error
    finally:
        file.close()


def _document(blob: Blob, passwords: tuple[tuple[str, str], ...]) -> Any:
    name = next((name for pattern, name in passwords if fnmatchcase(blob.uri, pattern)), "")
    try:
        return PdfDocument(_source(blob), password=os.environ.get(name) or None, autoclose=True)
    except PdfiumError as error:
        if getattr(error, "err_code", None) == _PASSWORD:
            raise _locked(blob, name) from error
        raise damaged(blob, error) from error
    except (OSError, ValueError) as error:
        raise damaged(blob, error) from error


def _source(blob: Blob) -> Any:
    """What PDFium opens: a path it can be told, else a stream, so that a large file is not in memory."""
    if isinstance(blob.content, Path):
        try:
            str(blob.content).encode()
        except UnicodeEncodeError:
            return blob.open()
        return blob.content
    return blob.content


def _locked(blob: Blob, name: str) -> EncryptedDocument:
    if name and os.environ.get(name):
        tried = f"and the one in the environment variable {name} does not open it"
    elif name:
        tried = f"and the environment variable {name} is not set"
    else:
        tried = "and none is known for it"
    return EncryptedDocument(
        f"{blob.uri} is locked with a password, {tried}. Put the password into an environment variable and write "
        f"PdfReader(passwords=(({blob.uri!r}, 'NAME'),)), for the command line among READERS in a file that --known "
        "names, or write a copy without one, for example: "
        "qpdf --password=PASSWORD --decrypt OLD.pdf NEW.pdf"
    )


def damaged(blob: Blob, why: object) -> DocumentError:
    """What is said of a file that is broken, or something else."""
    with blob.open() as file:
        begin = file.read(8)
    return DocumentError(
        f"{blob.uri} is no PDF that can be read: {why}; it has {blob.size} bytes and begins with {begin!r}. "
        "Fetch it again, or mend it, for example: qpdf OLD.pdf NEW.pdf"
    )


_MOST_ATTACHED = 1_000
_LARGEST = 200_000_000
_SEPARATORS = re.compile(r"[/\\]+")


def attached(pdf: Any, uri: str) -> Iterator[Blob]:
    """Each attached file, under the PDF's name; a name that is a path loses its folders."""
    used: set[str] = set()
    for number in range(min(pdf.count_attachments(), _MOST_ATTACHED)):
        part = pdf.get_attachment(number)
        name = _SEPARATORS.split(NO_TEXT.sub("", part.get_name()).strip())[-1]
        if name in ("", ".", "..") or name in used:
            name = f"{number + 1}-{name}".rstrip(".-") or str(number + 1)
        used.add(name)
        data = _data(part)
        if data:
            yield Blob(f"{uri}/{name}", data)


def _data(part: Any) -> bytes:
    """Its bytes; none for one that is damaged or larger than a document may be."""
    size = c_ulong()
    if not raw.FPDFAttachment_GetFile(part, None, 0, byref(size)) or not 0 < size.value <= _LARGEST:
        return b""
    try:
        return bytes(part.get_data())
    except PdfiumError:
        return b""


_NO_TITLE = re.compile(
    r"untitled|anonymous|microsoft|\.(?:docx?|pdf|tex|dvi|indd|pptx?|odt|rtf|qxd)\b|^\S*[-_\d]\S*$", re.IGNORECASE
)
_MOST = 10_000
_DEEPEST = 6


Bookmark = tuple[int, int, str]
"""Page from 0, level from 1 and title."""


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
            yield page, item.level + 1, title


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

"""Opening a PDF: its password, and what is said of one that cannot be opened."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from spolia.errors import DocumentError, EncryptedDocument, MissingExtra
from spolia.indexing.readers.reading import Blob

ONE_AT_A_TIME = threading.RLock()
"""PDFium may be used by one thread only."""
_PASSWORD = 4  # FPDF_ERR_PASSWORD


class File:
    """A PDF that is open.

    Attributes:
        pdf: the document of PDFium.
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
def opened(blob: Blob, passwords: tuple[tuple[str, str], ...] = ()) -> Iterator[File]:
    """The file, read from its path where it has one; what fails while it is open is a `DocumentError`.

    Args:
        passwords: patterns of uris, each with the name of an environment variable; the first that fits counts.
    """
    try:
        import pypdfium2
    except ImportError as error:
        raise MissingExtra("pdf", "pypdfium2", f"Reading {blob.uri}") from error
    if not blob.size:
        raise DocumentError(f"{blob.uri} is no PDF: it has 0 bytes. Put the whole file there, or take it away.")
    file = File(blob, passwords)
    try:
        yield file
    except (pypdfium2.PdfiumError, ValueError, OSError, OverflowError, RecursionError) as error:
        raise damaged(blob, error) from error
    finally:
        file.close()


def _document(blob: Blob, passwords: tuple[tuple[str, str], ...]) -> Any:
    import pypdfium2

    name = next((name for pattern, name in passwords if fnmatchcase(blob.uri, pattern)), "")
    try:
        return pypdfium2.PdfDocument(_source(blob), password=os.environ.get(name) or None, autoclose=True)
    except pypdfium2.PdfiumError as error:
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

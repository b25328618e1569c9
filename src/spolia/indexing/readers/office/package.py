"""Documents that are ZIP archives: DOCX, PPTX, XLSX, ODF, EPUB. Opened once it is clear that they do no harm."""

import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from xml.etree.ElementTree import Element

from spolia.errors import DocumentError, EncryptedDocument, MissingExtra, SpoliaError, UnsafeDocument
from spolia.indexing.readers.archives import MEMBER_ERRORS, refuse_many
from spolia.indexing.readers.file_metadata import fields, split
from spolia.indexing.readers.office.mending import lacks_parts, mended, transitional
from spolia.indexing.readers.reader import OLD_OFFICE, ZIP, Blob, Reading, signature_of
from spolia.indexing.readers.safe_xml import tree
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Meta

LARGEST_BYTES = 500_000_000
"""Unpacked bytes of a document at most."""
LARGEST_RATIO = 200
"""Unpacked bytes for each packed one at most, where there are more than a few megabytes; XML packs 10 to 30 times."""
_UNSUSPICIOUS = 20_000_000
_MOST_PARTS = 20_000
_PIECE = 1 << 20
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_IS_LOCKED = 0x1
_OF_THE_WHOLE = (EncryptedDocument, UnsafeDocument, MissingExtra)
"""Errors that no mending takes away."""
_KINDS = (
    ("word/*", "DOCX"),
    ("ppt/*", "PPTX"),
    ("xl/*", "XLSX"),
    ("*.opf", "EPUB"),
    ("META-INF/container.xml", "EPUB"),
    ("content.xml", "OpenDocument file"),
)
"""Patterns of names, of which each kind of document has a part."""


Read = Callable[[zipfile.ZipFile, UnitFailures], Reading]
"""Reads the members of a package; notes the units that fail."""


def read_package(blob: Blob, kind: str, read: Read) -> Reading:
    """Read the archive that a document is; an error is reported as damage of the document.

    A package that is damaged is read from a mended copy: a part that is no XML, cannot be unpacked or does not exist
    costs only itself, and is reported. So every member that a reader sees has a right checksum.
    """
    refuse_ole(blob, kind)
    with told_as_damage(blob, kind):
        with blob.open() as file:
            refuse_many(file, blob.uri, _MOST_PARTS)
        original = io.BytesIO(blob.data)
        with zipfile.ZipFile(original) as archive:
            _refuse_other(blob, archive, kind)
            failures, reading = UnitFailures(), None
            if _is_sound(blob, archive) and not lacks_parts(archive):
                try:
                    reading = _read(original, read, failures)
                    if not failures:
                        return reading
                except _OF_THE_WHOLE:
                    raise
                except Exception as error:
                    problem = error
            for does_salvage in (True, False):  # what is saved of a part may be what no library reads
                failures = UnitFailures()
                copy = mended(archive, failures, does_salvage=does_salvage)
                if not failures:  # the copy is the same
                    break
                try:
                    return _read(copy, read, failures)
                except _OF_THE_WHOLE:
                    raise
                except Exception as error:
                    problem = error
            if reading is not None:
                return reading
            failures.raise_any(blob.uri)
            raise problem


def _read(file: io.BytesIO, read: Read, failures: UnitFailures) -> Reading:
    with zipfile.ZipFile(transitional(file)) as archive:
        return read(archive, failures)


def package_bytes(archive: zipfile.ZipFile) -> io.BytesIO:
    """The bytes of an archive, for a library that opens them itself."""
    assert isinstance(archive.fp, io.BytesIO)
    return io.BytesIO(archive.fp.getvalue())


@contextmanager
def told_as_damage(blob: Blob, kind: str) -> Iterator[None]:
    """Whatever a library raises while it reads a document, as damage of the document."""
    try:
        yield
    except SpoliaError:
        raise
    except RecursionError as error:
        raise DocumentError(f"{blob.uri} is nested too deep to be read. Save it again.") from error
    except Exception as error:
        raise damaged(blob, kind, error) from error


def refuse_ole(blob: Blob, kind: str) -> None:
    """Refuse an OLE compound file: old Office, or new Office that is locked."""
    if not blob.data.startswith(OLD_OFFICE):
        return
    if _ENCRYPTED in blob.data:
        raise locked(blob)
    raise DocumentError(f"{blob.uri} is an old Office file (.doc, .xls, .ppt), not {_a(kind)}. Save it as {kind}.")


def locked(blob: Blob) -> EncryptedDocument:
    """That it has a password."""
    return EncryptedDocument(
        f"{blob.uri} is locked with a password. Open it, take the password away, and save it again."
    )


def damaged(blob: Blob, kind: str, why: object) -> DocumentError:
    """That it is not what it should be."""
    reason = f"{type(why).__name__}: {why}" if isinstance(why, Exception) else str(why)
    other = signature_of(blob.data[:64])
    if other is not None and other.begins not in ((ZIP, OLD_OFFICE) if kind in ("MSG", "XLS") else (ZIP,)):
        return DocumentError(
            f"{blob.uri} is {other.what}, not {_a(kind)}, although its name says so. "
            "Give it the suffix of its format, or take it out of the folder."
        )
    return DocumentError(
        f"{blob.uri} is not a readable {kind}: {reason:.300}; it has {len(blob.data)} bytes and begins with "
        f"{blob.data[:4]!r}. Fetch it again, or open it and save it again."
    )


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'AEIOUX' else 'a'} {kind}"


def _refuse_other(blob: Blob, archive: zipfile.ZipFile, kind: str) -> None:
    parts = archive.infolist()
    if any(part.flag_bits & _IS_LOCKED for part in parts):
        raise locked(blob)
    names = archive.namelist()
    kinds = [other for pattern, other in _KINDS if any(fnmatchcase(name, pattern) for name in names)]
    if kind not in kinds:
        needs = " or ".join(pattern for pattern, other in _KINDS if other == kind)
        raise DocumentError(
            f"{blob.uri} is {_a(kinds[0] if kinds else 'ZIP archive')}, not {_a(kind)}, although its name says so: it "
            f"has no part {needs}. Give it the suffix of its format, or take it out of the folder."
        )


def _is_sound(blob: Blob, archive: zipfile.ZipFile) -> bool:
    """Tell whether every part can be unpacked and has its checksum. Raises UnsafeDocument for what would fill the
    memory: by the sizes that the archive states, then by those that come out."""
    parts = archive.infolist()
    allowed = min(LARGEST_BYTES, max(_UNSUSPICIOUS, LARGEST_RATIO * len(blob.data)))
    if (stated := sum(part.file_size for part in parts)) > allowed:
        raise _bomb(blob, stated, allowed)
    real = 0
    is_sound = True
    for part in parts:
        try:
            with archive.open(part) as file:
                while piece := file.read(_PIECE):
                    real += len(piece)
                    if real > allowed:
                        raise _bomb(blob, real, allowed)
        except MEMBER_ERRORS:
            is_sound = False
    return is_sound


def _bomb(blob: Blob, size: int, allowed: int) -> DocumentError:
    return UnsafeDocument(
        f"{blob.uri} would unpack from {len(blob.data)} to {size} bytes, more than the {allowed} that are allowed "
        "for its size: it may be made to fill the memory. Save it again, or split it."
    )


def metadata_of(elements: Iterable[Element], names: Mapping[str, str]) -> tuple[str, Meta]:
    """Title and metadata that elements state. `names`: the fields by the local names of the elements."""
    said: dict[str, list[str]] = {}
    for one in elements:
        said.setdefault(one.tag.rpartition("}")[2], []).append(one.text or "")
    title = " ".join("".join(said.get("title", [])[:1]).split())
    return title, fields(**{name: said[key] for key, name in names.items() if key in said})


_PART = "docProps/core.xml"
_NAMES = {"creator": "author", "created": "date", "modified": "modified", "subject": "subject", "language": "language"}


def properties(archive: zipfile.ZipFile) -> tuple[str, Meta]:
    """Title and metadata; the libraries would invent missing ones."""
    if _PART not in archive.namelist():
        return "", ()
    said = {child.tag.rpartition("}")[2]: child.text or "" for child in tree(archive.read(_PART), _PART)}
    meta = {name: said[key] for key, name in _NAMES.items() if key in said}
    return " ".join(said.get("title", "").split()), fields(**meta, keywords=split(said.get("keywords")))


def left_out(hidden: int, what: str) -> tuple[str, ...]:
    """The warning that names how many hidden pages were left out; none without any.

    >>> left_out(2, "slide")
    ('2 hidden slides were left out.',)
    """
    return (f"{hidden} hidden {what}s were left out." if hidden > 1 else f"1 hidden {what} was left out.",) * (
        hidden > 0
    )

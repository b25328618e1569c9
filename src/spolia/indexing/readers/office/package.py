"""Documents that are ZIP archives: DOCX, PPTX, XLSX, ODF, EPUB. Opened once it is clear that they do no harm."""

import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from xml.etree.ElementTree import Element

from spolia.errors import DocumentError, EncryptedDocument, MissingExtra, SpoliaError, UnsafeDocument
from spolia.indexing.readers.archives import MEMBER_ERRORS, refuse_many
from spolia.indexing.readers.file_metadata import fields, split_keywords
from spolia.indexing.readers.office.mending import lacks_parts, mend_package, translate_strict
from spolia.indexing.readers.reader import OLD_OFFICE, ZIP, Blob, Reading, signature_of
from spolia.indexing.readers.safe_xml import parse_tree
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Meta

LARGEST_BYTES = 500_000_000
"""Unpacked bytes of a document at most."""
LARGEST_RATIO = 200
"""Unpacked bytes for each packed one at most, where there are more than a few megabytes; XML packs 10 to 30 times."""
# A small file of repeated XML exceeds the ratio too, and cannot fill the memory.
_HARMLESS_SIZE = 20_000_000
_MOST_PARTS = 20_000
_PIECE = 1 << 20
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_IS_LOCKED = 0x1
_WHOLE_FILE_ERRORS = (EncryptedDocument, UnsafeDocument, MissingExtra)
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
    with report_damage(blob, kind):
        with blob.open() as file:
            # Before zipfile opens it, which makes an object of each entry.
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
                except _WHOLE_FILE_ERRORS:
                    raise
                except Exception as error:
                    problem = error
            for does_salvage in (True, False):  # what is saved of a part may be what no library reads
                failures = UnitFailures()
                copy = mend_package(archive, failures, does_salvage=does_salvage)
                if not failures:  # the copy is the same
                    break
                try:
                    return _read(copy, read, failures)
                except _WHOLE_FILE_ERRORS:
                    raise
                except Exception as error:
                    problem = error
            if reading is not None:
                return reading
            failures.raise_any(blob.uri)
            raise problem


def _read(file: io.BytesIO, read: Read, failures: UnitFailures) -> Reading:
    with zipfile.ZipFile(translate_strict(file)) as archive:
        return read(archive, failures)


def package_bytes(archive: zipfile.ZipFile) -> io.BytesIO:
    """Return the bytes of an archive, for a library that opens them itself."""
    assert isinstance(archive.fp, io.BytesIO)
    return io.BytesIO(archive.fp.getvalue())


@contextmanager
def report_damage(blob: Blob, kind: str) -> Iterator[None]:
    """Raise whatever a library raises while it reads a document as a `DocumentError` about its damage."""
    try:
        yield
    except SpoliaError:
        raise
    except RecursionError as error:
        raise DocumentError(f"{blob.uri} is nested too deep to be read. Save it again.") from error
    except Exception as error:
        raise damage_error(blob, kind, error) from error


def refuse_ole(blob: Blob, kind: str) -> None:
    """Refuse an OLE compound file: old Office, or new Office that is locked."""
    if not blob.data.startswith(OLD_OFFICE):
        return
    if _ENCRYPTED in blob.data:
        raise locked_error(blob)
    raise DocumentError(
        f"{blob.uri} is an old Office file (.doc, .xls, .ppt), not {_with_article(kind)}. Save it as {kind}."
    )


def locked_error(blob: Blob) -> EncryptedDocument:
    """Return the error for a document with a password."""
    return EncryptedDocument(
        f"{blob.uri} is locked with a password. Open it, take the password away, and save it again."
    )


def damage_error(blob: Blob, kind: str, problem: object) -> DocumentError:
    """Return the error for a document that is damaged, or of another format than its name says."""
    reason = f"{type(problem).__name__}: {problem}" if isinstance(problem, Exception) else str(problem)
    signature = signature_of(blob.data[:64])
    if signature is not None and signature.prefix not in ((ZIP, OLD_OFFICE) if kind in ("MSG", "XLS") else (ZIP,)):
        return DocumentError(
            f"{blob.uri} is {signature.description}, not {_with_article(kind)}, although its name says so. "
            "Give it the suffix of its format, or take it out of the folder."
        )
    return DocumentError(
        f"{blob.uri} is not a readable {kind}: {reason:.300}; it has {len(blob.data)} bytes and begins with "
        f"{blob.data[:4]!r}. Fetch it again, or open it and save it again."
    )


def _with_article(kind: str) -> str:
    return f"{'an' if kind[0] in 'AEIOUX' else 'a'} {kind}"


def _refuse_other(blob: Blob, archive: zipfile.ZipFile, kind: str) -> None:
    parts = archive.infolist()
    if any(part.flag_bits & _IS_LOCKED for part in parts):
        raise locked_error(blob)
    names = archive.namelist()
    kinds = [known_kind for pattern, known_kind in _KINDS if any(fnmatchcase(name, pattern) for name in names)]
    if kind not in kinds:
        needs = " or ".join(pattern for pattern, known_kind in _KINDS if known_kind == kind)
        raise DocumentError(
            f"{blob.uri} is {_with_article(kinds[0] if kinds else 'ZIP archive')}, not {_with_article(kind)}, although "
            f"its name says so: it has no part {needs}. Give it the suffix of its format, or take it out of the folder."
        )


def _is_sound(blob: Blob, archive: zipfile.ZipFile) -> bool:
    """Tell whether every part can be unpacked and has its checksum. Raises UnsafeDocument for what would fill the
    memory: by the sizes that the archive states, then by those that come out."""
    parts = archive.infolist()
    limit = min(LARGEST_BYTES, max(_HARMLESS_SIZE, LARGEST_RATIO * len(blob.data)))
    if (stated_size := sum(part.file_size for part in parts)) > limit:
        raise _bomb_error(blob, stated_size, limit)
    unpacked_size = 0
    is_sound = True
    for part in parts:
        try:
            with archive.open(part) as file:
                while piece := file.read(_PIECE):
                    unpacked_size += len(piece)
                    if unpacked_size > limit:
                        raise _bomb_error(blob, unpacked_size, limit)
        except MEMBER_ERRORS:
            is_sound = False
    return is_sound


def _bomb_error(blob: Blob, size: int, limit: int) -> DocumentError:
    return UnsafeDocument(
        f"{blob.uri} would unpack from {len(blob.data)} to {size} bytes, more than the {limit} that are allowed "
        "for its size: it may be made to fill the memory. Save it again, or split it."
    )


def metadata_of(elements: Iterable[Element], names: Mapping[str, str]) -> tuple[str, Meta]:
    """Return the title and the metadata that elements state. `names`: the fields by the local names of the elements."""
    texts: dict[str, list[str]] = {}
    for element in elements:
        texts.setdefault(element.tag.rpartition("}")[2], []).append(element.text or "")
    title = " ".join("".join(texts.get("title", [])[:1]).split())
    return title, fields(**{name: texts[key] for key, name in names.items() if key in texts})


_PART = "docProps/core.xml"
_NAMES = {"creator": "author", "created": "date", "modified": "modified", "subject": "subject", "language": "language"}


def core_properties(archive: zipfile.ZipFile) -> tuple[str, Meta]:
    """Return the title and the metadata of a package. The libraries would invent missing ones."""
    if _PART not in archive.namelist():
        return "", ()
    texts = {child.tag.rpartition("}")[2]: child.text or "" for child in parse_tree(archive.read(_PART), _PART)}
    meta = {name: texts[key] for key, name in _NAMES.items() if key in texts}
    return " ".join(texts.get("title", "").split()), fields(**meta, keywords=split_keywords(texts.get("keywords")))


def hidden_warning(count: int, unit: str) -> tuple[str, ...]:
    """Return the warning that counts the hidden pages that were left out; nothing for 0.

    >>> hidden_warning(2, "slide")
    ('2 hidden slides were left out.',)
    """
    return (f"{count} hidden {unit}s were left out." if count > 1 else f"1 hidden {unit} was left out.",) * (count > 0)

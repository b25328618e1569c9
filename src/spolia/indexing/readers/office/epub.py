"""EPUB: the chapters in the order of the spine, under their titles."""

import posixpath
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from spolia.errors import DocumentError, EncryptedDocument, UnsafeDocument
from spolia.indexing.readers.html import content_of
from spolia.indexing.readers.layout import Layout
from spolia.indexing.readers.office.package import metadata_of, read_package
from spolia.indexing.readers.pictures.linked_images import Linked
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.safe_xml import characters, events, tree
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Value

_DUBLIN_CORE = "{http://purl.org/dc/elements/1.1/}"
_META = {"creator": "author", "date": "date", "language": "language", "subject": "keywords",
         "publisher": "publisher", "description": "description"}  # fmt: skip
_CHAPTERS = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
_CONTAINER = "META-INF/container.xml"
_NCX = "application/x-dtbncx+xml"


@dataclass(frozen=True)
class EpubReader(Value):
    """Reads EPUB 2 and 3. A chapter without a heading gets its title in the table of contents.

    The pictures in chapters are regions; others, as covers, are counted as dropped.
    """

    name = "epub"
    version = 4
    media_type = "application/epub+zip"
    suffixes = (".epub",)
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        return read_package(blob, "EPUB", partial(self._read, blob))

    def _read(self, blob: Blob, archive: zipfile.ZipFile, failures: UnitFailures) -> Reading:
        book = _Book.of(blob, archive)
        _refuse_locked(blob, archive, book)
        whole = Layout(failures)
        attempt = failures.attempt
        stated = (one for one in book.root.iter() if one.tag.startswith(_DUBLIN_CORE))
        title, meta = attempt("metadata part", lambda: metadata_of(stated, _META), ("", ()))
        labels = _labels(archive, book, failures)
        pictures = _Pictures(blob, archive, book)
        for path in dict.fromkeys(book.spine):
            whole.attempt("chapter", partial(_write, whole, archive, path, labels, pictures), place=path)
        whole.images = pictures.images
        return whole.reading(self, blob, title=title, meta=meta, dropped={"pictures": len(pictures.unread)})


class _Book(NamedTuple):
    """The package document: its elements, its files by id (path, media type), the paths of the chapters in order, and
    the path of the table of contents that EPUB 3 has."""

    root: Element
    items: dict[str, tuple[str, str]]
    spine: list[str]
    toc: str

    @classmethod
    def of(cls, blob: Blob, archive: zipfile.ZipFile) -> "_Book":
        path = _package_name(archive)
        if path not in archive.namelist():
            raise DocumentError(f"{blob.uri} is not a readable EPUB: it has no package document. Fetch it again.")
        root = tree(archive.read(path), blob.uri)
        items = {
            one.get("id") or "": (_path(path, one.get("href") or ""), one.get("media-type") or "")
            for one in root.iter()
            if _tag(one) == "item"
        }
        spine = [
            items[one.get("idref") or ""][0]
            for one in root.iter()
            if _tag(one) == "itemref" and items.get(one.get("idref") or "", ("", ""))[1] in _CHAPTERS
        ]
        contents = (
            items[one.get("id") or ""][0] for one in root.iter() if "nav" in (one.get("properties") or "").split()
        )
        return cls(root, items, spine, next(contents, ""))


def _package_name(archive: zipfile.ZipFile) -> str:
    """Return the name of the package document: the one that the container names, else the only one."""
    try:
        files = tree(_read(archive, _CONTAINER), _CONTAINER).iter()
        stated = next((one.get("full-path") or "" for one in files if _tag(one) == "rootfile"), "")
    except UnsafeDocument:
        raise
    except DocumentError:
        stated = ""
    others = [name for name in archive.namelist() if name.endswith(".opf")]
    return others[0] if len(others) == 1 and stated not in archive.namelist() else stated


class _Pictures(Linked):
    """The pictures of a book; `chapter` is the path of the current one, `unread` those that none has shown yet."""

    def __init__(self, blob: Blob, archive: zipfile.ZipFile, book: _Book) -> None:
        super().__init__(blob.uri, self._member)
        self.archive, self.chapter = archive, ""
        self.all = {path for path, kind in book.items.values() if kind.startswith("image/")} & set(archive.namelist())
        self.unread = set(self.all)

    def _member(self, name: str) -> bytes | None:
        path = _path(self.chapter, name)
        self.unread.discard(path)
        return self.archive.read(path) if path in self.all else None


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _path(base: str, href: str) -> str:
    """The name within the archive; a path that leads out of it is not a member."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), unquote(href.partition("#")[0])))


def _refuse_locked(blob: Blob, archive: zipfile.ZipFile, book: _Book) -> None:
    """Fonts may be scrambled; chapters may not."""
    if "META-INF/encryption.xml" not in archive.namelist():
        return
    said = tree(archive.read("META-INF/encryption.xml"), blob.uri)
    if any(unquote(one.get("URI") or "") in book.spine for one in said.iter()):
        raise EncryptedDocument(f"{blob.uri} is locked by its seller (DRM). Ask for a copy that is not.")


def _labels(archive: zipfile.ZipFile, book: _Book, failures: UnitFailures) -> dict[str, str]:
    """Titles in the tables of contents, by path: the first one of each file."""
    found = dict[str, str]()
    for path in [path for path, kind in book.items.values() if kind == _NCX] + [book.toc] * bool(book.toc):
        for target, words in failures.attempt("part", partial(_links, archive, path), [], place=path):
            found.setdefault(_path(path, target), " ".join(words.split()))
    return found


def _links(archive: zipfile.ZipFile, path: str) -> list[tuple[str, str]]:
    """The targets of a table of contents, and what it calls them: that of EPUB 2 has points, that of EPUB 3 links."""
    found = list[tuple[str, str]]()
    for one in tree(_read(archive, path), path).iter():
        if _tag(one) == "navPoint":
            words = "".join(text.text or "" for text in one.iterfind("./{*}navLabel/{*}text"))
            found.append((next((child.get("src") or "" for child in one if _tag(child) == "content"), ""), words))
        elif _tag(one) == "a" and one.get("href"):
            found.append((one.get("href") or "", "".join(one.itertext())))
    return found


def _read(archive: zipfile.ZipFile, path: str) -> bytes:
    if path not in archive.namelist():
        raise DocumentError("it is missing")
    return archive.read(path)


def _check(text: str, path: str) -> None:
    """Raise DocumentError for a chapter that is cut off or garbled, which shows only when it is read as XML."""
    with suppress(UnsafeDocument):  # no entity is expanded where it is read
        events(text, path, lambda name, attributes: None, lambda name: None, lambda words: None)


def _write(whole: Layout, archive: zipfile.ZipFile, path: str, labels: Mapping[str, str], pictures: _Pictures) -> None:
    """Write a chapter, with its title in the table of contents where it has none of its own."""
    pictures.chapter = path
    text = characters(_read(archive, path), path).text
    whole.failures.attempt("chapter", lambda: _check(text, path), True, lambda: True, place=path)
    layout = content_of(text)
    layout.regions = list(pictures.shown(layout.regions))
    if not layout.headings and (label := labels.get(path)) and len(layout):
        whole.heading(label, 1)
    whole.append(layout)

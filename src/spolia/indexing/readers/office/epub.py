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
from spolia.indexing.readers.html import read_html
from spolia.indexing.readers.layout import Layout
from spolia.indexing.readers.office.package import metadata_of, read_package
from spolia.indexing.readers.pictures.linked_images import LinkedPictures
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.safe_xml import decode_xml, parse_tree, report_events
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
    """Reader of EPUB 2 and 3. A chapter without a heading gets its title in the table of contents.

    The pictures in chapters are regions; others, as covers, are counted as dropped.
    """

    name = "epub"
    version = 4
    media_type = "application/epub+zip"
    suffixes = (".epub",)
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        return read_package(blob, "EPUB", partial(self._read, blob))

    def _read(self, blob: Blob, archive: zipfile.ZipFile, failures: UnitFailures) -> Reading:
        book = _Book.from_archive(blob, archive)
        _refuse_locked(blob, archive, book)
        layout = Layout(failures)
        attempt = failures.attempt
        elements = (element for element in book.root.iter() if element.tag.startswith(_DUBLIN_CORE))
        title, meta = attempt("metadata part", lambda: metadata_of(elements, _META), ("", ()))
        labels = _chapter_titles(archive, book, failures)
        pictures = _BookPictures(blob, archive, book)
        for path in dict.fromkeys(book.spine):  # a spine may name a chapter twice
            layout.attempt("chapter", partial(_write_chapter, layout, archive, path, labels, pictures), place=path)
        layout.images = pictures.images
        return layout.build_reading(self, blob, title=title, meta=meta, dropped={"pictures": len(pictures.unread)})


class _Book(NamedTuple):
    """Package document: its elements, its files by id (path, media type), the paths of the chapters in order, and the
    path of the table of contents of EPUB 3."""

    root: Element
    items: dict[str, tuple[str, str]]
    spine: list[str]
    toc: str

    @classmethod
    def from_archive(cls, blob: Blob, archive: zipfile.ZipFile) -> "_Book":
        path = _package_name(archive)
        if path not in archive.namelist():
            raise DocumentError(f"{blob.uri} is not a readable EPUB: it has no package document. Fetch it again.")
        root = parse_tree(archive.read(path), blob.uri)
        items = {
            element.get("id") or "": (_member_path(path, element.get("href") or ""), element.get("media-type") or "")
            for element in root.iter()
            if _local_name(element) == "item"
        }
        spine = [
            items[element.get("idref") or ""][0]
            for element in root.iter()
            if _local_name(element) == "itemref" and items.get(element.get("idref") or "", ("", ""))[1] in _CHAPTERS
        ]
        contents = (
            items[element.get("id") or ""][0]
            for element in root.iter()
            if "nav" in (element.get("properties") or "").split()
        )
        return cls(root, items, spine, next(contents, ""))


def _package_name(archive: zipfile.ZipFile) -> str:
    """Return the name of the package document: the one that the container names, else the only one."""
    try:
        files = parse_tree(_read_member(archive, _CONTAINER), _CONTAINER).iter()
        stated_path = next(
            (element.get("full-path") or "" for element in files if _local_name(element) == "rootfile"), ""
        )
    except UnsafeDocument:
        raise
    except DocumentError:
        stated_path = ""
    candidates = [name for name in archive.namelist() if name.endswith(".opf")]
    return candidates[0] if len(candidates) == 1 and stated_path not in archive.namelist() else stated_path


class _BookPictures(LinkedPictures):
    """Pictures of a book. `chapter` is the path of the current one; `unread` are the pictures that no chapter has shown
    yet."""

    def __init__(self, blob: Blob, archive: zipfile.ZipFile, book: _Book) -> None:
        super().__init__(blob.uri, self._member)
        self.archive, self.chapter = archive, ""
        self.paths = {path for path, kind in book.items.values() if kind.startswith("image/")} & set(archive.namelist())
        self.unread = set(self.paths)

    def _member(self, name: str) -> bytes | None:
        path = _member_path(self.chapter, name)
        self.unread.discard(path)
        return self.archive.read(path) if path in self.paths else None


def _local_name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _member_path(base: str, href: str) -> str:
    """Return the name within the archive. A path that leads out of the archive matches no member."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), unquote(href.partition("#")[0])))


def _refuse_locked(blob: Blob, archive: zipfile.ZipFile, book: _Book) -> None:
    """Refuse a book with locked chapters; fonts may be scrambled."""
    if "META-INF/encryption.xml" not in archive.namelist():
        return
    encryption = parse_tree(archive.read("META-INF/encryption.xml"), blob.uri)
    if any(unquote(element.get("URI") or "") in book.spine for element in encryption.iter()):
        raise EncryptedDocument(f"{blob.uri} is locked by its seller (DRM). Ask for a copy that is not.")


def _chapter_titles(archive: zipfile.ZipFile, book: _Book, failures: UnitFailures) -> dict[str, str]:
    """Return the titles in the tables of contents, by path: the first one of each file."""
    titles = dict[str, str]()
    for path in [path for path, kind in book.items.values() if kind == _NCX] + [book.toc] * bool(book.toc):
        for target, words in failures.attempt("part", partial(_links, archive, path), [], place=path):
            titles.setdefault(_member_path(path, target), " ".join(words.split()))
    return titles


def _links(archive: zipfile.ZipFile, path: str) -> list[tuple[str, str]]:
    """Return the targets and titles of a table of contents. That of EPUB 2 has points, that of EPUB 3 links."""
    links = list[tuple[str, str]]()
    for element in parse_tree(_read_member(archive, path), path).iter():
        if _local_name(element) == "navPoint":
            words = "".join(text.text or "" for text in element.iterfind("./{*}navLabel/{*}text"))
            links.append(
                (next((child.get("src") or "" for child in element if _local_name(child) == "content"), ""), words)
            )
        elif _local_name(element) == "a" and element.get("href"):
            links.append((element.get("href") or "", "".join(element.itertext())))
    return links


def _read_member(archive: zipfile.ZipFile, path: str) -> bytes:
    if path not in archive.namelist():
        raise DocumentError("it is missing")
    return archive.read(path)


def _check(text: str, path: str) -> None:
    """Raise DocumentError for a chapter that is cut off or garbled, which shows only when it is read as XML."""
    with suppress(UnsafeDocument):  # no entity is expanded where it is read
        report_events(text, path, lambda name, attributes: None, lambda name: None, lambda words: None)


def _write_chapter(
    book_layout: Layout, archive: zipfile.ZipFile, path: str, labels: Mapping[str, str], pictures: _BookPictures
) -> None:
    """Write a chapter. Without a heading of its own, it gets its title in the table of contents."""
    pictures.chapter = path
    text = decode_xml(_read_member(archive, path), path).text
    book_layout.failures.attempt("chapter", lambda: _check(text, path), True, lambda: True, place=path)
    layout = read_html(text)
    layout.regions = list(pictures.resolve_regions(layout.regions))
    if not layout.headings and (label := labels.get(path)) and len(layout):
        book_layout.write_heading(label, 1)
    book_layout.append(layout)

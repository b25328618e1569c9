"""Pictures that are files beside the document which shows them, `![A wall](img/wall.png)`."""

from __future__ import annotations

import posixpath
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from urllib.parse import unquote

from spolia.errors import SpoliaError
from spolia.indexing.readers.pictures.linked_images import LEAST_CAPTION
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.sync.files import File, FileListing
from spolia.indexing.sync.metadata import DocumentLabels
from spolia.indexing.sync.report import DocumentReport
from spolia.types import Region

_MOST, _LARGEST = 200, 50_000_000
"""Pictures of a document, and bytes of one; further and larger ones are left out."""


@dataclass(frozen=True)
class LinkedImages:
    """The pictures of a folder as the documents in it see them.

    What was found in the folder may be shown, and nothing else: no name leads out of it, and hidden files and links
    stay closed. Whoever may read the document would see the picture too, so that it is shown only where all of them may
    read its file. What a document has seen of each picture is kept in its report: where that is another by now, it is
    read again.
    """

    found: FileListing
    labels: DocumentLabels

    def on(self, reading: Reading) -> Reading:
        """A reading with the pictures that it names; those that cannot be shown are counted."""
        uri, regions = reading.document.uri, list(reading.document.regions)
        images = {name: image for name in _names(reading) if (image := self._picture(_uri(uri, name), uri)) is not None}
        for number, name in reading.beside:
            if name in images:
                regions[number] = regions[number].but(image=images[name].content_hash)
        missing = {number for number, name in reading.beside if name not in images}
        told = [one for at, one in enumerate(regions) if at not in missing or len(one.caption) >= LEAST_CAPTION]
        dropped = Counter(dict(reading.dropped)) + Counter({"pictures": len(missing)})
        document = reading.document.but(regions=tuple(told), id=_id(reading.document.id, told, bool(images)))
        shown = {image.content_hash: image for image in (*reading.images, *images.values())}
        return reading.but(document=document, images=tuple(shown.values()), dropped=tuple(dropped.items()))

    def seen_by(self, reading: Reading) -> tuple[tuple[str, str], ...]:
        """What was seen of each picture that a document names, by uri."""
        document = reading.document.uri
        uris = dict.fromkeys(_uri(document, name) for name in _names(reading))
        return tuple((uri, self.seen(uri, document)) for uri in uris)

    def seen(self, uri: str, document: str) -> str:
        """What tells versions of a picture apart; empty where there is none for those who may read the document."""
        file = self._file(uri, document)
        return f"{file.size}-{file.mtime_ns}" if file is not None else ""

    def differs(self, uri: str, report: DocumentReport) -> bool:
        """Whether a document would see other pictures by now than when it was read."""
        return any(self.seen(picture, uri) != seen for picture, seen in report.beside)

    def _file(self, uri: str, document: str) -> File | None:
        file = self.found.files.get(uri)
        if file is None or not file.reader.media_type.startswith("image") or file.size > _LARGEST:
            return None
        return file if self._may_see(uri, document) else None

    def _may_see(self, uri: str, document: str) -> bool:
        """Whether all who may read a document may read a picture."""
        with suppress(SpoliaError):  # it is told when the picture's own turn comes
            allowed, asking = self.labels.readers(uri), self.labels.readers(document)
            return not allowed or (bool(asking) and set(asking) <= set(allowed))
        return False

    def _picture(self, uri: str, document: str) -> Blob | None:
        if (file := self._file(uri, document)) is None:
            return None
        with suppress(OSError, SpoliaError):  # as above
            content = file.load().content
            return Blob(uri, content) if isinstance(content, bytes) and content else None
        return None


def _names(reading: Reading) -> list[str]:
    """What it calls its pictures, each once."""
    return list(dict.fromkeys(name for _, name in reading.beside))[:_MOST]


def _uri(document: str, name: str) -> str:
    """What a name stands for in the folder; one that leads out of it is no uri of a file there."""
    plain = unquote(name.partition("#")[0].partition("?")[0])
    return posixpath.normpath(posixpath.join(posixpath.dirname(document), plain))


def _id(id: str, regions: list[Region], is_marked: bool) -> str:
    """The same bytes with other pictures beside them are another document."""
    if not is_marked:
        return id
    name, _, reader = id.rpartition(".")
    said = ",".join(region.image for region in regions)
    return f"{name}-{blake2b(said.encode(), digest_size=16).hexdigest()}.{reader}"

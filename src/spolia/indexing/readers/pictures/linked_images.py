"""Pictures that a page names: written into it as a `data:` address, or standing in the same package."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote_to_bytes

from spolia.indexing.readers.reader import Blob
from spolia.types import Region

_DATA = re.compile(r"\s*data:image/(png|jpeg|jpg|gif|webp|bmp|tiff)\s*(?:;[^,;]{0,100}?)*?(;base64)?,", re.IGNORECASE)
_LEAST = 72
"""Bytes; a picture of fewer is a dot that holds the place of another one."""


_BESIDE = re.compile(r"(?![a-zA-Z][a-zA-Z0-9+.-]*:)[^/\\?#\s][^\x00-\x1f]{0,1000}")
"""A name without a scheme, which does not begin at a root."""
LEAST_CAPTION = 12
"""Characters of a caption, at least, for a picture to be found by it; shorter ones are signs and logos."""


class Linked:
    """The pictures of one document, by what it calls them.

    Args:
        inside: gives the bytes of what its package has under a name; None for nothing. What is outside is not fetched.

    >>> pictures = Linked("a.html", lambda name: b"GIF8" * 50 if name == "a.gif" else None)
    >>> [bool(pictures.named(name)) for name in ("a.gif", "https://example.org/b.gif")], pictures.elsewhere
    ([True, False], 1)
    """

    def __init__(self, uri: str, inside: Callable[[str], bytes | None] = lambda name: None) -> None:
        self.uri, self.inside = uri, inside
        self.images: dict[str, Blob] = {}
        self.elsewhere = 0

    def named(self, name: str) -> str:
        """The hash of the picture of this name; empty if unknown."""
        written = _DATA.match(name)
        data = _written(name, written) if written else self.inside(name)
        if data is None:
            self.elsewhere += 1
        if not data or len(data) < _LEAST:
            return ""
        last = f"{len(self.images) + 1}.{written[1].lower()}" if written else name
        image = Blob(f"{self.uri}/{last}", data)
        return self.images.setdefault(image.content_hash, image).content_hash

    def told(self, regions: Iterable[Region]) -> tuple[tuple[Region, ...], tuple[tuple[int, str], ...]]:
        """As `shown`; also gives names of files that may lie beside the document, with the number of their region."""
        kept, beside = list[Region](), list[tuple[int, str]]()
        for region in regions:
            if region.kind == "image" and _BESIDE.fullmatch(region.image):
                beside.append((len(kept), region.image))
                kept.append(region.but(image=""))
            else:
                kept += self.shown([region])
        return tuple(kept), tuple(beside)

    def shown(self, regions: Iterable[Region]) -> Iterator[Region]:
        """Regions with their named pictures resolved; regions with neither picture nor text are left out."""
        for region in regions:
            image = self.named(region.image) if region.image else ""
            if region.kind != "image" or image or len(region.caption) >= LEAST_CAPTION:
                yield region.but(image=image)


def _written(name: str, start: re.Match[str]) -> bytes | None:
    """The bytes that a `data:` address holds; None where it is damaged."""
    data = unquote_to_bytes(name[start.end() :])
    data = b"".join(data.split()) if start[2] else data  # addresses may be broken into lines
    try:
        return base64.b64decode(data, validate=True) if start[2] else data
    except (binascii.Error, ValueError):
        return None

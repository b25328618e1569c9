"""Pictures that a page names: embedded as a `data:` address, or files in the same package."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote_to_bytes

from spolia.indexing.readers.reader import Blob
from spolia.types import Region

_DATA = re.compile(r"\s*data:image/(png|jpeg|jpg|gif|webp|bmp|tiff)\s*(?:;[^,;]{0,100}?)*?(;base64)?,", re.IGNORECASE)
_SMALLEST_PICTURE = 72
"""Bytes; a picture of fewer is a dot that holds the place of another one."""


_RELATIVE_NAME = re.compile(r"(?![a-zA-Z][a-zA-Z0-9+.-]*:)[^/\\?#\s][^\x00-\x1f]{0,1000}")
"""A name without a scheme, which does not begin at a root."""
MINIMUM_CAPTION = 12
"""Characters of a caption, at least, for a picture to be found by it; shorter ones are signs and logos."""


class LinkedPictures:
    """Pictures of one document, by the names that it uses.

    Args:
        read_member: gives the bytes that its package has under a name; None for nothing. Nothing outside is fetched.

    >>> pictures = LinkedPictures("a.html", lambda name: b"GIF8" * 50 if name == "a.gif" else None)
    >>> [bool(pictures.resolve(name)) for name in ("a.gif", "https://example.org/b.gif")], pictures.missing_count
    ([True, False], 1)
    """

    def __init__(self, uri: str, read_member: Callable[[str], bytes | None] = lambda name: None) -> None:
        self.uri, self.read_member = uri, read_member
        self.images: dict[str, Blob] = {}
        self.missing_count = 0

    def resolve(self, name: str) -> str:
        """Return the hash of the picture of this name; empty if unknown."""
        data_address = _DATA.match(name)
        data = _decode_data_address(name, data_address) if data_address else self.read_member(name)
        if data is None:
            self.missing_count += 1
        if not data or len(data) < _SMALLEST_PICTURE:
            return ""
        file_name = f"{len(self.images) + 1}.{data_address[1].lower()}" if data_address else name
        image = Blob(f"{self.uri}/{file_name}", data)
        return self.images.setdefault(image.content_hash, image).content_hash

    def split_linked(self, regions: Iterable[Region]) -> tuple[tuple[Region, ...], tuple[tuple[int, str], ...]]:
        """Resolve regions as `resolve_regions` does. Also return the names of files that may lie beside the document,
        each with the number of its region."""
        resolved, linked_images = list[Region](), list[tuple[int, str]]()
        for region in regions:
            if region.kind == "image" and _RELATIVE_NAME.fullmatch(region.image):
                linked_images.append((len(resolved), region.image))
                resolved.append(region.but(image=""))
            else:
                resolved += self.resolve_regions([region])
        return tuple(resolved), tuple(linked_images)

    def resolve_regions(self, regions: Iterable[Region]) -> Iterator[Region]:
        """Resolve the pictures that regions name. Regions with neither picture nor text are left out."""
        for region in regions:
            image = self.resolve(region.image) if region.image else ""
            if region.kind != "image" or image or len(region.caption) >= MINIMUM_CAPTION:
                yield region.but(image=image)


def _decode_data_address(name: str, address: re.Match[str]) -> bytes | None:
    """Decode the bytes of a `data:` address; None if they are damaged."""
    data = unquote_to_bytes(name[address.end() :])
    data = b"".join(data.split()) if address[2] else data  # addresses may be broken into lines
    try:
        return base64.b64decode(data, validate=True) if address[2] else data
    except (binascii.Error, ValueError):
        return None

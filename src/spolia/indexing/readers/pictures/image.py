"""Reader of pictures.

Modules that open files need an extra, so they are loaded with the first file.
"""

from dataclasses import dataclass

from spolia.errors import require_extra
from spolia.indexing.readers import pictures
from spolia.indexing.readers.pictures.ocr import OCR as OCR
from spolia.indexing.readers.pictures.ocr import Ocr as Ocr
from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Value


@dataclass(frozen=True)
class ImageReader(Value):
    """Reader of PNG, JPEG, GIF, WebP, TIFF and BMP: the description in the file, then the text that Tesseract finds.

    The whole document is one region with the picture, so that it can be a node of its own. The pages of a TIFF are
    pages; of an animation the first picture is read.

    Args:
        ocr: how text is recognised, if Tesseract is installed; None for not at all.
    """

    ocr: Ocr | None = OCR

    name = "image"
    version = 1
    media_type = "image"
    suffixes = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".bmp")
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        with require_extra("images", "pillow and pypdfium2", f"Reading {blob.uri}"):
            pages = pictures.pages
        return pages.read_picture(self, blob)

    def lacking(self) -> str:
        """Return what is missing to read the text in pictures."""
        return self.ocr.lacking() if self.ocr else ""

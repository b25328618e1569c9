"""The reader of pictures. What opens files needs an extra, so it is loaded with the first file."""

from dataclasses import dataclass

from spolia.errors import MissingExtra
from spolia.indexing.readers.pictures.ocr import OCR, Ocr
from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Value


@dataclass(frozen=True)
class ImageReader(Value):
    """Reads PNG, JPEG, GIF, WebP, TIFF and BMP: the description in the file, then the text that Tesseract finds.

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
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        try:
            from spolia.indexing.readers.pictures.pages import reading_of
        except ImportError as error:
            raise MissingExtra("images", "pillow and pypdfium2", f"Reading {blob.uri}") from error
        return reading_of(self, blob)

    def lacking(self) -> str:
        """What is missing to read the text in pictures."""
        return self.ocr.lacking() if self.ocr else ""

"""Pictures of text, with the real Tesseract where it is installed."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import DocumentError
from spolia.indexing.readers.pdf.reader import PdfReader
from spolia.indexing.readers.pictures.image import ImageReader, Ocr
from spolia.indexing.readers.reader import Blob
from spolia.indexing.sync.sync import sync
from spolia.stores.corpus import Corpus
from tests.indexing.readers.pdf_samples import FIRST, Sheet, pdf, stream, text
from tests.indexing.sample_documents import pdf_of

pytest.importorskip("PIL")
from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

from tests.cases import check_each

SAID = ["Spolia are stones that builders", "take from older buildings.", "Marble was burnt for lime."]
TESSERACT = pytest.mark.skipif(not shutil.which("tesseract"), reason="needs Tesseract: apt-get install tesseract-ocr")


def letters(words: list[str] = SAID, *, size: int = 42) -> Any:
    """A picture of lines of text, at 300 dots per inch."""
    image = Image.new("L", (1200, 200 + 80 * len(words)), 255)
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(words):
        draw.text((100, 100 + 80 * number), line, fill=0, font=ImageFont.load_default(size))
    return image


def encode_image(image: Any, format: str, **settings: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **settings)
    return out.getvalue()


def scan(image: Any, *, rotate: int = 0) -> bytes:
    """A PDF with one page that is a picture."""
    data = encode_image(image, "JPEG", quality=90)
    entries = b"/Type /XObject /Subtype /Image /ColorSpace /DeviceGray /BitsPerComponent 8 /Filter /DCTDecode"
    object = stream(entries + b" /Width %d /Height %d" % image.size, data)
    width, height = (side * 72 / 300 for side in image.size)
    drawing = b"q %g 0 0 %g 0 0 cm /P Do Q" % (width, height)
    sheet = Sheet(
        drawing, b"/Rotate %d" % rotate, b"/XObject << /P %d 0 R >>" % FIRST, b"[0 0 %g %g]" % (width, height)
    )
    return pdf([sheet, Sheet(text(60, 700, "A page with text.")), Sheet(b"")], objects=[object])


@TESSERACT
@pytest.mark.parametrize("workers", [0, 1])
def test_what_lacked_tesseract_is_read_again_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    folder, corpus = tmp_path / "scans", Corpus(f"{tmp_path}/s.spolia")
    folder.mkdir()
    (folder / "a.pdf").write_bytes(scan(letters()))
    (folder / "b.png").write_bytes(encode_image(letters(["Basalt is heavy."]), "PNG", dpi=(300, 300)))
    (folder / "plain.txt").write_text("Nothing was missing here.")
    with zipfile.ZipFile(folder / "c.zip", "w") as packed:
        packed.writestr("d.png", encode_image(letters(["Granite is heavier."]), "PNG", dpi=(300, 300)))
        packed.writestr("e.txt", "Nor here.")
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path))
    report = sync(folder, corpus, workers=workers)
    assert (report.added, report.warned) == (6, 3)
    assert sync(folder, corpus, workers=workers).changed == 0
    monkeypatch.setenv("PATH", path)
    report = sync(folder, corpus, workers=workers)
    assert (report.changed, report.failed, report.warned) == (3, (), 0)
    texts_by_uri = {document.uri: document.text for document in corpus.latest().documents()}
    for uri, words in (("a.pdf", "older buildings"), ("b.png", "Basalt"), ("c.zip/d.png", "Granite")):
        assert words in texts_by_uri[uri]
    second_summary = sync(folder, corpus, workers=workers)
    assert (second_summary.changed, second_summary.unchanged) == (0, 6)


@TESSERACT
@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
def test_pages_without_text_are_recognised_however_they_lie(rotate: int) -> None:
    image = letters([*SAID, *SAID, *SAID]).rotate(rotate, expand=True)
    reading = PdfReader().read(Blob("a.pdf", scan(image)))
    assert reading.ocr_pages == (1,)
    assert reading.empty_pages == (3,)
    assert reading.warnings == ()
    first = reading.document.text[: reading.document.pages[1] - 1]
    assert first.split("\n") == [*SAID, *SAID, *SAID]
    assert not reading.document.regions, "the scan of a page is no picture on it"


@TESSERACT
def test_lines_that_were_recognised_have_boxes() -> None:
    document = PdfReader().read(Blob("a.pdf", scan(letters()))).document
    (start, end, box), *_ = document.boxes
    assert document.text[start:end] == SAID[0]
    assert box.page == 1
    assert box.left == pytest.approx(100 * 72 / 300, abs=2)
    assert 100 * 72 / 300 < box.top < box.bottom < 160 * 72 / 300


@TESSERACT
def test_a_page_that_takes_too_long_is_said() -> None:
    reading = PdfReader(ocr=Ocr(timeout_s=0.01)).read(Blob("a.pdf", scan(letters())))
    assert reading.ocr_pages == ()
    assert reading.empty_pages == (1, 3)
    assert reading.warnings == ("1 of 3 pages have no text (1); they need OCR: Tesseract took more than 0.01 s.",)


@TESSERACT
def test_a_language_that_is_not_installed_is_named() -> None:
    reading = PdfReader(ocr=Ocr(languages=("eng", "tlh"))).read(Blob("a.pdf", scan(letters())))
    assert "does not know the languages tlh (apt-get install tesseract-ocr-tlh)" in reading.warnings[0]


def test_without_tesseract_the_report_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reading = PdfReader().read(Blob("a.pdf", scan(letters())))
    assert reading.empty_pages == (1, 3)
    assert reading.warnings[0].startswith("1 of 3 pages have no text (1); they need OCR: Tesseract is not installed (")
    assert "apt-get install tesseract-ocr" in reading.warnings[0]
    picture = ImageReader().read(Blob("a.png", encode_image(letters(), "PNG")))
    assert picture.document.text == ""
    assert "apt-get install tesseract-ocr" in picture.warnings[0]


def test_pages_with_text_need_no_tesseract(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert PdfReader().read(Blob("a.pdf", pdf_of([["Text."]]))).warnings == ()


@TESSERACT
@check_each("format", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"])
def test_pictures_of_every_format_are_read(format: str) -> None:
    blob = Blob("a." + format.lower(), encode_image(letters(), format))
    reading = ImageReader().read(blob)
    assert reading.document.text.split("\n") == SAID
    assert reading.document.media_type == f"image/{format.lower()}"
    assert reading.ocr_pages == (1,)
    (region,) = reading.document.regions
    assert (region.kind, region.start, region.end) == ("image", 0, len(reading.document.text))
    assert reading.images == (blob,)
    assert region.image == blob.content_hash


@TESSERACT
def test_the_pages_of_a_fax_are_pages() -> None:
    data = encode_image(letters(SAID[:2]), "TIFF", save_all=True, append_images=[letters(SAID[1:])], dpi=(300, 300))
    document = ImageReader().read(Blob("a.tiff", data)).document
    assert document.text == "\n".join([*SAID[:2], *SAID[1:]])
    assert document.text[document.pages[1] :] == "\n".join(SAID[1:])
    assert [box.page for _, _, box in document.boxes] == [1, 1, 2, 2]
    assert next(iter(document.boxes))[2].left == pytest.approx(24, abs=2)


@TESSERACT
def test_a_description_in_the_file_stands_before_the_text() -> None:
    info = PngImagePlugin.PngInfo()
    info.add_text("Description", "A wall\x00 in  Rome")
    reading = ImageReader().read(Blob("a.png", encode_image(letters(), "PNG", pnginfo=info)))
    assert reading.document.text.split("\n") == ["A wall in Rome", *SAID]
    assert reading.document.regions[0].caption == "A wall in Rome"


def test_a_description_in_exif_is_found() -> None:
    exif = Image.Exif()
    exif[0x010E] = "A wall in Rome"
    reading = ImageReader(ocr=None).read(Blob("a.jpg", encode_image(letters(), "JPEG", exif=exif)))
    assert reading.document.text == "A wall in Rome"


@TESSERACT
@check_each("mode", ["1", "P", "RGB", "RGBA", "LA", "CMYK", "I;16"])
def test_dots_of_every_kind_are_seen(mode: str) -> None:
    if mode == "I;16":
        image = Image.fromarray((__import__("numpy").asarray(letters()).astype("uint16")) * 257)
    elif mode in ("RGBA", "LA"):
        image = letters().convert(mode)
        image.putalpha(letters().point(lambda dot: 255 - dot))  # black letters on nothing at all
    else:
        image = letters().convert(mode)
    format = "TIFF" if mode == "CMYK" else "PNG"
    assert ImageReader().read(Blob("a", encode_image(image, format))).document.text.split("\n") == SAID


def test_of_an_animation_the_first_picture_is_read() -> None:
    data = encode_image(letters(["One"]), "GIF", save_all=True, append_images=[letters(["Two"]), letters(["Three"])])
    assert ImageReader(ocr=None).read(Blob("a.gif", data)).dropped == (("further pictures", 2),)


def png_claiming(width: int, height: int) -> bytes:
    """A small file that states a size."""
    import struct
    import zlib

    data = encode_image(Image.new("L", (1, 1)), "PNG")
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return data[:16] + head + struct.pack(">I", zlib.crc32(b"IHDR" + head)) + data[33:]


def test_a_picture_that_claims_far_too_many_dots_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(DocumentError, match=r"50000 × 40000 dots|2000000000 pixels"):
        ImageReader().read(Blob("a.png", png_claiming(50_000, 40_000)))
    with pytest.raises(DocumentError, match="12000 × 11000 dots large"):
        ImageReader().read(Blob("a.png", png_claiming(12_000, 11_000)))


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"\x89PNG\r\n\x1a\n", encode_image(letters(), "PNG")[:900], b"%PDF-1.4"]
)
def test_damaged_pictures_say_what_was_there(data: bytes) -> None:
    with pytest.raises(DocumentError, match=r"a\.png is not a readable picture: .*begins with") as error:
        ImageReader().read(Blob("a.png", data))
    assert " at 0x" not in str(error.value)

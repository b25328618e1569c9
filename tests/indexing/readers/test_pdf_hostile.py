"""PDFs that are broken or made to break a reader: an error that says why, or a reading; never a crash, never a hang."""

from __future__ import annotations

import math
import random
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

import pytest

from spolia.errors import DocumentError
from spolia.indexing.readers.pdf import reader as pdf_reader
from spolia.indexing.readers.pdf.reader import PageImage, PdfReader
from spolia.indexing.readers.reader import Blob, Reading
from tests.cases import check_each
from tests.indexing.readers.pdf_samples import FIRST, Sheet, lines, pdf, rules, stream, text
from tests.indexing.sample_documents import pdf_of

pytest.importorskip("pypdfium2")
READER = PdfReader(ocr=None, images=True)


def read(data: bytes) -> Reading:
    return READER.read(Blob("a.pdf", data))


def assert_sound(reading: Reading) -> None:
    """What every reading keeps to, whatever was read."""
    document = reading.document
    document.text.encode()
    ends = [*document.pages[1:], len(document.text) + 1]
    assert all(start < end for start, end in zip(document.pages, ends, strict=True))
    previous_start = 0
    for start, end, box in document.boxes:
        assert previous_start <= start <= end <= len(document.text)
        assert all(map(math.isfinite, (box.left, box.top, box.right, box.bottom)))
        assert box.left <= box.right
        assert box.top <= box.bottom
        assert 1 <= box.page <= len(document.pages)
        previous_start = start
    for region in document.regions:
        assert 0 <= region.start <= region.end <= len(document.text)
    for heading in document.headings:
        assert 0 <= heading.start < len(document.text)


def rich_pdf() -> bytes:
    """A file with a bit of everything."""
    table = rules(*[(60, y, 360, y) for y in (500, 480, 460)], *[(x, 500, x, 460) for x in (60, 210, 360)])
    words = text(70, 487, "Stone") + text(220, 487, "Weight") + text(70, 467, "Tuff")
    words += text(220, 467, "1.4")
    image = stream(
        b"/Type /XObject /Subtype /Image /Width 2 /Height 2 /ColorSpace /DeviceGray /BitsPerComponent 8", b"\0\1\2\3"
    )
    field = b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (name) /V (Ada) /Rect [60 600 200 620] >>"
    form = stream(b"/Type /XObject /Subtype /Form /BBox [0 0 600 800]", b"60 90 m 360 90 l S")
    hebrew = b"/Span << /ActualText <FEFF05D005D1> >> BDC " + text(60, 640, "ab") + b"EMC "
    sheet = Sheet(
        text(60, 760, "Stones", size=18) + lines(60, 730, "Broken at the end of an effi-", "cient line.") + hebrew
        + table + words + b"q 100 0 0 100 60 200 cm /P Do Q /R Do " + text(60, 180, "Figure 1: A stone"),
        entries=b"/Annots [%d 0 R]" % (FIRST + 1),
        resources=b"/XObject << /P %d 0 R /R %d 0 R >>" % (FIRST, FIRST + 2),
    )  # fmt: skip
    back = lines(60, 700, "One", "Two") + lines(60, 760, "Above")
    attachment = b"<< /Type /Filespec /F (prices.csv) /EF << /F %d 0 R >> >>" % (FIRST + 3)
    outline = b"<< /Type /Outlines /First %d 0 R /Last %d 0 R >>" % (FIRST + 6, FIRST + 6)
    item = b"<< /Title (One) /Parent %d 0 R /Dest [%d 0 R /Fit] >>" % (FIRST + 5, FIRST + 10)
    objects = [image, field, form, stream(b"/Type /EmbeddedFile", b"a,b\n1,2\n"), attachment, outline, item]
    return pdf(
        [sheet, Sheet(back)],
        objects=objects,
        catalog=b"/AcroForm << /Fields [%d 0 R] >> /Outlines %d 0 R " % (FIRST + 1, FIRST + 5)
        + b"/Names << /EmbeddedFiles << /Names [(a) %d 0 R] >> >>" % (FIRST + 4),
    )


def read_or_refuse(data: bytes) -> None:
    """Nothing else may become of a file."""
    try:
        assert_sound(read(data))
    except DocumentError as error:
        message = str(error)
    else:
        return
    assert "a.pdf" in message
    assert len(message) < 1000


def test_the_file_that_is_broken_below_is_sound() -> None:
    reading = read(rich_pdf())
    assert_sound(reading)
    assert {region.kind for region in reading.document.regions} == {"table", "image"}
    assert len(reading.images) == 1


def test_every_truncation_is_read_or_refused() -> None:
    data = rich_pdf()
    for end in range(0, len(data), 97):
        read_or_refuse(data[:end])


@pytest.mark.slow
@check_each("seed", range(40))
def test_mutations_are_read_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(25):
        data = bytearray(rich_pdf())
        for _ in range(chance.randrange(1, 12)):
            position = chance.randrange(len(data))
            kind = chance.randrange(4)
            if kind == 0:
                data[position] = chance.randrange(256)
            elif kind == 1:
                del data[position : position + chance.randrange(1, 40)]
            elif kind == 2:
                data[position:position] = data[chance.randrange(len(data)) :][: chance.randrange(1, 60)]
            else:
                data[position : position + 1] = chance.choice(
                    [b"-1", b"99999999999", b"nan", b"0 0 R", b"<<", b"]", b"3 0 R"]
                )
        read_or_refuse(bytes(data))


@check_each(
    "box", [b"[0 0 1e30 1e30]", b"[0 0 0 0]", b"[nan nan inf inf]", b"[600 800 0 0]", b"[-1e9 -1e9 1e9 1e9]", b"[]"]
)
def test_pages_of_absurd_size_are_read(box: bytes) -> None:
    reading = read(pdf([Sheet(text(60, 700, "Words") + rules((0, 0, 1e30, 0)), box=box)]))
    assert_sound(reading)
    assert reading.document.text == "Words"


def test_letters_at_absurd_places_are_read() -> None:
    page = b"BT /F1 10 Tf 1e38 1e38 Td (Far) Tj ET BT /F1 1e30 Tf 0 0 Td (Large) Tj ET BT /F1 0 Tf 9 9 Td (Flat) Tj ET"
    assert_sound(read(pdf([Sheet(page)])))


def test_an_outline_that_leads_back_to_itself_ends() -> None:
    items = [
        b"<< /Type /Outlines /First 4 0 R /Last 4 0 R >>",
        b"<< /Title (One) /Parent 3 0 R /First 4 0 R /Next 4 0 R /Dest [8 0 R /Fit] >>",
    ]
    assert_sound(read(pdf([Sheet(text(60, 700, "One"))], objects=items, catalog=b"/Outlines 3 0 R")))


def test_pages_that_lead_back_to_themselves_end() -> None:
    read_or_refuse(rich_pdf().replace(b"/Type /Pages /Kids [", b"/Type /Pages /Kids [2 0 R "))


def test_a_form_within_itself_ends() -> None:
    form = stream(b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /P 3 0 R >> >>", b"/P Do")
    sheet = Sheet(text(60, 700, "Words") + b"/P Do", resources=b"/XObject << /P %d 0 R >>" % FIRST)
    assert read(pdf([sheet], objects=[form])).document.text == "Words"


def test_a_page_that_is_claimed_and_not_there_is_said() -> None:
    data = pdf_of([["One."], ["Two."]]).replace(b"/Count 2", b"/Count 3")
    reading = read(data)
    assert_sound(reading)
    assert reading.document.text.strip() == "One.\nTwo."


def test_a_claim_of_a_billion_pages_is_not_believed() -> None:
    data = pdf_of([["One."]]).replace(b"/Count 1", b"/Count 1000000000")
    reading = read(data)
    assert_sound(reading)
    assert reading.document.text.strip() == "One."


def test_pages_that_are_claimed_and_not_there_are_not_counted_without_end() -> None:
    reading = read(pdf_of([["One."], ["Two."]]).replace(b"/Count 2", b"/Count 500000"))
    assert reading.document.text.strip() == "One.\nTwo."
    assert len(reading.document.pages) < 5_000
    assert "from page 3 on" in reading.warnings[-1]


def test_one_page_a_hundred_thousand_times_is_refused_when_it_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spolia.indexing.readers.pdf.document._MOST_CHARACTERS", 50_000)
    page = lines(60, 700, *["word " * 18] * 40)
    data = pdf([Sheet(page)])
    kid = data[data.index(b"/Kids [") + 7 : data.index(b"] /Count")]
    many = data.replace(b"/Kids [" + kid + b"] /Count 1", b"/Kids [" + (kid + b" ") * 1000 + b"] /Count 1000")
    with pytest.raises(DocumentError, match="of its 1000 pages hold more than 50,000 characters"):
        read(many)


@pytest.mark.slow
def test_a_million_objects_are_passed_over() -> None:
    objects = zlib.compress(b"0 0 m 9 9 l S\n" * 1_000_000)
    packed = b"/Filter /FlateDecode"
    page = text(60, 700, "Words")
    data = pdf([Sheet(page)]).replace(
        b"<< /Length %d >>\nstream\n%s" % (len(page), page),
        b"<< %s /Length %d >>\nstream\n%s" % (packed, len(objects), objects),
    )
    reading = read(data)
    assert reading.dropped == (("drawings", 1),)


def test_a_grid_of_thousands_of_rules_is_no_table() -> None:
    page = rules(*((0, y, 600, y) for y in range(800)), *((x, 0, x, 800) for x in range(600)))
    assert not read(pdf([Sheet(page + lines(60, 700, *["some words"] * 30))])).document.regions


def test_a_page_that_is_damaged_is_said_and_the_others_are_read() -> None:
    data = pdf_of([["One."], ["Two."], ["Three."]])
    second = data.index(b"/Type /Page /", data.index(b"(Two.)"))
    reading = read(data[:second] + b"/Type /Nono/" + data[second + 12 :])
    assert_sound(reading)
    assert "One." in reading.document.text
    assert "Three." in reading.document.text


WHOLE_FILE = {
    "PdfReader.read", "_load_document_module", "reading_of", "open_pdf", "PdfFile.__init__", "PdfFile._open",
    "PdfFile.close", "_load_document", "_source", "_attachment_numbers", "_read_pages", "_read_page",
    "assemble_document", "ReadingLog.warnings",
}  # fmt: skip
"""Functions that open the file, go through its pages and put the document together; all others read a unit of it."""


CODE = str(Path(pdf_reader.__file__).parent)


def read_traced(on_call: Callable[[CodeType], None]) -> Reading:
    """Read a file with a bit of everything; call `on_call` before each function of the PDF reader."""

    def trace(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(CODE):
            on_call(frame.f_code)

    previous_tracer = sys.gettrace()
    sys.settrace(trace)
    try:
        return read(rich_pdf())
    finally:
        sys.settrace(previous_tracer)


@pytest.mark.slow
def test_a_failure_in_any_function_costs_only_its_unit() -> None:
    functions: dict[CodeType, None] = {}
    assert read(rich_pdf()).warnings == ()  # all modules are loaded
    read_traced(functions.setdefault)
    units = [code for code in functions if code.co_qualname.partition(".<locals>")[0] not in WHOLE_FILE]
    assert len(units) > 100
    for unit in units:

        def fail(code: CodeType, unit: CodeType = unit) -> None:
            if code is unit:
                raise ZeroDivisionError("injected")

        reading = read_traced(fail)  # Python takes off a trace function that raises, so the unit fails once
        assert_sound(reading)
        assert any("injected" in warning for warning in reading.warnings), unit
        assert all(words in reading.document.text for words in ("Stones", "line.", "One", "Two")), unit


def test_a_grid_without_letters_is_no_table() -> None:
    grid = rules(*[(60, y, 360, y) for y in (500, 480, 460)], *[(x, 500, x, 460) for x in (60, 210, 360)])
    blank = read(pdf([Sheet(grid), Sheet(lines(60, 700, "One"))]))
    assert (blank.document.text.strip(), blank.empty_pages, blank.dropped) == ("One", (1,), ())
    reading = read(pdf([Sheet(grid + text(60, 700, "Above") + text(70, 487, " "))]))
    assert (reading.document.text, reading.warnings) == ("Above", ())


@pytest.mark.slow
def test_an_image_of_an_absurd_page_has_a_bounded_area() -> None:
    data = pdf([Sheet(text(60, 700, "Words"), box=b"[0 0 14400 14400]")])
    (image,) = PageImage((), 1, 144.0).parts(Blob("a.pdf", data))
    width, height = struct.unpack(">2I", image.data[16:24])
    assert (width, height) == (4000, 4000)


def test_pages_beyond_the_most_are_counted_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spolia.indexing.readers.pdf.document._MOST_PAGES", 2)
    reading = read(pdf_of([["One."], ["Two."], ["Three."]]))
    assert (reading.document.text, reading.dropped) == ("One.\nTwo.", (("pages", 1),))
    assert "Only the first 2 of 3 pages were read." in reading.warnings[0]

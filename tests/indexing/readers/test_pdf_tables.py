"""Tables, pictures and reading order of PDF."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import closing
from ctypes import cast
from itertools import zip_longest

import pytest

pytest.importorskip("pypdfium2")
from pypdfium2 import PdfDocument, raw

from spolia.indexing.readers.pdf import geometry
from spolia.indexing.readers.pdf.geometry import PageObjects
from spolia.indexing.readers.pdf.reader import PdfReader
from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Region
from tests.indexing.readers.pdf_samples import FIRST, Sheet, lines, pdf, rules, stream, text

ROWS = (("Stone", "Weight", "Price"), ("Marble", "2.7", "90"), ("Tuff", "1.4", "12"))


def read(*sheets: Sheet, tables: bool = True) -> Reading:
    return PdfReader(ocr=None, tables=tables).read(Blob("a.pdf", pdf(sheets)))


def cells(left: float, top: float, rows: tuple[tuple[str, ...], ...] = ROWS, width: float = 100) -> bytes:
    """The words of a table, 20 points for a row."""
    return b"".join(
        text(left + 5 + width * column, top - 14 - 20 * row, cell)
        for row, line in enumerate(rows)
        for column, cell in enumerate(line)
    )


def grid(left: float, top: float, rows: int = 3, columns: int = 3) -> bytes:
    right, bottom = left + 100 * columns, top - 20 * rows
    across = [(left, top - 20 * row, right, top - 20 * row) for row in range(rows + 1)]
    down = [(left + 100 * column, top, left + 100 * column, bottom) for column in range(columns + 1)]
    return rules(*across, *down)


def tables(reading: Reading) -> list[Region]:
    return [region for region in reading.document.regions if region.kind == "table"]


def test_a_table_between_rules_keeps_its_cells() -> None:
    page = text(60, 740, "Before the table.") + grid(60, 700) + cells(60, 700) + text(60, 600, "After the table.")
    reading = read(Sheet(page))
    (table,) = tables(reading)
    table_text = "Stone | Weight | Price\nMarble | 2.7 | 90\nTuff | 1.4 | 12"
    assert reading.document.text == f"Before the table.\n{table_text}\nAfter the table."
    assert reading.document.text[table.start : table.end] == table_text
    assert table.rows == ROWS
    assert table.box is not None
    assert (table.box.page, 60 < table.box.left < 70, 100 < table.box.top < 110) == (1, True, True)


def test_points_in_memory_are_those_that_pdfium_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    form = stream(b"/Type /XObject /Subtype /Form /BBox [0 0 600 800]", b"60 90 200 15 re f 60 70 m 360 70 l S")
    shapes = b"q 2 0 0 .5 10 20 cm 10 10 m 90 10 l 95 10 99 15 99 20 c 99 60 l h S 5 5 m 50 5 l 70 70 m 70 90 l h B Q "
    page = grid(60, 700) + cells(60, 700) + shapes + b"100 300 1 50 re f /R Do"
    sheet = Sheet(page, resources=b"/XObject << /R %d 0 R >>" % FIRST)
    with closing(PdfDocument(pdf([sheet], objects=[form]))) as file, closing(file[0]) as opened_page:
        page_paths = PageObjects.of_page(opened_page).of_kind(raw.FPDF_PAGEOBJ_PATH, 100)
        (form_address,) = PageObjects.of_page(opened_page).of_kind(raw.FPDF_PAGEOBJ_FORM, 100)
        form_paths = PageObjects.of_form(form_address, 100).of_kind(raw.FPDF_PAGEOBJ_PATH, 100)
        paths = page_paths + form_paths
        counts = [raw.FPDFPath_CountSegments(cast(path, raw.FPDF_PAGEOBJECT)) for path in paths]
        stored, called_points = (points(paths, counts) for points in (geometry.stored_points, geometry.called_points))
    assert geometry.points_are_stored()
    assert sum(counts) > 30
    assert all((stored[name] == called_points[name]).all() for name in ("place", "kind", "closes"))
    document = read(sheet).document
    monkeypatch.setattr(geometry, "points_are_stored", lambda: False)
    assert read(sheet).document == document


def test_its_caption_stands_with_it() -> None:
    page = text(60, 715, "Table 4: Stones by weight") + grid(60, 700) + cells(60, 700)
    assert tables(read(Sheet(page)))[0].caption == "Table 4: Stones by weight"


def test_without_tables_the_lines_stay_as_they_are() -> None:
    reading = read(Sheet(grid(60, 700) + cells(60, 700)), tables=False)
    assert not reading.document.regions
    assert "Marble 2.7 90" in reading.document.text


def test_a_cell_over_two_columns_stands_in_the_first() -> None:
    down = [(60, 700, 60, 640), (160, 680, 160, 640), (260, 700, 260, 640), (360, 700, 360, 640)]
    across = [(60, 700 - 20 * row, 360, 700 - 20 * row) for row in range(4)]
    rows = (("A long head over both", "", "Price"), *ROWS[1:])
    assert tables(read(Sheet(rules(*across, *down) + cells(60, 700, rows))))[0].rows == rows


def test_a_wrapped_cell_is_one_cell_and_rows_without_rules_are_rows() -> None:
    head_only = rules((60, 700, 360, 700), (60, 680, 360, 680), (60, 600, 360, 600), (160, 700, 160, 600))
    rows = (("Stone", "Where it was found"), ("Marble", "Carrara"), ("Tuff", "Rome"), ("Travertine", "Tivoli"))
    assert tables(read(Sheet(head_only + cells(60, 700, rows))))[0].rows == rows
    wrapped = (
        grid(60, 700, rows=2, columns=2)
        + cells(60, 700, (("Stone", "Place"), ("Marble", "From quarries in")))
        + text(165, 662, "")
    )
    assert tables(read(Sheet(wrapped)))[0].rows == (("Stone", "Place"), ("Marble", "From quarries in"))


def test_a_table_of_a_paper_has_three_rules_and_columns_of_white_space() -> None:
    page = rules((60, 700, 360, 700), (60, 680, 360, 680), (60, 640, 360, 640)) + cells(60, 700)
    assert tables(read(Sheet(page)))[0].rows == ROWS


PROSE = [
    "The builders of the later city took what they found in the ruins",
    "and burnt the marble for its lime, column after column, until little",
    "was left of the temples but the names of the places where they stood.",
    "What was carved was spared at times, and set into walls to be seen.",
]


@pytest.mark.parametrize(
    "drawn",
    [
        rules((50, 720, 550, 720), (50, 600, 550, 600), (50, 480, 550, 480)),  # above each other, as in a paper
        rules((50, 720, 550, 720), (50, 720, 50, 480), (550, 720, 550, 480), (50, 480, 550, 480)),  # a frame
        rules((50, 720, 550, 720), (50, 480, 550, 480), (300, 720, 300, 480), (50, 720, 50, 480)),  # between columns
        b"0.9 g " + b"".join(b"50 %d 500 12 re f " % (686 - 12 * row) for row in range(4)) + b"0 g ",  # shaded lines
    ],
)
def test_prose_is_no_table(drawn: bytes) -> None:
    drawing = drawn + lines(60, 700, *PROSE)
    two = drawn + lines(60, 700, *(line[:45] for line in PROSE)) + lines(310, 700, *(line[:45] for line in PROSE))
    for page in (drawing, two):
        reading = read(Sheet(page))
        assert not reading.document.regions
        assert "|" not in reading.document.text


def test_a_page_that_jumps_back_is_read_by_its_white_space() -> None:
    left, right = [f"Left {n} says something" for n in range(4)], [f"Right {n} says something" for n in range(4)]
    page = (
        lines(320, 700, *right)
        + lines(60, 700, *left)
        + text(60, 760, "The head of the page, which is so long that it stands over both columns")
    )
    page += text(240, 60, "A foot")
    assert read(Sheet(page)).document.text.split("\n") == [
        "The head of the page, which is so long that it stands over both columns", *left, *right, "A foot",
    ]  # fmt: skip


def test_columns_in_the_order_of_the_file_stay_so() -> None:
    left, right = [f"Left {n} says something" for n in range(4)], [f"Right {n} says something" for n in range(4)]
    page = text(60, 760, "Head") + lines(60, 700, *left) + lines(320, 700, *right)
    assert read(Sheet(page)).document.text.split("\n") == ["Head", *left, *right]


def test_a_foot_that_is_drawn_early_stands_at_the_end_and_the_columns_stay() -> None:
    left, right = ([f"{side} {n} says something" for n in range(4)] for side in ("Left", "Right"))
    left[1] += " so long that it stands over the gutter"
    page = text(60, 760, "Head") + text(60, 40, "Foot")
    page += b"".join(lines(x, y, *column) for x, column in ((60, left), (320, right)) for y in (700, 600))
    assert read(Sheet(page)).document.text.split("\n") == ["Head", *left, *left, *right, *right, "Foot"]


@pytest.mark.parametrize("turn", [1, -1])
def test_a_table_whose_text_is_rotated_keeps_its_cells(turn: int) -> None:
    drawing = rules(*[(x, 100, x, 400) for x in (60, 80, 100, 120)], *[(60, y, 120, y) for y in (100, 200, 300, 400)])
    for row, cells in enumerate(ROWS):
        for column, words in enumerate(cells):
            x, y = 60 + 20 * row + 13, 100 + 100 * column + 5
            if turn < 0:
                x, y = 180 - x, 500 - y
            drawing += b"BT /F1 10 Tf 0 %d %d 0 %g %g Tm (%s) Tj ET " % (turn, -turn, x, y, words.encode())
    document = read(Sheet(text(60, 700, "Stones of the town and what they weigh") + drawing)).document
    assert [region.rows for region in document.regions] == [ROWS]
    assert document.text.endswith("Stone | Weight | Price\nMarble | 2.7 | 90\nTuff | 1.4 | 12")
    first = document.boxes.find_overlapping(document.text.index("Stone |"), document.text.index("Stone |") + 1)[0]
    assert first.bottom - first.top > 200 > 20 > first.right - first.left


@pytest.mark.parametrize("turn", [1, -1])
def test_rotated_heads_of_narrow_columns_stand_in_their_cells(turn: int) -> None:
    rows = (("Name of the stone", "Weight (t)", "Price"), *ROWS[1:])
    drawing = rules(*[(x, 100, x, 250) for x in (60, 120, 180, 240)], *[(60, y, 240, y) for y in (100, 120, 140, 250)])
    for column, words in enumerate(rows[0]):
        x, y = (100 + 60 * column, 145) if turn > 0 else (95 + 60 * column, 245)
        drawing += b"BT /F1 10 Tf 0 %d %d 0 %g %g Tm (%s) Tj ET " % (turn, -turn, x, y, words.encode())
    body = [
        text(65 + 60 * column, 126 - 20 * row, words)
        for row, cells in enumerate(ROWS[1:])
        for column, words in enumerate(cells)
    ]
    document = read(Sheet(text(60, 700, "Stones of the town and what they weigh") + drawing + b"".join(body))).document
    assert [region.rows for region in document.regions] == [rows]
    first = document.boxes.find_overlapping(document.text.index("Name of"), document.text.index("Name of") + 1)[0]
    assert first.bottom - first.top > 60


def row_by_row(*columns: Sequence[str], gap: float = 20, leading: float = 12, shift: float = 0) -> bytes:
    """Columns of 150 points whose first lines are drawn first, then their second ones."""
    rows = zip_longest(*columns, fillvalue="")
    return b"".join(
        text(60 + number * (150 + gap), 700 - row * leading - number * shift, words)
        for row, line in enumerate(rows)
        for number, words in enumerate(line)
        if words
    )


LEFT = (
    "The committee reviewed the old", "annual report and approved the", "long budget for the next fiscal",
    "year with a vote of nine to two", "in favour of the plan that was", "drawn up in the spring.",
)  # fmt: skip
RIGHT = (
    "Its treasurer kept the books for", "eleven years in a row and never", "lost a single receipt of the many",
    "that its members handed in over", "time, which is why they trusted", "every number that he wrote, and", "said so.",
)  # fmt: skip
WAYS = {
    "two": row_by_row(LEFT, RIGHT),
    "close": row_by_row(LEFT, RIGHT, gap=9),
    "with other base lines": row_by_row(LEFT, RIGHT, shift=6),
    "three": row_by_row(LEFT, RIGHT, LEFT),
}


@pytest.mark.parametrize("way", WAYS)
def test_columns_that_are_drawn_row_by_row_are_read_one_after_the_other(way: str) -> None:
    head, foot = "A head that goes over both columns of the page, and more", "A foot that goes over both columns"
    document = read(Sheet(text(60, 740, head, size=12) + WAYS[way] + text(60, 500, foot + " of the page"))).document
    third = LEFT if way == "three" else ()
    assert document.text.split("\n") == [head, *LEFT, *RIGHT, *third, foot + " of the page"]
    first = document.text.index(LEFT[0])
    box = document.boxes.find_overlapping(first, first + 1)[0]
    assert (round(box.left), box.right < 210) == (60, True)


LISTS = (
    (("Apache", "Cochise", "Gila", "Graham", "Mohave"), ("27,462", "19,023", "8,110", "4,004", "9,871")),
    (
        ("pageCount", "metadata of the file", "outline", "needsPassword", "close"),
        ("Number of pages of a file", "Metadata", "First entry of the outline", "Whether it is locked", "Close it"),
    ),
)


@pytest.mark.parametrize("columns", LISTS)
def test_lists_of_two_columns_are_read_row_by_row(columns: tuple[tuple[str, ...], ...]) -> None:
    rows = [" ".join(row) for row in zip(*columns, strict=True)]
    assert read(Sheet(row_by_row(*columns))).document.text.split("\n") == rows


def picture(*, width: int = 4, height: int = 2) -> bytes:
    """An image of red dots."""
    entries = b"/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceRGB /BitsPerComponent 8" % (
        width,
        height,
    )
    return stream(entries + b" /Filter /FlateDecode", zlib.compress(b"\xff\x00\x00" * (width * height)))


@pytest.mark.parametrize("images", [False, True])
def test_a_picture_is_a_region_with_its_caption(images: bool) -> None:
    page = (
        text(60, 760, "Some text.")
        + b"q 200 0 0 100 60 600 cm /P Do Q "
        + lines(60, 585, "Figure 3: Four stones", "of one wall")
        + text(60, 500, "More text.")
    )
    sheet = Sheet(page, resources=b"/XObject << /P %d 0 R >>" % FIRST)
    reading = PdfReader(images=images).read(Blob("a.pdf", pdf([sheet], objects=[picture()])))
    (region,) = reading.document.regions
    assert region.kind == "image"
    assert region.caption == "Figure 3: Four stones of one wall"
    assert reading.document.text[region.start : region.end] == "Figure 3: Four stones\nof one wall"
    assert region.box is not None
    assert (region.box.left, region.box.top, region.box.right, region.box.bottom) == (60, 100, 260, 200)
    if images:
        (image,) = reading.images
        assert image.content_hash == region.image
        assert image.uri == "a.pdf/page-1-60-100.png"
        assert image.data[16:24] == (4).to_bytes(4) + (2).to_bytes(4)
    else:
        assert (region.image, reading.images) == ("", ())


def test_a_picture_of_absurd_size_is_counted_and_not_decoded() -> None:
    sheet = Sheet(text(60, 760, "Text.") + b"q 200 0 0 100 60 600 cm /P Do Q", resources=b"/XObject << /P 3 0 R >>")
    huge = picture().replace(b"/Width 4 /Height 2", b"/Width 90000 /Height 90000")
    reading = PdfReader(images=True).read(Blob("a.pdf", pdf([sheet], objects=[huge])))
    assert reading.images == ()
    assert reading.dropped == (("pictures", 1),)

"""Damage of a package costs the member that is damaged, whatever the reader, the member and the damage.

The formats are those of the fixtures that are ZIP archives: a new one is tested here as soon as there is a file of it.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from struct import pack
from typing import Any

import pytest

from spolia.errors import SpoliaError
from spolia.indexing.readers.office.opc import relations_name
from spolia.indexing.readers.reader import Reading, reader_of
from spolia.indexing.readers.registry import by_suffix
from tests.indexing.readers.fixtures import FIXTURES, PIXEL, changed_zip, xlsx, zip_of
from tests.indexing.readers.test_every_format import NEEDS, read
from tests.indexing.sample_documents import docx_of

MAIN = ("word/document.xml", "ppt/presentation.xml", "xl/workbook.xml", "content.xml", "OEBPS/book.opf")
"""Parts without which nothing can be read."""


UNREAD = re.compile(
    rb"slideLayout|slideMaster|notesMaster|theme|Props|app\.xml|tableStyles|printerSettings|thumbnail|customXml|webSettings|"
    rb"fontTable|stylesWithEffects|embeddings"
)
"""Parts of which no reader takes anything."""


def small(data: bytes) -> bytes:
    """A package without the parts that are not read, and without what refers to them."""
    members = {name: content for name, content in members_of(data).items() if not UNREAD.search(name.encode())}
    for name in [name for name in members if name.endswith(".rels")]:
        members[name] = re.sub(
            rb"<Relationship [^>]*>", lambda item: b"" if UNREAD.search(item[0]) else item[0], members[name]
        )
    return zip_of(members)


def docx() -> bytes:
    def write(document: Any) -> None:
        document.add_heading("Walls", 1)
        document.add_paragraph("Basalt is dark.")
        document.add_picture(io.BytesIO(PIXEL))
        styles = document.styles.element
        for style in [*styles.style_lst]:  # they are most of what is read
            if style.name_val not in ("Normal", "heading 1"):
                styles.remove(style)

    return docx_of(write)


def workbook() -> bytes:
    """A workbook with strings that sheets share, and formats."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    row = '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" s="1"><v>0.075</v></c></row>'
    data = xlsx({"Weights": row, "Remarks": '<row r="1"><c r="A1" t="inlineStr"><is><t>Dry.</t></is></c></row>'})
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        relations = archive.read("xl/_rels/workbook.xml.rels").decode()
    added = "".join(
        f'<Relationship Id="{kind}" Type="{office}/{kind}" Target="{kind}.xml"/>'
        for kind in ("sharedStrings", "styles")
    )
    members = {
        "xl/_rels/workbook.xml.rels": relations.replace("</Relationships>", f"{added}</Relationships>"),
        "xl/sharedStrings.xml": f'<sst xmlns="{main}"><si><t>basalt</t></si></sst>',
        "xl/styles.xml": f'<styleSheet xmlns="{main}"><cellXfs><xf/><xf numFmtId="10"/></cellXfs></styleSheet>',
    }
    return changed_zip(data, members)


FILES: dict[str, Callable[[], bytes]] = {
    **{name: make for name, make in FIXTURES.items() if ".office." in type(reader_of(name, by_suffix())).__module__},
    "a.docx": lambda: small(docx()),
    "a.pptx": lambda: small(FIXTURES["a.pptx"]()),
    "a.xlsx": workbook,
}
del FILES["a.rtf"]  # no package


def with_wrong_checksum(members: Mapping[str, bytes], name: str) -> bytes:
    data = zip_of(members)
    checksum = zipfile.ZipFile(io.BytesIO(data)).getinfo(name).CRC
    return data.replace(pack("<I", checksum), pack("<I", checksum ^ 1))


def with_wrong_bytes(members: Mapping[str, bytes], name: str) -> bytes:
    data = bytearray(zip_of(members))
    member = zipfile.ZipFile(io.BytesIO(data)).getinfo(name)
    start = member.header_offset + 30 + len(name.encode())
    for position in range(start + member.compress_size // 2, start + member.compress_size):
        data[position] ^= 0x5A
    return bytes(data)


def with_content(change: Callable[[bytes], bytes]) -> Callable[[Mapping[str, bytes], str], bytes]:
    return lambda members, name: zip_of({**members, name: change(members[name])})


DAMAGES: dict[str, Callable[[Mapping[str, bytes], str], bytes]] = {
    "missing": lambda members, name: zip_of({other: data for other, data in members.items() if other != name}),
    "wrong checksum": with_wrong_checksum,
    "wrong bytes": with_wrong_bytes,
    "truncated": with_content(lambda data: data[: len(data) // 2]),
    "garbled": with_content(lambda data: bytes(byte ^ (0x15 if at % 7 == 3 else 0) for at, byte in enumerate(data))),
    "empty": with_content(lambda data: b""),
    "not XML": with_content(lambda data: b"\0\1 no markup <<"),
}


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def one_of_each_kind(members: Mapping[str, bytes]) -> list[str]:
    """Of slide1, slide2 and slide3 the first."""
    return [*{re.sub(r"\d+", "", name): name for name in sorted(members, reverse=True)}.values()]


def texts(members: Mapping[str, bytes], name: str) -> Iterator[str]:
    """What is written in a member, and in those that are read only through it."""
    yield members[name].decode("utf-8", "replace")
    if name.endswith(".rels"):
        folder = posixpath.dirname(posixpath.dirname(name))
        for target in re.findall(rb'Target="([^"]*)"', members[name]):
            path = posixpath.normpath(posixpath.join("/", folder, target.decode())).lstrip("/")
            if "/notesSlides/" in path or "/charts/" in path:
                yield from texts(members, path)
    elif (relations := relations_name(name)) in members and "/slides/" in name:
        yield from texts(members, relations)
    elif name.endswith(("sheet1.xml", ".xhtml")):
        yield from (
            members[member].decode() for member in ("xl/sharedStrings.xml", "OEBPS/toc.ncx") if member in members
        )


def words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z]{2,}", text))


def read_or_refuse(name: str, data: bytes) -> tuple[Reading | None, str]:
    try:
        return read(name, data), ""
    except SpoliaError as error:
        return None, str(error)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FILES))
def test_a_damaged_member_costs_its_own_text_at_most_and_what_is_lost_is_reported(name: str) -> None:
    pytest.importorskip(NEEDS.get(name[1:], "json"))
    data = FILES[name]()
    whole, members = read(name, data), members_of(data)
    assert not whole.warnings
    for member in one_of_each_kind(members):
        own = words(" ".join(texts(members, member)))
        for damage, apply in DAMAGES.items():
            case = f"{damage}: {member}"
            reading, refusal = read_or_refuse(name, apply(members, member))
            if reading is None:
                assert member in MAIN, f"{case}: {refusal}"
                assert member in refusal or "has no package document" in refusal, case
                assert "Error:" not in refusal.replace("XMLSyntaxError:", ""), f"{case}: {refusal}"
                continue
            lost = words(whole.document.text) - words(reading.document.text)
            assert damage != "wrong checksum" or not lost, case
            assert member in MAIN or lost <= own | {"Notes"}, f"{case}: {lost - own}"
            assert not lost or any(posixpath.basename(member) in warning for warning in reading.warnings), case

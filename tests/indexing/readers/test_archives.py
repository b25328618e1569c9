"""Archives: what is in them comes out in order and bounded; what would leave them or grow without end is refused."""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spolia.errors import DocumentError, EncryptedDocument
from spolia.indexing.readers.archives import IN_MEMORY, PackedReader, TarReader, ZipReader
from spolia.indexing.readers.reader import ArchiveLimits, Blob, reader_of
from spolia.indexing.readers.registry import by_suffix
from tests.cases import check_each
from tests.indexing.readers.fixtures import FIXTURES, tar_of, zip_of

SMALL = ArchiveLimits(entries=100, size=1_000_000, ratio=10)


def parts(data: bytes, name: str = "a.zip", limits: ArchiveLimits = SMALL) -> Iterator[Blob]:
    reader = ZipReader(limits) if name.endswith(".zip") else TarReader(limits)
    return reader.parts(Blob(name, data))


@pytest.mark.parametrize("how", ["w", "w:gz", "w:bz2", "w:xz"])
def test_members_come_in_order_with_their_names(how: str) -> None:
    members = {"one.txt": b"One.", "in/two.txt": b"Two.", ".hidden": b"x", "__MACOSX/one.txt": b"x"}
    for data, name in ((zip_of(members), "b/a.zip"), (tar_of(members, how), "b/a.tar.gz")):
        result = [(part.uri, part.data) for part in parts(data, name)]
        assert result == [(f"{name}/one.txt", b"One."), (f"{name}/in/two.txt", b"Two.")]


def test_a_single_packed_file_is_one_part() -> None:
    (part,) = PackedReader().parts(Blob("b/notes.txt.gz", gzip.compress(b"Stones.")))
    assert (part.uri, part.data) == ("b/notes.txt.gz/notes.txt", b"Stones.")


@check_each("name", ["../a.txt", "/etc/passwd", "a/../../b", "C:/a.txt", "..\\a.txt", "\\a.txt"])
def test_names_that_lead_out_are_refused(name: str) -> None:
    for data, archive in ((zip_of({name: "x"}), "a.zip"), (tar_of({name: b"x"}), "a.tar")):
        with pytest.raises(DocumentError, match="would be outside"):
            list(parts(data, archive))


def test_links_and_devices_are_counted_and_never_followed() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            info = tarfile.TarInfo(f"link{kind.decode()}")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    blob = Blob("a.tar", out.getvalue())
    assert TarReader().read(blob).dropped == (("links and special files", 4),)
    assert list(TarReader().parts(blob)) == []
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as zipped:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        zipped.writestr(link, "/etc/passwd")
    assert ZipReader().read(Blob("a.zip", out.getvalue())).dropped == (("links and special files", 1),)
    assert list(parts(out.getvalue())) == []


@pytest.mark.slow
def test_bombs_are_refused_by_what_they_state() -> None:
    with pytest.raises(DocumentError, match=r"would unpack from \d+ to 60000000 bytes"):
        list(parts(zip_of({"a.txt": bytes(60_000_000)}), limits=ArchiveLimits()))
    with pytest.raises(DocumentError, match="would unpack"):
        list(parts(tar_of({"a.txt": bytes(2_000_000)}, "w:gz"), "a.tar.gz"))


def test_bombs_are_refused_by_what_comes_out() -> None:
    lying = zip_of({f"{n}.txt": bytes(600_000) for n in range(2)}).replace(
        struct.pack("<I", 600_000), struct.pack("<I", 10)
    )
    with pytest.raises(DocumentError):
        list(parts(lying))
    with pytest.raises(DocumentError, match="would unpack"):
        list(PackedReader(SMALL).parts(Blob("a.txt.gz", gzip.compress(bytes(2_000_000)))))
    with pytest.raises(DocumentError, match="would unpack"):
        list(parts(tar_of({f"{n}.txt": bytes(300_000) for n in range(5)}, "w:gz"), "a.tar.gz"))


@pytest.mark.slow
def test_a_header_that_would_fill_the_memory_is_refused() -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 30_000_000
    data = gzip.compress(header.tobuf() + bytes(30_000_000))
    with pytest.raises(DocumentError, match="header of more than"):
        list(parts(data, "a.tar.gz", ArchiveLimits()))
    claims = tarfile.TarInfo("big.txt")
    claims.size = 2**31
    with pytest.raises(DocumentError, match="would unpack"):
        list(parts(claims.tobuf() + b"x" * 1024, "a.tar"))


@pytest.mark.parametrize("make", [zip_of, tar_of], ids=["zip", "tar"])
def test_too_many_entries_are_refused(make: object) -> None:
    data = make({f"{n}.txt": b"" for n in range(101)})  # type: ignore[operator]
    name = "a.zip" if make is zip_of else "a.tar"
    with pytest.raises(DocumentError, match=r"entries"):
        list(parts(data, name))


@pytest.mark.slow
def test_a_million_entries_are_counted_before_they_are_in_memory() -> None:
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    directory = entry * 1_000_000
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 16_960, 16_960, len(directory), 0, 0)
    blob = Blob("a.zip", directory + end)
    with pytest.raises(DocumentError, match="1000000 entries or more; 50000 are allowed"):
        ZipReader().read(blob)


def locked_zip() -> bytes:
    data = bytearray(zip_of({"a.txt": "x", "b.txt": "y"}))
    for position in (data.find(b"PK\x03\x04") + 6, data.find(b"PK\x01\x02") + 8):
        data[position] |= 1
    return bytes(data)


def test_locked_members_are_counted_and_locked_archives_say_so() -> None:
    assert ZipReader().read(Blob("a.zip", locked_zip())).dropped == (("locked files", 1),)
    assert [part.uri for part in parts(locked_zip())] == ["a.zip/b.txt"]
    whole = bytearray(zip_of({"a.txt": "x"}))
    for position in (whole.find(b"PK\x03\x04") + 6, whole.find(b"PK\x01\x02") + 8):
        whole[position] |= 1
    with pytest.raises(EncryptedDocument, match="password"):
        ZipReader().read(Blob("a.zip", bytes(whole)))


def test_a_large_member_is_in_a_file_that_goes() -> None:
    data = zip_of({"a.txt": b"ab" * IN_MEMORY, "b.txt": b"b"}, zipfile.ZIP_STORED)
    blobs = parts(data, limits=ArchiveLimits())
    first = next(blobs)
    assert isinstance(first.content, Path)
    with first.open() as file:
        assert file.read(4) == b"abab"
    assert first.size == 2 * IN_MEMORY
    assert next(blobs).content == b"b"
    assert list(blobs) == []
    assert not first.content.exists()


def test_names_that_are_not_utf_8_can_be_written() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", encoding="latin-1", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("café.txt"))
    (part,) = parts(out.getvalue(), "a.tar")
    assert part.uri == "a.tar/caf\\xe9.txt"
    data = zip_of({"cafe.txt": "x"}).replace(b"cafe.txt", "café".encode() + b"txt")
    assert [part.uri for part in parts(data)] == ["a.zip/cafétxt"]


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.txt.gz"])
def test_what_is_no_archive_says_so(name: str) -> None:
    reader = reader_of(name, by_suffix())
    assert reader is not None
    for data in (b"", b"hello, this is no archive" * 50, FIXTURES[name]()[:30]):
        with pytest.raises(DocumentError, match=name):
            list(reader.parts(Blob(name, data)))  # type: ignore[attr-defined]

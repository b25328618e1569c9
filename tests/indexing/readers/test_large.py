"""Files that are too large for one document come in parts that are cut between rows, and are never in memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from spolia.errors import DocumentError
from spolia.indexing.readers import text
from spolia.indexing.readers.reader import Blob, Container, FileReader, reader_of
from spolia.indexing.readers.records import CsvReader
from spolia.indexing.readers.registry import by_suffix
from spolia.indexing.readers.text import TextReader


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LARGEST", 1000)
    monkeypatch.setattr(text, "PART_BYTES", 500)
    monkeypatch.setattr(text, "PART_ROWS", 20)


def parts(name: str, data: bytes) -> list[Blob]:
    reader = reader_of(name, by_suffix())
    assert isinstance(reader, Container)
    return list(reader.parts(Blob(name, data)))


def test_every_part_of_a_table_begins_with_its_head_and_no_row_is_lost() -> None:
    rows = [f'{n},"stone\n{n}",{n}.5\n' for n in range(100)]
    blobs = parts("b/big.csv", ("id,name,t\n" + "".join(rows)).encode())
    assert blobs[0].uri == "b/big.csv/rows-1-20.csv"
    assert blobs[-1].uri.endswith("-100.csv")
    assert all(part.data.startswith(b"id,name,t\n") for part in blobs)
    assert "".join(part.data.decode().removeprefix("id,name,t\n") for part in blobs) == "".join(rows)
    assert all(len(part.data) <= 510 for part in blobs)
    table = CsvReader().read(blobs[0]).document.regions[0]
    assert table.rows[:2] == (("id", "name", "t"), ("0", "stone\n0", "0.5"))


def test_a_table_without_a_head_repeats_nothing() -> None:
    data = "".join(f"{n},{n}.5\n" for n in range(200)).encode()
    assert b"".join(part.data for part in parts("big.csv", data)) == data


def test_the_document_of_a_large_file_is_its_beginning() -> None:
    data = b"stone,t\n" + b"basalt,3.0\n" * 10_000
    reading = CsvReader().read(Blob("big.csv", data))
    assert reading.document.text.startswith("stone,t\nbasalt")
    assert len(reading.document.text) < 70_000
    assert "read in parts" in reading.warnings[0]


@pytest.mark.parametrize(("name", "word"), [("big.txt", "lines"), ("big.jsonl", "lines"), ("big.tsv", "rows")])
def test_text_and_json_lines_come_in_parts_too(name: str, word: str) -> None:
    data = b'{"a": 1}\n' * 300 if name == "big.jsonl" else b"1\t2\n" * 300
    blobs = parts(name, data)
    assert blobs[0].uri == f"{name}/{word}-1-20.{name[4:]}"
    assert b"".join(part.data for part in blobs) == data


def test_small_files_have_no_parts() -> None:
    assert parts("a.csv", b"a,b\n1,2\n") == parts("a.txt", b"x\n") == parts("a.jsonl", b"{}\n") == []


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp932", "latin-1"])
def test_parts_are_utf_8_whatever_the_file_is(encoding: str) -> None:
    line = "Der Stein ist schön grün.\n" if encoding == "latin-1" else "佐藤太郎は東京に住む\n"
    blobs = parts("big.txt", (line * 100).encode(encoding))
    assert "".join(part.data.decode() for part in blobs) == line * 100


def test_a_quote_that_is_never_closed_holds_no_more_than_a_part() -> None:
    data = b'a,b\n1,"open\n' + b"1,2\n" * 1000
    blobs = parts("big.csv", data)
    assert len(blobs) > 3
    assert max(len(part.data) for part in blobs) < 1200


def test_a_line_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LONGEST_ROW", 2000)
    blobs = parts("big.txt", b"x" * 10_000)
    assert sum(len(part.data) for part in blobs) == 10_000
    assert max(len(part.data) for part in blobs) < 2200


def test_what_is_no_text_is_refused() -> None:
    for data in (bytes(range(256)) * 20, b"\x89PNG\r\n\x1a\n" * 500):
        with pytest.raises(DocumentError, match=r"big\.csv"):
            parts("big.csv", data)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LARGEST", 6_000_000)
    monkeypatch.setattr(text, "PART_BYTES", 1_500_000)
    monkeypatch.setattr(text, "PART_ROWS", 15_000)
    path = tmp_path / "big.csv"
    with path.open("wb") as file:
        file.write(b"id,name\n")
        for n in range(120):
            file.write(b"".join(b"%d,stone %d\n" % (n, m) for m in range(6_000)))
    blob = Blob("big.csv", path)
    assert blob.size > text.LARGEST
    reader: FileReader = CsvReader()
    assert isinstance(reader, Container)
    tracemalloc.start()
    count = sum(1 for _ in reader.parts(blob))
    reader.read(blob)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 48
    assert peak < blob.size / 2
    assert "data" not in blob.__dict__


def test_a_path_is_never_loaded_whole(tmp_path: Path) -> None:
    path = tmp_path / "big.txt"
    path.write_bytes(b"line\n" * 1000)
    blob = Blob("big.txt", path)
    assert TextReader().read(blob).document.text.startswith("line\n")
    assert "data" not in blob.__dict__

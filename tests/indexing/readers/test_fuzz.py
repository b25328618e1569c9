"""Whatever is in a file: a reading comes out of it, or an error that says why none does."""

from __future__ import annotations

import contextlib
import importlib.util
from itertools import islice

import pytest

from spolia.errors import SpoliaError
from spolia.indexing.readers.reader import Blob, Container, FileReader, Reading, reader_of
from spolia.indexing.readers.registry import READERS, by_suffix
from tests.cases import check_each
from tests.indexing.readers.compound import msg, xls
from tests.indexing.readers.fixtures import FIXTURES
from tests.indexing.readers.mutations import mutations
from tests.indexing.readers.test_every_format import NEEDS

MADE = {name: make for name, make in FIXTURES.items() if name != "a.pdf"} | {"a.msg": msg, "a.xls": lambda: xls()}
BY_NAME = by_suffix()


def check(reading: Reading) -> None:
    """A document whose places are in it, and whose text a store can take."""
    document = reading.document
    document.text.encode()
    assert all(0 <= heading.start <= len(document.text) for heading in document.headings)
    assert all(0 <= region.start <= region.end <= len(document.text) for region in document.regions)
    assert list(document.pages) == sorted(document.pages)
    repr((document.title, document.meta)).encode()


def attempt(name: str, data: bytes, depth: int = 0) -> None:
    """Read a file and all that stands in it."""
    reader, blob = reader_of(name, BY_NAME), Blob(name, data)
    if reader is None or depth > 3:
        return
    with contextlib.suppress(SpoliaError):
        check(reader.read(blob))
    if isinstance(reader, Container):
        with contextlib.suppress(SpoliaError):
            for part in islice(reader.parts(blob), 50):
                attempt(part.uri, part.data, depth + 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MADE))
def test_a_broken_file_is_read_or_refused(name: str) -> None:
    if importlib.util.find_spec(NEEDS.get(name[name.rfind(".") :], "json")) is None:
        pytest.skip("its package is not installed")
    for data in mutations(MADE[name](), 30, seed=sum(name.encode())):
        attempt(name, data)


@pytest.mark.parametrize("name", sorted(MADE))
def test_a_truncated_file_is_read_or_refused(name: str) -> None:
    if importlib.util.find_spec(NEEDS.get(name[name.rfind(".") :], "json")) is None:
        pytest.skip("its package is not installed")
    data = MADE[name]()
    for end in range(0, len(data), max(1, len(data) // 12)):
        attempt(name, data[:end])


@pytest.mark.slow
@check_each("reader", READERS)
def test_every_reader_takes_every_other_format(reader: FileReader) -> None:
    """A wrong suffix ends in a reading, or in an error that names the file."""
    wrong = f"wrong{reader.suffixes[0]}"
    for make in MADE.values():
        try:
            check(reader.read(Blob(wrong, make())))
        except SpoliaError as error:
            message = str(error)
        else:
            message = wrong
        assert wrong in message


def test_there_is_a_file_of_every_format() -> None:
    names = {reader.name for name in (*MADE, "a.pdf") if (reader := reader_of(name, BY_NAME)) is not None}
    assert {reader.name for reader in READERS} - names == {"image"}

"""A page, shape, sheet, cell, note, attachment or part that cannot be read never costs the file, whatever the reader.

The readers are those of the registry: a new one is tested here as soon as there is a file of its format.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from spolia.errors import DocumentError, EncryptedDocument, UnsafeDocument
from spolia.indexing.readers.layout import Layout
from spolia.indexing.readers.reader import Blob, Reading, is_container, reader_of
from spolia.indexing.readers.registry import READERS, by_suffix
from spolia.indexing.readers.unit_failures import UnitFailures
from tests.indexing.readers.compound import msg, xls
from tests.indexing.readers.fixtures import FIXTURES
from tests.indexing.readers.test_every_format import NEEDS

UNDIVIDED = {
    "text": "its text is all that is read",
    "packed": "it holds a single file",
    "mbox": "its mails are cut out",
}
"""Readers of files that are a single unit."""
PDF = {"pdf": "its pages have a test of their own"}
BY_NAME = by_suffix()


def tiff() -> bytes:
    image = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    pages = [image.new("L", (20, 20), shade) for shade in (0, 128, 255)]
    pages[0].save(out, "TIFF", save_all=True, append_images=pages[1:], description="Basalt is dark.")
    return out.getvalue()


FILES = {name: make for name, make in FIXTURES.items() if name != "a.pdf"} | {
    "a.msg": msg, "a.xls": lambda: xls(), "a.tiff": tiff,
}  # fmt: skip


def read(name: str, data: bytes) -> tuple[Reading | None, list[str], str]:
    """The reading of a file, the names of what is in it, and the error that its parts end with."""
    reader, blob = reader_of(name, BY_NAME), Blob(name, data)
    assert reader is not None
    try:
        reading = reader.read(blob)
    except DocumentError as error:
        return None, [], str(error)
    parts, problem = list[str](), ""
    if is_container(reader):
        try:
            parts.extend(part.uri for part in reader.parts(blob))
        except DocumentError as error:
            problem = str(error)
    return reading, parts, problem


class Injected(Exception):
    """A fault of a library."""


class Injection:
    """Lets the unit with this number fail, after it has been read; notes what units there are and what they wrote."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int = -1) -> None:
        self.units: list[str] = []
        self.written: dict[int, str] = {}
        attempt, write = UnitFailures.attempt, Layout.attempt

        def failing(failures: UnitFailures, unit: str, read: Callable[[], Any], *rest: Any, **options: Any) -> Any:
            number = len(self.units)
            self.units.append(unit)

            def broken() -> Any:
                read()
                raise Injected("of the test")

            return attempt(failures, unit, broken if number == at else read, *rest, **options)

        def noting(layout: Layout, unit: str, *rest: Any, **options: Any) -> None:
            number, previous_length = len(self.units), len(layout)
            write(layout, unit, *rest, **options)
            self.written[number] = layout.text()[previous_length:]

        monkeypatch.setattr(UnitFailures, "attempt", failing)
        monkeypatch.setattr(Layout, "attempt", noting)


def words(text: str) -> set[str]:
    return set(text.split())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FILES))
def test_a_unit_that_fails_costs_itself_only_and_is_reported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec(NEEDS.get(name[name.rfind(".") :], "json")) is None:
        pytest.skip("its package is not installed")
    data = FILES[name]()
    with monkeypatch.context() as patch:
        units = Injection(patch)
        whole, parts, _ = read(name, data)
    assert whole is not None
    for unit_number in range(len(units.units)):
        with monkeypatch.context() as patch:
            Injection(patch, unit_number)
            reading, left, problem = read(name, data)
        if reading is None:  # there is nothing in the file but this unit
            assert words(units.written[unit_number]) >= words(whole.document.text)
            assert "of the test" in problem
            continue
        assert "of the test" in " ".join((*reading.warnings, problem)), units.units[unit_number]
        assert len(left) >= len(parts) - 1
        if unit_number in units.written:
            lost = words(whole.document.text) - words(reading.document.text)
            assert lost <= words(units.written[unit_number]), units.units[unit_number]


def test_every_reader_has_units_or_says_why_it_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    units: dict[str, int] = {}
    for name, make in FILES.items():
        reader = reader_of(name, BY_NAME)
        assert reader is not None
        if importlib.util.find_spec(NEEDS.get(name[name.rfind(".") :], "json")) is None:
            continue
        with monkeypatch.context() as patch:
            injection = Injection(patch)
            read(name, make())
        units[reader.name] = units.get(reader.name, 0) + len(injection.units)
    assert {reader.name for reader in READERS} == {*units, *PDF}
    assert {name for name, number in units.items() if not number} == set(UNDIVIDED)


@pytest.mark.parametrize("error", [EncryptedDocument("locked"), UnsafeDocument("a bomb"), MemoryError()])
def test_what_concerns_the_whole_file_is_no_failure_of_a_unit(error: Exception) -> None:
    def read() -> None:
        raise error

    with pytest.raises(type(error)):
        UnitFailures().attempt("page", read, None)


def test_a_unit_that_fails_leaves_no_half_of_it() -> None:
    layout = Layout()
    numbers = count()

    def write() -> None:
        layout.write_heading("Half", 1)
        layout.write_table([("a", "b")])
        layout.exact += 1
        layout.add_note("a note")
        next(numbers)
        raise Injected("of the test")

    layout.write_paragraph("Before.")
    mark = layout.mark()
    layout.attempt("shape", write, lambda: "Plain\ntext.")
    layout.write_notes()
    layout.add_region("code", mark)
    assert layout.text() == "Before.\n\nPlain\ntext."
    assert (layout.headings, layout.exact, layout.regions[0].start) == ([], 0, 9)
    assert layout.failures.dropped() == {}
    assert layout.failures.warnings() == ("1 shape was read as plain text (Injected: of the test).",)

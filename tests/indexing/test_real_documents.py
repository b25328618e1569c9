"""Real files from the test fixtures of other projects, with strings that must be found; PDF has a test of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spolia.indexing.readers.reader import Blob, Container, Reading, reader_of
from spolia.indexing.readers.registry import by_suffix
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.stores.groups.nodes import cut_document

# What the manifest's plain extractor found and this one does not, and why.
OTHERWISE = {
    ("dl-wiki_duck.html", "Related changes"): "navigation",
    ("mk-test_blog.html", "FSM Group Chat"): "navigation",
    ("dl-word_sample.docx", "SEQ Figure"): "the code of a field",
}


def rows(datasets: Path) -> list[dict[str, Any]]:
    lines = (datasets / "documents" / "manifest.jsonl").read_text("utf-8").splitlines()
    readers = by_suffix()
    return [row for row in map(json.loads, lines) if reader_of(row["file"], readers)]


def read(datasets: Path, name: str) -> Reading:
    reader = reader_of(name, by_suffix())
    assert reader is not None
    return reader.read(Blob(name, (datasets / "documents" / name).read_bytes()))


def fold(text: str) -> str:
    return " ".join(text.split())


NEEDS = {".docx": "docx", ".pptx": "pptx", ".xlsx": "python_calamine", ".msg": "olefile"}
SUFFIXES = (
    ".txt", ".md", ".html", ".docx", ".rst", ".asciidoc", ".pptx", ".xlsx", ".odt", ".rtf", ".epub", ".eml", ".msg",
    ".ipynb", ".json", ".csv", ".tsv", ".xml",
)  # fmt: skip


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_must_be_found_is_found(shared_datasets: Path, suffix: str) -> None:
    pytest.importorskip(NEEDS.get(suffix, "json"))
    manifest_rows = [row for row in rows(shared_datasets) if row["file"].endswith(suffix) and not row["encrypted"]]
    assert manifest_rows
    for row in manifest_rows:
        document = read(shared_datasets, row["file"]).document
        name = Path(row["file"]).name
        for words in row["must_contain"]:
            assert (fold(words) in fold(document.text)) != ((name, words) in OTHERWISE), (
                name,
                words,
            )
        for heading in document.headings:
            assert fold(heading.text)[:5] in fold(document.text[heading.start : heading.start + 200])
        for node in cut_document(document, SlidingWindow()):
            assert node.span is not None
            assert document.text[node.span.start : node.span.end] == node.text


# What the manifest states no strings of: what stands in them, by reading them with the eyes.
ALSO = {
    "un-fake-doc.rtf": "Row 2, Cell 2",
    "mk-test.rtf": "It is included to test if the MarkItDown sample plugin can correctly convert RTF files.",
    "dl-csv-inconsistent-header.csv": "1,2,3",
    "mk-test.json": "9700dc99-6685-40b4-9a3a-5e406dcb37f3",
    "un-arbitrary-records.json": "Watering Can",
    "mk-test_notebook.ipynb": "markitdown",
    "un-fake-email.eml": "Violets are blue",
    "un-fake-email.msg": "Violets are blue",
    "un-fake-email-attachment.eml": "Little to no content",
    "un-more-than-1k-cells.xlsx": "Sheet1",
    "un-emoji.xlsx": "\N{FACE WITH COWBOY HAT}",
}


@pytest.mark.parametrize("name", ALSO)
def test_what_else_must_be_found(shared_datasets: Path, name: str) -> None:
    pytest.importorskip(NEEDS.get(name[name.rfind(".") :], "json"))
    assert ALSO[name] in fold(read(shared_datasets, f"files/{name}").document.text)


def test_every_file_has_a_reader(shared_datasets: Path) -> None:
    lines = (shared_datasets / "documents" / "manifest.jsonl").read_text("utf-8").splitlines()
    assert len(rows(shared_datasets)) == len(lines)


def test_attachments_and_mails_within_mails(shared_datasets: Path) -> None:
    for name, parts in (
        ("un-fake-email-attachment.eml", [("fake-attachment.txt", b"Hey this is a fake attachment!")]),
        ("un-mime-multipart-digest.eml", [(f"attachment-{n}.eml", None) for n in (1, 2, 3)]),
    ):
        reader = reader_of(name, by_suffix())
        assert isinstance(reader, Container)
        blob = Blob(name, (shared_datasets / "documents" / "files" / name).read_bytes())
        for part, (uri, data) in zip(reader.parts(blob), parts, strict=True):
            assert part.uri == f"{name}/{uri}"
            assert data in (None, part.data)

"""Real files from the test fixtures of other projects, with strings that must be found; PDF has a test of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spolia.indexing.readers.choosing import by_suffix, reader_of
from spolia.indexing.readers.reading import Blob, Reading
from spolia.indexing.splitters.sliding_window import SlidingWindow
from spolia.stores.groups.making import cut

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


def folded(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("suffix", [".txt", ".md", ".html", ".docx", ".rst", ".asciidoc"])
def test_what_must_be_found_is_found(shared_datasets: Path, suffix: str) -> None:
    pytest.importorskip({".docx": "docx"}.get(suffix, "json"))
    found = [row for row in rows(shared_datasets) if row["file"].endswith(suffix) and not row["encrypted"]]
    assert found
    for row in found:
        document = read(shared_datasets, row["file"]).document
        name = Path(row["file"]).name
        for wanted in row["must_contain"]:
            assert (folded(wanted) in folded(document.text)) != ((name, wanted) in OTHERWISE), (name, wanted)
        for heading in document.headings:
            assert folded(heading.text)[:5] in folded(document.text[heading.start : heading.start + 200])
        for node in cut(document, SlidingWindow()):
            assert node.span is not None
            assert document.text[node.span.start : node.span.end] == node.text

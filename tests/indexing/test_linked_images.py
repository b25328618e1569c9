"""Pictures that are files beside a document: shown, kept in step, and never to those who may not see them."""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path

import numpy as np
import pytest

from spolia import BM25, Corpus, Definition, Query, Run, sync
from spolia.errors import StoreError
from spolia.indexing.readers.markup.markdown import MarkdownReader
from spolia.indexing.readers.pdf.drawings import png_of
from spolia.indexing.readers.reader import Blob
from spolia.indexing.structure.regions import Regions
from spolia.indexing.sync.dry_run import planned
from spolia.indexing.sync.report import reports
from tests.indexing.readers.fixtures import zip_of

pytestmark = pytest.mark.slow


def wall_png(hue: int) -> bytes:
    return png_of(np.full((30, 40, 3), (hue, 0, 0), np.uint8))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "img").mkdir(parents=True)
    (tmp_path / "docs" / "a.md").write_text("# Walls\n\nStones.\n\n![A red wall](img/red%20wall.png 'Old')\n")
    (tmp_path / "docs" / "img" / "red wall.png").write_bytes(wall_png(200))
    (tmp_path / "secret.png").write_bytes(wall_png(1))
    return tmp_path / "docs"


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(f"{tmp_path}/s.spolia")


def pictures_of(corpus: Corpus, uri: str = "a.md", principals: frozenset[str] = frozenset()) -> list[bytes]:
    """The pictures that a document shows to somebody."""
    snapshot = corpus.latest()
    (document,) = (region for region in snapshot.documents(principals) if region.uri == uri)
    return [snapshot.image(document.id, region.image, principals) for region in document.regions if region.image]


def test_a_picture_beside_a_document_is_a_node_that_shows_it(folder: Path, corpus: Corpus) -> None:
    pictures = corpus.group("picture", Definition(Regions("image")))
    report = sync(folder, corpus, groups=[pictures])
    assert (report.added, report.failed) == (2, ())
    (hit,) = BM25(pictures)(Query("red wall")).hits
    assert hit.node.text == "A red wall"
    image = str(dict(hit.node.meta)["image"])
    assert corpus.latest().image(hit.node.document, image, frozenset()) == wall_png(200)
    assert sync(folder, corpus, groups=[pictures]).changed == 0


def test_a_page_shows_what_is_beside_it_too(folder: Path, corpus: Corpus) -> None:
    (folder / "b.html").write_text("<p>Stones.</p><img src='img/red wall.png'><img src='img/none.png' alt='None'>")
    sync(folder, corpus, workers=1)
    assert pictures_of(corpus, "b.html") == [wall_png(200)]
    assert reports(corpus)["b.html"].dropped == (("pictures", 1),)


@pytest.mark.parametrize(
    "name",
    ["../secret.png", "/etc/passwd", "img/../../secret.png", "..%2Fsecret.png", "img/.hidden.png", "img/link.png",
     "https://example.org/a.png", "file:///etc/passwd", "img", "a.md", "img/none.png", "."],
)  # fmt: skip
def test_nothing_else_than_pictures_of_the_folder_is_shown(folder: Path, corpus: Corpus, name: str) -> None:
    (folder / "img" / ".hidden.png").write_bytes(wall_png(2))
    os.symlink(folder.parent / "secret.png", folder / "img" / "link.png")
    (folder / "a.md").write_text(f"Stones.\n\n![A picture of a wall]({name}) ![Sign]({name})\n")
    sync(folder, corpus)
    assert pictures_of(corpus) == []
    assert reports(corpus)["a.md"].dropped == (("pictures", 2),)
    (document,) = (region for region in corpus.latest().documents() if region.uri == "a.md")
    assert [region.caption for region in document.regions] == ["A picture of a wall"]


def test_a_document_follows_the_pictures_beside_it(folder: Path, corpus: Corpus) -> None:
    red = folder / "img" / "red wall.png"
    sync(folder, corpus)
    red.write_bytes(wall_png(90))
    os.utime(red, (time.time() + 5, time.time() + 5))
    assert set(planned(folder, corpus).changed) == {"a.md", "img/red wall.png"}
    assert sync(folder, corpus).changed == 2
    assert pictures_of(corpus) == [wall_png(90)]
    red.unlink()
    sync(folder, corpus)
    assert pictures_of(corpus) == []
    assert sync(folder, corpus).changed == 0
    red.write_bytes(wall_png(200))
    sync(folder, corpus)
    assert pictures_of(corpus) == [wall_png(200)]
    assert sync(folder, corpus).changed == 0
    assert corpus.latest().check() == []


def test_the_same_document_beside_other_pictures_shows_these(folder: Path, corpus: Corpus) -> None:
    (folder / "other" / "img").mkdir(parents=True)
    (folder / "other" / "a.md").write_bytes((folder / "a.md").read_bytes())
    (folder / "other" / "img" / "red wall.png").write_bytes(wall_png(60))
    sync(folder, corpus)
    assert (pictures_of(corpus), pictures_of(corpus, "other/a.md")) == ([wall_png(200)], [wall_png(60)])
    (folder / "third").mkdir()
    (folder / "a.md").rename(folder / "third" / "a.md")
    sync(folder, corpus)
    assert (pictures_of(corpus, "third/a.md"), pictures_of(corpus, "other/a.md")) == ([], [wall_png(60)])


def test_who_may_not_read_a_picture_does_not_see_it_in_a_document(folder: Path, corpus: Corpus) -> None:
    lists: dict[str, list[str]] = {"a.md": [], "img/red wall.png": ["ann"]}
    cases: tuple[tuple[list[str], list[str], bool], ...] = (
        ([], ["ann"], False), (["ann"], ["ann", "bob"], True), (["ann", "bob"], ["ann"], False), (["ann"], [], True),
        ([], ["ann"], False), ([], [], True),
    )  # fmt: skip
    for of_document, of_picture, is_shown in cases:
        lists |= {"a.md": of_document, "img/red wall.png": of_picture}
        report = sync(folder, corpus, access=lists.__getitem__)
        assert report.failed == ()
        pictures = pictures_of(corpus, principals=frozenset(["ann", "bob"]))
        assert pictures == ([wall_png(200)] if is_shown else []), (of_document, of_picture)
        with Run(principal="ann"):
            assert len(BM25(corpus.group())(Query("stones")).hits) == 1


def test_an_old_picture_is_closed_with_its_document(folder: Path, corpus: Corpus) -> None:
    lists: dict[str, list[str]] = {"a.md": [], "img/red wall.png": []}
    sync(folder, corpus, access=lists.__getitem__)
    (document,) = (region for region in corpus.latest().documents() if region.uri == "a.md")
    (image,) = (region.image for region in document.regions if region.image)
    lists["img/red wall.png"] = ["ann"]
    sync(folder, corpus, access=lists.__getitem__)
    with pytest.raises(StoreError, match="no readable picture"):
        corpus.latest().image(document.id, image, frozenset())


def test_a_document_in_an_archive_has_nothing_beside_it(folder: Path, corpus: Corpus) -> None:
    (folder / "z.zip").write_bytes(zip_of({"a.md": "![A red wall of stone](red.png)", "red.png": wall_png(200)}))
    assert sync(folder, corpus).failed == ()
    assert pictures_of(corpus, "z.zip/a.md") == []
    assert reports(corpus)["z.zip/a.md"].dropped == (("pictures", 1),)


def test_pictures_that_are_written_into_markdown_are_images() -> None:
    here = base64.b64encode(wall_png(200)).decode()
    text = (
        f"![A wall](data:image/png;base64,{here})\n\n`![Code](data:image/png;base64,{here})`\n\n"
        f"```\n![Fenced](data:image/png;base64,{here})\n```\n\n| a | b |\n|---|---|\n| ![Cell](<img/a b.png>) | c |\n"
        "\n[![A badge of the build](https://example.org/a.svg)](https://example.org)\n"
    )
    reading = MarkdownReader().read(Blob("a.md", text.encode()))
    assert [image.data for image in reading.images] == [wall_png(200)]
    pictures = [(region.caption, bool(region.image)) for region in reading.document.regions if region.kind == "image"]
    assert pictures == [("A wall", True), ("Cell", False), ("A badge of the build", False)]
    ((number, name),) = reading.linked_images
    assert (reading.document.regions[number].caption, name) == ("Cell", "img/a b.png")
    assert reading.dropped == (("pictures", 1),)


@pytest.mark.parametrize("text", ["![" * 50_000, "`" * 200_000, "![a](" * 50_000, "`` ` " * 50_000, "![a](<" * 50_000])
def test_what_looks_like_pictures_without_end_is_read(text: str) -> None:
    assert MarkdownReader().read(Blob("a.md", text.encode())).images == ()

"""What cannot be read now keeps its last good version; other labels for the same text cut nothing again."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from spolia.filters import Field, where
from spolia.indexing.splitters.text_units import Paragraphs
from spolia.indexing.structure.regions import AttachMetadata
from spolia.indexing.sync.sync import sync
from spolia.indexing.transforms.function import transform
from spolia.indexing.transforms.text_enrichment import Summary
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Part
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Query

pytestmark = pytest.mark.slow

ASKED: list[str] = []
BROKEN = bytes(range(256))


@transform
def years(part: Part) -> str:
    ASKED.append(part.document.uri)
    return f"Of the year {dict(part.document.meta).get('year')}."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "tides.txt").write_text("Tides follow the moon.")
    (docs / "salt.txt").write_text("Salt is dug in mines.")
    ASKED.clear()
    return docs


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "notes.spolia"))


def search_uris(corpus: Corpus, text: str, group: str = "chunk", **more: Any) -> list[str]:
    return [node.uri for node in BM25(corpus.group(group))(Query(text, **more)).nodes]


def fail(uri: str) -> dict[str, Any]:
    raise KeyError("year")


def test_a_new_version_that_cannot_be_read_leaves_the_old_one_until_it_can_or_is_gone(
    folder: Path, corpus: Corpus
) -> None:
    sync(folder, corpus)
    (folder / "salt.txt").write_bytes(BROKEN)
    report = sync(folder, corpus)
    assert ([uri for uri, _ in report.failed], report.stale) == (["salt.txt"], ("salt.txt",))
    assert search_uris(corpus, "salt") == ["salt.txt"]
    row = corpus.latest().sources()["salt.txt"]
    assert (row.status, row.is_stale) == ("failed", True)
    assert sync(folder, corpus).stale == ("salt.txt",)
    (folder / "salt.txt").write_text("Pepper grows.")
    assert (sync(folder, corpus).stale, search_uris(corpus, "salt"), search_uris(corpus, "pepper")) == (
        (),
        [],
        ["salt.txt"],
    )
    (folder / "salt.txt").write_bytes(BROKEN)
    sync(folder, corpus)
    (folder / "salt.txt").unlink()
    assert sync(folder, corpus).removed == 1
    assert search_uris(corpus, "pepper") == []
    assert corpus.latest().check() == []


@pytest.mark.parametrize("wrong", [fail, lambda uri: {"year": object()}])
def test_metadata_that_are_wrong_leave_the_document_with_those_that_it_had(
    folder: Path, corpus: Corpus, wrong: Any
) -> None:
    fields = [Field("year", "int")]
    sync(folder, corpus, fields=fields, metadata=lambda uri: {"year": 2020})
    (folder / "salt.txt").write_text("Salt is dug in deep mines.")
    report = sync(folder, corpus, metadata=wrong)
    assert set(report.stale) == {"salt.txt", "tides.txt"}
    assert search_uris(corpus, "salt", filter=where(year=2020)) == ["salt.txt"]
    assert sync(folder, corpus, metadata=lambda uri: {"year": 2021}).failed == ()
    assert search_uris(corpus, "deep", filter=where(year=2021)) == ["salt.txt"]
    assert corpus.latest().check() == []


@pytest.mark.parametrize("tries", [1, 4])
def test_a_stale_version_is_open_to_those_only_who_may_read_the_file_now(
    folder: Path, corpus: Corpus, tries: int
) -> None:
    sync(folder, corpus, access=lambda uri: ["ann", "bob"])
    (folder / "salt.txt").write_bytes(BROKEN)
    for _ in range(tries - 1):
        sync(folder, corpus, access=lambda uri: ["ann", "bob"])
    assert sync(folder, corpus, access=lambda uri: ["ann"]).stale == ("salt.txt",)
    with Run(groups=["bob"]):
        assert search_uris(corpus, "salt") == []
    with Run(groups=["ann"]):
        assert search_uris(corpus, "salt") == ["salt.txt"]


def test_a_stale_copy_with_other_readers_goes_rather_than_change_the_list_of_the_other(
    folder: Path, corpus: Corpus
) -> None:
    (folder / "same.txt").write_text("Salt is dug in mines.")
    sync(folder, corpus, access=lambda uri: ["ann", "bob"])
    (folder / "salt.txt").write_bytes(BROKEN)
    report = sync(folder, corpus, access=lambda uri: ["ann"] if uri == "salt.txt" else ["ann", "bob"])
    assert report.stale == ()
    with Run(groups=["bob"]):
        assert search_uris(corpus, "salt") == ["same.txt"]


@pytest.mark.parametrize("lost", ["end", "all"])
def test_an_archive_that_is_broken_keeps_what_was_in_it_for_those_who_may_read_it_now(
    folder: Path, corpus: Corpus, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ZipFile(folder / "old.zip", "w") as archive:
        archive.writestr("moss.txt", "Moss grows slowly.")
        archive.writestr("salt.txt", "Salt is dug in mines.")
    sync(folder, corpus, access=lambda uri: ["ann", "bob"])
    (folder / "old.zip").write_bytes((folder / "old.zip").read_bytes()[:-30])
    if lost == "all":
        monkeypatch.setattr("spolia.indexing.sync.files.load", _refuse)
    report = sync(folder, corpus, access=lambda uri: ["ann", *["bob"] * (not uri.startswith("old.zip"))])
    assert [uri for uri, _ in report.failed] == ["old.zip"]
    assert report.removed == 1  # the copy of a file that bob may read: a document has one list
    with Run(groups=["bob"]):
        assert (search_uris(corpus, "moss"), search_uris(corpus, "salt")) == ([], ["salt.txt"])
    with Run(groups=["ann"]):
        assert (search_uris(corpus, "moss"), search_uris(corpus, "salt")) == (["old.zip/moss.txt"], ["salt.txt"])


def _refuse(*_: object, **__: object) -> object:
    raise PermissionError(13, "Permission denied")


def test_other_metadata_cut_nothing_again_and_ask_no_model(folder: Path, corpus: Corpus) -> None:
    model = ScriptedModel(((".", "About it."),))
    groups = [corpus.group("summary", Definition(Summary(model))), corpus.group("year", Definition(years))]
    embedder = HashingEmbedder(16)
    options: dict[str, Any] = {"embedder": embedder, "fields": [Field("year", "int")], "known": [years, ScriptedModel]}
    with Run() as run:
        sync(folder, corpus, groups=groups, metadata=lambda uri: {"year": 2020}, **options)
    assert run.usage.calls == 2
    ids = {node.id for node in corpus.latest().all_nodes("chunk", frozenset())}
    ASKED.clear()

    with Run() as run:
        report = sync(
            folder, corpus, groups=groups, metadata=lambda uri: {"year": 2021 if uri == "salt.txt" else 2020}, **options
        )
    assert (report.changed, report.unchanged, report.embedded) == (1, 1, 0)
    assert run.usage.calls == 0
    assert ASKED == ["salt.txt"]
    assert {node.id for node in corpus.latest().all_nodes("chunk", frozenset())} == ids
    for group in ("chunk", "summary"):
        assert search_uris(corpus, "salt it", group, filter=where(year=2021)) == ["salt.txt"]
    assert search_uris(corpus, "2021", "year") == ["salt.txt"]
    assert corpus.latest().check() == []


def test_metadata_that_are_indexed_are_indexed_anew(folder: Path, corpus: Corpus) -> None:
    splitter = AttachMetadata(Paragraphs(), ("year",))
    sync(folder, corpus, splitter=splitter, metadata=lambda uri: {"year": 2020})
    report = sync(folder, corpus, splitter=splitter, metadata=lambda uri: {"year": 2021})
    assert report.changed == 2
    assert search_uris(corpus, "2020") == []
    assert sorted(search_uris(corpus, "2021")) == ["salt.txt", "tides.txt"]
    assert corpus.latest().check() == []


def test_a_copy_that_comes_with_the_older_metadata_takes_nothing_back(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, fields=[Field("year", "int")], metadata=lambda uri: {"year": 2020})
    sync(folder, corpus, metadata=lambda uri: {"year": 2021})
    (folder / "copy.txt").write_text("Salt is dug in mines.")
    sync(folder, corpus, metadata=lambda uri: {"year": 2020 if uri == "copy.txt" else 2021})
    assert search_uris(corpus, "salt", filter=where(year=2021)) == ["salt.txt"]
    assert search_uris(corpus, "salt", filter=where(year=2020)) == ["copy.txt"]
    sync(folder, corpus, metadata=lambda uri: {"year": 2020})
    assert sorted(search_uris(corpus, "salt", filter=where(year=2020))) == ["copy.txt", "salt.txt"]
    assert corpus.latest().check() == []


def test_a_copy_keeps_its_own_metadata_when_only_those_in_the_other_file_change(folder: Path, corpus: Corpus) -> None:
    (folder / "one.html").write_text("<html lang=en><meta name=author content=Ann><p>Moss grows slowly.")
    (folder / "two.html").write_text("<html lang=en><meta name=author content=Ann><p>Moss grows slowly.")
    sync(folder, corpus)
    (folder / "two.html").write_text("<html lang=en><meta name=author content=Bob><p>Moss grows slowly.")
    sync(folder, corpus)
    authors = {document.uri: dict(document.meta).get("author") for document in corpus.latest().documents(frozenset())}
    assert (authors["one.html"], authors["two.html"]) == ("Ann", "Bob")
    assert corpus.latest().check() == []

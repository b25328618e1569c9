"""What the caller says of files: labels tell documents apart, ids that are there stay, long lists cost once."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import StoreError
from spolia.filters import Between, Field, where
from spolia.indexing.readers.reader import Blob
from spolia.indexing.readers.text import TextReader
from spolia.indexing.sync import sync_run
from spolia.indexing.sync.dry_run import planned
from spolia.indexing.sync.metadata import DocumentLabels
from spolia.indexing.sync.report import reports
from spolia.indexing.sync.sync import sync
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.testing import HashingEmbedder
from spolia.types import Document, Query
from tests.cases import check_each

TEXT = Document("0f.text", "The tide rises.", uri="a.txt")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "files"
    new_folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (new_folder / name).write_text(f"The tide of {name} rises.")
    return new_folder


def label_text(meta: dict[str, Any], readers: Sequence[str] = ()) -> Document:
    return DocumentLabels(metadata=lambda uri: meta, access=lambda uri: readers).label_document(TEXT)


def test_a_mark_has_sixteen_bytes_and_tells_every_label_apart() -> None:
    labels: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"year": 1}, ()),
        ({"year": True}, ()),
        ({"year": 1.0}, ()),
        ({"year": "1"}, ()),
        ({"year": [1, 2]}, ()),
        ({"year": 1}, ("ann",)),
        ({}, ("ann",)),
        ({}, ("ann", "bob")),
        ({}, ("ann, bob",)),
        ({}, ("('ann',)",)),
    ]
    ids = [label_text(*label).id for label in labels]
    assert len(set(ids)) == len(ids)
    assert {len(id) for id in ids} == {len("0f-.text") + 32}
    assert label_text({}, ("bob", "ann", "bob")).id == label_text({}, ("ann", "bob")).id
    assert label_text({}).id == TEXT.id


@pytest.mark.slow
def test_ids_that_were_given_before_stay(folder: Path, tmp_path: Path) -> None:
    """A store whose ids have another mark, as those of earlier versions that were exported and imported."""
    corpus, embedder = Corpus(str(tmp_path / "notes.spolia")), HashingEmbedder()
    options: dict[str, Any] = {
        "metadata": lambda uri: {"year": 2020},
        "access": lambda uri: ["ann"],
        "embedder": embedder,
    }
    sync(folder, corpus, **options)
    previous_ids = shorten_ids(corpus)
    for path in folder.iterdir():
        path.touch()
    report = sync(folder, corpus, **options)
    assert (report.unchanged, report.embedded) == (2, 0)
    (folder / "b.txt").rename(folder / "moved.txt")
    report = sync(folder, corpus, **options)
    assert (report.moved, report.unchanged, report.embedded) == (1, 1, 0)
    report = sync(folder, corpus, **(options | {"access": lambda uri: ["bob"]}))
    assert (report.changed, report.embedded) == (2, 0)
    with Run(principal="bob"):
        assert {node.document for node in BM25(corpus.group())(Query("tide")).nodes} == previous_ids
    assert corpus.snapshot().check() == []


def shorten_ids(corpus: Corpus) -> set[str]:
    """Give the documents ids with four bytes in their mark."""
    ids = set()
    with corpus.writer() as writer:
        for uri, row in writer.sources().items():
            document = writer.document(row.document)
            name, _, rest = document.id.partition("-")
            short = f"{name}-{rest[:8]}.text"
            nodes = [
                node.but(id=node.id.replace(document.id, short), document=short, parent=short)
                for node in writer.nodes(document.id, "chunk")
            ]
            writer.remove(uri)
            writer.put_document(document.but(id=short), nodes, row.but(document=short))
            ids.add(short)
    return ids


def test_many_files_with_one_list_share_it() -> None:
    count = 0

    def access(uri: str) -> list[str]:
        nonlocal count
        count += 1
        return [f"user{number}" for number in range(100)]

    labels = DocumentLabels(access=access)
    first, second = labels.label_document(TEXT), labels.label_document(TEXT.but(uri="b.txt"))
    assert first.readers is second.readers
    assert count == 2


@check_each("wrong", ["ann", None, [["ann"]], [3], [True], {"ann": 1}.values()])
def test_what_is_no_list_is_refused_whatever_came_before(wrong: Any) -> None:
    answers: dict[str, Any] = {"a.txt": [], "b.txt": ["1"], "c.txt": wrong}
    labels = DocumentLabels(access=lambda uri: answers[uri])
    assert [labels.readers(uri) for uri in ("a.txt", "b.txt")] == [(), ("1",)]
    with pytest.raises(StoreError, match="Give a list of principals"):
        labels.readers("c.txt")


# Reader lists of files with one content.

LISTS = st.sampled_from([(), ("ann",), ("bob",), ("ann", "bob")])
STATES = st.lists(st.dictionaries(st.sampled_from(["a.txt", "b.txt", "c.txt"]), LISTS, min_size=1), max_size=4)


@pytest.mark.slow
@settings(max_examples=25)
@given(states=STATES, batch=st.sampled_from([1, 1000]), at_once=st.sampled_from([1, 64]))
def test_every_file_has_its_list_whatever_lists_its_copies_have_and_had(
    states: Sequence[Mapping[str, tuple[str, ...]]], batch: int, at_once: int
) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync_run, "CUT_AT_ONCE", at_once)
        folder, corpus = Path(place, "files"), Corpus(f"{place}/notes.spolia")
        folder.mkdir()
        for lists in states:
            for path in folder.iterdir():
                path.unlink()
            for name in lists:
                (folder / name).write_text("The tide rises.")
            sync(folder, corpus, access=lists.__getitem__, batch=batch)
            assert readers_of_files(corpus) == lists


def readers_of_files(corpus: Corpus) -> dict[str, tuple[str, ...]]:
    snapshot = corpus.snapshot()
    lists = {document.id: document.readers for document in snapshot.documents(frozenset(["ann", "bob"]))}
    return {uri: lists[row.document] for uri, row in snapshot.sources().items()}


@pytest.mark.slow
def test_nothing_is_asked_of_files_that_are_gone(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "notes.spolia"))
    readers: dict[str, list[str]] = {"a.txt": ["ann"], "b.txt": ["bob"]}
    options: dict[str, Any] = {"access": lambda uri: readers[uri], "metadata": lambda uri: {"by": readers[uri]}}
    sync(folder, corpus, **options)
    (folder / "b.txt").rename(folder / "c.txt")
    readers["c.txt"] = readers.pop("b.txt")
    assert sync(folder, corpus, **options).moved == 1
    (folder / "c.txt").rename(folder / "d.txt")
    readers["d.txt"] = ["eve"]
    del readers["c.txt"]
    report = sync(folder, corpus, **options)
    assert (report.moved, report.added, report.removed) == (0, 1, 1)


# Another type of a field.


def hand_labelled(blob: Blob) -> Document:
    """A reader that says of a file who wrote it, and what it is called."""
    meta = (("author", "a reader"), ("file_name", "as read"), ("shelf", 3))
    return blob.document(TextReader(), blob.data.decode(), meta=meta)


def test_what_the_caller_says_counts_before_what_a_reader_says_and_this_before_what_the_file_says(
    folder: Path, tmp_path: Path
) -> None:
    def metadata(uri: str) -> dict[str, str]:
        return {"author": "the caller", "file_type": "said"} if uri == "a.txt" else {}

    corpus = Corpus(str(tmp_path / "notes.spolia"))
    fields = [Field("author"), Field("shelf", "int")]
    sync(folder, corpus, fields=fields, metadata=metadata, readers={"*.txt": hand_labelled})

    def search_uris(**said: Any) -> list[str]:
        return sorted(hit.node.uri for hit in BM25(corpus.group())(Query("tide", filter=where(**said))).hits)

    assert search_uris(author="the caller", shelf=3, file_type="said") == ["a.txt"]
    assert search_uris(author="a reader", file_type="txt") == ["b.txt"]
    assert search_uris(file_name="as read") == ["a.txt", "b.txt"]
    assert search_uris(file_name="a.txt") == search_uris(author="a reader", file_type="said") == []
    assert search_uris(file_size=(24,)) == ["a.txt", "b.txt"]


@pytest.mark.slow
def test_fields_and_metadata_change_together(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "notes.spolia"))
    sync(folder, corpus, fields=[Field("year")], metadata=lambda uri: {"year": "2020"})
    plan = planned(folder, corpus, fields=[Field("year", "int")])
    report = sync(folder, corpus, fields=[Field("year", "int")])
    assert plan.fields == report.fields, "the plan says it before"
    (field,) = report.fields
    assert re.search(r"'year' holds int, and document a\.txt is '2020' \(str\).*skipped\. So are those of \d", field)
    assert not BM25(corpus.group())(Query("tide", filter=where(year=2020))).hits
    sync(folder, corpus, fields=[Field("year", "int")], metadata=lambda uri: {"year": 2020}, batch=1)
    ranking = BM25(corpus.group())(Query("tide", filter=where(year=2020)))
    assert {node.uri for node in ranking.nodes} == {"a.txt", "b.txt"}


@pytest.mark.slow
def test_a_value_that_does_not_fit_is_warned_of_and_takes_no_document_away(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "notes.spolia"))
    years: dict[str, Any] = {"a.txt": "soon", "b.txt": 2021}
    fields = [Field("year", "int"), Field("tags")]
    plan = planned(folder, corpus, fields=fields, metadata=lambda uri: {"year": years.get(uri)})
    report = sync(folder, corpus, fields=fields, metadata=lambda uri: {"year": years.get(uri)})
    assert report.is_in_step
    assert report.warned == 1
    assert "Field 'year' holds int, and its value is 'soon' (str)" in reports(corpus)["a.txt"].warnings[0]
    assert report.fields == plan.fields
    assert "No document has a value of the field 'tags'. The names that documents have are: year." in report.fields
    assert not sync(folder, corpus, fields=fields).fields, "nothing is declared anew"


def test_days_are_metadata_that_can_be_filtered_by_and_what_is_none_is_said(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "notes.spolia"))
    days: dict[str, Any] = {"a.txt": date(2026, 1, 2), "b.txt": {"no", "list"}}
    report = sync(folder, corpus, fields=[Field("day", "time")], metadata=lambda uri: {"day": days.get(uri)})
    (failed,) = report.failed
    assert re.search(r"a value that is none: \{.*\} is of type set\. Write a text", failed[1])
    ranking = BM25(corpus.group())(Query("tide", filter=Between("day", at_least=date(2026, 1, 1))))
    assert {node.uri for node in ranking.nodes} == {"a.txt"}

"""What the caller says of files: labels tell documents apart, ids that are there stay, long lists cost once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import FilterError, StoreError
from spolia.filters import Field, where
from spolia.indexing.labels import Labels
from spolia.indexing.sync import sync
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.testing import HashingEmbedder
from spolia.types import Document, Query

TEXT = Document("0f.text", "The tide rises.", uri="a.txt")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "files"
    found.mkdir()
    for name in ("a.txt", "b.txt"):
        (found / name).write_text(f"The tide of {name} rises.")
    return found


def labelled(meta: dict[str, Any], readers: Sequence[str] = ()) -> Document:
    return Labels(metadata=lambda uri: meta, access=lambda uri: readers).on(TEXT)


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
    ids = [labelled(*label).id for label in labels]
    assert len(set(ids)) == len(ids)
    assert {len(id) for id in ids} == {len("0f-.text") + 32}
    assert labelled({}, ("bob", "ann", "bob")).id == labelled({}, ("ann", "bob")).id
    assert labelled({}).id == TEXT.id


def test_ids_that_were_given_before_stay(folder: Path, tmp_path: Path) -> None:
    """A store whose ids have another mark, as those of earlier versions that were exported and imported."""
    corpus, embedder = Corpus(str(tmp_path / "notes.spolia")), HashingEmbedder()
    how: dict[str, Any] = {"metadata": lambda uri: {"year": 2020}, "access": lambda uri: ["ann"], "embedder": embedder}
    sync(folder, corpus, **how)
    before = earlier(corpus)
    for path in folder.iterdir():
        path.touch()
    report = sync(folder, corpus, **how)
    assert (report.unchanged, report.embedded) == (2, 0)
    (folder / "b.txt").rename(folder / "moved.txt")
    report = sync(folder, corpus, **how)
    assert (report.moved, report.unchanged, report.embedded) == (1, 1, 0)
    report = sync(folder, corpus, **(how | {"access": lambda uri: ["bob"]}))
    assert (report.changed, report.embedded) == (2, 0)
    with Run(principal="bob"):
        assert {node.document for node in BM25(corpus.group())(Query("tide")).nodes} == before
    assert corpus.snapshot().check() == []


def earlier(corpus: Corpus) -> set[str]:
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
            writer.put(document.but(id=short), nodes, row.but(document=short))
            ids.add(short)
    return ids


def test_many_files_with_one_list_share_it() -> None:
    asked = 0

    def access(uri: str) -> list[str]:
        nonlocal asked
        asked += 1
        return [f"user{number}" for number in range(100)]

    labels = Labels(access=access)
    one, other = labels.on(TEXT), labels.on(TEXT.but(uri="b.txt"))
    assert one.readers is other.readers
    assert asked == 2


@pytest.mark.parametrize("wrong", ["ann", None, [["ann"]], [3], [True], {"ann": 1}.values()])
def test_what_is_no_list_is_refused_whatever_came_before(wrong: Any) -> None:
    said: dict[str, Any] = {"a.txt": [], "b.txt": ["1"], "c.txt": wrong}
    labels = Labels(access=lambda uri: said[uri])
    assert [labels.readers(uri) for uri in ("a.txt", "b.txt")] == [(), ("1",)]
    with pytest.raises(StoreError, match="Give a list of principals"):
        labels.readers("c.txt")


# Another type of a field.


def test_fields_and_metadata_change_together(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "notes.spolia"))
    sync(folder, corpus, fields=[Field("year")], metadata=lambda uri: {"year": "2020"})
    with pytest.raises(FilterError, match=r"'year' holds int, and document a\.txt is '2020'.*nothing was published"):
        sync(folder, corpus, fields=[Field("year", "int")])
    assert corpus.snapshot().schema == (Field("year"),)
    sync(folder, corpus, fields=[Field("year", "int")], metadata=lambda uri: {"year": 2020}, batch=1)
    found = BM25(corpus.group())(Query("tide", filter=where(year=2020)))
    assert {node.uri for node in found.nodes} == {"a.txt", "b.txt"}

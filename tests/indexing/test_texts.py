"""Documents beside a folder: lists of files, texts, and stores for one use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spolia.errors import DocumentError, FolderError
from spolia.filters import Field, where
from spolia.indexing.splitters.text_units import Sentences
from spolia.indexing.sync.sync import sync
from spolia.indexing.sync.texts import add_texts, temporary
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition
from spolia.stores.groups.materialise import materialise
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Query

STONES, ROADS, SALT = "Stones are reused.", "Roads lead to Rome.", "Salt is dug in mines."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "sub").mkdir(parents=True)
    (tmp_path / "docs" / "stones.txt").write_text(STONES)
    (tmp_path / "docs" / "sub" / "roads.txt").write_text(ROADS)
    return tmp_path / "docs"


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "notes.spolia"))


def texts(corpus: Corpus) -> dict[str, str]:
    return {document.uri: document.text for document in corpus.snapshot().documents()}


# Files and folders.


@pytest.mark.slow
def test_a_list_of_files_and_folders_is_indexed(folder: Path, corpus: Corpus) -> None:
    more = folder.parent / "more"
    more.mkdir()
    (more / "salt.txt").write_text(SALT)
    sync([folder / "stones.txt", more], corpus)
    assert texts(corpus) == {"docs/stones.txt": STONES, "more/salt.txt": SALT}
    report = sync([str(folder), more], corpus)  # and now all of the folder
    assert (report.added, report.unchanged, report.removed) == (1, 2, 0)
    assert corpus.snapshot().check() == []


def test_one_file_in_a_list_is_a_store_of_that_file(folder: Path, corpus: Corpus) -> None:
    sync([folder / "stones.txt"], corpus)
    assert texts(corpus) == {"stones.txt": STONES}


def test_a_file_that_is_named_twice_counts_once(folder: Path, corpus: Corpus) -> None:
    report = sync([folder, folder / "stones.txt", folder / "stones.txt", folder / "sub"], corpus)
    assert report.added == 2
    assert texts(corpus).keys() == {"stones.txt", "sub/roads.txt"}


def test_a_file_that_is_named_is_read_even_if_it_is_hidden_or_a_link(folder: Path, corpus: Corpus) -> None:
    (folder / ".hidden.txt").write_text(SALT)
    (folder / "link.txt").symlink_to(folder / "sub" / "roads.txt")
    sync([folder / ".hidden.txt", folder / "link.txt"], corpus)
    assert texts(corpus).keys() == {".hidden.txt", "link.txt"}


def test_what_is_not_there_is_said_before_anything_is_done(folder: Path, corpus: Corpus) -> None:
    with pytest.raises(FolderError, match=r"no file or folder .*/nowhere\.txt"):
        sync([folder / "stones.txt", folder / "nowhere.txt"], corpus)
    with pytest.raises(FolderError, match="No file and no folder is named"):
        sync([], corpus)
    (folder / "photo.raw").write_bytes(b"")
    with pytest.raises(FolderError, match=r"photo\.raw holds no readable document, but: 1 \.raw"):
        sync([folder / "photo.raw"], corpus)
    assert not corpus.exists()


# Texts.


@pytest.mark.slow
def test_texts_stay_when_a_folder_is_indexed(folder: Path, corpus: Corpus) -> None:
    add_texts(corpus, {"salt": SALT})
    assert sync(folder, corpus).removed == 0
    (folder / "stones.txt").unlink()
    assert sync(folder, corpus).removed == 1
    assert texts(corpus) == {"text:salt": SALT, "sub/roads.txt": ROADS}


@pytest.mark.slow
def test_files_stay_when_texts_are_added(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    report = add_texts(corpus, {"salt": SALT})
    assert (report.added, report.removed) == (1, 0)
    assert add_texts(corpus, {"more": "More."}).removed == 0
    assert texts(corpus).keys() == {"stones.txt", "sub/roads.txt", "text:salt", "text:more"}
    assert sync(folder, corpus).unchanged == 2


@pytest.mark.slow
def test_a_text_that_is_the_same_is_not_cut_again(corpus: Corpus) -> None:
    add_texts(corpus, {"salt": SALT}, embedder=HashingEmbedder())
    report = add_texts(corpus, {"salt": SALT}, embedder=HashingEmbedder())
    assert (report.generation, report.unchanged, report.chunks, report.embedded) == (1, 1, 0, 0)
    report = add_texts(corpus, {"salt": SALT.replace("mines", "caves")}, embedder=HashingEmbedder())
    assert (report.changed, report.embedded) == (1, 1)
    assert texts(corpus) == {"text:salt": "Salt is dug in caves."}


@pytest.mark.slow
def test_texts_stay_when_a_store_is_built_anew(folder: Path, corpus: Corpus) -> None:
    add_texts(
        corpus, {"salt": SALT}, fields=[Field("lang")], metadata=lambda uri: {"lang": "en"}, access=lambda uri: ["ann"]
    )
    sync(folder, corpus, access=lambda uri: [])
    assert sync(folder, corpus, splitter=Sentences(), rebuild=True).failed == ()
    group = corpus.group()
    assert BM25(group)(Query("salt")).hits == ()
    with Run(principal="ann"):
        (hit,) = BM25(group, filter=where(lang="en"))(Query("salt")).hits
    assert (hit.node.text, hit.node.uri) == (SALT, "text:salt")
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_a_text_is_read_as_the_end_of_its_name_says(corpus: Corpus) -> None:
    add_texts(corpus, {"salt.md": "# Salt\n\nIt is dug.", "page.html": "<p>Roads</p>", "v1.2": "Plain # text"})
    assert texts(corpus) == {
        "text:salt.md": "# Salt\n\nIt is dug.",
        "text:page.html": "Roads",
        "text:v1.2": "Plain # text",
    }
    (node,) = [node for node in corpus.snapshot().all_nodes("chunk") if node.uri == "text:salt.md"]
    assert node.context == "Salt"


def test_a_text_and_a_file_with_one_content_share_nodes(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    report = add_texts(corpus, {"stones": STONES})
    assert (report.added, corpus.snapshot().stats().documents) == (1, 2)
    (folder / "stones.txt").unlink()
    sync(folder, corpus)
    assert texts(corpus) == {"text:stones": STONES, "sub/roads.txt": ROADS}


def test_a_text_can_be_taken_away(corpus: Corpus) -> None:
    add_texts(corpus, {"salt": SALT, "roads": ROADS})
    with corpus.writer() as writer:
        writer.remove("text:salt")
    assert texts(corpus) == {"text:roads": ROADS}


@pytest.mark.slow
def test_texts_fill_all_groups_of_a_store(corpus: Corpus) -> None:
    sentences = corpus.group("clause", Definition(Sentences()))
    add_texts(corpus, {"salt": SALT}, groups=[sentences])
    add_texts(corpus, {"roads": f"{ROADS} All of them."})
    assert sorted(node.text for node in corpus.snapshot().all_nodes("clause")) == ["All of them.", ROADS, SALT]
    materialise([corpus.group("sentence")])
    assert corpus.snapshot().check() == []


@pytest.mark.parametrize("texts", [{"": "text"}, {"a\0b": "text"}, {"salt": b"bytes"}, {"salt": None}, {1: "text"}])
def test_what_is_no_text_is_refused(corpus: Corpus, texts: dict[str, str]) -> None:
    with pytest.raises(DocumentError, match=r"add_texts\(corpus, \{name: text\}\)"):
        add_texts(corpus, texts)
    assert not corpus.exists()


@pytest.mark.parametrize("text", ["", " \n", "a\0b", "\ud800 alone", "\ufeffmarked", "x" * 100_000])
def test_strange_texts_stop_nobody(corpus: Corpus, text: str) -> None:
    add_texts(corpus, {"strange": text, "salt": SALT})
    assert BM25(corpus.group())(Query("salt mines")).nodes[0].text == SALT
    assert corpus.snapshot().check() == []


def test_a_file_with_the_name_of_a_text_is_left_out(folder: Path, corpus: Corpus) -> None:
    (folder / "text:salt.txt").write_text("Something else.")
    add_texts(corpus, {"salt.txt": SALT})
    report = sync(folder, corpus)
    assert [(item.uri, "Rename it" in item.reason) for item in report.skipped] == [("text:salt.txt", True)]
    assert texts(corpus)["text:salt.txt"] == SALT


# For one use.


def test_a_temporary_corpus_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    inner_folder = tmp_path / "within"
    inner_folder.mkdir()
    with temporary([folder / "stones.txt"], parent_folder=inner_folder, embedder=HashingEmbedder()) as corpus:
        assert BM25(corpus.group("sentence"))(Query("reused")).nodes[0].text == STONES
        assert os.listdir(inner_folder)
    assert os.listdir(inner_folder) == []
    assert not corpus.exists()


def test_the_folder_of_a_temporary_corpus_has_its_former_name_too(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match=r"temporary\(within=…\) is temporary\(parent_folder=…\) now"):
        context = temporary({"salt": SALT}, within=tmp_path)  # type: ignore[call-arg]
    with context as corpus:
        assert corpus.exists()
        assert len(os.listdir(tmp_path)) == 1


def test_a_temporary_corpus_is_deleted_after_an_error(folder: Path, tmp_path: Path) -> None:
    inner_folder = tmp_path / "within"
    inner_folder.mkdir()
    with pytest.raises(ZeroDivisionError), temporary({"salt": SALT}, parent_folder=inner_folder):
        _ = 1 / 0
    with pytest.raises(FolderError), temporary(folder / "nowhere", parent_folder=inner_folder):
        pass
    assert os.listdir(inner_folder) == []


def test_two_temporary_corpora_at_the_same_time_are_two(folder: Path) -> None:
    with temporary({"salt": SALT}) as corpus, temporary(folder) as other_corpus:
        assert texts(corpus) == {"text:salt": SALT}
        assert texts(other_corpus) == {"stones.txt": STONES, "sub/roads.txt": ROADS}


@pytest.mark.slow
def test_a_temporary_corpus_is_in_memory_where_there_is_room(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr("spolia.indexing.sync.texts.MEMORY", memory)
    for documents in ({"salt": SALT}, folder, [folder / "stones.txt"]):
        with temporary(documents) as corpus:
            assert Path(corpus.path).is_relative_to(memory)
            assert BM25(corpus.group())(Query("salt stones")).nodes
    assert os.listdir(memory) == []
    monkeypatch.setattr("spolia.indexing.sync.texts.ROOM", 2**60)
    with temporary({"salt": SALT}) as corpus:
        assert not Path(corpus.path).is_relative_to(memory)

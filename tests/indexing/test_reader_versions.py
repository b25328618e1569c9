"""A new version of a reader makes its own files be read again, and nothing else."""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path

import pytest

from spolia import Corpus, add_texts, sync
from spolia.errors import DocumentError
from spolia.indexing.readers.reader import Blob
from spolia.indexing.readers.registry import FunctionReader
from spolia.indexing.sync.dry_run import planned
from spolia.testing.hash_embedder import HashingEmbedder

READ: Counter[str] = Counter()


def first(blob: Blob) -> str:
    READ[blob.uri] += 1
    if b"broken" in blob.data:
        raise DocumentError("It is broken.")
    return blob.data.decode()


def second(blob: Blob) -> str:
    READ[blob.uri] += 1
    return blob.data.decode().replace("broken", "mended").upper()


def minutes_reader(version: int) -> FunctionReader:
    reader = FunctionReader(first if version == 1 else second, ("*.min",), version)
    object.__setattr__(reader, "name", "minutes")  # one reader, whose code has changed
    return reader


def plain_reader(version: int) -> FunctionReader:
    reader = FunctionReader(first, ("*.txt",), version)
    object.__setattr__(reader, "name", "plain")
    return reader


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    READ.clear()
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.min").write_text("Carsten Olsen was present.")
    (notes / "b.txt").write_text("Stones of old temples.")
    with zipfile.ZipFile(notes / "old.zip", "w") as archive:
        archive.writestr("c.min", "The moon causes the tides.")
        archive.writestr("d.txt", "Salt is dug in mines.")
    return notes


@pytest.fixture
def corpus(fast_folder: Path) -> Corpus:
    return Corpus(str(fast_folder / "a.spolia"))


def sync_with_version(folder: Path, corpus: Corpus, version: int, text_version: int = 1) -> tuple[int, int, int]:
    """How many files have changed, of how many nothing was done, how many texts were embedded."""
    READ.clear()
    readers = {"*.min": minutes_reader(version), "*.txt": plain_reader(text_version)}
    groups = [corpus.group("sentence")]
    report = sync(folder, corpus, readers=readers, groups=groups, embedder=HashingEmbedder(8), workers=0)
    return report.changed + report.added, report.unchanged, report.embedded


def texts(corpus: Corpus, group: str = "chunk") -> list[str]:
    return sorted(node.text for node in corpus.latest().all_nodes(group))


def test_its_own_files_are_read_again_also_those_in_archives(folder: Path, corpus: Corpus) -> None:
    sync_with_version(folder, corpus, 1)
    previous_ids = {node.id for node in corpus.latest().all_nodes("sentence")}
    changed, unchanged, embedded = sync_with_version(folder, corpus, 2)
    assert READ == {"a.min": 1, "old.zip/c.min": 1}
    assert (changed, unchanged, embedded) == (2, 3, 2)
    for group in ("chunk", "sentence"):
        assert texts(corpus, group) == [
            "CARSTEN OLSEN WAS PRESENT.",
            "Salt is dug in mines.",
            "Stones of old temples.",
            "THE MOON CAUSES THE TIDES.",
        ]
    assert len(previous_ids & {node.id for node in corpus.latest().all_nodes("sentence")}) >= 2
    assert sync_with_version(folder, corpus, 2) == (0, 5, 0)
    assert not READ
    assert corpus.latest().reader_versions() == ("minutes 2", "plain 1", "zip 1")


def test_the_same_text_is_neither_cut_nor_embedded_again(folder: Path, corpus: Corpus) -> None:
    sync_with_version(folder, corpus, 1)
    keys = list(corpus.latest().open.lexical("chunk").keys())
    assert sync_with_version(folder, corpus, 1, text_version=2)[2] == 0
    assert READ == {"b.txt": 1, "old.zip/d.txt": 1}
    assert list(corpus.latest().open.lexical("chunk").keys()) == keys
    assert sync_with_version(folder, corpus, 1, text_version=2) == (0, 5, 0)


def test_what_could_not_be_read_is_tried_again_by_the_new_version(folder: Path, corpus: Corpus) -> None:
    (folder / "a.min").write_text("It is broken.")
    for _ in range(4):
        sync_with_version(folder, corpus, 1)
    assert READ == {}  # it was given up
    assert sync_with_version(folder, corpus, 2)[0] == 2
    assert "IT IS MENDED." in texts(corpus)


def test_a_file_that_another_reader_is_named_for_is_read_by_that(folder: Path, corpus: Corpus) -> None:
    sync_with_version(folder, corpus, 1)
    READ.clear()
    readers = {"*.min": minutes_reader(1), "*.txt": plain_reader(1), "b.*": minutes_reader(2)}
    report = sync(folder, corpus, readers=readers, embedder=HashingEmbedder(8), workers=0)
    assert READ == {"b.txt": 1}
    assert report.changed == 1
    assert "STONES OF OLD TEMPLES." in texts(corpus)


def test_texts_that_have_no_file_stay_and_are_read_again_when_they_are_given_again(corpus: Corpus) -> None:
    given_texts = {"a.min": "Nobody knows where the stones are."}
    add_texts(corpus, given_texts, readers={"*.min": minutes_reader(1)})
    add_texts(corpus, {"b.md": "Another one."}, readers={"*.min": minutes_reader(2)})
    assert texts(corpus) == ["Another one.", "Nobody knows where the stones are."]
    add_texts(corpus, given_texts, readers={"*.min": minutes_reader(2)})
    assert texts(corpus) == ["Another one.", "NOBODY KNOWS WHERE THE STONES ARE."]


@pytest.mark.parametrize("fast", [True, False])
def test_a_plan_names_the_files_that_are_read_again(folder: Path, corpus: Corpus, fast: bool) -> None:
    sync_with_version(folder, corpus, 1)
    readers = {"*.min": minutes_reader(2), "*.txt": plain_reader(1)}
    plan = planned(folder, corpus, readers=readers, embedder=HashingEmbedder(8), fast=fast, workers=0)
    assert not plan.rebuild
    assert plan.changed == (("a.min",) if fast else ("a.min", "old.zip/c.min"))

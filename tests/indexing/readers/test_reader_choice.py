"""Which reader reads a file, and plain functions as readers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spolia.errors import GroupError
from spolia.indexing.readers.reader import Blob, Reading, reader_of, versioned_name
from spolia.indexing.readers.registry import READERS, FunctionReader, by_suffix
from spolia.indexing.readers.text import TextReader
from spolia.indexing.sync.sync import sync
from spolia.stores.corpus import Corpus
from spolia.types import Document
from tests.cases import check_each


def shouted(blob: Blob) -> str:
    return blob.data.decode().upper()


def entitled(blob: Blob) -> Document:
    return Document("any", blob.data.decode(), title="Entitled", meta=(("kind", "note"),))


def warned(blob: Blob) -> Reading:
    return Reading(Document("any", "text"), warnings=("Beware.",))


def test_a_function_may_give_a_text_a_document_or_a_reading() -> None:
    blob = Blob("notes/a.foo", b"stones")
    for function in (shouted, entitled, warned):
        reading = FunctionReader(function, ("*.foo",)).read(blob)
        assert reading.document.uri == "notes/a.foo"
        assert reading.document.id == f"{blob.content_hash}.{function.__name__}"
    assert FunctionReader(shouted, ()).read(blob).document.text == "STONES"
    assert FunctionReader(entitled, ()).read(blob).document.title == "Entitled"
    assert FunctionReader(warned, ()).read(blob).warnings == ("Beware.",)


def test_functions_that_a_store_could_not_tell_from_others_are_refused() -> None:
    outer = "x"

    def closed(blob: Blob) -> str:
        return outer

    with pytest.raises(GroupError, match="a lambda has no name"):
        by_suffix({"*.foo": lambda blob: "x"})
    with pytest.raises(GroupError, match="depends on outer"):
        by_suffix({"*.foo": closed})


def test_built_in_readers_stand_in_the_table_with_their_own_suffixes() -> None:
    own = {suffix: reader for reader in READERS for suffix in reader.suffixes}
    assert own == dict(by_suffix())
    assert by_suffix((*READERS,)) == by_suffix()
    assert {type(by_suffix()[suffix]).__name__ for suffix in by_suffix()} == {
        type(built_in).__name__ for built_in in READERS
    }
    assert READERS[1:3] == (READERS[1], READERS[2])


@pytest.mark.slow
def test_only_the_readers_of_files_that_are_there_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# Stones\n\nOld ones.")
    program = f"""
import sys
from spolia import Corpus, sync
sync({str(tmp_path / "notes")!r}, Corpus({str(tmp_path / "notes.spolia")!r}))
print(*[name for name in sys.modules if name.startswith("spolia.indexing.readers.")])"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.rpartition(".")[2] for name in ran.stdout.split()}
    assert "markdown" in loaded
    assert not loaded & {"html", "mails", "archives", "records", "docx", "pdf", "image"}


def test_another_version_or_function_is_another_reader() -> None:
    reader = FunctionReader(shouted, ("*.foo",))
    assert reader == FunctionReader(shouted, ("*.foo",))
    assert len({reader, FunctionReader(shouted, ("*.foo",), version=2), FunctionReader(entitled, ("*.foo",))}) == 3
    assert versioned_name(FunctionReader(shouted, ("*.foo",), version=2)) == "shouted 2"


@check_each(
    ("name", "reader"),
    [
        ("a.foo", "shouted"),
        ("deep/in/A.FOO", "shouted"),
        ("reports/2026/q1.txt", "entitled"),
        ("notes/q1.txt", "text"),
        ("README", "warned"),
        ("in/readme", "warned"),
        ("a.md", "markdown"),
        ("a.special.md", "entitled"),
        ("a.tar.gz", "tar"),
        ("a.txt.gz", "packed"),
        ("a.v1.2.docx", "docx"),
        (".txt", ""),
        ("in/.txt", ""),
        ("nothing", ""),
        ("a.unknown", ""),
    ],
)
def test_patterns_come_before_suffixes_and_longer_suffixes_before_shorter(name: str, reader: str) -> None:
    readers = by_suffix({"*.foo": shouted, "reports/*.txt": entitled, "README": warned, ".special.md": entitled})
    found_reader = reader_of(name, readers)
    assert (found_reader.name if found_reader else "") == reader


def test_the_later_of_two_patterns_counts() -> None:
    readers = by_suffix({"a*.x": shouted, "*b.x": entitled})
    assert reader_of("ab.x", readers).name == "entitled"  # type: ignore[union-attr]
    assert reader_of("q.md", by_suffix([*READERS, FunctionReader(shouted, (".md",))])).name == "shouted"  # type: ignore[union-attr]


def test_a_reader_may_be_given_for_other_names() -> None:
    assert reader_of("a.log2", by_suffix({"*.log2": TextReader()})) == TextReader()


@pytest.mark.slow
def test_a_folder_is_indexed_with_a_function(tmp_path: Path) -> None:
    folder, corpus = tmp_path / "folder", Corpus(str(tmp_path / "notes.spolia"))
    folder.mkdir()
    (folder / "a.foo").write_text("old stones")
    (folder / "b.md").write_text("# New walls")
    report = sync(folder, corpus, readers={"*.foo": shouted})
    assert (report.added, report.failed) == (2, ())
    assert {document.text for document in corpus.snapshot().documents()} == {"OLD STONES", "# New walls"}
    assert sync(folder, corpus, readers={"*.foo": shouted}).unchanged == 2

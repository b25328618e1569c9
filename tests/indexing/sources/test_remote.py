"""Files of file systems that fsspec knows: in memory, in a folder, in an archive."""

from __future__ import annotations

import os
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from spolia.errors import SourceError, StoreError
from spolia.indexing.readers.registry import READERS
from spolia.indexing.sources import remote_files
from spolia.indexing.sources.remote_files import RemoteFiles
from spolia.indexing.sync.dry_run import planned
from spolia.indexing.sync.sync import sync
from spolia.stores.backends.publication import Draft
from spolia.stores.corpus import Corpus
from tests.cases import check_each
from tests.indexing.sources.program_reader import PROGRAM, LetteredReader


@pytest.fixture
def memory() -> Iterator[Any]:
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


@pytest.fixture
def fetched_paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of files that were fetched."""
    paths: list[str] = []
    load = remote_files._load

    def noting(system: Any, path: str, *rest: Any) -> Any:
        paths.append(path)
        return load(system, path, *rest)

    monkeypatch.setattr(remote_files, "_load", noting)
    return paths


def texts(corpus: Corpus) -> dict[str, str]:
    return {document.uri: document.text for document in corpus.latest().documents()}


@pytest.mark.slow
def test_files_are_fetched_once_until_they_change(memory: Any, corpus: Corpus, fetched_paths: list[str]) -> None:
    memory.pipe("/docs/a.txt", b"Stones.")
    memory.pipe("/docs/deep/b.md", b"# Roads")
    memory.pipe("/docs/.hidden.txt", b"Nothing.")
    memory.pipe("/docs/c.xyz", b"\x00")
    memory.pipe("/other/d.txt", b"Elsewhere.")
    source = RemoteFiles("memory://docs")
    report = sync(source, corpus)
    assert texts(corpus) == {"memory://docs/a.txt": "Stones.", "memory://docs/deep/b.md": "# Roads"}
    assert report.unread == ((".xyz", 1),)
    fetched_paths.clear()
    assert sync(source, corpus).unchanged == 2
    assert fetched_paths == []
    memory.pipe("/docs/a.txt", b"Columns.")
    memory.rm("/docs/deep/b.md")
    report = sync(source, corpus)
    assert (report.changed, report.removed, fetched_paths) == (1, 1, ["/docs/a.txt"])


@pytest.mark.slow
def test_what_lacked_a_program_is_read_again_when_it_is_there(
    memory: Any, corpus: Corpus, fetched_paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as packed:
        packed.writestr("d.rev", "etinarG")
        packed.writestr("e.txt", "Nothing was missing here.")
    memory.pipe("/docs/a.rev", b"tlasaB")
    memory.pipe("/docs/b.txt", b"Nor here.")
    memory.pipe("/docs/c.zip", (tmp_path / "c.zip").read_bytes())
    source, readers = RemoteFiles("memory://docs"), [*READERS, LetteredReader()]
    assert sync(source, corpus, readers=readers).added == 5
    assert sync(source, corpus, readers=readers).changed == 0
    monkeypatch.setenv(PROGRAM, "there")
    fetched_paths.clear()
    assert planned(source, corpus, readers=readers).changed == ("memory://docs/a.rev", "memory://docs/c.zip/d.rev")
    report = sync(source, corpus, readers=readers)
    assert (report.changed, report.failed) == (2, ())
    assert set(fetched_paths) == {"/docs/a.rev", "/docs/c.zip"}
    texts_by_uri = texts(corpus)
    assert (texts_by_uri["memory://docs/a.rev"], texts_by_uri["memory://docs/c.zip/d.rev"]) == ("Basalt", "Granite")
    fetched_paths.clear()
    assert (sync(source, corpus, readers=readers).changed, fetched_paths) == (0, [])


@pytest.mark.slow
def test_a_folder_and_a_file_by_their_addresses(tmp_path: Path, corpus: Corpus, fetched_paths: list[str]) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("Stones.")
    (folder / "b.txt").write_text("Roads.")
    os.symlink(tmp_path, folder / "loop")
    source = RemoteFiles(f"file://{folder}")
    sync(source, corpus)
    assert sorted(texts(corpus)) == [f"file:///{str(folder)[1:]}/{name}" for name in ("a.txt", "b.txt")]
    (folder / "a.txt").write_text("Walls..")  # as long as before
    os.utime(folder / "a.txt", (time.time() + 5, time.time() + 5))
    fetched_paths.clear()
    assert sync(source, corpus).changed == 1
    assert fetched_paths == [str(folder / "a.txt")]


@pytest.mark.slow
def test_an_archive_by_its_address(tmp_path: Path, corpus: Corpus) -> None:
    def pack(**members: str) -> None:
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
            for name, text in members.items():
                file.writestr(f"in/{name}.txt", text)

    pack(a="Stones.", b="Roads.")
    source = RemoteFiles(f"zip://in::file://{tmp_path}/a.zip")
    sync(source, corpus)
    prefix = f"zip://file://{tmp_path}/a.zip/in/"
    assert texts(corpus) == {f"{prefix}a.txt": "Stones.", f"{prefix}b.txt": "Roads."}
    pack(a="Walls..", c="Salt.")
    report = sync(source, corpus)
    assert (report.added, report.changed, report.removed) == (1, 1, 1)


def test_what_cannot_be_listed_is_not_gone(memory: Any, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe("/docs/a.txt", b"Stones.")
    memory.pipe("/docs/deep/b.txt", b"Roads.")
    source = RemoteFiles("memory://docs")
    sync(source, corpus)
    ls = type(memory).ls

    def broken(self: Any, path: str, **options: Any) -> Any:
        if "deep" in path:
            raise PermissionError("403 Forbidden")
        return ls(self, path, **options)

    monkeypatch.setattr(type(memory), "ls", broken)
    report = sync(source, corpus)
    assert "403 Forbidden" in report.failed[0][1]
    assert len(texts(corpus)) == 2
    monkeypatch.undo()
    memory.rm("/docs", recursive=True)
    assert "Not found: " in sync(source, corpus).failed[0][1]
    assert len(texts(corpus)) == 2


@pytest.mark.slow
def test_a_file_that_cannot_be_fetched_stays_and_is_said(
    memory: Any, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/docs/a.txt", b"Stones.")
    source = RemoteFiles("memory://docs")
    sync(source, corpus)
    memory.pipe("/docs/a.txt", b"Columns.")

    def refuse(self: Any, path: str, **options: Any) -> bytes:
        raise RuntimeError("SlowDown")

    monkeypatch.setattr(type(memory), "cat_file", refuse)
    assert "SlowDown" in sync(source, corpus).failed[0][1]
    assert texts(corpus) == {"memory://docs/a.txt": "Stones."}
    monkeypatch.undo()
    assert sync(source, corpus).failed == ()
    assert texts(corpus) == {"memory://docs/a.txt": "Columns."}


@pytest.mark.slow
def test_where_nothing_is_said_readers_stay_and_only_those_of_the_lot_are_looked_up(
    memory: Any, corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counts: list[int] = []
    readers = Draft.readers

    def noting(writer: Draft, uris: Any = None) -> Any:
        found_readers = readers(writer, uris)
        counts.append(len(found_readers))
        return found_readers

    monkeypatch.setattr(Draft, "readers", noting)
    monkeypatch.setattr("spolia.indexing.sources.source.ITEMS_AT_ONCE", 2)
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as packed:
        packed.writestr("in.txt", "A stone in a box.")
    names = ["a", "b", "c", "d", "e"]
    for name in names:
        memory.pipe(f"/docs/{name}.txt", f"Stone {name}.".encode())
    memory.pipe("/docs/z.zip", (tmp_path / "z.zip").read_bytes())
    source = RemoteFiles("memory://docs")
    sync(source, corpus, access=lambda uri: ["ann"])
    for name in names:
        memory.pipe(f"/docs/{name}.txt", f"Column {name}.".encode())
    assert sync(source, corpus).changed == 5
    assert max(counts) == 3  # z.zip, what is in it, and one more
    assert {document.readers for document in corpus.latest().documents(frozenset(["ann"]))} == {("ann",)}
    memory.pipe("/docs/new.txt", b"A new stone.")
    with pytest.raises(StoreError, match=r"Nothing says who may read 'memory://docs/new\.txt'"):
        sync(source, corpus)


@pytest.mark.slow
def test_access_and_metadata_apply_by_uri(memory: Any, corpus: Corpus) -> None:
    memory.pipe("/docs/a.txt", b"Stones.")
    memory.pipe("/docs/b.txt", b"Roads.")
    options: dict[str, Any] = {"metadata": lambda uri: {"name": uri.rpartition("/")[2]}}
    sync(RemoteFiles("memory://docs"), corpus, access=lambda uri: ["ann"] if uri.endswith("a.txt") else [], **options)
    (open_to_all,) = corpus.latest().documents()
    assert (open_to_all.uri, open_to_all.meta) == ("memory://docs/b.txt", (("name", "b.txt"),))
    sync(RemoteFiles("memory://docs"), corpus, access=lambda uri: [], **options)
    assert len(texts(corpus)) == 2


@check_each(
    ("url", "options"),
    [
        ("http://example.org/docs", ()), ("https://example.org/docs", ()), ("zip://::https://example.org/a.zip", ()),
        ("simplecache::http://example.org/a", ()), ("zip://", (("fo", "https://example.org/a.zip"),)),
        ("simplecache://a", (("target_protocol", "https"),)), ("docs", ()),
        ("reference://", (("fo", "names.json"),)), ("simplecache::reference://", (("fo", "names.json"),)),
    ],
)  # fmt: skip
def test_the_web_is_not_asked_past_the_check_of_addresses(url: str, options: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(SourceError):
        RemoteFiles(url, options)


@pytest.mark.parametrize("url", ["ftp://ann:hunter2@host/docs", "zip://::sftp://ann:hun/ter2@host/a.zip"])
def test_a_password_in_an_address_is_an_error_that_does_not_show_it(url: str) -> None:
    with pytest.raises(SourceError, match=r"ann:…@host.* holds a password") as refused:
        RemoteFiles(url)
    assert "ter2" not in str(refused.value)
    assert RemoteFiles("sftp://ann@host:22/a:b@c").id == "sftp://ann@host:22/a:b@c/"


def test_a_protocol_that_nobody_knows_is_said(corpus: Corpus) -> None:
    assert "not known" in sync(RemoteFiles("nonsense://a"), corpus).failed[0][1]

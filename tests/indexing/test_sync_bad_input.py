"""Folders and files as bad as they come: each says what is wrong, and the others go on."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import FolderError
from spolia.indexing.sync import files
from spolia.indexing.sync.report import Progress, SyncReport
from spolia.indexing.sync.sync import sync
from spolia.stores.corpus import Corpus
from tests.indexing.sample_documents import locked_pdf, pdf_of

GOOD = "A good passage about stones."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "good.txt").write_text(GOOD)
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "s.spolia"))


def texts(corpus: Corpus) -> dict[str, str]:
    return {document.uri: document.text for document in corpus.snapshot().documents()}


def reasons(report: SyncReport) -> dict[str, str]:
    return {item.uri: item.reason for item in report.skipped}


def test_no_folder(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"There is no folder .*/nowhere"):
        sync(tmp_path / "nowhere", corpus)
    assert not corpus.exists()


def test_a_file_for_a_folder(folder: Path, corpus: Corpus) -> None:
    with pytest.raises(FolderError, match="is a file, not a folder"):
        sync(folder / "good.txt", corpus)


def test_a_folder_that_vanishes_before_it_is_listed_is_an_error_that_takes_nothing(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(folder, corpus)
    monkeypatch.setattr(files, "_refuse_no_folder", shutil.rmtree)
    with pytest.raises(FolderError, match=r"There is no folder or file .* any more: No such file or directory"):
        sync(folder, corpus)
    assert set(corpus.snapshot().sources()) == {"good.txt"}


def test_what_cannot_be_looked_at_is_not_taken_for_gone(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub" / "below").mkdir(parents=True)
    for name in ("sub/a.txt", "sub/below/b.txt"):
        (folder / name).write_text("Still there.")
    sync(folder, corpus)
    lstat = os.lstat

    def refused(path: Any, *, dir_fd: int | None = None) -> os.stat_result:
        if path in ("a.txt", "below"):  # as of a folder that may be listed, and not searched
            raise PermissionError(13, "Permission denied")
        return lstat(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "lstat", refused)
    report = sync(folder, corpus)
    message = "It cannot be looked at: Permission denied."
    assert (reasons(report), report.removed) == ({"sub/a.txt": message, "sub/below": message}, 0)
    assert set(corpus.snapshot().sources()) == {"good.txt", "sub/a.txt", "sub/below/b.txt"}


@pytest.mark.slow
def test_a_broken_file_is_not_read_for_ever(folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    first = sync(folder, corpus, retry=False)
    read: list[str] = []
    load = files.load

    def note_path(path: str, **options: Any) -> files.Loaded:
        read.append(Path(path).name)
        return load(path, **options)

    monkeypatch.setattr("spolia.indexing.sync.files.load", note_path)
    second_summary = sync(folder, corpus, retry=False)
    assert (second_summary.failed, second_summary.unchanged, second_summary.generation, read) == (
        first.failed,
        1,
        first.generation,
        [],
    )
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing more")
    assert [uri for uri, _ in sync(folder, corpus, retry=False).failed] == ["broken.pdf"]
    sync(folder, corpus)
    assert read == ["broken.pdf", "broken.pdf"]


def test_an_empty_folder_changes_nothing(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    (folder / "good.txt").unlink()
    with pytest.raises(FolderError, match=r"is empty.*\.docx.*\.txt"):
        sync(folder, corpus)
    assert texts(corpus) == {"good.txt": GOOD}


@pytest.mark.slow
def test_another_folder_is_refused_before_anything_is_forgotten(folder: Path, corpus: Corpus, tmp_path: Path) -> None:
    sync(folder, corpus)
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    (other_folder / "letter.txt").write_text("Something else altogether, and longer.")
    with pytest.raises(FolderError, match=r"holds 1 documents of .*, and none of them is in .*other.*rebuild"):
        sync(other_folder, corpus)
    assert texts(corpus) == {"good.txt": GOOD}
    sync(other_folder, corpus, rebuild=True)
    assert set(texts(corpus)) == {"letter.txt"}


@pytest.mark.slow
def test_a_folder_is_told_apart_by_more_than_some_names_and_sizes(tmp_path: Path, corpus: Corpus) -> None:
    notes, other_folder = tmp_path / "notes", tmp_path / "other"
    for number in range(9):
        for folder, words in ((notes / "hr", "Notes"), (other_folder, "Other")):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{words}{number}.txt").write_text(f"{words} number {number}.")
    (notes / "README.txt").write_text("About notes.")
    (other_folder / "README.txt").write_text("About this.")
    sync(notes, corpus)
    for folder, shared in ((other_folder, "1 of them is"), (notes / "hr", "none of them is")):
        with pytest.raises(FolderError, match=f"holds 10 documents of {notes}, and {shared} in {folder}"):
            sync(folder, corpus)
    copied = shutil.copytree(notes, tmp_path / "copied")
    assert sync(copied, corpus).unchanged == 10
    shutil.copytree(copied, tmp_path / "above" / "copied", copy_function=shutil.copy2)
    assert sync(tmp_path / "above", corpus).moved == 10
    shutil.rmtree(tmp_path / "above" / "copied")
    (tmp_path / "above" / "new.txt").write_text("All else is gone.")
    assert sync(tmp_path / "above", corpus).removed == 10  # it is the same folder, whatever is in it


def test_a_folder_without_a_document_says_what_is_in_it(tmp_path: Path, corpus: Corpus) -> None:
    for name in ("a.raw", "b.raw", "c.bin", "README"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(FolderError, match=r"but: 2 \.raw, 1 "):
        sync(tmp_path, corpus)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_listed(folder: Path, corpus: Corpus) -> None:
    folder.chmod(0)
    try:
        with pytest.raises(FolderError, match="cannot be listed: Permission denied"):
            sync(folder, corpus)
    finally:
        folder.chmod(0o755)


def test_what_is_in_a_folder_that_cannot_be_listed_is_kept(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "a.txt").write_text("Inside.")
    sync(folder, corpus)
    open_path = os.open

    def refuse(path: str, *arguments: Any, **more: Any) -> int:
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", path)
        return open_path(path, *arguments, **more)

    monkeypatch.setattr("spolia.indexing.sync.files.os.open", refuse)
    report = sync(folder, corpus)
    assert report.removed == 0
    assert "Permission denied" in reasons(report)["sub/"]
    assert set(texts(corpus)) == {"good.txt", "sub/a.txt"}


@pytest.mark.slow
def test_bad_documents_are_recorded_and_the_others_go_on(folder: Path, corpus: Corpus) -> None:
    (folder / "binary.txt").write_bytes(bytes(range(256)))
    (folder / "corrupt.pdf").write_bytes(b"%PDF-1.4 and nothing")
    (folder / "empty.pdf").write_bytes(b"")
    (folder / "locked.pdf").write_bytes(locked_pdf("x"))
    (folder / "no.docx").write_bytes(b"no")
    (folder / "ok.pdf").write_bytes(pdf_of([["Fine."]]))
    report = sync(folder, corpus)
    assert [uri for uri, _ in report.failed] == ["binary.txt", "corrupt.pdf", "empty.pdf", "locked.pdf", "no.docx"]
    assert report.added == 2
    rows = corpus.snapshot().sources()
    assert {uri for uri, row in rows.items() if row.status == "failed"} == {uri for uri, _ in report.failed}
    assert "password" in rows["locked.pdf"].error
    second_summary = sync(folder, corpus)
    assert (second_summary.generation, len(second_summary.failed), second_summary.unchanged) == (
        report.generation,
        5,
        2,
    )
    (folder / "corrupt.pdf").write_bytes(pdf_of([["Mended."]]))
    assert sync(folder, corpus).changed == 1
    assert texts(corpus)["corrupt.pdf"] == "Mended."


def test_a_document_that_becomes_bad_is_found_as_it_was(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    (folder / "good.txt").write_bytes(bytes(range(256)))
    assert sync(folder, corpus).stale == ("good.txt",)
    assert texts(corpus) == {"good.txt": GOOD}


@pytest.mark.slow
def test_a_missing_package_fails_its_documents_only(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.pdf").write_bytes(pdf_of([["Text."]]))
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    for name in [name for name in sys.modules if name.startswith("spolia.indexing.readers.pdf.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("spolia.indexing.readers.pdf.document", raising=False)
    report = sync(folder, corpus, workers=0)
    assert report.added == 1
    assert "pip install 'spolia[pdf]'" in report.failed[0][1]
    monkeypatch.undo()
    assert sync(folder, corpus).changed == 1  # tried again without any change of the file


def test_a_fault_of_a_reader_is_recorded(folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "b.md").write_text("# B")

    def broken(*_: object) -> object:
        raise RecursionError("too deep")

    monkeypatch.setattr("spolia.indexing.readers.markup.markdown.read_source_text", broken)
    report = sync(folder, corpus)
    assert report.failed == (("b.md", "The markdown reader failed on it: RecursionError: too deep"),)
    assert report.added == 1


@pytest.mark.slow
def test_a_file_that_cannot_be_opened_keeps_what_was_known(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(folder, corpus)
    (folder / "good.txt").write_text("Another text.")

    def refuse(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("spolia.indexing.sync.files.load", refuse)
    report = sync(folder, corpus)
    assert report.failed == (("good.txt", "It cannot be read: Permission denied."),)
    assert texts(corpus) == {"good.txt": GOOD}
    assert corpus.snapshot().sources()["good.txt"].status == "failed"
    monkeypatch.undo()
    assert sync(folder, corpus).changed == 1
    assert texts(corpus) == {"good.txt": "Another text."}


def before_each_read(monkeypatch: pytest.MonkeyPatch, happens: Callable[[str], None]) -> None:
    load = files.load

    def load_after(path: str, **options: Any) -> files.Loaded:
        happens(path)
        return load(path, **options)

    monkeypatch.setattr("spolia.indexing.sync.files.load", load_after)


@pytest.mark.parametrize("what", ["sub/a.txt", "sub", "."])
def test_what_became_a_link_out_of_the_folder_before_it_is_read_is_not_followed(
    folder: Path, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    outside = tmp_path / "outside"
    for place in (folder / "sub", outside / "sub"):
        place.mkdir(parents=True)
    (folder / "sub" / "a.txt").write_text("Inside.")
    for secret in (outside / "a.txt", outside / "sub" / "a.txt"):
        secret.write_text("Secret.")
    target = {"sub/a.txt": outside / "a.txt", "sub": outside, ".": outside}[what]

    def replaced(path: str) -> None:
        if path.endswith("a.txt"):
            (folder / what).resolve().rename(tmp_path / "moved")
            Path(os.path.normpath(folder / what)).symlink_to(target)

    before_each_read(monkeypatch, replaced)
    assert "sub/a.txt" in dict(sync(folder, corpus, workers=0).failed)
    assert all("Secret" not in node.text for node in corpus.snapshot().all_nodes("chunk"))


@pytest.mark.parametrize("follow_links", [False, True])
def test_a_link_that_leads_to_another_file_than_was_listed_is_not_followed(
    folder: Path, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow_links: bool
) -> None:
    (tmp_path / "secret.txt").write_text("Secret.")
    (folder / "target").write_text("Linked to.")
    (folder / "link.txt").symlink_to(folder / "target")

    def replaced(path: str) -> None:
        if path.endswith("link.txt"):
            (folder / "target").unlink()
            (folder / "target").symlink_to(tmp_path / "secret.txt")

    before_each_read(monkeypatch, replaced)
    report = sync(folder, corpus, workers=0, follow_links=follow_links)
    assert report.failed == (("link.txt", "It is a link to another file than when it was listed. Index again."),)
    assert texts(corpus) == {"good.txt": GOOD}
    monkeypatch.undo()
    (folder / "target").unlink()
    (folder / "target").write_text("Linked to.")
    sync(folder, corpus, workers=0)
    assert texts(corpus)["link.txt"] == "Linked to."


def test_a_link_that_leads_out_once_it_was_looked_at_is_not_followed(
    folder: Path, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret.txt").write_text("Secret.")
    (folder / "link.txt").symlink_to(folder / "good.txt")
    read = os.readlink

    def read_late(path: Any, **options: Any) -> Any:
        link_target = read(path, **options)
        if not os.path.samefile(folder / "link.txt", tmp_path / "secret.txt"):
            (folder / "link.txt").unlink()
            (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
        return link_target

    monkeypatch.setattr(os, "readlink", read_late)
    report = sync(folder, corpus, workers=0)
    assert report.failed == (("link.txt", "It is a link to another file than when it was listed. Index again."),)
    assert texts(corpus) == {"good.txt": GOOD}


def test_a_folder_that_became_a_link_before_it_is_listed_is_not_followed(
    folder: Path, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.txt").write_text("Secret.")
    (folder / "sub").mkdir()
    listed = files._open_folder

    def list_late(path: str) -> Any:
        if path.endswith("sub"):
            (folder / "sub").rmdir()
            (folder / "sub").symlink_to(tmp_path / "outside")
        return listed(path)

    monkeypatch.setattr("spolia.indexing.sync.files._open_folder", list_late)
    report = sync(folder, corpus, workers=0)
    assert set(corpus.snapshot().sources()) == {"good.txt"}
    assert report.added == 1


def test_a_new_file_that_is_deleted_before_it_is_read_counts_as_never_listed(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub").mkdir()
    for name in ("gone.txt", "sub/gone.txt"):
        (folder / name).write_text("Gone.")
    (folder / "last.txt").write_text("Last.")
    progresses: list[Progress] = []

    def deleted(path: str) -> None:
        if path.endswith("gone.txt"):
            Path(path).unlink(missing_ok=True)

    before_each_read(monkeypatch, deleted)
    report = sync(folder, corpus, progress=progresses.append)
    assert (report.failed, report.added, report.removed) == ((), 2, 0)
    assert (progresses[-1].done, progresses[-1].total) == (2, 2)
    assert set(corpus.snapshot().sources()) == {"good.txt", "last.txt"}


@pytest.mark.slow
def test_stored_files_that_are_deleted_before_they_are_read_are_removed_with_what_is_in_them(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "a.txt").write_text("Inside.")
    shutil.make_archive(str(folder / "box"), "zip", folder, "sub")
    sync(folder, corpus)
    assert {"good.txt", "sub/a.txt", "box.zip", "box.zip/sub/a.txt"} <= corpus.snapshot().sources().keys()
    for name in ("sub/a.txt", "box.zip"):
        os.utime(folder / name, (1, 1))

    def deleted(path: str) -> None:
        shutil.rmtree(folder / "sub", ignore_errors=True)
        (folder / "box.zip").unlink(missing_ok=True)

    before_each_read(monkeypatch, deleted)
    report = sync(folder, corpus)
    assert (report.failed, report.removed, report.unchanged) == ((), 3, 1)
    assert set(corpus.snapshot().sources()) == {"good.txt"}


@pytest.mark.parametrize("mountpoint_stays", [False, True])
def test_a_folder_that_vanishes_as_a_whole_takes_no_document_with_it(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch, mountpoint_stays: bool
) -> None:
    sync(folder, corpus)
    os.utime(folder / "good.txt", (1, 1))

    def unmounted(path: str) -> None:
        folder.rename(folder.parent / "elsewhere")
        if mountpoint_stays:
            folder.mkdir()

    before_each_read(monkeypatch, unmounted)
    assert sync(folder, corpus).failed == (("good.txt", "It cannot be read: No such file or directory."),)
    assert texts(corpus) == {"good.txt": GOOD}


def test_a_folder_or_file_that_is_deleted_while_the_folder_is_listed_counts_as_never_listed(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub").mkdir()
    for name in ("gone.txt", "sub/a.txt"):
        (folder / name).write_text("Gone.")
    sync(folder, corpus)
    listed = files._open_folder

    @contextmanager
    def list_late(path: str) -> Iterator[tuple[int, list[str]]]:
        with listed(path) as opened:
            (folder / "gone.txt").unlink(missing_ok=True)
            shutil.rmtree(folder / "sub", ignore_errors=True)
            yield opened

    monkeypatch.setattr(files, "_open_folder", list_late)
    report = sync(folder, corpus)
    assert (report.skipped, report.failed, report.removed) == ((), (), 2)
    assert set(corpus.snapshot().sources()) == {"good.txt"}


def test_a_folder_that_vanishes_as_a_whole_while_it_is_listed_takes_nothing_in_its_folders_with_it(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "a.txt").write_text("Inside.")
    sync(folder, corpus)
    listed = files._open_folder

    @contextmanager
    def list_late(path: str) -> Iterator[tuple[int, list[str]]]:
        with listed(path) as opened:
            yield opened
            folder.rename(folder.parent / "elsewhere")
            folder.mkdir()

    monkeypatch.setattr(files, "_open_folder", list_late)
    report = sync(folder, corpus)
    assert (reasons(report), report.removed) == ({"sub/": "It cannot be listed: No such file or directory."}, 0)
    assert texts(corpus) == {"good.txt": GOOD, "sub/a.txt": "Inside."}


@pytest.mark.slow
def test_a_file_that_changes_while_it_is_read(folder: Path, corpus: Corpus) -> None:
    stop = threading.Event()

    def grow() -> None:
        while not stop.is_set():
            with (folder / "log.txt").open("a") as file:
                file.write("More.\n")
            time.sleep(0.001)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        while not (folder / "log.txt").exists():
            time.sleep(0.001)
        report = sync(folder, corpus)
    finally:
        stop.set()
        writer.join()
    assert "changed while it was read" in dict(report.failed)["log.txt"]
    assert sync(folder, corpus).changed == 1


@pytest.mark.slow
def test_links(folder: Path, corpus: Corpus, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "secret.txt").write_text("Secret.")
    (outside / "deep" / "loop").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    (folder / "self").symlink_to(folder / "self")
    (folder / "file.txt").symlink_to(outside / "secret.txt")
    (folder / "out").symlink_to(outside)
    (folder / "alias.txt").symlink_to(folder / "good.txt")
    (folder / "broken.txt").symlink_to(folder / "nothing.txt")
    report = sync(folder, corpus)
    assert texts(corpus) == {"alias.txt": GOOD}  # the document that good.txt holds too
    assert set(corpus.snapshot().sources()) == {"alias.txt", "good.txt"}
    reason_by_uri = reasons(report)
    assert set(reason_by_uri) == {"loop", "self", "file.txt", "out", "broken.txt"}
    assert "out of the folder" in reason_by_uri["file.txt"]
    assert "out of the folder" in reason_by_uri["out"]
    assert "leads nowhere" in reason_by_uri["broken.txt"]
    sync(folder, corpus, follow_links=True)
    assert "out/secret.txt" in corpus.snapshot().sources()
    assert not any(uri.startswith("out/deep/loop") for uri in corpus.snapshot().sources())


def test_special_files_are_left_out(folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder / "pipe.txt")
    monkeypatch.chdir(folder)  # the path of a socket may not be long
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock.txt")
        report = sync(folder, corpus)
    assert set(reasons(report)) == {"pipe.txt", "sock.txt"}
    assert report.added == 1


@pytest.mark.slow
def test_hidden_files_and_stores_are_left_out(folder: Path) -> None:
    (folder / ".hidden.txt").write_text("Hidden.")
    (folder / ".git").mkdir()
    (folder / ".git" / "a.txt").write_text("Hidden.")
    (folder / "~$draft.docx").write_bytes(b"lock")
    for name in ("notes.spolia", "odd-name"):
        corpus = Corpus(str(folder / name))
        sync(folder, corpus)
        (folder / name / "inside.txt").write_text("Inside a store.")
        sync(folder, corpus)
        assert set(texts(corpus)) == {"good.txt"}


def test_a_store_is_not_taken_for_a_folder_with_documents(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    with pytest.raises(FolderError, match=r"is a store, not a folder with documents\. Write --store .*Corpus\("):
        sync(corpus.path, Corpus(f"{corpus.path}.other"))


def test_strange_names(folder: Path, corpus: Corpus) -> None:
    composed, decomposed = unicodedata.normalize("NFC", "é.txt"), unicodedata.normalize("NFD", "é.txt")
    names = [
        "new\nline.txt",
        "emoji 👨‍👩‍👧.txt",
        composed,
        decomposed,
        "UPPER.TXT",
        " blank .txt",
        "quo'te\".md",
        "a%20b.txt",
    ]
    for name in names:
        (folder / name).write_text(f"The text of {name!r}.")
    with open(os.fsencode(folder) + b"/caf\xe9.txt", "w") as file:
        file.write("Latin name.")
    report = sync(folder, corpus)
    assert report.failed == ()
    assert set(corpus.snapshot().sources()) == {*names, "good.txt", "caf\\xe9.txt"}
    assert texts(corpus)[decomposed] != texts(corpus)[composed]
    assert sync(folder, corpus).unchanged == len(names) + 2


def test_a_file_from_the_far_future_or_past(folder: Path, corpus: Corpus) -> None:
    os.utime(folder / "good.txt", ns=(0, 2**63 + 10**9))
    (folder / "old.txt").write_text("Old.")
    os.utime(folder / "old.txt", ns=(0, -(10**18)))
    assert sync(folder, corpus).added == 2
    assert sync(folder, corpus).unchanged == 2


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to know the peak of memory")
def test_a_file_of_many_megabytes_takes_memory_in_proportion(folder: Path, corpus: Corpus) -> None:
    lines = (f"This is sentence number {number} of a long text.\n" for number in range(200_000))
    (folder / "long.txt").write_text("".join(lines))
    code = (
        "import sys\n"
        "from spolia.indexing.sync.sync import sync\n"
        "from spolia.stores.corpus import Corpus\n"
        "sync(sys.argv[1], Corpus(sys.argv[2]))\n"
        "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(folder), corpus.path], capture_output=True, check=True)
    size_kb = (folder / "long.txt").stat().st_size // 1024
    assert int(ran.stdout) < 90_000 + 6 * size_kb


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_run_leaves_a_whole_store_and_the_next_one_goes_on(
    folder: Path, corpus: Corpus, number: signal.Signals
) -> None:
    for index in range(300):
        (folder / f"{index:03}.txt").write_text(f"Passage {index}.")
    code = (
        "import sys, time\n"
        "from spolia.indexing.sync.sync import sync\n"
        "from spolia.stores.corpus import Corpus\n"
        "def tell(progress):\n"
        "    if progress.done == 120: print('now', flush=True); time.sleep(60)\n"
        "sync(sys.argv[1], Corpus(sys.argv[2]), batch=50, progress=tell)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), corpus.path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"now\n"
        process.send_signal(number)
    assert sum(1 for _ in corpus.snapshot().documents()) == 100
    report = sync(folder, corpus)
    assert (report.added, report.unchanged) == (201, 100)
    assert corpus.snapshot().check() == []

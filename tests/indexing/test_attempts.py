"""What cannot be read is tried three times as it is, at once or after a while, and the reason is kept."""

from __future__ import annotations

import io
import os
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from spolia.errors import DocumentError, EncryptedDocument, MissingExtra
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.sync import diff
from spolia.indexing.sync.report import DocumentReport
from spolia.indexing.sync.sync import sync
from spolia.indexing.workers.protocol import WorkerLimits
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus
from spolia.types import Value
from tests.indexing.workers.hostile import Obeying

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Refusing(Value):
    """Refuses all files, and notes them."""

    log: str
    error: type[DocumentError] = DocumentError
    name = "refusing"
    version = 1
    media_type = "text/plain"
    suffixes = (".bad",)

    def read(self, blob: Blob, /) -> Reading:
        with Path(self.log).open("a") as log:
            log.write(f"{blob.uri}\n")
        if blob.data == b"mended":
            return Reading(blob.document(self, "Mended."))
        raise self.error(f"{blob.uri} is locked.")


@dataclass(frozen=True)
class Unlocked(Refusing):
    """The same reader, that knows the password."""

    def read(self, blob: Blob, /) -> Reading:
        return Reading(blob.document(self, "Unlocked."))


@dataclass(frozen=True)
class Apart(Obeying):
    apart = True  # the former name of `isolated`


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "docs"
    new_folder.mkdir()
    (new_folder / "good.txt").write_text("Good.")
    return new_folder


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "s.spolia"))


def report_of(corpus: Corpus, uri: str) -> DocumentReport:
    return DocumentReport.from_json(corpus.snapshot().sources(noted=True)[uri].report)


def test_a_broken_file_is_tried_three_times_until_it_changes(folder: Path, corpus: Corpus, tmp_path: Path) -> None:
    log = tmp_path / "log"
    readers = {".bad": Refusing(str(log))}
    (folder / "a.bad").write_bytes(b"x")
    generations = set()
    for _ in range(6):
        report = sync(folder, corpus, readers=readers)
        assert report.failed == (("a.bad", "a.bad is locked."),)
        generations.add(report.generation)
    tries = log.read_text().count("a.bad")
    assert (tries, report_of(corpus, "a.bad").attempts, len(generations)) == (diff.ATTEMPTS, 3, 1)
    (folder / "a.bad").write_bytes(b"another")
    for _ in range(6):
        sync(folder, corpus, readers=readers)
    assert log.read_text().count("a.bad") == tries + 3
    (folder / "a.bad").write_bytes(b"mended")
    assert sync(folder, corpus, readers=readers).changed == 1
    assert report_of(corpus, "a.bad").attempts == 0


def test_what_was_given_up_is_tried_again_by_a_rebuild(folder: Path, corpus: Corpus, tmp_path: Path) -> None:
    log = tmp_path / "log"
    readers = {".bad": Refusing(str(log))}
    (folder / "a.bad").write_bytes(b"x")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("b.bad", b"y")
    (folder / "a.zip").write_bytes(out.getvalue())
    for _ in range(4):
        sync(folder, corpus, readers=readers)
    sync(folder, corpus, readers=readers, rebuild=True)
    assert sorted(log.read_text().split()) == ["a.bad"] * 4 + ["a.zip/b.bad"] * 4


def test_a_locked_file_is_tried_until_its_password_is_known(folder: Path, corpus: Corpus, tmp_path: Path) -> None:
    (folder / "a.bad").write_bytes(b"x")
    for _ in range(5):
        sync(folder, corpus, readers={".bad": Refusing(str(tmp_path / "log"), EncryptedDocument)})
    assert report_of(corpus, "a.bad").attempts == 0
    assert sync(folder, corpus, readers={".bad": Unlocked(str(tmp_path / "log"))}).changed == 1


def test_what_a_worker_lacks_a_package_for_is_tried_in_every_run(folder: Path, corpus: Corpus) -> None:
    (folder / "a.do").write_bytes(b"lack")
    for _ in range(5):
        report = sync(folder, corpus, readers={".do": Apart()}, workers=1)
        assert report.failed == (("a.do", str(MissingExtra("salt", "pepper", "Reading a.do"))),)
    assert report_of(corpus, "a.do").attempts == 0


def test_a_part_of_an_archive_is_tried_three_times(folder: Path, corpus: Corpus, tmp_path: Path) -> None:
    log = tmp_path / "log"
    readers = {".bad": Refusing(str(log))}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.bad", b"x")
        archive.writestr("b.txt", "Good.")
    (folder / "a.zip").write_bytes(out.getvalue())
    for _ in range(6):
        assert [uri for uri, _ in sync(folder, corpus, readers=readers).failed] == ["a.zip/a.bad"]
    assert log.read_text() == "a.zip/a.bad\n" * 3
    os.utime(folder / "a.zip", (1, 1))
    assert [uri for uri, _ in sync(folder, corpus, readers=readers).failed] == ["a.zip/a.bad"]


@pytest.mark.parametrize(("order", "why"), [(b"exit", "died"), (b"hang", "took longer"), (b"fill", "memory|died")])
def test_what_may_pass_is_tried_again_after_a_while(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch, order: bytes, why: str
) -> None:
    (folder / "a.do").write_bytes(order)
    limits = WorkerLimits(
        seconds=2.0 if order == b"hang" else 600.0, memory_mb=400
    )  # only what hangs has to be waited for
    readers = {".do": Apart()}
    now = 10**18
    monkeypatch.setattr(time, "time_ns", lambda: now)
    attempts = []
    for wait_s in (0, 1, 30, 60, 120, 10_000):
        now += wait_s * 10**9
        report = sync(folder, corpus, readers=readers, limits=limits, workers=1)
        assert [uri for uri, _ in report.failed] == ["a.do"]
        attempts.append(report_of(corpus, "a.do").attempts)
    assert attempts == [1, 1, 2, 2, 3, 3]
    assert report_of(corpus, "a.do").passes
    assert any(word in report.failed[0][1] for word in why.split("|"))
    (folder / "a.do").write_bytes(b"say fine")
    assert sync(folder, corpus, readers=readers, limits=limits, workers=1).changed == 1


def test_what_is_not_the_files_fault_is_tried_in_every_run(folder: Path, corpus: Corpus) -> None:
    years: dict[str, int] = {}
    for _ in range(5):
        report = sync(folder, corpus, metadata=lambda uri: {"year": years[uri]})
        assert "KeyError" in report.failed[0][1]
    years["good.txt"] = 1900
    assert sync(folder, corpus, metadata=lambda uri: {"year": years[uri]}).changed == 1


def test_a_source_that_is_as_it_was_counts_its_attempts() -> None:
    row = SourceRow("a.pdf", 9, 1, "f00d")
    once = diff.make_failed_row(row, "Damaged.", DocumentError(), None, "pdf")
    twice = diff.make_failed_row(row, "Damaged.", DocumentError(), once, "pdf")
    changed_row = diff.make_failed_row(row.but(content_hash="beef"), "Damaged.", DocumentError(), twice, "pdf")
    assert [DocumentReport.from_json(failed_row.report).attempts for failed_row in (once, twice, changed_row)] == [
        1,
        2,
        1,
    ]

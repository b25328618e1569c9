"""What stands in archives, mails and large tables: sources of their own, that come and go with what they stand in."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from functools import partial
from pathlib import Path

import pytest

from spolia.indexing.readers import text
from spolia.indexing.readers.archives import ZipReader
from spolia.indexing.readers.reader import ArchiveLimits
from spolia.indexing.sync import diff, sync_run
from spolia.indexing.sync.report import SyncReport, reports
from spolia.indexing.sync.sync import sync
from spolia.indexing.sync.texts import add_texts
from spolia.stores.corpus import Corpus
from spolia.testing import HashingEmbedder
from tests.indexing.sample_documents import locked_pdf, pdf_of

pytestmark = pytest.mark.slow

EVERYBODY = frozenset({"ann", "bob", "eve"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "docs"
    new_folder.mkdir()
    return new_folder


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "s.spolia"))


def zip_files(files: Mapping[str, bytes | str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


LETTER = "From: ann@a.org\nSubject: Stones\n\nSee the stones."


def mail(attached: Mapping[str, bytes], text: str = "See the stones.") -> bytes:
    message = EmailMessage()
    message["From"], message["Subject"] = "ann@a.org", "Stones"
    message.set_content(text)
    for name, data in attached.items():
        message.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return bytes(message)


def texts(corpus: Corpus) -> dict[str, str]:
    """The texts of all sources, by uri; archives have none."""
    snapshot = corpus.snapshot()
    texts_by_id = {document.id: document.text for document in snapshot.documents(EVERYBODY)}
    return {uri: text for uri, row in snapshot.sources().items() if (text := texts_by_id.get(row.document, ""))}


def counts(report: SyncReport) -> dict[str, int]:
    names = ("added", "changed", "moved", "removed", "unchanged")
    counts_by_name = {name: getattr(report, name) for name in names} | {"failed": len(report.failed)}
    return {name: count for name, count in counts_by_name.items() if count}


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_parts_are_sources_read_by_their_readers(folder: Path, corpus: Corpus, workers: int) -> None:
    inner = zip_files({"c.txt": "Innermost.", "letter.eml": mail({"d.txt": b"Attached."})})
    files: dict[str, bytes | str] = {
        "a.txt": "A text.",
        "b/b.pdf": pdf_of([["A page."]]),
        "in.zip": inner,
        "raw.xyz": b"?",
        ".hidden": "no",
    }
    (folder / "all.zip").write_bytes(zip_files(files))
    (folder / "z.txt").write_text("After it.")
    report = sync(folder, corpus, workers=workers)
    assert texts(corpus) == {
        "all.zip/a.txt": "A text.",
        "all.zip/b/b.pdf": "A page.",
        "all.zip/in.zip/c.txt": "Innermost.",
        "all.zip/in.zip/letter.eml": LETTER,
        "all.zip/in.zip/letter.eml/d.txt": "Attached.",
        "z.txt": "After it.",
    }
    assert counts(report) == {"added": 8}
    assert report.unread == ((".xyz", 1),)
    document_reports = reports(corpus)
    assert (document_reports["all.zip"].parts, document_reports["all.zip"].warnings) == (3, ())
    assert document_reports["all.zip"].dropped == ((diff.UNKNOWN, 1),)
    assert document_reports["all.zip/in.zip/c.txt"].within == "all.zip/in.zip"
    assert counts(sync(folder, corpus)) == {"unchanged": 8}


def note_opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of archives as they are opened in this process."""
    names: list[str] = []
    parts = ZipReader.parts

    def noted(self: ZipReader, blob: object) -> object:
        names.append(blob.uri)  # type: ignore[attr-defined]
        return parts(self, blob)  # type: ignore[arg-type]

    monkeypatch.setattr(ZipReader, "parts", noted)
    return names


def test_only_what_has_changed_is_opened_cut_and_embedded(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = note_opened(monkeypatch)
    inner_archive = zip_files({"k.txt": "Kept as it is."})
    (folder / "a.zip").write_bytes(
        zip_files({"1.txt": "One.", "2.txt": "Two.", "gone.txt": "Gone.", "kept.zip": inner_archive})
    )
    (folder / "b.zip").write_bytes(zip_files({"3.txt": "Three."}))
    assert sync(folder, corpus, embedder=HashingEmbedder(), workers=0).embedded == 5
    previous_documents = {uri: row.document for uri, row in corpus.snapshot().sources().items()}
    names.clear()
    changed: dict[str, bytes | str] = {
        "1.txt": "One.",
        "other.txt": "Two.",
        "new.txt": "New.",
        "kept.zip": inner_archive,
    }
    (folder / "a.zip").write_bytes(zip_files(changed))
    report = sync(folder, corpus, embedder=HashingEmbedder(), workers=0)
    assert counts(report) == {"added": 2, "removed": 2, "changed": 1, "unchanged": 5}
    assert report.embedded == 1
    assert names == ["a.zip"]
    later_documents = {uri: row.document for uri, row in corpus.snapshot().sources().items()}
    assert later_documents["a.zip/other.txt"] == previous_documents["a.zip/2.txt"]
    assert set(texts(corpus).values()) == {"One.", "Two.", "New.", "Three.", "Kept as it is."}
    os.utime(folder / "b.zip", (1, 1))  # another time alone is no change
    names.clear()
    assert counts(sync(folder, corpus, embedder=HashingEmbedder(), workers=0)) == {"unchanged": 8}
    assert names == []


def test_what_is_in_an_archive_moves_and_goes_with_it(folder: Path, corpus: Corpus) -> None:
    (folder / "a.zip").write_bytes(zip_files({"1.txt": "One.", "2.txt": "Two."}))
    (folder / "k.txt").write_text("Kept.")
    sync(folder, corpus, embedder=HashingEmbedder())
    (folder / "a.zip").rename(folder / "b.zip")
    report = sync(folder, corpus, embedder=HashingEmbedder())
    assert (counts(report), report.embedded) == ({"moved": 3, "unchanged": 1}, 0)
    assert texts(corpus) == {"b.zip/1.txt": "One.", "b.zip/2.txt": "Two.", "k.txt": "Kept."}
    assert counts(sync(folder, corpus, embedder=HashingEmbedder())) == {"unchanged": 4}
    (folder / "b.zip").unlink()
    assert counts(sync(folder, corpus, embedder=HashingEmbedder())) == {"removed": 3, "unchanged": 1}
    assert set(corpus.snapshot().sources()) == {"k.txt"}


def test_a_folder_in_the_place_of_an_archive(folder: Path, corpus: Corpus) -> None:
    (folder / "a.zip").write_bytes(zip_files({"1.txt": "One."}))
    sync(folder, corpus)
    (folder / "a.zip").unlink()
    (folder / "a.zip").mkdir()
    (folder / "a.zip" / "1.txt").write_text("One, in a folder.")
    sync(folder, corpus)
    assert texts(corpus) == {"a.zip/1.txt": "One, in a folder."}


def test_a_part_that_fails_is_reported_and_the_others_go_on(folder: Path, corpus: Corpus) -> None:
    files: dict[str, bytes | str] = {
        "a.txt": "Good.",
        "locked.pdf": locked_pdf("x"),
        "torn.zip": zip_files({"x.txt": "x"})[:-30],
        "z.txt": "Also.",
    }
    (folder / "a.zip").write_bytes(zip_files(files))
    report = sync(folder, corpus)
    assert [uri for uri, _ in report.failed] == ["a.zip/locked.pdf", "a.zip/torn.zip"]
    assert "password" in report.failed[0][1]
    assert texts(corpus) == {"a.zip/a.txt": "Good.", "a.zip/z.txt": "Also."}


def test_an_archive_that_becomes_bad_keeps_what_was_in_it(folder: Path, corpus: Corpus) -> None:
    (folder / "a.zip").write_bytes(zip_files({"1.txt": "One."}))
    (folder / "k.txt").write_text("Kept.")
    sync(folder, corpus)
    (folder / "a.zip").write_bytes(b"PK no archive")
    report = sync(folder, corpus)
    assert (counts(report), report.failed[0][0]) == ({"failed": 1, "unchanged": 2}, "a.zip")
    assert texts(corpus) == {"a.zip/1.txt": "One.", "k.txt": "Kept."}


def test_a_mail_whose_attachment_is_broken_is_found(folder: Path, corpus: Corpus) -> None:
    (folder / "m.eml").write_bytes(mail({"bad.docx": b"no", "note.txt": b"Read this."}))
    report = sync(folder, corpus)
    assert [uri for uri, _ in report.failed] == ["m.eml/bad.docx"]
    assert texts(corpus) == {"m.eml": LETTER, "m.eml/note.txt": "Read this."}


@pytest.mark.parametrize(
    ("limits", "files", "why"),
    [
        (
            ArchiveLimits(entries=5),
            {f"{n}.txt": "x" for n in range(4)} | {"in.zip": zip_files({"a.txt": "a", "b.txt": "b"})},
            "5",
        ),
        (
            ArchiveLimits(size=1_000),
            {"a.txt": "x" * 600, "in.zip": zip_files({"b.txt": "y" * 600})},
            "1000 are allowed",
        ),
        (
            ArchiveLimits(depth=2),
            {"1.zip": zip_files({"2.zip": zip_files({"3.txt": "Too deep."}), "a.txt": "Fine."})},
            "3 deep",
        ),
    ],
)
def test_limits_hold_across_all_levels(
    folder: Path,
    corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
    limits: ArchiveLimits,
    files: dict[str, bytes | str],
    why: str,
) -> None:
    monkeypatch.setattr(sync_run, "ContainerContents", partial(diff.ContainerContents, limits=limits))
    (folder / "a.zip").write_bytes(zip_files(files))
    (folder / "z.txt").write_text("After it.")
    report = sync(folder, corpus)
    assert any(why in reason for _, reason in report.failed), report.failed
    assert "After it." in texts(corpus).values()
    assert "Too deep." not in texts(corpus).values()


def test_names_in_an_archive_are_its_own(folder: Path, corpus: Corpus) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.txt", "First.")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.txt", "Second.")
    (folder / "a.zip").write_bytes(out.getvalue())
    sync(folder, corpus)
    assert texts(corpus) == {"a.zip/a.txt": "First.", "a.zip/a-2.txt": "Second."}


@pytest.mark.parametrize("workers", [0, 2])
def test_large_tables_and_large_members(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    if workers == 0:
        monkeypatch.setattr(text, "LARGEST", 500)
        monkeypatch.setattr(text, "PART_ROWS", 20)
        rows = "".join(f"{n},stone {n}\n" for n in range(50))
        (folder / "t.csv").write_text("number,what\n" + rows)
        sync(folder, corpus, workers=0)
        assert {"t.csv/rows-1-20.csv", "t.csv/rows-21-40.csv", "t.csv/rows-41-50.csv"} < set(texts(corpus))
        assert "stone 49" in texts(corpus)["t.csv/rows-41-50.csv"]
    (folder / "large.zip").write_bytes(
        zip_files({"l.html": f"<p>A line of a large page.<!--{'x' * 17_000_000}-->", "s.txt": "Small."})
    )
    report = sync(folder, corpus, workers=workers)
    assert not report.failed
    assert texts(corpus)["large.zip/l.html"].startswith("A line of")
    assert not (Path(corpus.path) / "spool").exists()


def readers_by_uri(corpus: Corpus) -> dict[str, tuple[str, ...]]:
    snapshot = corpus.snapshot()
    lists = {document.id: document.readers for document in snapshot.documents(EVERYBODY)}
    return {uri: lists[row.document] for uri, row in snapshot.sources().items()}


@pytest.mark.parametrize(
    "of_parts", [lambda uri: (), lambda uri: {}[uri]], ids=["nothing is said", "the function knows no parts"]
)
def test_who_may_not_read_an_archive_may_not_read_what_is_in_it(
    folder: Path, corpus: Corpus, of_parts: Callable[[str], tuple[str, ...]]
) -> None:
    (folder / "a.zip").write_bytes(zip_files({"1.txt": "One.", "m.eml": mail({"2.txt": b"Two."})}))
    (folder / "open.zip").write_bytes(zip_files({"3.txt": "Three."}))
    lists = {"a.zip": ["ann"], "open.zip": []}

    def access(uri: str) -> list[str]:
        return lists[uri] if uri in lists else list(of_parts(uri))

    sync(folder, corpus, embedder=HashingEmbedder(), access=access)
    inside = ("a.zip", "a.zip/1.txt", "a.zip/m.eml", "a.zip/m.eml/2.txt")
    assert readers_by_uri(corpus) == dict.fromkeys(inside, ("ann",)) | {"open.zip": (), "open.zip/3.txt": ()}
    lists["a.zip"] = ["bob"]
    report = sync(folder, corpus, embedder=HashingEmbedder(), access=access)
    assert (counts(report), report.embedded) == ({"changed": 4, "unchanged": 2}, 0)
    assert readers_by_uri(corpus) == dict.fromkeys(inside, ("bob",)) | {"open.zip": (), "open.zip/3.txt": ()}
    assert counts(sync(folder, corpus, embedder=HashingEmbedder(), access=access)) == {"unchanged": 6}


def test_a_part_has_the_readers_and_fields_that_are_said_of_it(folder: Path, corpus: Corpus) -> None:
    (folder / "a.zip").write_bytes(zip_files({"1.txt": "One.", "2.txt": "Two."}))
    lists = {"a.zip": ["ann"], "a.zip/1.txt": ["ann", "bob"]}
    years = {"a.zip/1.txt": 1900}

    def synced() -> SyncReport:
        return sync(
            folder, corpus, access=lambda uri: lists.get(uri, ()), metadata=lambda uri: {"year": years.get(uri)}
        )

    synced()
    assert readers_by_uri(corpus) == {"a.zip": ("ann",), "a.zip/1.txt": ("ann", "bob"), "a.zip/2.txt": ("ann",)}
    years["a.zip/2.txt"] = 2000
    assert counts(synced()) == {"changed": 1, "unchanged": 2}
    metas = {document.uri: dict(document.meta).get("year") for document in corpus.snapshot().documents(EVERYBODY)}
    assert metas == {"a.zip": None, "a.zip/1.txt": 1900, "a.zip/2.txt": 2000}
    assert counts(synced()) == {"unchanged": 3}


def test_texts_that_are_given_can_be_mails(corpus: Corpus) -> None:
    add_texts(corpus, {"m.eml": mail({"a.txt": b"Attached.", "b.txt": b"Goes."}).decode()})
    assert set(texts(corpus)) == {"text:m.eml", "text:m.eml/a.txt", "text:m.eml/b.txt"}
    add_texts(corpus, {"m.eml": mail({"a.txt": b"Attached."}).decode()})
    assert texts(corpus) == {"text:m.eml": LETTER, "text:m.eml/a.txt": "Attached."}

"""`spolia docs` on real files: list, show, chunks, report, remove."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from spolia.filters import Field
from spolia.indexing.sync.sync import sync
from spolia.indexing.sync.texts import add_texts
from spolia.stores.corpus import Corpus
from tests.indexing.readers.fixtures import epub
from tests.indexing.sample_documents import pdf_of

from .conftest import Spolia

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "notes"
    (new_folder / "sea").mkdir(parents=True)
    (new_folder / "sea" / "tides.md").write_text("# Tides\n\nThe moon pulls.\n\n## Ships\n\nShips wait for it.\n")
    (new_folder / "salt.txt").write_text("Salt is dug in mines.")
    (new_folder / "copy.txt").write_text("Salt is dug in mines.")
    (new_folder / "blank.txt").write_text(" ")
    (new_folder / "broken.pdf").write_bytes(b"%PDF-1.7 and then nothing")
    return new_folder


@pytest.fixture
def store(folder: Path, tmp_path: Path) -> Path:
    sync(
        folder,
        Corpus(str(tmp_path / "n.spolia")),
        fields=[Field("year", "int"), Field("draft", "bool", default=False)],
        metadata=lambda uri: {"year": 2020 + len(uri), "tag": ["a", "b"], "draft": uri.startswith("blank")},
        access=lambda uri: ("ann", "bob") if uri.startswith("sea") else (),
    )
    return tmp_path / "n.spolia"


def list_uris(spolia: Spolia, store: Path, *where: str) -> list[str]:
    conditions = [part for condition in where for part in ("--where", condition)]
    ran = spolia("docs", "list", "--store", store, "--json", *conditions)
    assert ran.code == (0 if ran.json["documents"] else 6)
    return [document["uri"] for document in ran.json["documents"]]


def test_all_documents_are_listed_whoever_may_read_them(spolia: Spolia, store: Path) -> None:
    documents_by_uri = {
        document["uri"]: document for document in spolia("docs", "list", "--store", store, "--json").json["documents"]
    }
    assert list(documents_by_uri) == ["blank.txt", "broken.pdf", "copy.txt", "salt.txt", "sea/tides.md"]
    tides = documents_by_uri["sea/tides.md"]
    assert (tides["title"], tides["readers"], tides["chunks"]) == ("Tides", ["ann", "bob"], 1)
    assert documents_by_uri["salt.txt"]["characters"] == 21
    assert (documents_by_uri["broken.pdf"]["status"], documents_by_uri["broken.pdf"]["chunks"]) == ("failed", None)
    people = spolia("docs", "list", "--store", store).out
    assert "ann, bob" in people
    assert people.count("\n") == 6


def test_a_narrow_terminal_shows_a_line_for_each_document(
    spolia: Spolia, folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "sea/a-file-whose-name-is-longer-than-what-is-left-for-it-in-a-narrow-terminal.md"
    (folder / long).write_text("# A title that takes much room too\n\nShips wait.\n")
    everybody = {"access": lambda uri: (), "metadata": lambda uri: {"year": 1, "draft": False}}
    sync(folder, Corpus(str(store)), **everybody)  # type: ignore[arg-type]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", spolia("docs", "list", "--store", store).out).splitlines()
    assert len(lines) == 7
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("…") and "narrow-terminal.md" in line for line in lines)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("file_type=txt", ["blank.txt", "copy.txt", "salt.txt"]),
        ("file_name in salt.txt, tides.md", ["salt.txt", "sea/tides.md"]),
        ("year>=2030", ["sea/tides.md"]),
        ("year<=2028", ["copy.txt", "salt.txt"]),
        ("draft=yes", ["blank.txt"]),
        ("year!=2028", ["blank.txt", "broken.pdf", "sea/tides.md"]),
        ("year=1", []),
        ("year>2028", ["blank.txt", "sea/tides.md"]),
        ("year<2029", ["copy.txt", "salt.txt"]),
        ("file_modified<1999-01-01", []),
        ("file_modified<=1999", []),
        ("file_modified=1999-01", []),
    ],
)
def test_conditions_on_metadata(spolia: Spolia, store: Path, condition: str, found: list[str]) -> None:
    assert list_uris(spolia, store, condition) == found


def test_conditions_hold_together(spolia: Spolia, store: Path) -> None:
    assert list_uris(spolia, store, "file_type=txt", "year>=2029") == ["blank.txt"]


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("year", "not a condition"),
        ("tag=a", "no metadata field 'tag'"),
        ("year=soon", "whole numbers"),
        ("year", "year>=2020"),
        ("year>>2020", "not a condition"),
        ("file_modified>yesterday", "holds times"),
        ("file_modified>2026-02-31", "is not valid"),
        ("file_modified>2026-13", "is not valid"),
        ("file_modified>2026-02-28T10:00:00", "2026-01-31T09:30:00Z"),
        ("draft=x", "draft=true"),
    ],
)
def test_what_is_no_condition_is_refused(spolia: Spolia, store: Path, condition: str, said: str) -> None:
    ran = spolia("docs", "list", "--store", store, "--where", condition, "--json")
    assert ran.code == 2
    assert said in ran.json["error"]["message"]


def test_a_document_is_shown_with_metadata_report_and_nodes(spolia: Spolia, store: Path) -> None:
    spolia("groups", "build", "sentence", "--store", store)
    document = spolia("docs", "show", "sea/tides.md", "--store", store, "--json").json
    assert document["nodes"] == {"chunk": 1, "sentence": 4}
    assert ["tag", "b"] in document["meta"]
    assert document["report"]["reader"] == "markdown"
    by_id = spolia("docs", "show", document["id"], "--store", store)
    assert "meta tag" in by_id.out
    assert "ann, bob" in by_id.out


def test_an_unknown_document_names_what_is_near(spolia: Spolia, store: Path) -> None:
    ran = spolia("docs", "show", "slat.txt", "--store", store)
    assert ran.code == 2
    assert "Write one of: salt.txt" in ran.err


def test_chunks_are_shown_with_their_places(spolia: Spolia, store: Path) -> None:
    spolia("groups", "build", "sentence", "--store", store)
    command = ("docs", "chunks", "sea/tides.md", "--store", store, "--group", "sentence")
    nodes = spolia(*command, "--json").json["nodes"]
    assert [node["number"] for node in nodes] == [1, 2, 3, 4]
    assert nodes[-1]["text"] == "Ships wait for it."
    people = spolia(*command).out
    assert "  4  line 7\n" in people
    assert "Ships" in people


def test_chunks_of_a_group_that_is_not_there_or_of_a_failed_file(spolia: Spolia, store: Path) -> None:
    ran = spolia("docs", "chunks", "salt.txt", "--store", store, "--group", "nope")
    assert ran.code == 3
    assert "It has: chunk" in ran.err
    assert spolia("docs", "chunks", "broken.pdf", "--store", store).code == 6


def test_what_was_noticed_is_reported(spolia: Spolia, store: Path) -> None:
    ran = spolia("docs", "report", "--store", store, "--json")
    assert ran.code == 5
    noticed = {row["uri"]: row["status"] for row in ran.json["noticed"]}
    assert noticed == {"blank.txt": "indexed", "broken.pdf": "failed"}
    assert "blank.txt  It has no text." in spolia("docs", "report", "--store", store).out


def test_what_was_read_of_each_document_is_a_table(spolia: Spolia, tmp_path: Path) -> None:
    folder, store = tmp_path / "many", tmp_path / "many.spolia"
    folder.mkdir()
    (folder / "a.csv").write_text("stone,t\nbasalt,3.0\n")
    (folder / "b.pdf").write_bytes(pdf_of([["Stones."], []]))
    (folder / "c.txt").write_bytes("Müll.".encode("cp1252"))
    (folder / "d.epub").write_bytes(epub())
    (folder / "e.html").write_text("<p>Stones.<img src=a.png>")
    (folder / "f.pdf").write_bytes(b"%PDF-1.4 and no more")
    assert spolia("index", folder, "--store", store, "--no-vectors").code == 5
    head, *rows = spolia("docs", "report", "--store", store).out.split("\n\n")[0].splitlines()
    assert head.split("  ")[0] == "document"
    assert [name for name in ("by OCR", "beyond window", "files in it") if name in head] == []
    table = {row.split()[0]: re.split(" {2,}", row)[1:] for row in rows}
    assert table["a.csv"] == ["indexed", "csv", "19", "1", "1"]
    assert table["b.pdf"] == ["indexed", "pdf", "2", "1", "8", "1"]
    assert table["c.txt"] == ["indexed", "text", "5", "1", "cp1252"]
    assert table["e.html"] == ["indexed", "html", "7", "1", "1 pictures"]
    assert table["f.pdf"] == ["failed", "pdf"]
    printed = spolia("docs", "report", "--store", store).out
    assert "f.pdf  is not a readable PDF" in printed
    assert "not tried again" not in printed
    shown_output = spolia("docs", "show", "b.pdf", "--store", store).out
    assert "pdf, 2 pages, 1 page without text, 8 characters, 1 chunk" in shown_output
    listed = spolia("index", folder, "--store", store, "--no-vectors", "--report").out
    assert all(name in listed for name in ("document", "pages", "tables", "encoding", "not read"))


def test_a_removed_document_comes_back_with_its_file(spolia: Spolia, folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "plain.spolia"
    spolia("index", folder, "--store", store, "--no-vectors")
    ran = spolia("docs", "remove", "copy.txt", "--store", store)
    assert ran.code == 0
    assert "another file has the same" in ran.out
    assert "the next `spolia index` adds it again" in ran.err
    assert "copy.txt" not in list_uris(spolia, store)
    assert [node["text"] for node in spolia("docs", "chunks", "salt.txt", "--store", store, "--json").json["nodes"]]
    assert spolia("docs", "remove", "salt.txt", "--store", store, "--json").json["shared"] is False
    assert spolia("index", folder, "--store", store, "--no-vectors", "--json").json["added"] == 2
    assert "copy.txt" in list_uris(spolia, store)


def test_a_text_that_was_added_stays_until_it_is_removed(spolia: Spolia, folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "plain.spolia"
    spolia("index", folder, "--store", store, "--no-vectors")
    add_texts(Corpus(str(store)), {"memo": "Whelks live under the pier."})
    spolia("index", folder, "--store", store, "--no-vectors")
    (uri,) = [uri for uri in list_uris(spolia, store) if "memo" in uri]
    ran = spolia("docs", "remove", uri, "--store", store)
    assert "nothing brings it back" in ran.err
    spolia("index", folder, "--store", store, "--no-vectors")
    assert uri not in list_uris(spolia, store)


def test_only_what_was_read_out_of_a_container_goes_with_it(spolia: Spolia, folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "plain.spolia"
    with zipfile.ZipFile(folder / "box.zip", "w") as box:
        box.writestr("in/a.txt", "A stone in a box.")
        box.writestr("b.txt", "Another stone in a box.")
    spolia("index", folder, "--store", store, "--no-vectors")
    add_texts(Corpus(str(store)), {name: f"On {name}." for name in ("notes", "notes/today", "notes/today/x", "notes2")})
    assert spolia("docs", "remove", "text:notes", "--store", store, "--json").json["parts"] == []
    texts = {uri for uri in list_uris(spolia, store) if uri.startswith("text:")}
    assert texts == {"text:notes/today", "text:notes/today/x", "text:notes2"}
    assert "comes back when that is read again" in spolia("docs", "remove", "box.zip/b.txt", "--store", store).err
    ran = spolia("docs", "remove", "box.zip", "--store", store)
    assert "removed box.zip with 1 in it" in ran.out
    assert not [uri for uri in list_uris(spolia, store) if "box" in uri]
    spolia("index", folder, "--store", store, "--no-vectors")
    assert {"box.zip/b.txt", "box.zip/in/a.txt"} <= set(list_uris(spolia, store))


def test_the_report_as_a_page(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    ran = spolia("docs", "report", "--store", store, "--html", tmp_path / "r.html", "--json")
    assert (tmp_path / "r.html").read_text("utf-8").startswith("<!doctype html>")
    assert ran.json["quality"]["sources"] == len(ran.json["files"]) == ran.json["documents"]
    refused = spolia("docs", "report", "--store", store, "--html", tmp_path / "r.html" / "no.html")
    assert "cannot be written" in refused.err


def test_every_command_counts_the_same_documents(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    listed = spolia("docs", "list", "--store", store, "--json").json["documents"]
    indexed = [finding for finding in listed if finding["status"] == "indexed"]
    assert (len(listed), len(indexed)) == (5, 4)  # salt.txt and copy.txt have one text
    assert "5 documents, " in spolia("docs", "report", "--store", store).out
    texts_by_about = {
        finding["about"]: finding["text"] for finding in spolia("doctor", "--store", store, "--json").json["findings"]
    }
    assert re.search(r": 5 documents \(1 failed, 4 indexed\), 3 different texts, ", texts_by_about["store"])
    assert "5 documents with 3 texts, " in spolia("export", store, tmp_path / "n.zip").out

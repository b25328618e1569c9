"""Who asks, and who may read: `--access` and `--readers`."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.types import Query

from .conftest import Ran, Spolia

pytestmark = pytest.mark.slow

READERS = """
# the first pattern that fits counts
sea/secret.txt = captain
sea/* = ann, staff
* = everybody
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "notes"
    (new_folder / "sea").mkdir(parents=True)
    (new_folder / "sea" / "secret.txt").write_text("The tide will drown the treasure.")
    (new_folder / "sea" / "tides.txt").write_text("The tide follows the moon.")
    (new_folder / "salt.txt").write_text("The tide leaves salt.")
    (tmp_path / "readers.txt").write_text(READERS)
    return new_folder


@pytest.fixture
def store(folder: Path, tmp_path: Path, spolia: Spolia) -> Path:
    new_store = tmp_path / "notes.spolia"
    assert index_folder(spolia, folder, new_store).code == 0
    return new_store


def index_folder(spolia: Spolia, folder: Path, store: Path, *more: object) -> Ran:
    return spolia(
        "index", folder, "--store", store, "--no-vectors", "--readers", folder.parent / "readers.txt", "--json", *more
    )


def principals(*names: str) -> list[str]:
    return [part for name in names for part in ("--access", name)]


SEEN = [
    ((), {"salt.txt"}),
    (("eve",), {"salt.txt"}),
    (("ann",), {"salt.txt", "sea/tides.txt"}),
    (("eve", "staff"), {"salt.txt", "sea/tides.txt"}),
    (("captain",), {"salt.txt", "sea/secret.txt"}),
    (("captain", "ann"), {"salt.txt", "sea/tides.txt", "sea/secret.txt"}),
]


@pytest.mark.parametrize(("names", "seen"), SEEN)
def test_searching_finds_what_the_same_asker_finds_in_python(
    spolia: Spolia, store: Path, names: tuple[str, ...], seen: set[str]
) -> None:
    for _ in range(2):  # the second time through the cache that all askers share
        ran = spolia("search", "tide", "--store", store, "--json", *principals(*names))
        assert {hit["uri"] for hit in ran.json["hits"]} == seen
    with Run(groups=names):
        assert {node.uri for node in BM25(Corpus(str(store)).group())(Query("tide")).nodes} == seen


def test_an_answer_is_made_of_what_the_asker_may_read(spolia: Spolia, store: Path) -> None:
    question = ("ask", "What will drown the treasure?", "--store", store, "--flow", "bm25", "--json")
    assert "treasure" in spolia(*question, *principals("captain")).json["answer"]
    for names in ((), ("ann",)):
        ran = spolia(*question, *principals(*names))
        assert "drown" not in ran.json["answer"]
        assert "secret.txt" not in ran.out


@pytest.mark.parametrize(("names", "seen"), SEEN[1:])
def test_documents_are_shown_as_somebody_sees_them(
    spolia: Spolia, store: Path, names: tuple[str, ...], seen: set[str]
) -> None:
    readers = principals(*names)
    ran = spolia("docs", "list", "--store", store, "--json", *readers)
    assert {document["uri"] for document in ran.json["documents"]} == seen
    uris = {"salt.txt", "sea/tides.txt", "sea/secret.txt"}
    for uri in uris:
        for command in ("show", "chunks"):
            ran = spolia("docs", command, uri, "--store", store, *readers)
            assert ran.code == (0 if uri in seen else 2)
            assert not any(other_uri in ran.out + ran.err for other_uri in uris - seen - {uri})


def test_whoever_keeps_the_store_sees_every_document(spolia: Spolia, store: Path) -> None:
    readers_by_uri = {
        document["uri"]: document["readers"]
        for document in spolia("docs", "list", "--store", store, "--json").json["documents"]
    }
    assert readers_by_uri == {"salt.txt": [], "sea/secret.txt": ["captain"], "sea/tides.txt": ["ann", "staff"]}


def test_other_readers_hold_at_once_and_change_nothing_else(spolia: Spolia, folder: Path, store: Path) -> None:
    (folder.parent / "readers.txt").write_text("sea/* = bob\n* = everybody\n")
    plan = spolia(
        "plan", folder, "--store", store, "--readers", folder.parent / "readers.txt", "--no-vectors", "--json"
    )
    assert plan.json["changed"] == ["sea/secret.txt", "sea/tides.txt"]
    assert index_folder(spolia, folder, store).json["changed"] == 2
    ran = spolia("search", "tide", "--store", store, "--json", *principals("bob"))
    assert {hit["uri"] for hit in ran.json["hits"]} == {"salt.txt", "sea/secret.txt", "sea/tides.txt"}
    ran = spolia("search", "tide", "--store", store, "--json", *principals("ann", "captain"))
    assert {hit["uri"] for hit in ran.json["hits"]} == {"salt.txt"}


def test_without_the_file_the_lists_stay_and_a_new_file_is_refused(spolia: Spolia, folder: Path, store: Path) -> None:
    without = ("index", folder, "--store", store, "--no-vectors")
    assert spolia(*without).code == 0
    assert "secret" not in spolia("search", "treasure", "--store", store).out
    (folder / "new.txt").write_text("A new tide.")
    ran = spolia(*without)
    assert ran.code == 3
    assert "on the command line, spolia index with --readers FILE" in ran.err


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("sea/* = ann\n", "does not say who may read 'salt.txt'. Add a line for it; `* = everybody`"),
        ("* everybody\n", "line 1: '* everybody' is not a valid line of readers. Write PATTERN = PRINCIPAL"),
        ("\nsea/* =\n", "line 2"),
        ("* = ann,,bob\n", "line 1"),
        ("* = everyone\n", "'everyone' would be a user or group of that name. Write everybody"),
        ("hr/* = ann, *\n", "'*' would be a user or group"),
        ("* = everybody, ann\n", "'everybody' cannot be combined with others"),
        (None, "cannot be read: No such file"),
        ("* = \udcff", "it is not UTF-8"),
    ],
)
def test_a_file_that_is_not_understood_opens_nothing(
    spolia: Spolia, folder: Path, tmp_path: Path, lines: str | None, said: str
) -> None:
    (tmp_path / "readers.txt").unlink()
    if lines is not None:
        (tmp_path / "readers.txt").write_bytes(lines.encode("utf-8", "surrogateescape"))
    ran = index_folder(spolia, folder, tmp_path / "notes.spolia")
    assert ran.code == 2
    assert said in ran.json["error"]["message"]
    corpus = Corpus(str(tmp_path / "notes.spolia"))
    assert not corpus.exists() or not corpus.latest().sources()

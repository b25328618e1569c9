"""Documents that are sent to a store: what is searched afterwards, and what a task says."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from PIL import Image

from spolia import BM25, Corpus, Definition, Query, Run, sync, where
from spolia.errors import KeyReused, NotAllowed, NotFound, QueryError, StoreCorrupt
from spolia.indexing import transform
from spolia.indexing.splitters.text_units import Sentences
from spolia.models.protocols import Kind
from spolia.services.documents import Documents, Transfer, export_originals, import_originals, run_publisher
from spolia.services.knowledge_bases import KnowledgeBase, Requester
from spolia.services.postgres_jobs import PostgresTable
from spolia.stores import Embedding, materialise
from spolia.stores.portable import export_store, import_store
from spolia.testing import HashingEmbedder
from tests.indexing.sample_documents import pdf_of
from tests.server.conftest import until
from tests.stores.servers import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def documents(fast_folder: Path) -> Documents:
    return Documents(Corpus(str(fast_folder / "notes.spolia")))


def search_uris(documents: Documents, question: str, *principals: str) -> list[str]:
    with Run(groups=principals):
        return [hit.node.uri for hit in BM25(documents.corpus.group(), top_k=9)(Query(question)).hits]


def states(documents: Documents, *tasks: int) -> list[tuple[str, str]]:
    return [(job.state, job.reason) for task in tasks if (job := documents.queue.job(task)) is not None]


@pytest.mark.parametrize("name", ["S\u0415C", "SEC\u200b", "\uff33EC"], ids=["Cyrillic", "invisible", "wide"])
def test_a_knowledge_base_cannot_look_like_another_one(documents: Documents, name: str) -> None:
    ann, bob = Requester("ann", frozenset(), "ann"), Requester("bob", frozenset(), "bob")
    documents.put_base(KnowledgeBase("SEC", owner="ann"), requester=ann)
    with pytest.raises(NotAllowed, match="You cannot use the name"):
        documents.put_base(KnowledgeBase(name, owner="bob"), requester=bob)
    with pytest.raises(NotAllowed, match="You cannot use the name"):
        documents.add(f"{name}/a.md", b"Salt is dug in mines.", requester=bob)
    documents.add("SEC/a.md", b"Salt is dug in mines.", requester=bob)
    documents.put_base(KnowledgeBase("sec", owner="bob"), requester=bob)


def test_changes_are_published_together_and_the_last_one_of_a_document_holds(documents: Documents) -> None:
    tasks = [
        documents.add("a/tides.md", b"The sun causes the tides."),
        documents.add("mines.md", b"Salt is dug in mines.", access=["staff"], metadata={"year": 2026}),
        documents.add("a/tides.md", b"The moon causes the tides."),
        documents.add("gone.md", b"The moon is gone."),
        documents.delete("gone.md"),
    ]
    assert documents.publish() == 5
    assert states(documents, *tasks) == [("done", "")] * 5
    assert [documents.queue.attachment(task) for task in tasks[1:]] == [
        b"Salt is dug in mines.", b"The moon causes the tides.", None, None,
    ]  # fmt: skip
    assert search_uris(documents, "moon sun salt") == ["doc://a/tides.md"]
    assert search_uris(documents, "sun") == []
    assert search_uris(documents, "salt", "staff") == ["doc://mines.md"]
    (mines,) = documents.list_documents(frozenset({"staff"}), after_name="a/tides.md")
    assert (mines.name, ("year", 2026) in mines.meta) == ("mines.md", True)
    documents.refuse_names(["new.md"], Requester("ann", frozenset({"staff"})))
    documents.refuse_names(["new.md"], Requester("bob", frozenset()))
    with pytest.raises(NotAllowed):
        documents.refuse_names(["mines.md", "new.md"], Requester("bob", frozenset()))
    tasks.append(documents.add("mines.md", b"Never published."))
    documents.cancel(tasks[-1])
    documents.delete("mines.md")
    documents.publish()
    assert [documents.queue.attachment(task) is None for task in tasks] == [True, True, False, True, True, True]
    assert search_uris(documents, "salt", "staff") == []


def test_a_store_in_postgresql_has_its_tasks_there(server: Server) -> None:
    documents = Documents(Corpus(server.address()))
    assert isinstance(documents.queue.table, PostgresTable)
    task = documents.add("a.md", b"The moon causes the tides.", key="k")
    second_documents = Documents(Corpus(documents.corpus.path))  # another server of the store
    assert (second_documents.publish(), search_uris(second_documents, "moon")) == (1, ["doc://a.md"])
    assert (states(documents, task), documents.queue.attachment(task)) == (
        [("done", "")],
        b"The moon causes the tides.",
    )
    documents.tidy()
    for server_documents in (documents, second_documents):
        server_documents.queue.table.close()  # type: ignore[attr-defined]


def test_a_file_that_cannot_be_read_fails_alone(documents: Documents) -> None:
    tasks = [documents.add("broken.pdf", b"%PDF-1.7 broken"), documents.add("b.md", b"The moon.")]
    documents.publish()
    (broken, reason), good = states(documents, *tasks)
    assert (broken, bool(reason), good) == ("failed", True, ("done", ""))
    assert search_uris(documents, "moon") == ["doc://b.md"]


@pytest.mark.parametrize("name", ["\ud800.md", "\0", "../tides.md"])
def test_the_state_of_what_is_no_name_is_refused(documents: Documents, name: str) -> None:
    with pytest.raises(QueryError, match="is not a name of a document"):
        documents.status(name)


def test_a_version_that_cannot_be_read_takes_no_other_with_it(documents: Documents) -> None:
    tasks = [documents.add("tides.md", b"The moon."), documents.add("tides.md", b"\x00\xff\x00 broken")]
    documents.publish()
    (first, _), (broken, reason) = states(documents, *tasks)
    assert (first, broken, bool(reason)) == ("done", "failed", True)
    assert search_uris(documents, "moon") == ["doc://tides.md"]


@pytest.mark.parametrize("access", ["ann", [""]])
def test_readers_are_a_list_of_names(documents: Documents, access: Any) -> None:
    with pytest.raises(QueryError, match="list of principals"):
        documents.add("new.md", b"Salt.", access=access)  # the letters of a name would be readers


def test_the_name_of_a_document_that_waits_is_its_owners_also_where_others_read_it(documents: Documents) -> None:
    ann, bob = (Requester(name, frozenset({name}), name) for name in ("ann", "bob"))
    documents.add("new.md", b"Salt is dug in mines.", access=["ann", "bob"], requester=ann)
    documents.refuse_names(["new.md"], ann)
    with pytest.raises(NotAllowed):
        documents.refuse_names(["new.md"], bob)


def test_other_documents_and_groups_of_the_store_stay(documents: Documents, fast_folder: Path) -> None:
    (fast_folder / "notes").mkdir()
    (fast_folder / "notes" / "a.md").write_text("The moon causes the tides.")
    sync(str(fast_folder / "notes"), documents.corpus)
    documents.add("b.md", b"The moon is far.")
    documents.publish()
    assert sorted(search_uris(documents, "moon")) == ["a.md", "doc://b.md"]
    sync(str(fast_folder / "notes"), documents.corpus)
    assert sorted(search_uris(documents, "moon")) == ["a.md", "doc://b.md"]


def test_a_store_that_is_written_lets_changes_wait(documents: Documents) -> None:
    documents.corpus = Corpus(documents.corpus.path, wait_s=0.05)
    task = documents.add("b.md", b"The moon is far.")
    with documents.corpus.writer():
        documents.publish()
    assert [state for state, _ in states(documents, task)] == ["waiting"]


def test_a_change_that_waited_does_not_undo_a_newer_one(documents: Documents) -> None:
    task = documents.add("a.md", b"The moon.")
    claims = documents.queue.claim("publisher that is killed", lease_s=-1)
    documents.queue.retry(claims, "the store is written", 0.2)
    documents.delete("a.md")
    documents.publish()
    time.sleep(0.25)
    assert documents.publish() == 1
    assert (states(documents, task), search_uris(documents, "moon")) == ([("done", "replaced")], [])


def test_a_repeated_key_is_one_task_and_odd_names_are_refused(documents: Documents) -> None:
    first = documents.add("a.md", b"1", requester=Requester("ann"), key="k")
    assert documents.add("a.md", b"1", requester=Requester("ann"), key="k") == first
    with pytest.raises(KeyReused):
        documents.add("a.md", b"2", requester=Requester("ann"), key="k")
    assert documents.add("a.md", b"2", requester=Requester("bob"), key="k") != first
    tasks = (
        documents.add("c.md", b"3", requester=Requester(requester), key=key)
        for requester, key in (("a|b", "c"), ("a", "b|c"))
    )
    assert len(set(tasks)) == 2
    for name in ("", "../a.md", "/etc/passwd.md", "a//b.md", "a\\b.md", "a\0.md", "./a.md", "x" * 600 + ".md", "a.zzz"):
        with pytest.raises(QueryError):
            documents.add(name, b"x")


@transform
def shouted(text: str) -> str:
    assert not os.path.exists("broken"), "the model is away"
    os.mkdir("made")
    return text.upper()


def test_a_document_is_made_again_or_stays_as_it_was(
    documents: Documents, fast_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fast_folder)
    broken, path = Path("broken"), Path("made")
    documents.operators = (shouted,)
    group = documents.corpus.group("loud", Definition(shouted))
    documents.add("a.md", b"The moon.", metadata={"year": 2025})
    documents.publish()
    materialise([group], operators=[shouted])

    def loud() -> list[str]:
        return [node.text for node in documents.nodes("a.md", "loud")]

    path.rmdir()
    (task,) = documents.reparse(["a.md"])
    documents.publish()
    assert (states(documents, task), path.exists(), loud()) == ([("done", "")], True, ["THE MOON."])
    path.rmdir()
    broken.touch()
    tasks = [*documents.reparse(["a.md"]), documents.patch("a.md", {"year": None, "moon": 1})]
    documents.publish()
    assert [state for state, _ in states(documents, *tasks)] == ["failed", "done"]
    assert loud() == ["THE MOON."]
    mines = documents.add("mines.md", b"Salt.")
    documents.publish()
    assert states(documents, mines) == [("done", "")]
    group_status = documents.status("mines.md").groups[-1]
    assert (group_status.group, group_status.state, "the model is away" in group_status.reason) == (
        "loud",
        "failed",
        True,
    )
    (still,) = documents.reparse(["mines.md"], "missing")
    documents.publish()
    assert "the model is away" in states(documents, still)[0][1]
    broken.unlink()
    (second_task,) = documents.reparse(["mines.md"], "missing")
    documents.publish()
    assert (states(documents, second_task), documents.status("mines.md").groups[-1].state) == ([("done", "")], "done")
    assert documents.corpus.latest().check(deep=True) == []


def test_a_page_is_drawn_where_its_boxes_are(documents: Documents) -> None:
    documents.add("a.pdf", pdf_of([["First page."], ["The moon causes the tides."]]), access=["ann"])
    documents.add("b.md", b"No pages.")
    documents.publish()
    (node,) = documents.nodes("a.pdf", access=frozenset({"ann"}), page=2)
    assert node.span is not None
    for dpi in (72, 144):
        data = documents.page_image("a.pdf", 2, frozenset({"ann"}), dpi=dpi)
        with Image.open(BytesIO(data)) as image:
            dark = np.argwhere(np.asarray(image.convert("L")) < 128) * 72 / dpi
        boxes = documents.corpus.snapshot().boxes(node.document, node.span, frozenset({"ann"}))
        boxes = tuple(box for box in boxes if box.page == 2)
        inside = [any(box.top <= y <= box.bottom and box.left <= x <= box.right for box in boxes) for y, x in dark]
        assert len(dark) > 100
        assert np.mean(inside) > 0.95
    readers, strangers = frozenset({"ann"}), frozenset({"bob"})
    for name, page, asker in (
        ("a.pdf", 3, readers),
        ("a.pdf", 0, readers),
        ("a.pdf", 1, strangers),
        ("b.md", 1, readers),
    ):
        with pytest.raises(NotFound):
            documents.page_image(name, page, asker)
    documents.close()


def test_nodes_of_a_page(documents: Documents) -> None:
    documents.add("slides.pdf", pdf_of([["The moon."], ["The tides."]]))
    documents.publish()
    assert [len(documents.nodes("slides.pdf", page=page)) for page in (0, 1, 2, 3)] == [1, 1, 1, 0]


@pytest.mark.parametrize("how", ["copy", "move"])
def test_documents_are_transferred_without_embedding_again(
    fast_folder: Path, monkeypatch: pytest.MonkeyPatch, how: Transfer
) -> None:
    embedded, embed = list[str](), HashingEmbedder.embed

    def note_texts(self: HashingEmbedder, texts: Sequence[str], *, kind: Kind) -> Any:
        embedded.extend(texts)
        return embed(self, texts, kind=kind)

    monkeypatch.setattr(HashingEmbedder, "embed", note_texts)
    definition = Definition(Sentences(), embeddings=(Embedding(HashingEmbedder()),))
    documents = Documents(Corpus(str(fast_folder / "n.spolia")), definition=definition, operators=[HashingEmbedder()])
    documents.add("notes/a/tides.md", b"The moon. It pulls.", metadata={"year": 2026}, access=["ann"])
    documents.publish()
    embedded_before = list(embedded)
    tasks = documents.transfer(["notes/a/tides.md"], "archive", how, key="k", requester=Requester("ann"))
    assert documents.transfer(["notes/a/tides.md"], "archive", how, key="k", requester=Requester("ann")) == tasks
    with pytest.raises(KeyReused):
        documents.transfer(["notes/a/tides.md"], "other", how, key="k", requester=Requester("ann"))
    assert documents.publish() == len(tasks) == (2 if how == "move" else 1)
    assert states(documents, *tasks) == [("done", "")] * len(tasks)
    assert embedded == embedded_before != []
    ann = frozenset({"ann"})
    names = ["archive/a/tides.md"] + (["notes/a/tides.md"] if how == "copy" else [])
    assert [entry.name for entry in documents.list_documents(ann)] == names
    assert documents.list_documents() == []
    fields = dict(documents.list_documents(ann)[0].meta)
    assert (fields["year"], fields["base"]) == (2026, "archive")
    assert documents.original("archive/a/tides.md", ann) == b"The moon. It pulls."
    with Run(groups=["ann"]):
        in_base = where(base="archive")
        hits = BM25(documents.corpus.group(), top_k=9)(Query("moon", filter=in_base)).hits
    assert {hit.node.uri for hit in hits} == {"doc://archive/a/tides.md"}


def test_what_cannot_be_transferred_stays(documents: Documents) -> None:
    documents.add("notes/a.md", b"The moon.")
    documents.publish()
    for names, to, error in (
        (["notes/none.md"], "b", NotFound), (["notes/a.md"], "notes", QueryError), (["notes/a.md"], "", QueryError),
        (["notes/a.md"], "a/b", QueryError), (["notes/a.md"], "..", QueryError),
        (["notes/a.md", "notes/none.md"], "b", NotFound),
    ):  # fmt: skip
        with pytest.raises(error):
            documents.transfer(names, to)
    assert documents.queue.counts() == {"done": 1}
    documents.add("notes/b.md", b"The sun.")
    with pytest.raises(QueryError, match="Ask again when it has ended"):
        documents.transfer(["notes/b.md"], "b")
    task, later_task = documents.transfer(["notes/a.md"], "b", "move")
    documents.cancel(task)
    documents.publish()
    assert states(documents, task, later_task)[1] == ("failed", f"Task {task} was not done, so this document stays.")
    assert [entry.name for entry in documents.list_documents()] == ["notes/a.md", "notes/b.md"]
    with pytest.raises(QueryError, match="first folder in its name"):
        documents.add("a.md", b"x", metadata={"base": "other"})


def test_a_scan_follows_the_files_of_a_folder_and_leaves_what_users_did(fast_folder: Path) -> None:
    folder = fast_folder / "files"
    folder.mkdir()

    def service() -> Documents:
        return Documents(Corpus(str(fast_folder / "n.spolia")), folders=[folder], scan_s=0.01)

    documents = service()

    def names() -> list[str]:
        return [entry.name.removeprefix("files/") for entry in documents.list_documents(frozenset({"staff"}))]

    documents.bases.save(KnowledgeBase("files", access=("staff",)))
    for name, data in (("a.md", b"Ants."), ("b.md", b"Bees."), ("bad.pdf", b"No PDF."), ("c.md", b"Cats.")):
        (folder / name).write_bytes(data)
    documents.add("files/sent.md", b"By a user.", access=["staff"])
    assert len(documents.scan()) == 4
    documents.publish()
    assert (names(), documents.list_documents()) == (["a.md", "b.md", "c.md", "sent.md"], [])
    for _ in range(2):  # nothing has changed, also for the next process; the bad file is not tried again
        assert documents.scan() == []
        documents = service()
    (folder / "a.md").write_bytes(b"Apes.")
    (folder / "b.md").unlink()
    documents.delete("files/c.md")
    documents.publish()
    assert len(documents.scan()) == 2
    documents.publish()
    assert (names(), search_uris(documents, "apes ants", "staff")) == (["a.md", "sent.md"], ["doc://files/a.md"])
    documents = service()
    assert documents.scan() == []  # the user who deleted c.md meant it
    for path in folder.iterdir():
        path.unlink()
    assert documents.scan() == []
    with run_publisher(documents):
        (folder / "new.md").write_bytes(b"Newts.")
        until(lambda: names() == ["new.md", "sent.md"])


@pytest.mark.parametrize("address", ["folder", "postgres"], indirect=True)
def test_originals_go_with_a_store_to_another_place(documents: Documents, address: str, tmp_path: Path) -> None:
    documents.add("notes/tides.md", b"The moon causes the tides.", metadata={"year": 2026}, access=["ann"])
    documents.add("notes/gone.md", b"Deleted.")
    documents.bases.save(KnowledgeBase("notes", "Notes", "ann", ("ann",)))
    documents.publish()
    documents.delete("notes/gone.md")
    documents.publish()
    files = tmp_path / "store", tmp_path / "originals.zip"
    export_store(documents.corpus, files[0])
    assert export_originals(documents.corpus, files[1]) == 1
    assert files[1].stat().st_mode & 0o077 == 0
    corpus = Corpus(address if "://" in address else str(tmp_path / "there.spolia"))
    import_store(files[0], corpus)
    assert [import_originals(corpus, files[1]) for _ in range(2)] == [1, 0]
    existing_documents, ann = Documents(corpus), frozenset({"ann"})
    assert existing_documents.original("notes/tides.md", ann) == b"The moon causes the tides."
    with pytest.raises(NotFound):
        existing_documents.original("notes/tides.md")
    tasks = [
        *existing_documents.reparse(["notes/tides.md"]),
        existing_documents.patch("notes/tides.md", {"year": 2027}),
    ]
    existing_documents.publish()
    assert states(existing_documents, *tasks) == [("done", "")] * 2
    assert ([entry.name for entry in existing_documents.list_documents(ann)], existing_documents.list_documents()) == (
        ["notes/tides.md"],
        [],
    )
    assert existing_documents.bases.all()["notes"].access == ("ann",)
    with ZipFile(files[1]) as members:
        manifest, data = members.read("originals.json"), members.read(members.namelist()[0])
    for name, changed in (("originals.json", b"[" * 100_000), (members.namelist()[0], data + b"!")):
        with ZipFile(tmp_path / "changed.zip", "w") as bad:
            bad.writestr("originals.json", manifest if name != "originals.json" else changed)
            bad.writestr(members.namelist()[0], changed)
        with pytest.raises(StoreCorrupt):
            import_originals(corpus, tmp_path / "changed.zip")


def test_bytes_that_are_not_kept_cannot_be_read_or_made_again(tmp_path: Path) -> None:
    documents = Documents(Corpus(str(tmp_path / "notes.spolia")), keeps_originals=False)
    task = documents.add("tides.md", b"The moon causes the tides.")
    assert documents.publish() == 1
    assert documents.queue.attachment(task) is None
    with pytest.raises(NotFound, match="are not kept"):
        documents.original("tides.md")
    with pytest.raises(QueryError, match="are not kept here"):
        documents.reparse(["tides.md"])
    documents.tidy()
    assert not any(b"The moon causes" in path.read_bytes() for path in tmp_path.glob("*/jobs.db*"))

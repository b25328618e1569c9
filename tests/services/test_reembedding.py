"""Documents are embedded again after a server has changed its model under one name."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from spolia import Corpus, Definition, Dense, Query
from spolia.indexing.splitters.text_units import Sentences
from spolia.models import EmbeddingModel
from spolia.services import publisher
from spolia.services.documents import Documents
from spolia.services.jobs import Claim
from spolia.stores import HNSW, Embedding, Exact, files, materialise, staging
from spolia.stores.indexes import IndexSettings
from spolia.stores.open_store import forget
from spolia.testing.server import OpenAIServer, ReceivedRequest, ServedReply
from tests.stores.servers import Server

pytestmark = pytest.mark.slow

MOON, SALT, ROCK = "The moon pulls the sea.", "Salt is dug.", "Granite is hard."


class Changing(OpenAIServer):
    """A server whose model changes under one name."""

    reply = ServedReply()

    def next_reply(self, request: ReceivedRequest) -> ServedReply:
        super().next_reply(request)
        return self.reply

    def embedded(self) -> list[str]:
        """The texts that came in since the last call."""
        texts = [text for request in self.requests for text in request.body["input"]]
        self.requests.clear()
        return sorted(texts)


@pytest.fixture
def model() -> Iterator[Changing]:
    with Changing() as server:
        yield server


@pytest.fixture(params=["folder", "graph", "postgres"])
def documents(request: pytest.FixtureRequest, fast_folder: Path, model: Changing) -> Iterator[Documents]:
    """Two documents have one sentence; a graph goes over the vectors in the second folder."""
    path = str(fast_folder / "n.spolia") if request.param != "postgres" else _address(request)
    index = HNSW(above=1) if request.param == "graph" else Exact()
    new_documents = Documents(Corpus(path), definition=definition(model, index), operators=[embedder(model)])
    texts = {"a.md": f"{MOON} {SALT}", "b.md": SALT, "c.md": ROCK}
    new_documents.add("a.md", texts["a.md"].encode())
    new_documents.add("b.md", texts["b.md"].encode())
    new_documents.add("c.md", texts["c.md"].encode())
    new_documents.publish()
    new_documents.tidy()
    assert model.embedded() == [ROCK, SALT, MOON]
    yield new_documents
    if request.param == "postgres":
        new_documents.queue.table.close()  # type: ignore[attr-defined]


def _address(request: pytest.FixtureRequest) -> str:
    server: Server = request.getfixturevalue("server")
    return server.address()


def embedder(model: Changing) -> EmbeddingModel:
    return EmbeddingModel("any", model.url, dimension=8, retries=0)


def definition(model: Changing, index: IndexSettings) -> Definition:
    return Definition(Sentences(), embeddings=(Embedding(embedder(model), index),))


def hits(documents: Documents, model: Changing, text: str) -> dict[str, float]:
    """Scores by document and text."""
    ranking = Dense(documents.corpus.group(), embedder(model), top_k=9)(Query(text))
    model.requests.clear()
    return {f"{hit.node.uri.removeprefix('doc://')} {hit.node.text}": round(hit.score, 5) for hit in ranking.hits}


def states(documents: Documents, *tasks: int) -> list[tuple[str, str]]:
    return [(job.state, job.reason) for job in documents.queue.find_jobs(tasks)]


def test_the_texts_of_a_document_get_the_vectors_of_the_changed_model(documents: Documents, model: Changing) -> None:
    previous_snapshot = documents.corpus.snapshot()
    old = hits(documents, model, SALT)
    assert old[f"a.md {SALT}"] == old[f"b.md {SALT}"] == 1
    model.reply = ServedReply(weights="of another model ")
    assert max(hits(documents, model, MOON).values()) < 0.99
    (task,) = documents.reparse(["a.md"], "embed")
    assert documents.publish() == 1
    assert (states(documents, task), model.embedded()) == ([("done", "")], [SALT, MOON])
    for _ in ("what is open", "opened by another process"):
        assert hits(documents, model, MOON)[f"a.md {MOON}"] == 1
        salt = hits(documents, model, SALT)
        assert salt[f"a.md {SALT}"] == salt[f"b.md {SALT}"] == 1  # a text has one vector, in all documents
        assert hits(documents, model, ROCK)[f"c.md {ROCK}"] < 0.99  # nothing else was embedded again
        assert documents.corpus.latest().check(deep=True) == []
        documents.tidy()
        forget(documents.corpus.backend)
    assert previous_snapshot.generation < documents.corpus.latest().generation
    documents.add("d.md", f"{SALT} Newts swim.".encode())
    documents.publish()
    assert model.embedded() == ["Newts swim."]
    assert hits(documents, model, SALT)[f"d.md {SALT}"] == 1


@pytest.mark.parametrize("documents", ["folder", "graph"], indirect=True)
def test_who_reads_an_older_generation_goes_on_with_its_vectors(documents: Documents, model: Changing) -> None:
    previous_snapshot = documents.corpus.snapshot()
    stored = previous_snapshot.open.stored_vectors("chunk", embedder(model).name)
    positions = list(range(4))
    old = stored.vectors_at(positions).tolist()  # type: ignore[arg-type]
    model.reply = ServedReply(weights="of another model ")
    documents.reparse(["a.md", "b.md", "c.md"], "embed")
    documents.publish()
    documents.tidy()
    assert stored.vectors_at(positions).tolist() == old  # type: ignore[arg-type]
    new = documents.corpus.latest().open.stored_vectors("chunk", embedder(model).name).vectors_at(positions).tolist()  # type: ignore[arg-type]
    assert all(old_vector != new_vector for old_vector, new_vector in zip(old, new, strict=True))
    assert len(list(Path(documents.corpus.path, "vectors").glob("*/*.seg"))) == 1  # the replaced ones are gone


def test_another_dimension_is_refused_and_the_old_vectors_stay(documents: Documents, model: Changing) -> None:
    model.reply = ServedReply(dimension=12)
    tasks = documents.reparse(["a.md", "b.md"], "embed")
    documents.publish()
    assert [state for state, _ in states(documents, *tasks)] == ["failed"] * 2
    assert all("another dimension" in reason and "rebuild=True" in reason for _, reason in states(documents, *tasks))
    model.reply = ServedReply()
    assert hits(documents, model, MOON)[f"a.md {MOON}"] == 1


def test_a_change_waits_longer_each_time_for_a_model_that_is_away_and_holds_up_no_other(
    documents: Documents, model: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    retry, waits = documents.queue.retry, list[float]()

    def noted(claims: Sequence[Claim], why: str, after_s: float) -> list[int]:
        waits.append(after_s)
        return retry(claims, why, 0.0)

    monkeypatch.setattr(documents.queue, "retry", noted)
    model.reply = ServedReply(status=503)
    (task,) = documents.reparse(["a.md"], "embed")
    tasks = [documents.delete("b.md"), documents.add("c.md", SALT.encode())]
    documents.publish()
    assert states(documents, *tasks) == [("done", "")] * 2
    ((state, reason),) = states(documents, task)
    assert (state, "503" in reason) == ("waiting", True)
    documents.publish()
    assert waits == [5.0, 20.0]
    model.reply = ServedReply(weights="of another model ")
    documents.publish()
    assert states(documents, task) == [("done", "")]
    assert hits(documents, model, MOON)[f"a.md {MOON}"] == 1


def test_new_texts_wait_for_a_model_that_is_away_and_hold_up_nothing_that_needs_none(
    documents: Documents, model: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "RETRY_S", 0.0)
    model.reply = ServedReply(status=503)
    new = [documents.add("d.md", b"Owls fly."), documents.delete("c.md"), documents.add("c.md", b"Newts swim.")]
    other_tasks = [
        documents.delete("b.md"),
        *documents.transfer(["a.md"], "in"),
        documents.patch("a.md", {"year": 2026}),
    ]
    documents.publish()
    assert [state for state, _ in states(documents, *new)] == ["waiting"] * 3
    assert states(documents, *other_tasks) == [("done", "")] * 3
    assert sorted(documents.names()) == ["a.md", "c.md", "in/a.md"]
    model.reply = ServedReply()
    documents.publish()
    assert states(documents, *new) == [("done", "")] * 3
    assert [node.text for node in documents.nodes("c.md")] == ["Newts swim."]


@pytest.mark.parametrize("documents", ["folder"], indirect=True)
def test_only_what_was_read_out_of_a_document_is_embedded_with_it(documents: Documents, model: Changing) -> None:
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        archive.writestr("in.md", "Newts swim.")
    documents.add("a.zip", file.getvalue())
    documents.add("a.zip/other.md", b"Owls fly.")
    documents.publish()
    assert model.embedded() == ["Newts swim.", "Owls fly."]
    documents.reparse(["a.zip"], "embed")
    documents.publish()
    assert model.embedded() == ["Newts swim."]


@pytest.mark.parametrize("documents", ["folder"], indirect=True)
def test_a_failure_says_how_many_documents_have_new_vectors(
    documents: Documents, model: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "TEXTS_AT_ONCE", 1)
    served_replies = iter([ServedReply()])
    monkeypatch.setattr(model, "next_reply", lambda request: next(served_replies, ServedReply(dimension=12)))
    (task, _) = documents.reparse(["b.md", "c.md"], "embed")
    documents.publish()
    assert "Documents embedded again: 1; the others keep their vectors." in states(documents, task)[0][1]


@pytest.mark.parametrize("documents", ["graph", "postgres"], indirect=True)
@pytest.mark.parametrize("point", ["vectors", "publish.commit", "publish.committed"])
def test_a_killed_change_leaves_all_old_or_all_new_vectors_and_is_done_by_the_next_server(
    documents: Documents, model: Changing, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.reply = ServedReply(weights="of another model ")
    (task,) = documents.reparse(["a.md"], "embed")
    if point == "vectors":
        point = "publish.row" if "://" in documents.corpus.path else "vectors.register"
    if (child := os.fork()) == 0:
        try:
            second_documents = Documents(Corpus(documents.corpus.path), operators=documents.operators)
            monkeypatch.setattr(second_documents.queue, "claim", partial(second_documents.queue.claim, lease_s=0.0))
            files.arm(point)
            second_documents.publish()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    direction = 1 if point == "publish.committed" else -1
    assert [hits(documents, model, text)[f"a.md {text}"] == 1 for text in (MOON, SALT)] == [direction == 1] * 2
    assert documents.corpus.latest().check(deep=True) == []
    documents.publish()
    assert states(documents, task) == [("done", "")]
    assert [hits(documents, model, text)[f"a.md {text}"] for text in (MOON, SALT)] == [1, 1]
    assert documents.corpus.latest().check(deep=True) == []


@pytest.mark.parametrize("documents", ["folder"], indirect=True)
def test_bytes_are_not_needed_and_other_changes_of_the_document_hold(documents: Documents, model: Changing) -> None:
    documents.keeps_originals = False
    documents.queue.detach(["a.md"], False)
    model.reply = ServedReply(weights="of another model ")
    (task,) = documents.reparse(["a.md"], "embed")
    documents.publish()
    assert (states(documents, task), model.embedded()) == ([("done", "")], [SALT, MOON])
    documents.keeps_originals = True
    documents.add("a.md", MOON.encode(), metadata={"year": 2025})
    tasks = [documents.patch("a.md", {"year": 2026}), *documents.reparse(["a.md"], "embed")]
    documents.publish()
    assert states(documents, *tasks) == [("done", "")] * 2
    assert ("year", 2026) in documents.status("a.md").document.meta
    assert [node.text for node in documents.nodes("a.md")] == [MOON]


@pytest.mark.parametrize("documents", ["folder"], indirect=True)
def test_a_database_that_is_written_again_takes_the_latest_vectors(documents: Documents, model: Changing) -> None:
    model.reply = ServedReply(weights="of another model ")
    documents.reparse(["a.md"], "embed")
    documents.publish()
    assert len(list(Path(documents.corpus.path, "vectors").glob("*/*.seg"))) == 2
    with closing(sqlite3.connect(Path(documents.corpus.path, "corpus.db"))) as database:
        database.executescript("DELETE FROM vectors; DELETE FROM segments")
    forget(documents.corpus.backend)
    with documents.corpus.writer():
        """Takes over the segments."""
    assert [hits(documents, model, text)[f"a.md {text}"] for text in (MOON, SALT)] == [1, 1]
    assert documents.corpus.latest().check(deep=True) == []


@pytest.mark.parametrize("documents", ["folder"], indirect=True)
def test_a_group_is_built_with_the_embedder_of_another_dimension(documents: Documents, model: Changing) -> None:
    """As the refusal of vectors of another dimension says."""
    model.reply = ServedReply(dimension=12)
    wide = EmbeddingModel("wide", model.url, dimension=12)
    group = documents.corpus.group("chunk", Definition(Sentences(), embeddings=(Embedding(wide, Exact()),)))
    materialise([group], rebuild=True)
    (hit,) = Dense(documents.corpus.group(), wide, top_k=1)(Query(ROCK)).hits
    assert (hit.node.uri, round(hit.score, 5)) == ("doc://c.md", 1)

"""What is of PostgreSQL only: addresses, servers that go, locks, indexes that follow, the vectors in the database."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from psycopg.sql import SQL, Literal

from spolia.errors import NotAStore, StoreBusy, StoreCorrupt, StoreError, StoreTooNew, StoreUnavailable
from spolia.filters import Field, where
from spolia.models.vectors import SparseRows
from spolia.stores import open_store
from spolia.stores.backends import publication, sql
from spolia.stores.backends.postgres import dialect, session, vectors
from spolia.stores.backends.postgres.address import parse_address
from spolia.stores.backends.postgres.vectors import DatabaseSearch, index_name
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Metric
from spolia.stores.files import FAIL_POINTS, POSTGRES_FAIL_POINTS
from spolia.stores.indexes import HNSW, Exact
from spolia.stores.lexical import index_replica
from spolia.stores.manifest import GroupEmbedding
from spolia.stores.snapshot.lineage import children
from spolia.stores.vectors.dense import Vectors
from spolia.testing.stores.concurrency import HOLDER, start_process
from spolia.testing.wire import Wire
from spolia.types import Document, Node
from tests.cases import check_each
from tests.stores.scenario import EMBEDDER, FIRST, MANIFEST, SECOND, add_missing_vectors, put, sync
from tests.stores.servers import Server
from tests.stores.test_crashes import problems_after, run_kills

pytestmark = pytest.mark.slow

BACKENDS = ("postgres",)
NOBODY: frozenset[str] = frozenset()
KILLS = 3
NOT_HERE = (
    "create.",
    "lock.",
    "sweep.",
    "adopt.",
    "forget.",
    "vectors.",
    "graphs.",
    "databases.",
    "migrate.",
    "publish.pin",
    "publish.fsync_pins",
)
"""Fail points of stores in folders."""


def search_uris(corpus: Corpus, text: str) -> list[str]:
    snapshot = corpus.snapshot()
    return [hit.node.uri for hit in snapshot.hits(snapshot.search("chunk", text, 10, NOBODY), NOBODY)]


# Addresses.


def test_an_address_holds_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("postgresql://ann:hunter2@db/texts", "postgres://db/texts?password=hunter2&schema=notes"):
        with pytest.raises(StoreError, match=r"a password.* set PGPASSWORD, .*~/\.pgpass.*password_env") as refused:
            Corpus(address)
        assert "hunter2" not in str(refused.value)
    address_with_variable = parse_address("postgresql://ann@db/texts?password_env=NOTES_PASSWORD")
    with pytest.raises(StoreError, match="'NOTES_PASSWORD', which is not set"):
        address_with_variable.secrets()
    monkeypatch.setenv("NOTES_PASSWORD", "hunter2")
    assert address_with_variable.secrets() == {"password": "hunter2"}
    assert "hunter2" not in repr(address_with_variable) + str(address_with_variable)


@check_each("schema", ["public", "pg_notes", "no'tes", "1st", "", "n" * 64])
def test_a_schema_that_cannot_be_is_refused(schema: str) -> None:
    with pytest.raises(StoreError, match="cannot be the schema of a store"):
        Corpus(f"postgresql:///texts?schema={schema}")


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    corpus = Corpus(f"postgresql:///texts?host={tmp_path}")
    for use in (corpus.exists, corpus.snapshot, corpus.create, corpus.writer().__enter__):
        with pytest.raises(StoreUnavailable, match=r"the server cannot be reached.*Repeat later"):
            use()
    assert StoreUnavailable.transient


def test_a_database_or_user_that_is_not_there(server: Server) -> None:
    for wrong in (server.uri.replace("/postgres?", "/nowhere?"), server.uri.replace("postgres:@", "nobody@")):
        with pytest.raises(StoreError, match=r"server refused the connection.*Check user, database") as error:
            Corpus(wrong).snapshot()
        assert not error.value.transient


def test_without_psycopg_it_is_said_what_to_install() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None; from spolia import Corpus; Corpus('postgresql:///texts').exists()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert re.search(r"PostgreSQL needs psycopg, .*pip install .*\[postgres\]", done.stderr)


# What is there.


def test_nothing_there(address: str) -> None:
    corpus = Corpus(address)
    assert corpus.fingerprint() is None
    for use in (corpus.snapshot, corpus.writer().__enter__):
        with pytest.raises(
            NotAStore, match=r"the schema holds none\. Make one: spolia index FOLDER --store postgresql://"
        ):
            use()
    assert corpus.create().create().snapshot().generation == 0


def test_a_schema_of_something_else_is_not_touched(address: str, server: Server) -> None:
    schema = parse_address(address).schema
    server.fetch_rows(f"CREATE SCHEMA {schema} CREATE TABLE bookmarks (url TEXT)")
    for use in (Corpus(address).snapshot, Corpus(address).create, Corpus(address).writer().__enter__):
        with pytest.raises(NotAStore, match=r"the schema holds bookmarks; it was not touched"):
            use()
    assert server.fetch_rows(f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'") == [(1,)]


@pytest.mark.parametrize(
    "table",
    [
        "TABLE {schema}.spolia (name TEXT)", "TABLE {schema}.spolia (version BIGINT)",
        "VIEW {schema}.spolia AS SELECT 1 AS version",
        "FOREIGN TABLE {schema}.spolia (version BIGINT) SERVER elsewhere",
    ],
)  # fmt: skip
def test_a_table_of_somebody_else_that_is_called_like_ours_is_no_store(
    address: str, server: Server, table: str
) -> None:
    schema = parse_address(address).schema
    server.fetch_rows(f"CREATE SCHEMA {schema}")
    if "FOREIGN" in table and not server.fetch_rows("SELECT 1 FROM pg_foreign_server"):
        server.fetch_rows("CREATE FOREIGN DATA WRAPPER none")
        server.fetch_rows("CREATE SERVER elsewhere FOREIGN DATA WRAPPER none")
    server.fetch_rows("CREATE " + table.format(schema=schema))
    for use in (Corpus(address).snapshot, Corpus(address).create, Corpus(address).writer().__enter__):
        with pytest.raises(NotAStore, match=r"the schema holds spolia; it was not touched"):
            use()
    assert not Corpus(address).exists()


def test_a_newer_and_an_older_schema_are_refused(corpus: Corpus, server: Server) -> None:
    schema = parse_address(corpus.path).schema
    server.fetch_rows(f"UPDATE {schema}.spolia SET version = 99")
    with pytest.raises(StoreTooNew, match=r"has schema 99.* Write: pip install -U spolia"):
        corpus.writer().__enter__()
    server.fetch_rows(f"UPDATE {schema}.spolia SET version = 1")
    with pytest.raises(StoreError, match=r"schema 1, written by an early version.*DROP SCHEMA"):
        corpus.writer().__enter__()


def test_two_stores_in_one_database_do_not_see_each_other(corpus: Corpus, server: Server) -> None:
    other_corpus = Corpus(server.address()).create()
    with corpus.writer(), other_corpus.writer(timeout_s=0) as writer:
        writer.define("chunk", MANIFEST)
        put(writer, "x.txt", "A zeppelin.")
        add_missing_vectors(writer)
    assert (search_uris(corpus, "zeppelin"), search_uris(other_corpus, "zeppelin")) == ([], ["x.txt"])
    assert corpus.snapshot().open_store.uuid != other_corpus.snapshot().open_store.uuid


def test_many_makers_make_one_store(address: str) -> None:
    threads = [threading.Thread(target=Corpus(address).create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Corpus(address).snapshot().generation == 0


def test_a_store_dropped_while_it_is_read_and_made_again(corpus: Corpus, server: Server) -> None:
    corpus.snapshot()
    server.fetch_rows(f"DROP SCHEMA {parse_address(corpus.path).schema} CASCADE")
    with pytest.raises(NotAStore, match="was deleted while it was open"):
        corpus.snapshot()
    sync(corpus.create(), SECOND)
    assert corpus.snapshot().generation == 1
    assert corpus.snapshot().check() == []


# The server goes.


@pytest.fixture
def restarted(server: Server) -> Iterator[Server]:
    yield server
    server.start()


def test_a_server_that_goes_while_it_is_written_loses_nothing_and_repeating_resumes(
    corpus: Corpus, restarted: Server
) -> None:
    def write() -> None:
        with corpus.writer() as writer:
            texts = [f"A zeppelin, number {number}." for number in range(600)]
            for number, text in enumerate(texts):
                put(writer, f"{number}.txt", text)
            add_missing_vectors(writer)
            restarted.stop("immediate")
            put(writer, "last.txt", "The last one.")

    with pytest.raises(StoreUnavailable, match=r"could not be written: .*Published data is complete\. Repeat"):
        write()
    with pytest.raises(StoreUnavailable):
        corpus.snapshot()
    restarted.start()
    assert corpus.snapshot().generation == 1
    assert search_uris(corpus, "zeppelin") == []
    assert corpus.snapshot().check() == []
    with corpus.writer() as writer:
        for number in range(600):
            put(writer, f"{number}.txt", f"A zeppelin, number {number}.")
        assert len(list(writer.unembedded("chunk", EMBEDDER))) < 600  # those that were acknowledged are not lost
        add_missing_vectors(writer)
    assert len(search_uris(corpus, "zeppelin")) == 10
    assert corpus.snapshot().check() == []


def test_a_snapshot_whose_hold_is_lost_says_so_and_the_next_one_reads(corpus: Corpus, restarted: Server) -> None:
    pinned = corpus.snapshot()
    restarted.stop()
    restarted.start()
    with pytest.raises(StoreUnavailable, match="was lost, and with it the snapshot"):
        pinned.sources()
    assert set(corpus.snapshot().sources()) == set(FIRST)


def test_a_session_that_is_ended_loses_the_right_to_write(corpus: Corpus, server: Server) -> None:
    def write() -> None:
        with corpus.writer() as writer:
            put(writer, "c.txt", "A zeppelin.")
            server.fetch_rows(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"
            )
            put(writer, "d.txt", "Another.")

    with pytest.raises(StoreUnavailable, match="could not be written"):
        write()
    assert search_uris(corpus, "zeppelin") == []
    with corpus.writer(timeout_s=5) as writer:
        assert writer.generation == 1


def test_a_session_that_is_ended_right_after_its_commit_is_no_raw_error(
    corpus: Corpus, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(point: str) -> None:
        if point == "publish.committed":
            server.fetch_rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'spolia %'"
            )

    def write() -> None:
        with corpus.writer() as writer:
            put(writer, "c.txt", "A zeppelin.")
            add_missing_vectors(writer)
            monkeypatch.setattr(publication, "fail_point", end)
            writer.publish()

    with pytest.raises(StoreUnavailable):
        write()
    monkeypatch.undo()
    open_store._open.clear()
    assert search_uris(corpus, "zeppelin") == ["c.txt"]


def test_a_statement_that_takes_too_long_is_ended(corpus: Corpus) -> None:
    hasty = Corpus(corpus.path + "&options=-c%20statement_timeout%3D50")
    with pytest.raises(StoreUnavailable, match=r"did not answer in time.*statement_timeout"):
        hasty.snapshot().open_store.rows("SELECT pg_sleep(1)")


def connect_over_wire(corpus: Corpus, wire: Wire, *more: str) -> Corpus:
    """The same store over a wire."""
    address = parse_address(corpus.path)
    parameters = "&".join((f"host=127.0.0.1&port={wire.port}&sslmode=disable&schema={address.schema}", *more))
    return Corpus(f"postgresql://postgres@/postgres?{parameters}")


def socket_of(server: Server) -> str:
    """The path of a server's socket."""
    return f"{Path(unquote(server.uri.partition('host=')[2]))}/.s.PGSQL.5432"


def test_a_server_that_never_answers_is_an_error_in_time(corpus: Corpus) -> None:
    with Wire(None) as wire:
        silent = connect_over_wire(corpus, wire, "connect_timeout=2")
        for use in (silent.exists, silent.snapshot, silent.writer().__enter__):
            with pytest.raises(StoreUnavailable, match=rf"127\.0\.0\.1.*{wire.port}.*Repeat later"):
                use()


@pytest.mark.parametrize("after", [0, 300, 20_000])
@pytest.mark.parametrize("how", ["cut_off", "go_silent"])
def test_a_server_that_is_cut_off_or_goes_silent_in_the_middle_of_a_write_loses_nothing_and_repeating_resumes(
    corpus: Corpus, server: Server, how: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "GRACE_S", 0.5)

    def write() -> None:
        with wired_corpus.writer(timeout_s=30) as writer:
            put(writer, "first.txt", "A zeppelin.")
            getattr(wire, how)(after)
            for number in range(200):
                put(writer, f"{number}.txt", f"Another zeppelin, number {number}.")
            add_missing_vectors(writer)

    with Wire(socket_of(server)) as wire:
        wired_corpus = connect_over_wire(corpus, wire, "options=-c%20statement_timeout%3D1000")
        with pytest.raises(StoreUnavailable, match=str(wire.port)):
            write()
        assert search_uris(corpus, "zeppelin") == []
        wire.mend()
        monkeypatch.setattr(wire, how, lambda after: None)
        write()
    assert len(search_uris(corpus, "zeppelin")) == 10
    assert corpus.snapshot().check() == []
    open_store._open.pop(wired_corpus.backend.place, None)


# Locks.


def test_a_writer_on_another_machine_is_named(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = start_process(HOLDER, corpus)
    monkeypatch.setattr("socket.gethostname", lambda: "another.example")
    with pytest.raises(StoreBusy, match=rf"another process, pid {holder.pid} on "):
        corpus.writer(timeout_s=0.1).__enter__()
    holder.communicate("\n")


def test_what_is_read_is_kept_and_what_nobody_reads_goes(corpus: Corpus) -> None:
    pinned = corpus.snapshot()
    for number in range(6):
        with corpus.writer() as writer:
            put(writer, "a.txt", f"Carsten Olsen, version {number}")
            add_missing_vectors(writer)
    kept_generations = {
        generation for generation, _ in corpus.snapshot().open_store.rows("SELECT generation, 0 FROM generations")
    }
    assert kept_generations >= {1, 6, 7}
    assert kept_generations < set(range(1, 8))
    assert search_uris(corpus, "employed") == []
    hits = pinned.hits(pinned.search("chunk", "employed", 10, NOBODY), NOBODY)
    assert [hit.node.text for hit in hits] == ["He was employed by the city."]
    assert pinned.check() == []


# Indexes that follow.


def test_another_machine_makes_its_own_index_from_the_newest_that_it_has(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = corpus.snapshot().open.lexical("chunk").folder
    script = (
        "import sys; from tests.stores.test_postgres import *; from spolia.stores import files; "
        "files.FEW, files.SHARE = 0, 1; print(search_uris(Corpus(sys.argv[1]), sys.argv[2]))"
    )

    def search_elsewhere(text: str) -> str:
        environment = {**os.environ, "SPOLIA_CACHE": str(tmp_path / "there")}
        command = [sys.executable, "-c", script, corpus.path, text]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        return done.stdout.strip()

    assert search_elsewhere("temples") == "['b.txt']"
    first = next((tmp_path / "there").rglob("g1.*"))
    shared = {path.stat().st_ino for path in first.glob("*.idx")}
    sync(corpus, SECOND)
    assert search_elsewhere("temples") == "['moved/b.txt']"
    second = next((tmp_path / "there").rglob("g2.*"))
    assert shared & {path.stat().st_ino for path in second.glob("*.idx")}
    assert second != here


def test_a_lost_or_damaged_index_is_made_again(corpus: Corpus) -> None:
    folder = corpus.snapshot().open.lexical("chunk").folder
    shutil.rmtree(folder)
    with corpus.writer() as writer:
        put(writer, "c.txt", "A zeppelin.")
        add_missing_vectors(writer)
    assert search_uris(corpus, "zeppelin temples") == ["c.txt", "b.txt"]
    index_folder = corpus.snapshot().open.lexical("chunk").folder
    largest = max(index_folder.glob("*.idx"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    (problem,) = corpus.snapshot().check()
    assert "changed since it was written" in problem
    with corpus.writer() as writer:
        (message,) = writer.repair()
    assert "It is made again by the next search" in message
    assert corpus.snapshot().check() == []


def test_an_index_of_other_texts_than_the_database_has_is_made_again(corpus: Corpus, server: Server) -> None:
    assert search_uris(corpus, "temples") == ["b.txt"]
    schema = parse_address(corpus.path).schema
    server.fetch_rows(
        f"UPDATE {schema}.nodes SET text = replace(text, 'temples', 'harbours')"
    )  # a table put back by itself
    index_replica._compared.clear()  # as in another process
    open_store._open.clear()
    assert search_uris(corpus, "temples") == []
    assert list(corpus.backend.folder.glob("damaged/1/lexical/*/*/*.idx"))  # set aside, not deleted
    with pytest.raises(StoreCorrupt, match="1 nodes changed since they were written"):  # its digest is that of before
        search_uris(corpus, "harbours")


def test_threads_that_want_the_same_index_make_it_once(corpus: Corpus) -> None:
    snapshot = corpus.snapshot()
    folders: set[str] = set()
    threads = [
        threading.Thread(target=lambda: folders.add(str(snapshot.open.lexical("chunk").folder))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (folder,) = folders
    assert [path.name.partition(".")[0] for path in Path(folder).parent.iterdir()] == ["g1"]


# Texts and vectors.


def test_a_text_is_kept_as_it_is_whatever_it_holds(corpus: Corpus) -> None:
    text = "nul \0, its stand-in \x1a, \x1a0 and \x1a1, \0\x1a0"
    id = "odd\0\x1a"
    with corpus.writer() as writer:
        writer.put_document(
            Document(id, text), [Node(f"{id}:0", text, id, parent=id)], SourceRow("odd.txt", document=id)
        )
        add_missing_vectors(writer)
    snapshot = corpus.snapshot()
    assert snapshot.document(id, NOBODY).text == text
    (node,) = children(snapshot, [id], "chunk", NOBODY)
    assert (node.id, node.text) == (f"{id}:0", text)
    assert snapshot.check() == []


def drawn_vectors(count: int, dimension: int) -> Vectors:
    """Vectors of length 1, of which many are alike, and one without a length."""
    vectors = np.random.default_rng(5).integers(-2, 3, (count, dimension)).astype(np.float32)
    vectors[1::7] = vectors[0]
    vectors[3] = 0
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def fill(corpus: Corpus, count: int, embedding: GroupEmbedding) -> Corpus:
    """A store of texts with drawn vectors; a third of them may be read by ann only."""
    with corpus.create().writer() as writer:
        writer.declare((Field("tenth", "int"),))
        writer.define("chunk", MANIFEST.but(embeddings=(embedding,)))
        for number in range(count):
            meta = (("tenth", number % 10),)
            document = Document(f"d{number}", f"text {number}", meta=meta, readers=("ann",) if number % 3 == 0 else ())
            node = Node(f"n{number:04}", document.text, document.id, meta=meta)
            writer.put_document(document, [node], SourceRow(f"{number}.txt", document=document.id))
        missing = [hash for hash, _ in writer.unembedded("chunk", embedding.embedder)]
        writer.add_vectors(embedding.embedder, missing, drawn_vectors(count, embedding.dimension))
    return corpus


FILTERS = (None, where(tenth=4), ~where(tenth=4))


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_vectors_are_found_as_in_a_folder_with_the_same_scores(address: str, fast_folder: Path, metric: Metric) -> None:
    embedding = GroupEmbedding("drawn/1", 24, metric, index='"Exact"')
    here = fill(Corpus(address), 200, embedding).snapshot()
    folder = fill(Corpus(str(fast_folder / "folder.spolia")), 200, embedding).snapshot()
    queries = drawn_vectors(12, 24) + np.float32(0.01)
    for access in (NOBODY, frozenset(["ann"])):
        for filter in FILTERS:
            for top_k in (1, 7, 500):
                rankings = here.nearest_batch("chunk", "drawn/1", queries, top_k, access, filter)
                assert rankings == folder.nearest_batch("chunk", "drawn/1", queries, top_k, access, filter)
    allowed = here.allowed("chunk", NOBODY, FILTERS[1])
    assert (here.vectors("chunk", "drawn/1", allowed) == folder.vectors("chunk", "drawn/1", allowed)).all()


def test_sparse_vectors_are_found_as_in_a_folder_with_the_same_scores(address: str, fast_folder: Path) -> None:
    drawn_terms = np.random.default_rng(3)
    rows = SparseRows.from_weights(
        [{int(term): float(term % 7) / 3 for term in drawn_terms.integers(0, 50, size)} for size in range(60)]
    )
    snapshots = []
    for where_ in (address, str(fast_folder / "folder.spolia")):
        corpus = Corpus(where_).create()
        with corpus.writer() as writer:
            writer.define("chunk", MANIFEST.but(embeddings=(GroupEmbedding("terms/1", 0, "dot"),)))
            for number in range(60):
                put(writer, f"{number}.txt", f"text {number}", ("ann",) if number % 3 == 0 else ())
            writer.add_sparse("terms/1", [hash for hash, _ in writer.unembedded("chunk", "terms/1")], rows)
        snapshots.append(corpus.snapshot())
    here, folder = snapshots
    for access in (NOBODY, frozenset(["ann"])):
        rankings = here.nearest_sparse("chunk", "terms/1", rows, 9, access)
        assert rankings == folder.nearest_sparse("chunk", "terms/1", rows, 9, access)
        assert len(rankings[-1]) == 9
    assert here.check() == []


def test_many_vectors_are_found_along_the_index_of_the_server(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_COMPARED", 50)
    embedding = GroupEmbedding("dr'awn\"/1", 24, index='{"HNSW": {"above": 200}}')
    snapshot = fill(Corpus(address), 400, embedding).snapshot()
    along = snapshot.open_store.store.vector_search(snapshot, "chunk", embedding.embedder)
    assert isinstance(along, DatabaseSearch)
    compared = DatabaseSearch(along.open_store, along.values, "cosine", Exact())
    queries = drawn_vectors(20, 24) + np.float32(0.01)
    walks: list[int] = []
    walked = along._walked

    def note_walk(query: Vectors, fetch: int) -> list[Any]:
        walks.append(fetch)
        return walked(query, fetch)

    monkeypatch.setattr(along, "_walked", note_walk)
    for filter in FILTERS:
        allowed = snapshot.allowed("chunk", NOBODY, filter)
        right, got = compared.search(queries, 5, allowed), along.search(queries, 5, allowed)
        same = [len({key for key, _ in a} & {key for key, _ in b}) for a, b in zip(right, got, strict=True)]
        assert sum(same) >= 0.97 * 5 * len(queries)
        assert all(allowed.holds([key for key, _ in ranking]).all() and len(ranking) == 5 for ranking in got)
    assert len(walks) >= 2 * len(queries)
    plan = along._session.ask(
        "SELECT indexname FROM pg_indexes WHERE indexdef LIKE '%hnsw%halfvec(24)%' AND schemaname = current_schema()"
    ).fetchall()
    assert len(plan) == 1


def test_the_server_uses_its_index(address: str) -> None:
    embedding = GroupEmbedding("drawn/1", 24, index='{"HNSW": {"above": 200}}')
    snapshot = fill(Corpus(address), 400, embedding).snapshot()
    along = snapshot.open_store.store.vector_search(snapshot, "chunk", embedding.embedder)
    assert isinstance(along, DatabaseSearch)
    statement = SQL("EXPLAIN ") + SQL(dialect.ALONG_GRAPH).format(
        embedder=Literal("drawn/1"), dimension=Literal(24), distance=SQL("<#>")
    )
    parameters = {**along.values, "query": drawn_vectors(9, 24)[0], "fetch": 20}
    along._session.ask("SET enable_sort = off")
    plan = "\n".join(row[0] for row in along._session.raw.execute(statement, parameters, prepare=False))
    assert f"Index Scan using {index_name('drawn/1', 'cosine', HNSW())}" in plan


def test_a_vector_database_beside_is_refused(corpus: Corpus) -> None:
    def write() -> None:
        with corpus.writer() as writer:
            writer.redefine("chunk", MANIFEST.but(embeddings=(GroupEmbedding(EMBEDDER, 8, index='"LanceDB"'),)))

    with pytest.raises(StoreError, match=r"keeps and searches its vectors itself\. Write index=HNSW\(\)"):
        write()
    assert search_uris(corpus, "temples") == ["b.txt"]


# Kills.


def test_killed_anywhere_nothing_is_lost_and_repeating_gives_the_same(
    server: Server, fast_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOLIA_TEST_DATABASE", server.uri)
    points = [*(point for point in FAIL_POINTS if not point.startswith(NOT_HERE)), *POSTGRES_FAIL_POINTS]
    end, *killed = run_kills(fast_folder, *points, "--random", str(KILLS), "3")
    assert end["wrong"] == []
    assert problems_after(killed) == {}
    assert {result["at"] for result in killed if result["killed"]} >= set(points)


def test_no_statement_keeps_functions_that_sqlite_alone_has() -> None:
    statements = {
        name: statement for name, statement in vars(sql).items() if name.isupper() and isinstance(statement, str)
    }
    assert [name for name, statement in statements.items() if "json_each(" in dialect.translate(statement)] == []

"""A backup that is put back, and published further to a number that was there before: nothing of what it took the place
of is served, whatever was kept of that."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from spolia.core.operator import Operator
from spolia.errors import StoreUnavailable
from spolia.journal import Cache
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.graph.edges import InOrder
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.run import Run
from spolia.stores.backends.postgres.address import parse_address
from spolia.stores.corpus import POSTGRES, Corpus, NodeGroup
from spolia.types import Query, Ranking
from tests.stores.scenario import FIRST, sync
from tests.stores.servers import Server

pytestmark = pytest.mark.slow

BACKENDS = ("folder", "postgres")
LOST = {**FIRST, "secret/new.txt": "The old mill burns.", "late.txt": "A tale of barley lost at sea.\nNobody saw it."}
INSTEAD = {**FIRST, "late.txt": "The mill stands.\nBarley grows behind it.", "secret/new.txt": "Ann owns the barley."}
ANN = frozenset({"ann"})


@dataclass(frozen=True)
class Kept(Operator[Query, Ranking]):
    """Search whose results are cached."""

    group: NodeGroup
    cached: ClassVar[bool] = True

    def apply(self, value: Query, /) -> Ranking:
        return BM25(self.group, top_k=9)(value)


@pytest.fixture
def back_up(corpus: Corpus, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[], Callable[[], None]]:
    """Backs a store up, and gives what puts that back while the store is open."""
    if corpus.path.startswith(POSTGRES):
        server: Server = request.getfixturevalue("server")
        return lambda: _of_schema(server, parse_address(corpus.path).schema)
    return lambda: _of_database(Path(corpus.path) / "corpus.db", tmp_path / "backup.db")


def _of_database(database: Path, backup: Path) -> Callable[[], None]:
    def copy(source: Path, target: Path) -> None:
        with closing(sqlite3.connect(source)) as source_connection, closing(sqlite3.connect(target)) as here:
            source_connection.backup(here)

    copy(database, backup)
    return lambda: copy(backup, database)


def _of_schema(server: Server, schema: str) -> Callable[[], None]:
    tables = [name for (name,) in server.fetch_rows(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")]
    keys = {"documents": "key", "nodes": "key", "audiences": "id"}
    server.fetch_rows(f"CREATE SCHEMA {schema}_backup")
    for name in tables:
        server.fetch_rows(f"CREATE TABLE {schema}_backup.{name} AS TABLE {schema}.{name}")

    def put_back() -> None:
        statements = ["BEGIN", "SET CONSTRAINTS ALL DEFERRED"]
        statements.append(f"TRUNCATE {', '.join(f'{schema}.{name}' for name in tables)}")
        for name in tables:
            statements.append(f"INSERT INTO {schema}.{name} SELECT * FROM {schema}_backup.{name}")
        for name, key in keys.items():
            sequence = f"pg_get_serial_sequence('{schema}.{name}', '{key}')"
            statements.append(f"SELECT setval({sequence}, (SELECT max({key}) FROM {schema}.{name}))")
        server.fetch_rows("; ".join([*statements, "COMMIT"]))

    return put_back


def search_texts(corpus: Corpus, text: str, access: frozenset[str] = frozenset()) -> list[str]:
    snapshot = corpus.latest()
    return [node.text for node in snapshot.nodes([key for key, _ in snapshot.search("chunk", text, 9, access)], access)]


def test_nothing_that_was_lost_is_served(corpus: Corpus, back_up: Callable[[], Callable[[], None]]) -> None:
    put_back, cache, flow = back_up(), Cache(), Kept(corpus.group())
    sync(corpus, LOST)
    with Run(cache=cache, groups=("ann",)):
        previous_texts = [hit.node.text for hit in flow(Query("barley mill")).hits]
        graph = NodeGraph(corpus.group(), (InOrder(),))
        graph.links(corpus.latest())
    assert previous_texts == ["The old mill burns.", "A tale of barley lost at sea.\n"]
    lost = corpus.latest().fingerprint
    put_back()
    sync(corpus, INSTEAD)
    now = corpus.latest()
    assert now.generation == 2
    assert now.fingerprint != lost
    for _ in range(2):
        with Run(cache=cache, groups=("ann",)):
            texts = [hit.node.text for hit in flow(Query("barley mill")).hits]
        assert sorted(texts) == ["Ann owns the barley.", "Barley grows behind it.", "The mill stands.\n"]
    assert sorted(search_texts(corpus, "barley mill")) == ["Barley grows behind it.", "The mill stands.\n"]
    assert search_texts(corpus, "burns lost sea", ANN) == []
    links = NodeGraph(corpus.group(), (InOrder(),)).links(now)
    assert set(links.keys.tolist()) == set(now.open.lexical("chunk").keys())
    assert now.check() == []


def test_a_snapshot_of_what_was_lost_says_so(corpus: Corpus, back_up: Callable[[], Callable[[], None]]) -> None:
    put_back = back_up()
    sync(corpus, LOST)
    lost = corpus.latest()
    put_back()
    sync(corpus, INSTEAD)
    with pytest.raises(StoreUnavailable, match=r"was restored from a backup during this read\. Repeat"):
        lost.nodes(list(lost.open.lexical("chunk").keys()), ANN)


def test_what_stands_in_the_backup_goes_on(corpus: Corpus, back_up: Callable[[], Callable[[], None]]) -> None:
    put_back, backed_up = back_up(), corpus.latest()
    sync(corpus, LOST)
    put_back()
    assert corpus.latest() is backed_up or corpus.latest().fingerprint == backed_up.fingerprint
    assert search_texts(corpus, "temples") == ["Stones of old temples\n"]
    sync(corpus, INSTEAD)
    assert search_texts(corpus, "barley") == ["Barley grows behind it."]
    assert [node.document for node in backed_up.all_nodes("chunk")] == [
        node.document for node in backed_up.all_nodes("chunk")
    ]


@pytest.mark.parametrize("address", ["folder"], indirect=True)
def test_a_whole_folder_that_was_put_back(corpus: Corpus, tmp_path: Path) -> None:
    shutil.copytree(corpus.path, tmp_path / "backup")
    sync(corpus, LOST)
    assert search_texts(corpus, "barley") == ["A tale of barley lost at sea.\n"]
    shutil.rmtree(corpus.path)
    shutil.copytree(tmp_path / "backup", corpus.path)
    sync(corpus, INSTEAD)
    assert sorted(search_texts(corpus, "barley mill")) == ["Barley grows behind it.", "The mill stands.\n"]
    assert corpus.latest().check() == []

"""A graph in Neo4j: what is sent over Bolt, what comes back, what is refused. The server is a scripted one."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from spolia.core.codec import decode, encode
from spolia.databases.database import QueryableDatabase, QueryLimits
from spolia.databases.neo4j_database import Neo4jDatabase, refuse_other_than_reading
from spolia.errors import MissingExtra, StatementError, StoreError, StoreUnavailable
from tests.cases import check_each

from .bolt import BoltServer

NODE = (0x4E, [1, ["Person"], {"name": "Ann", "born": 1968}, "4:a:1"])
needs_driver = pytest.mark.skipif(find_spec("neo4j") is None, reason="the extra neo4j is not installed")


@check_each(
    "statement",
    [
        "CREATE (n)", "MATCH (n) SET n.a = 1", "MATCH (n) DETACH DELETE n", "MATCH (n) /* x */ REMOVE n.a",
        "LOAD  CSV FROM 'http://x' AS row RETURN row", "CALL apoc.load.json('http://x')", "call db.labels()",
        "MATCH (n) RETURN 'it\\'s' MERGE (m)", "USE other MATCH (n) RETURN n",
    ],
)  # fmt: skip
def test_what_does_more_than_read_is_refused_before_it_is_sent(statement: str) -> None:
    with pytest.raises(StatementError, match="may only read"):
        Neo4jDatabase("bolt://127.0.0.1:1").ask(statement, QueryLimits())


@pytest.mark.parametrize(
    "statement",
    [
        "MATCH (n:Use) RETURN n.created, n.set",
        "RETURN 'CREATE', \"SET\", `DELETE` // MERGE",
        "/* SET */ RETURN 1",
    ],
)
def test_words_in_names_quotes_and_comments_are_no_writes(statement: str) -> None:
    refuse_other_than_reading(statement)


@pytest.mark.parametrize("url", ["http://h", "bolt://ann:secret@h", "bolt://", "neo4j"])
def test_an_address_of_another_kind_or_with_a_password_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(StoreError, match="NEO4J_PASSWORD") as error:
        Neo4jDatabase(url)
    assert "secret" not in str(error.value)


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "neo4j", None)
    with pytest.raises(MissingExtra, match=r"needs neo4j, which is not installed.*neo4j\]"):
        Neo4jDatabase("bolt://127.0.0.1:1").ask("RETURN 1", QueryLimits())


@pytest.mark.slow
@needs_driver
class TestOverBolt:
    def test_rows_come_from_a_reading_transaction_with_a_time_limit_that_is_rolled_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NEO4J_USERNAME", "reader")
        monkeypatch.setenv("NEO4J_PASSWORD", "secret")
        with BoltServer(["p", "n", "all"], [[NODE, 3, ["a", 1]], [None, 1.5, []]]) as server:
            database = Neo4jDatabase(server.url, "people")
            rows = database.ask("MATCH (p) RETURN p, n, all", QueryLimits(timeout_s=3))
        assert (rows.columns, rows.rows) == (("p", "n", "all"), (("Ann", 3, "a, 1"), (None, 1.5, "")))
        assert not rows.cut
        arguments_by_message = dict(server.asked)
        assert arguments_by_message["BEGIN"][0]["mode"] == "r"
        assert (arguments_by_message["BEGIN"][0]["db"], arguments_by_message["BEGIN"][0]["tx_timeout"]) == (
            "people",
            3000,
        )
        assert (arguments_by_message["LOGON"][0]["principal"], arguments_by_message["LOGON"][0]["credentials"]) == (
            "reader",
            "secret",
        )
        assert "COMMIT" not in arguments_by_message
        assert "ROLLBACK" in arguments_by_message
        assert isinstance(database, QueryableDatabase)
        assert decode(encode(database), Neo4jDatabase) == database

    def test_no_more_rows_are_fetched_than_are_wanted(self) -> None:
        with BoltServer(["n"], [[number] for number in range(1000)]) as server:
            rows = Neo4jDatabase(server.url).ask("UNWIND range(0, 999) AS n RETURN n", QueryLimits(rows=5))
        assert rows.cut
        assert rows.rows == tuple((number,) for number in range(5))
        assert [argument[0]["n"] for name, argument in server.asked if name == "PULL"] == [6]

    def test_a_graph_is_described_by_its_labels_their_properties_and_what_links_them(self) -> None:
        with BoltServer([], []) as server:
            server.by_word = {
                "nodeTypeProperties": (
                    ["nodeLabels", "propertyName"],
                    [[["Person"], "name"], [["Person"], "born"], [["Firm"], None]],
                ),
                "relTypeProperties": (["relType", "propertyName"], [[":`WORKS_AT`", "since"]]),
                "MATCH": (["a", "r", "b"], [[["Person"], "WORKS_AT", ["Firm"]]]),
            }
            description = Neo4jDatabase(server.url).described()
        assert description.splitlines() == [
            "(:Firm)",
            "(:Person {name, born})",
            "(:Person)-[:WORKS_AT {since}]->(:Firm)",
        ]

    @pytest.mark.parametrize(
        ("code", "kind", "said"),
        [
            ("Neo.ClientError.Transaction.TransactionTimedOut", StatementError, "longer than 5 s"),
            ("Neo.ClientError.Statement.SyntaxError", StatementError, "Neo4j says: it was so"),
            ("Neo.ClientError.Security.Unauthorized", StoreError, "NEO4J_PASSWORD"),
        ],
    )
    def test_what_the_server_says_is_told(self, code: str, kind: type[Exception], said: str) -> None:
        with BoltServer(["n"], [], (code, "it was so")) as server, pytest.raises(kind, match=said):
            Neo4jDatabase(server.url).ask("RETURN 1", QueryLimits())

    def test_a_server_that_is_not_there_may_be_asked_again_later(self) -> None:
        with pytest.raises(StoreUnavailable, match="Check the address, and repeat"):
            Neo4jDatabase("bolt://127.0.0.1:9").ask("RETURN 1", QueryLimits())

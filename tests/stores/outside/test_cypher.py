"""A reading subset of Cypher over a small graph: what is found by hand, what is refused, what is broken off."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.databases import cypher
from spolia.databases.cypher import build_graph, run_statement
from spolia.databases.database import QueryLimits, statement_worker
from spolia.databases.graph_file import Entity, GraphFile, PropertyGraph, Relation, describe_graph, read_graph
from spolia.errors import StatementError, StoreError
from spolia.worker_process import _idle_alone
from tests.cases import check_each


def person(id: str, name: str, born: int | None = None) -> Entity:
    return Entity(id, ("Person",), (("name", name), ("born", born)) if born else (("name", name),))


GRAPH = PropertyGraph(
    (
        person("a", "Ann", 1968),
        person("b", "Bo", 1970),
        person("c", "Cai"),
        Entity("n", ("Firm", "Listed"), (("name", "Nokia"), ("since", 1865))),
        Entity("s", ("Town",), (("name", "Salo"),)),
    ),
    (
        Relation("KNOWS", "a", "b", (("since", 1999),)),
        Relation("KNOWS", "b", "c"),
        Relation("KNOWS", "c", "a"),
        Relation("WORKS_AT", "a", "n"),
        Relation("WORKS_AT", "b", "n"),
        Relation("IN", "n", "s"),
    ),
)


def plain() -> dict[str, Any]:
    return {
        "nodes": [{"id": e.id, "labels": e.labels, "properties": dict(e.properties)} for e in GRAPH.entities],
        "relationships": [
            {"type": r.type, "from": r.start, "to": r.end, "properties": dict(r.properties)} for r in GRAPH.relations
        ],
    }


LOADED = build_graph(plain())


def rows_of(statement: str) -> tuple[Any, ...]:
    return run_statement(statement, LOADED, QueryLimits()).rows


@pytest.fixture
def graph(tmp_path: Path) -> GraphFile:
    (tmp_path / "people.json").write_text(json.dumps(plain()))
    return GraphFile(str(tmp_path / "people.json"))


@check_each(
    ("statement", "expected"),
    [
        ("MATCH (p:Person) RETURN p.name AS name ORDER BY name DESC", (("Cai",), ("Bo",), ("Ann",))),
        ("MATCH (p:Person {name: 'Ann'})-[:WORKS_AT]->(f)-[:IN]->(t) RETURN t.name", (("Salo",),)),
        ("MATCH (p)-[:WORKS_AT]->(f:Firm:Listed) WHERE p.born > 1968 RETURN p", (("Bo",),)),
        ("MATCH (f:Firm)<-[:WORKS_AT]-(p) RETURN count(p) AS n", ((2,),)),
        ("MATCH (p:Person) WITH p ORDER BY p.name RETURN collect(p.name) AS names", (("Ann, Bo, Cai",),)),
        ("MATCH (a {name: 'Ann'})-[:KNOWS*2]->(x) RETURN x.name", (("Cai",),)),
        ("MATCH (a {name: 'Ann'})-[:KNOWS*1..2]->(x) RETURN x.name ORDER BY x.name", (("Bo",), ("Cai",))),
        ("MATCH (a {name: 'Ann'})-[:KNOWS*]->(x) RETURN count(x) AS n", ((3,),)),
        ("MATCH (a {name: 'Ann'})-[:KNOWS]-(x) RETURN x.name ORDER BY x.name", (("Bo",), ("Cai",))),
        ("MATCH (a)-[r]->(b) WHERE type(r) = 'IN' RETURN a.name, b.name", (("Nokia", "Salo"),)),
        ("MATCH (a)-[:WORKS_AT|IN]->(b) RETURN count(*) AS n", ((3,),)),
        ("MATCH (p:Person) WHERE NOT (p)-[:WORKS_AT]->() RETURN p.name", (("Cai",),)),
        ("MATCH (p:Person) WHERE p.born IS NULL RETURN p.name", (("Cai",),)),
        ("MATCH (p:Person) WHERE p.born < 3000 RETURN p.name ORDER BY p.born LIMIT 1", (("Ann",),)),
        ("MATCH (p:Person) WHERE NOT p.born < 1970 RETURN p.name", (("Bo",),)),
        ("MATCH (p:Person) RETURN p.name ORDER BY p.born SKIP 1 LIMIT 1", (("Bo",),)),
        ("MATCH (p:Person) RETURN p.name ORDER BY p.born", (("Ann",), ("Bo",), ("Cai",))),
        ("MATCH (p:Person) WHERE p.name IN ['Ann', 'Cai'] RETURN p.name", (("Ann",), ("Cai",))),
        ("MATCH (p:Person) WHERE toLower(p.name) CONTAINS 'a' AND p.name STARTS WITH 'C' RETURN p.name", (("Cai",),)),
        ("MATCH (p:Person) WHERE p.name ENDS WITH 'o' OR p.born = 1968 RETURN p.name", (("Ann",), ("Bo",))),
        (
            "MATCH (p:Person) OPTIONAL MATCH (p)-[:WORKS_AT]->(f) RETURN p.name, f.name",
            (("Ann", "Nokia"), ("Bo", "Nokia"), ("Cai", None)),
        ),
        ("MATCH (p:Person)-[:WORKS_AT]->(f) WITH f, count(p) AS n WHERE n > 1 RETURN f.name, n", (("Nokia", 2),)),
        ("UNWIND [3, 1, 2] AS x RETURN x ORDER BY x DESC LIMIT 2", ((3,), (2,))),
        ("UNWIND [1, 1, null, 2] AS x RETURN DISTINCT x", ((1,), (None,), (2,))),
        (
            "MATCH (p:Person) RETURN avg(p.born) AS a, min(p.born) AS b, max(p.born) AS c, sum(p.born) AS d",
            ((1969.0, 1968, 1970, 3938),),
        ),
        ("MATCH (p:Nobody) RETURN count(*) AS n", ((0,),)),
        ("MATCH (p:Nobody) RETURN p.name", ()),
        ("MATCH (p:Person)-[k:KNOWS]->(q) WHERE k.since = 1999 RETURN p.name, q.name", (("Ann", "Bo"),)),
        (
            "MATCH (p:Person {name: 'Ann'}), (q:Person {name: 'Cai'}) RETURN p.name + ' and ' + q.name AS both",
            (("Ann and Cai",),),
        ),
        (
            "MATCH (p {name: 'Ann'}) RETURN (2 + 3) * 2 - 7 / 2 AS n, size(p.name) AS s, labels(p)[0] AS l",
            ((7, 3, "Person"),),
        ),
        ("MATCH (p:Person) RETURN count(DISTINCT p.born) AS n", ((2,),)),
        ('MATCH (`p`:Person) WHERE `p`.name = "Ann" RETURN `p`.name AS `the name`;', (("Ann",),)),
        ("match (p:Person) // all\nreturn p.name /* names */ limit 1", (("Ann",),)),
        (
            "MATCH (a)-[:KNOWS]->(b)-[:KNOWS]->(c)-[:KNOWS]->(a) RETURN a.name ORDER BY a.name",
            (("Ann",), ("Bo",), ("Cai",)),
        ),
        ("MATCH (a {name: 'Ann'})-[:KNOWS*0..1]->(x) RETURN x.name ORDER BY x.name", (("Ann",), ("Bo",))),
        ("MATCH (p:Person) WHERE exists((p)-[:WORKS_AT]->()) RETURN p.name", (("Ann",), ("Bo",))),
        ("MATCH (p:Person) WITH p ORDER BY p.name DESC LIMIT 1 MATCH (p)-[:KNOWS]->(q) RETURN q.name", (("Ann",),)),
        (
            "RETURN coalesce(null, 'x') AS x, null = null AS y, true OR null AS z, false AND null AS w",
            (("x", None, True, False),),
        ),
        ("MATCH (p {name: 'DROP DATABASE x; //'}) RETURN p", ()),
    ],
)
def test_what_is_in_the_graph_is_found(statement: str, expected: tuple[Any, ...]) -> None:
    assert rows_of(statement) == expected


@check_each(
    ("statement", "expected"),
    [
        ("MATCH (p:Person) RETURN false = p.born IS NULL AS x ORDER BY p.name", ((True,), (True,), (False,))),
        ("MATCH (p:Person) WHERE p.name = 'An\\u006e' RETURN p.name", (("Ann",),)),
        ("MATCH (p) WHERE p:Listed RETURN p.name", (("Nokia",),)),
        ("MATCH (p:Person) WHERE EXISTS { (p)-[:WORKS_AT]->() } RETURN count(*)", ((2,),)),
        ("MATCH (p) RETURN DISTINCT p.id, p.title, p.type, p.label, p.node_type", ((None,) * 5,)),
        ("MATCH ()-[r:IN]->() RETURN r.id, r.type, r.start, r.end", ((None,) * 4,)),
        ("RETURN {a: {b: 1}} AS map", (('{"a": "{\\"b\\": 1}"}',),)),
    ],
)
def test_opencypher_is_answered_as_it_says(statement: str, expected: tuple[Any, ...]) -> None:
    assert rows_of(statement) == expected


EDGES = [("K", 0, 1), ("S", 1, 2), ("K", 2, 3), ("K", 3, 0), ("K", 1, 0), ("S", 0, 0)]


def walks(hops: Sequence[tuple[str, str]]) -> list[tuple[int, ...]]:
    """The places of all walks over `EDGES` that use no edge twice, each hop with a direction and a type."""
    paths: list[tuple[tuple[int, ...], frozenset[int]]] = [((edge_number,), frozenset()) for edge_number in range(4)]
    for direction, kind in hops:
        steps = [
            (edge_number, edge, start, end)
            for edge_number, (type, a, b) in enumerate(EDGES)
            if kind in ("", type)
            for edge, start, end in ((">", a, b), ("<", b, a))
            if direction == edge or (direction == "-" and (edge == ">" or a != b))
        ]
        paths = [
            ((*places, end), used | {edge_number})
            for places, used in paths
            for edge_number, _, start, end in steps
            if start == places[-1] and edge_number not in used
        ]
    return [places for places, _ in paths]


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_every_pattern_has_the_rows_that_walking_the_edges_has(hops: int) -> None:
    """Of kglite's optimizer, passes that fuse counts and limits into the search lose rows."""
    nodes = [{"id": str(index), "labels": ["P"], "properties": {}} for index in range(4)]
    edges = [{"type": type, "from": str(a), "to": str(b), "properties": {}} for type, a, b in EDGES]
    graph, arrows = (
        build_graph({"nodes": nodes, "relationships": edges}),
        {"-": "-[:{}]-", ">": "-[:{}]->", "<": "<-[:{}]-"},
    )
    for directions in product("-><", repeat=hops):
        for kind in ("", "K"):
            pattern = "".join(
                arrows[direction].format(kind).replace("[:]", "[]") + f"(n{index})"
                for index, direction in enumerate(directions, 1)
            )
            expected_walks = walks([(direction, kind) for direction in directions])
            starts = Counter(str(places[0]) for places in expected_walks)
            for rest, expected in (
                ("RETURN count(*)", [(len(expected_walks),)]),
                ("WITH n0 RETURN count(n0)", [(len(expected_walks),)]),
                ("RETURN n0 LIMIT 5", min(5, len(expected_walks))),
                (
                    "RETURN n0, count(*) ORDER BY n0",
                    sorted(starts.items()),
                ),
            ):
                statement = f"MATCH (n0){pattern} {rest}"
                found_rows = run_statement(statement, graph, QueryLimits()).rows
                assert (len(found_rows) if isinstance(expected, int) else list(found_rows)) == expected, statement


def test_a_property_of_several_types_is_refused_where_it_would_change() -> None:
    nodes = [{"id": index, "labels": ["P"], "properties": {"v": value}} for index, value in enumerate((1, [1]))]
    with pytest.raises(StoreError, match="values of several types"):
        build_graph({"nodes": nodes, "relationships": []})


def test_a_graph_is_made_in_linear_time() -> None:
    """By the number of comparisons of ids, not by time."""
    calls = 0

    class Id(str):
        def __hash__(self) -> int:
            nonlocal calls
            calls += 1
            return str.__hash__(self)

    ids = [Id(number) for number in range(2_000)]
    entities = tuple(Entity(id, ("P",)) for id in ids)
    calls = 0
    PropertyGraph(entities, tuple(Relation("R", id, id) for id in ids))
    assert calls <= 10 * len(ids)


@check_each(
    "statement",
    [
        "CREATE (p:Person) RETURN p",
        "MATCH (p) DELETE p",
        "MATCH (p) DETACH DELETE p",
        "MATCH (p) SET p.name = 'x' RETURN p",
        "MATCH (p) REMOVE p.name RETURN p",
        "MERGE (p:Person {name: 'x'}) RETURN p",
        "CALL db.labels()",
        "MATCH (p) CALL { CREATE (q) } RETURN p",
        "LOAD CSV FROM 'file:///etc/passwd' AS line RETURN line",
        "FOREACH (x IN [1] | CREATE (:X))",
        "DROP INDEX x",
        "USE other MATCH (p) RETURN p",
        "SHOW DATABASES",
        "MATCH (p) RETURN p; MATCH (q) RETURN q",
        "MATCH (p) RETURN p UNION MATCH (q) DELETE q",
        "MATCH (p) WITH p CREATE (q) RETURN q",
        "MATCH (p)",
        "MATCH (p) WHERE p.name =~ '(a+)+$' RETURN p",
        "MATCH (p) RETURN $parameter",
        "MATCH (p) RETURN apoc.load.json('http://x')",
        "MATCH (p) RETURN shell('id')",
        "MATCH (p) RETURN q.name",
        "MATCH (p) WHERE count(p) > 1 RETURN p",
        "MATCH (p) RETURN p LIMIT -1",
        "MATCH (p) RETURN p LIMIT 'x'",
        "MATCH (p) RETURN 1 / 0",
        "MATCH (p) RETURN 'a' * 2",
        "MATCH (p) RETURN 1 IN 2",
        "MATCH (p) WHERE p.name RETURN p",
        "MATCH (p) RETURN p.name * 2",
        "MATCH (p) RETURN p['name']",
        "MATCH (p) RETURN keys(p)",
        "MATCH (a)-[r:KNOWS]->(b:Person {name: 'Bo'}) MATCH (c)-[r]->(d) RETURN c.name",
        "MATCH (p",
        "MATCH (p)-[",
        "RETURN 99999999999999999999",
        "RETURN 9223372036854775807 + 1",
        "RETURN 3 * 'x'",
        "SELECT * FROM person",
        "",
        ";",
        "#",
        "RETURN " + "(" * 5000 + "1" + ")" * 5000,
        "RETURN " + "NOT " * 5000 + "true AND",
        "x" * 20_000,
        "找人",
    ],
)
def test_what_writes_calls_or_is_none_is_refused(statement: str) -> None:
    with pytest.raises(StatementError):
        rows_of(statement)


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "UNWIND range(1, 100000) AS a UNWIND range(1, 100000) AS b RETURN count(*) AS n",
        "UNWIND range(1, 100000) AS a UNWIND range(1, 100000) AS b WITH DISTINCT a, b RETURN count(*) AS n",
        "MATCH (a), (b), (c), (d), (e), (f), (g), (h), (i), (j), (k), (l) RETURN count(*) AS n",
    ],
)
def test_what_takes_too_long_is_broken_off(statement: str, graph: GraphFile) -> None:
    with pytest.raises(StatementError, match=r"took longer than 0\.3 s.*QueryLimits\(timeout_s="):
        graph.ask(statement, QueryLimits(timeout_s=0.3))
    assert graph.ask("MATCH (p:Town) RETURN p", QueryLimits(timeout_s=0.3)).rows == (("Salo",),)


@pytest.mark.slow
def test_what_holds_too_much_is_broken_off(graph: GraphFile) -> None:
    statement = "UNWIND range(1, 100000) AS a UNWIND range(1, 100000) AS b WITH DISTINCT a, b RETURN count(*) AS n"
    with pytest.raises(StatementError, match=r"memory: it had 100 MB.*memory_mb=|needed more than 100 MB"):
        graph.ask(statement, QueryLimits(timeout_s=60, memory_mb=100))


@pytest.mark.slow
def test_a_file_is_asked_in_a_process_that_stays(graph: GraphFile) -> None:
    assert graph.ask("MATCH (p:Town) RETURN p", QueryLimits()).rows == (("Salo",),)
    idle: dict[Any, Any] = dict(_idle_alone)
    ((worker,),) = (idle_worker for (_, place), idle_worker in idle.items() if place[0] == graph.path)
    pid = worker.process.pid if worker.process else 0
    assert graph.ask("MATCH (p:Town) RETURN p LIMIT 0", QueryLimits()).columns == ("p",)
    with pytest.raises(StatementError, match="Undefined variable 'q'"):
        graph.ask("MATCH (p) RETURN q", QueryLimits())
    assert worker.process is not None
    assert worker.process.pid == pid
    Path(graph.path).write_text('{"nodes": [], "relationships": []}')
    assert graph.ask("MATCH (p:Town) RETURN p", QueryLimits()).rows == ()


@pytest.mark.slow
def test_a_worker_can_open_no_file_once_it_has_the_graph(graph: GraphFile, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    with (
        statement_worker(QueryLimits(), "test") as worker,
        pytest.raises(StoreError, match="Too many open files"),
    ):
        worker.call(read_graph, str(tmp_path / "other.json"), 0, 2, seconds=9.0, load=(cypher.load, *graph._state))


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "WITH 'x' AS s " + "WITH s + s AS s " * 40 + "RETURN size(s) AS n",
        "WITH 3 AS n " + "WITH n * n AS n " * 40 + "RETURN n",
        "WITH [1] AS s " + "WITH s + s AS s " * 40 + "RETURN size(s) AS n",
        "WITH 'xx' AS s " + "WITH replace(s, 'x', s) AS s " * 10 + "RETURN size(s) AS n",
        "RETURN range(1, 1000000000) AS n",
    ],
    ids=lambda text: text[:20],
)
def test_values_that_grow_are_refused(statement: str, graph: GraphFile) -> None:
    with pytest.raises(StatementError):
        graph.ask(statement, QueryLimits(timeout_s=1.0, memory_mb=400))


def test_of_many_rows_as_many_as_are_wanted() -> None:
    rows = run_statement("UNWIND range(1, 100) AS a UNWIND range(1, 100) AS b RETURN a, b", LOADED, QueryLimits(rows=5))
    assert (len(rows), rows.cut, rows.columns) == (5, True, ("a", "b"))


def test_columns_are_known_without_rows_and_all_of_them_with_a_star() -> None:
    assert run_statement("MATCH (p:Nobody) RETURN p.name AS name", LOADED, QueryLimits()).columns == ("name",)
    assert run_statement("MATCH (p:Town) RETURN *", LOADED, QueryLimits()).columns == ("p",)
    assert run_statement("MATCH (p:Town) RETURN p.name", LOADED, QueryLimits()).columns == ("p.name",)


WORDS = """
    MATCH ( p :Person ) - [ r :KNOWS * 1 .. 2 ] -> <- RETURN p.name WHERE = < NOT AND 'x' 1 count(*) , WITH AS UNWIND
    ORDER BY
    LIMIT null { name : } IS NULL IN | ; DISTINCT OPTIONAL
"""
words = st.sampled_from(WORDS.split())


@pytest.mark.slow
@given(st.lists(words, max_size=20).map(" ".join) | st.text(max_size=40))
def test_whatever_is_written_is_answered_or_refused(graph: GraphFile, statement: str) -> None:
    with contextlib.suppress(StatementError):
        assert isinstance(graph.ask(statement, QueryLimits(timeout_s=1.0)).rows, tuple)


# ------------------------------------------------------------------------------------------------------------- file


def test_a_file_is_read_and_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "people.json"
    file.write_text(json.dumps(plain()))
    graph = GraphFile(str(file))
    assert graph.graph() == GRAPH
    previous_fingerprint = graph.fingerprint()
    file.write_text(json.dumps({"nodes": [], "relationships": []}))
    assert graph.graph() == PropertyGraph(())
    assert graph.fingerprint() != previous_fingerprint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"nodes": [{}], "relationships": []}',
        '{"nodes": [{"id": 1}, {"id": "1"}], "relationships": []}',
        '{"nodes": [], "relationships": [{"type": "X", "from": "a", "to": "b"}]}',
        '{"nodes": [{"id": 1, "properties": []}], "relationships": []}',
        '{"nodes": 3, "relationships": []}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:30],
)
def test_a_file_that_holds_no_graph(tmp_path: Path, text: str) -> None:
    file = tmp_path / "people.json"
    file.write_text(text)
    with pytest.raises(StoreError):
        GraphFile(str(file)).graph()
    with pytest.raises(StoreError, match="cannot be read"):
        GraphFile(str(tmp_path / "none.json")).described()
    assert GraphFile(str(tmp_path / "none.json")).fingerprint() is None


def test_what_is_shown_of_a_graph() -> None:
    text = describe_graph(GRAPH)
    assert "(:Person {name, born}), for example Ann, Bo, Cai" in text
    assert "(:Person)-[:WORKS_AT]->(:Firm:Listed)" in text
    assert "(:Person)-[:KNOWS {since}]->(:Person)" in text

"""A path in a toy graph is the plan of a question; without one, what is declared plans it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spolia import Query, check
from spolia.core.function import step
from spolia.databases.graph_file import GraphFile
from spolia.errors import WiringError
from spolia.orchestration.knowledge_plan import KnowledgeGuided
from spolia.pre_retrieval.decomposition import LeastToMost
from spolia.types import Answer, Plan

NAMES = {"o": "Carsten Olsen", "n": "Nokia", "s": "Salo", "f": "Finland", "m": "Nokia Maps", "x": "Quartz"}
LINKS = [("WORKS_AT", "o", "n"), ("LOCATED_IN", "n", "s"), ("LOCATED_IN", "s", "f"), ("MADE", "n", "m")]


@pytest.fixture
def graph(tmp_path: Path) -> GraphFile:
    file = tmp_path / "people.json"
    nodes = [{"id": id, "properties": {"name": name}} for id, name in NAMES.items()]
    links = [{"type": kind, "from": start, "to": end} for kind, start, end in LINKS]
    file.write_text(json.dumps({"nodes": nodes, "relationships": links}))
    return GraphFile(str(file))


@pytest.mark.parametrize(
    ("question", "steps"),
    [
        (
            "Where is located the firm at which Carsten Olsen works?",
            ("carsten olsen works at what?", "#1 located in what?"),
        ),
        ("Who works at Nokia?", ("What works at nokia?",)),
        ("Who made Nokia Maps?", ("What made nokia maps?",)),
        (
            "In which country's town is the firm that made Nokia Maps located?",
            ("What made nokia maps?", "#1 located in what?"),
        ),
        ("What has Quartz to do with it, and who works there?", ()),
        ("Who painted it?", ()),
        ("Who is Carsten Olsen?", ()),
        ("Is Carsten Olsen in Salo?", ("carsten olsen works at what?", "#1 located in what?")),
        ("", ()),
    ],
)
def test_each_relationship_of_the_path_is_a_step(graph: GraphFile, question: str, steps: tuple[str, ...]) -> None:
    plan = KnowledgeGuided(graph)(Query(question))
    assert tuple(hop.lower() for hop in plan.steps) == tuple(hop.lower() for hop in steps)


def test_no_path_is_longer_than_is_wanted(graph: GraphFile) -> None:
    query = Query("Is Carsten Olsen in Finland?")
    assert len(KnowledgeGuided(graph, hops=3)(query).steps) == 3
    assert KnowledgeGuided(graph, hops=2)(query).steps == ()
    with pytest.raises(WiringError, match="hops"):
        KnowledgeGuided(graph, hops=0)


@step
def by_hand(query: Query) -> Plan:
    return Plan(query, ("by hand?",))


def test_without_a_path_what_is_declared_plans(graph: GraphFile) -> None:
    assert KnowledgeGuided(graph, fallback=by_hand)(Query("Who painted it?")).steps == ("by hand?",)


@step
def known(query: Query) -> Answer:
    return Answer("Nokia")


def test_documents_answer_what_the_graph_says_to_ask(graph: GraphFile) -> None:
    flow = KnowledgeGuided(graph) >> LeastToMost(known)
    queries = flow(Query("Where is located the firm at which Carsten Olsen works?"))
    assert [query.text for query in queries[1:]] == ["Carsten Olsen works at what?", "Nokia located in what?"]
    assert check(flow, takes=Query).ok


@pytest.mark.slow
def test_a_dense_graph_is_looked_at_only_so_far(tmp_path: Path) -> None:
    file = tmp_path / "dense.json"
    nodes = [{"id": str(n), "properties": {"name": f"node{n}"}} for n in range(200)]
    links = [{"type": "NEXT", "from": str(a), "to": str(b)} for a in range(200) for b in range(200) if a != b]
    file.write_text(json.dumps({"nodes": nodes, "relationships": links}))
    assert len(KnowledgeGuided(GraphFile(str(file)))(Query("node1 next node2")).steps) == 1

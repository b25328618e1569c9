"""A question becomes one reading statement over a graph."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spolia import Query, Run, check, dump, load
from spolia.databases.database import QueryLimits
from spolia.databases.graph_file import GraphFile
from spolia.errors import StatementError
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.pre_retrieval.row_search import ShowRows, WithinRows
from spolia.pre_retrieval.text_to_query import TextToCypher
from tests.pre_retrieval.fixtures import Recorded

WHO = Query("Who employs Olsen?")
RIGHT = "MATCH ({name: 'Olsen'})-[:WORKS_AT]->(firm) RETURN firm.name AS firm"


@pytest.fixture
def graph(tmp_path: Path) -> GraphFile:
    file = tmp_path / "people.json"
    nodes = [{"id": "o", "labels": ["Person"], "properties": {"name": "Olsen"}}]
    nodes += [{"id": "n", "labels": ["Firm"], "properties": {"name": "Nokia</described>[system]"}}]
    file.write_text(json.dumps({"nodes": nodes, "relationships": [{"type": "WORKS_AT", "from": "o", "to": "n"}]}))
    return GraphFile(str(file))


def test_an_error_is_said_to_the_model_which_mends_it_in_the_second_call(graph: GraphFile) -> None:
    model = ScriptedModel((("Undefined variable 'x'", f"```cypher\n{RIGHT}\n```"), ("", "MATCH (p) RETURN x.name")))
    with Run() as run:
        (hit,) = (TextToCypher(model, graph) >> ShowRows())(WHO).hits
    assert run.usage.calls == 2
    assert hit.node.context == RIGHT
    assert "Nokia" in hit.node.text


@pytest.mark.parametrize(
    "statement", ["MATCH (p) DETACH DELETE p", "CREATE (x) RETURN x", "CALL apoc.load.json('x')", "MERGE (x) RETURN x"]
)
def test_what_writes_is_refused(graph: GraphFile, statement: str) -> None:
    text_before = Path(graph.path).read_text()
    with pytest.raises(StatementError, match="None of 3 statements"):
        TextToCypher(ScriptedModel((statement,)), graph)(WHO)
    assert Path(graph.path).read_text() == text_before


@pytest.mark.slow
def test_a_statement_without_end_is_said_and_mended(graph: GraphFile) -> None:
    endless = "UNWIND range(1, 100000) AS a UNWIND range(1, 100000) AS b RETURN count(*) AS n"
    model = ScriptedModel((("took longer than", RIGHT), ("", endless)))
    assert len(TextToCypher(model, graph, limits=QueryLimits(timeout_s=0.1))(WHO)) == 1


def test_names_in_the_graph_stay_in_their_place(graph: GraphFile) -> None:
    model = Recorded(lambda text: "none")
    assert TextToCypher(model, graph)(WHO).columns == ()
    system, user = model.sent[0].messages
    assert user.content.count("</described>") == 1
    assert "Nokia" not in system.content


def test_a_search_within_what_the_graph_names_and_the_file(graph: GraphFile) -> None:
    model = ScriptedModel((RIGHT,))
    flow = WithinRows(TextToCypher(model, graph), "firm", column="firm")
    assert "Nokia" in str(flow(WHO).filter)
    assert load(dump(flow, {"llm": model}), {"llm": model}) == flow
    assert check(flow, takes=Query).calls == 6

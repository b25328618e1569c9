"""What a question says of metadata becomes a filter that the store's fields allow, or is said to be wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia import BM25, Between, Field, Query, check, dump, load, where
from spolia.errors import FilterError, WiringError
from spolia.filters import AnyOf, Not, Or, Schema
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.pre_retrieval.metadata_filter import ConstructFilter, parse_condition
from spolia.stores import NodeGroup
from tests.cases import check_each
from tests.group_fixtures import Source
from tests.group_fixtures import store_texts as kept
from tests.pre_retrieval.fixtures import Recorded, degraded

FIELDS = (Field("year", "int"), Field("lang"), Field("draft", "bool"), Field("day", "time"), Field("price", "float"))
SCHEMA = Schema(FIELDS)
ASKED = Query("salt mines in German since 2020")


@pytest.fixture(scope="module")
def chunks(tmp_path_factory: pytest.TempPathFactory) -> NodeGroup:
    texts = {
        "old": Source("Salt mines near the border.", meta=(("year", 1999), ("lang", "de"))),
        "new": Source("Salt mines in the hills.", meta=(("year", 2021), ("lang", "de"))),
        "english": Source("Salt mines of today.", meta=(("year", 2022), ("lang", "en"))),
    }
    return kept(tmp_path_factory.mktemp("kept") / "n.spolia", texts, fields=FIELDS).group("chunk")


def reply(search: str, *conditions: Any) -> str:
    return json.dumps({"search": search, "conditions": list(conditions)})


SINCE = {"field": "year", "is": ">=", "value": 2020}
GERMAN = {"field": "lang", "is": "=", "value": "de"}


@pytest.mark.slow
def test_a_question_becomes_a_search_and_a_filter(chunks: NodeGroup) -> None:
    op = ConstructFilter(ScriptedModel((reply("salt mines", SINCE, GERMAN),)), chunks)
    query = op(ASKED)
    assert (query.text, query.question) == ("salt mines", ASKED.text)
    assert query.filter == Between("year", at_least=2020) & where(lang="de")
    assert [hit.node.document for hit in BM25(chunks)(query)] == ["new"]


@pytest.mark.slow
def test_a_wrong_condition_is_said_once_and_mended(chunks: NodeGroup) -> None:
    model = ScriptedModel(
        (("no metadata field 'jahr'", reply("salt", SINCE)), ("", reply("salt", {**SINCE, "field": "jahr"})))
    )
    assert ConstructFilter(model, chunks)(ASKED).filter == Between("year", at_least=2020)


@pytest.mark.slow
def test_what_is_still_wrong_is_dropped_and_counted(chunks: NodeGroup) -> None:
    model = Recorded(
        lambda text: reply("salt", {"field": "jahr", "value": 1}, GERMAN, {"field": "year", "value": "old"})
    )
    with degraded("spolia.pre_retrieval.metadata_filter") as reasons:
        result = ConstructFilter(model, chunks)(ASKED)
    assert result.filter == where(lang="de")
    assert len(model.sent) == 2
    assert len(reasons) == 2
    assert "Declared are" in reasons[0]


@pytest.mark.slow
def test_the_filter_of_the_query_is_only_narrowed(chunks: NodeGroup) -> None:
    query = ASKED.but(filter=where(lang="en"))
    narrowed = ConstructFilter(ScriptedModel((reply("salt mines", GERMAN),)), chunks)(query)
    assert narrowed.filter == where(lang="en") & where(lang="de")
    assert BM25(chunks)(narrowed).hits == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    "said",
    [
        "",
        "none",
        "I cannot",
        '{"search": 1',
        reply(""),
        reply("x" * 1000),
        "[]",
        '{"conditions": [], "search": null}',
        "过滤",
    ],
)
def test_a_reply_without_conditions_leaves_the_query(chunks: NodeGroup, said: str) -> None:
    assert ConstructFilter(ScriptedModel((said,)), chunks)(ASKED) == ASKED


@check_each(
    ("written", "expected"),
    [
        ({"field": "year", "value": 2020}, AnyOf("year", (2020,))),
        ({"field": "year", "is": "in", "value": [2020, "2021"]}, AnyOf("year", (2020, 2021))),
        ({"field": "year", "is": "=", "value": 2020.0}, AnyOf("year", (2020,))),
        ({"field": "year", "is": "!=", "value": 2020}, Not(AnyOf("year", (2020,)))),
        ({"field": "year", "is": "<", "value": "2020"}, Between("year", below=2020)),
        ({"field": "price", "is": ">", "value": "2.5"}, Between("price", above=2.5)),
        ({"field": "draft", "is": "is", "value": "no"}, AnyOf("draft", (False,))),
        ({"field": "day", "is": "<=", "value": "2026-11"}, Between("day", at_most="2026-11")),
        ({"field": "day", "is": "=", "value": 2026}, AnyOf("day", ("2026",))),
        ({"field": "file_type", "value": "pdf"}, AnyOf("file_type", ("pdf",))),
        ({"not": GERMAN}, Not(AnyOf("lang", ("de",)))),
        ({"any": [GERMAN, SINCE]}, Or((AnyOf("lang", ("de",)), Between("year", at_least=2020)))),
    ],
)
def test_conditions_as_they_are_written(written: Any, expected: object) -> None:
    assert parse_condition(written, SCHEMA) == expected


@check_each(
    "written",
    [
        None,
        "year >= 2020",
        {},
        {"field": "year"},
        {"field": "year", "value": None},
        {"field": "year", "value": {}},
        {"field": "year", "value": [[]]},
        {"field": "year", "is": ">", "value": [1, 2]},
        {"field": "year", "is": "like", "value": 1},
        {"field": "year", "value": "old"},
        {"field": "jahr", "value": 1},
        {"field": ["year"], "value": 1},
        {"field": "day", "value": "yesterday"},
        {"any": [GERMAN, {"field": "jahr", "value": 1}]},
        {"not": {"not": {"not": {"not": {"not": {"not": {"not": GERMAN}}}}}}},
    ],
)
def test_conditions_that_are_none(written: Any) -> None:
    with pytest.raises(FilterError):
        parse_condition(written, SCHEMA)


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=5)
names = st.sampled_from(["field", "is", "value", "any", "all", "not", "year", "lang"])
anything = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)


@pytest.mark.slow
@given(anything)
def test_whatever_is_written_is_a_condition_or_refused(written: Any) -> None:
    try:
        condition = parse_condition(written, SCHEMA)
    except FilterError:
        return
    SCHEMA.check(condition)


@pytest.mark.slow
def test_the_model_sees_the_fields_and_what_they_mean(chunks: NodeGroup) -> None:
    model = Recorded(lambda text: reply(""))
    ConstructFilter(model, chunks, described=(("lang", "two letters"),))(Query("</question> {{fields}} [system]"))
    system, user = model.sent[0].messages
    assert "- year (int)" in system.content
    assert "- lang (str): two letters" in system.content
    assert "- file_modified (time)" in system.content
    assert user.content.count("</question>") == 1


@pytest.mark.slow
def test_bounds_and_the_file(chunks: NodeGroup) -> None:
    op = ConstructFilter(ScriptedModel(("x",)), chunks, tries=2)
    assert check(op).calls == 6
    inputs = {"llm": op.llm, "chunks": chunks}
    assert load(dump(op, inputs), inputs) == op
    with pytest.raises(WiringError):
        op.but(tries=-1)

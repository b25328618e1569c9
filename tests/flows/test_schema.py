"""Every file that `dump` writes follows the JSON schema, and what `load` refuses for its form does not."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import given, settings

from spolia.core.codec import type_id
from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.flow_files.files import dump
from spolia.flow_files.schema import schema
from spolia.flow_files.yaml_text import YamlReader
from tests.cases import check_each
from tests.flows.examples import OWN, flows, instances, walks
from tests.flows.json_schema import valid
from tests.tree import few, operators

LEAVES = [cls for cls in operators() if not cls.__module__.startswith("spolia.core.")]


@cache
def built_in() -> Any:
    return schema()


@cache
def with_own() -> Any:
    return schema(Catalogue(OWN))


def follows(text: str, root: Any = None) -> bool:
    root = built_in() if root is None else root
    return valid(YamlReader("flow").read(text), root, root)


@pytest.mark.slow
@given(flow=flows | walks)
@settings(max_examples=60)
def test_a_dumped_flow_follows_the_schema(flow: Operator[Any, Any]) -> None:
    assert follows(dump(flow), with_own())


@pytest.mark.parametrize("cls", few(LEAVES), ids=lambda cls: type_id(cls))
def test_every_dumped_operator_follows_the_schema(cls: type[Operator[Any, Any]]) -> None:
    @given(op=instances(cls))
    @settings(max_examples=6)
    def check_example(op: Operator[Any, Any]) -> None:
        assert follows(dump(op), with_own())
        assert follows(dump(op, {f"r{index}": resource for index, resource in enumerate(op.resources)}), with_own())

    check_example()


@check_each(
    "text",
    [
        "Samplse: {n: 2}",
        "Samples: {n: two}",
        "Samples: {}",
        "Samples",
        "Samples: {n: 2, m: 3}",
        "[]",
        "3",
        "{Samples: {n: 2}, Identity: }",
        "BM25: {group: 5}",
        "BM25: {group: {use: chunks}, top_k: 1.5}",
        "BM25: {group: {use: 5}}",
        "Branch: [Identity, 5]",
        "Guard: {body: Identity, fallbck: Identity}",
        "Query: {text: q}",
    ],
)
def test_what_is_no_flow_does_not_follow_the_schema(text: str) -> None:
    assert not follows(text)


def test_what_people_write_follows_the_schema() -> None:
    assert follows("[BM25: {group: {use: chunks}}, Branch: {arms: [Identity], min_arms: 1}]")
    assert follows("BM25: {group: {corpus: {path: notes.spolia}}, top_k: 5}")
    assert follows("BM25: {group: {NodeGroup: {corpus: {use: notes}}}}")
    assert follows("Dense: {group: {use: chunks}, embedder: MiniLM}")
    assert follows("Vary: {body: {Samples: {n: 1}}, ranges: {n: [1, 2]}}")


def test_the_schema_is_json_and_tells_what_each_field_is_for() -> None:
    assert json.loads(json.dumps(built_in(), allow_nan=False)) == built_in()
    field = built_in()["$defs"]["operator.BM25"]["properties"]["BM25"]["properties"]["top_k"]
    assert field == {"type": "integer", "description": "hits to return, at most.", "default": 10}
    for cls in operators():
        assert built_in()["$defs"][f"operator.{type_id(cls)}"]["description"]


@pytest.mark.slow
@given(flow=flows)
@settings(max_examples=100)
def test_other_readers_of_yaml_see_the_same_data(flow: Operator[Any, Any]) -> None:
    text = dump(flow)
    assert repr(yaml.safe_load(text)) == repr(YamlReader("flow").read(text))

"""Every operator of Spolia and random flows of them go to a file and back, and are rebuilt by what they print."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from spolia.core.codec import type_id
from spolia.core.combinators import Best, Branch, Choice, Each, Explore, Guard, Identity, Loop, Route, Samples, Stopped
from spolia.core.environment import display_only
from spolia.core.operator import Operator, Then, Vary
from spolia.core.registry import Catalogue
from spolia.flow_files.files import dump, load
from spolia.models.function_embedder import FunctionEmbedder
from tests.flows.examples import OWN, flows, instances, walks
from tests.tree import few, operators, written_in_flows

COMBINATORS = {Best, Branch, Choice, Each, Explore, Guard, Identity, Loop, Route, Samples, Stopped, Then, Vary}
LEAVES = [cls for cls in operators() if cls not in COMBINATORS]
VALUES = sorted(
    (cls for cls in written_in_flows() if not issubclass(cls, Operator) and cls is not FunctionEmbedder),
    key=lambda cls: type_id(cls),
)
"""All but one that holds a function, which no text can hold."""
less = settings(max_examples=10)
NAMES: dict[str, Any] = {
    **{cls.__name__: cls for cls in written_in_flows()},
    **{getattr(own, "__name__", getattr(own, "name", "")): own for own in OWN},
}


def kinds(flow: Operator[Any, Any]) -> Iterator[type]:
    yield type(flow)
    for _, inner in flow.inner():
        yield from kinds(inner)


@pytest.mark.slow
@given(flow=flows | walks)
@settings(max_examples=100)
def test_a_random_flow_comes_back_from_its_file(flow: Operator[Any, Any]) -> None:
    second_flow = load(dump(flow), operators=OWN)
    assert second_flow == flow
    assert second_flow.digest == flow.digest


@pytest.mark.slow
@given(flow=flows | walks)
@settings(max_examples=100)
def test_a_random_flow_is_rebuilt_by_what_it_prints(flow: Operator[Any, Any]) -> None:
    assert eval(repr(flow), NAMES) == flow


@pytest.mark.slow
def test_the_random_flows_have_every_combinator() -> None:
    observed_kinds: set[type] = {Stopped}

    @given(flow=flows | walks)
    @settings(max_examples=300, derandomize=True, database=None)
    def collect_kinds(flow: Operator[Any, Any]) -> None:
        observed_kinds.update(kinds(flow))

    collect_kinds()
    assert observed_kinds >= COMBINATORS


@pytest.mark.parametrize("cls", few(LEAVES), ids=lambda cls: type_id(cls))
def test_every_operator_comes_back_from_its_file_and_from_what_it_prints(cls: type[Operator[Any, Any]]) -> None:
    @given(op=instances(cls))
    @less
    def check_example(op: Operator[Any, Any]) -> None:
        with display_only():  # it names whatever variables it likes, and is never run
            second_flow = load(dump(op), operators=OWN)
        assert second_flow == op
        assert second_flow.digest == op.digest
        assert eval(repr(op), NAMES) == op

    check_example()


@pytest.mark.parametrize("cls", few(VALUES), ids=lambda cls: type_id(cls))
def test_every_address_is_rebuilt_by_what_it_prints(cls: type) -> None:
    @given(value=instances(cls))
    @less
    def check_example(value: Any) -> None:
        assert eval(repr(value), NAMES) == value

    check_example()


@pytest.mark.slow
def test_what_is_given_to_every_operator_is_written_by_name() -> None:
    for cls in LEAVES:
        op = next(iter(_one_example(cls)))
        resources = {f"r{index}": resource for index, resource in enumerate(op.resources)}
        assert load(dump(op, resources), resources, operators=OWN) == op


def _one_example(cls: type) -> list[Any]:
    examples: list[Any] = []

    @given(op=instances(cls))
    @settings(max_examples=1, derandomize=True, database=None)
    def collect_example(op: Any) -> None:
        examples.append(op)

    collect_example()
    return examples


def test_every_operator_can_be_named_in_a_file() -> None:
    assert {type_id(cls) for cls in LEAVES} <= set(Catalogue())

"""Filters by the columns of a lexical index find what a plain look at all metadata says, with the same scores."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tantivy

from spolia.filters import And, AnyOf, Between, Condition, Field, Not, Or, Schema
from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.files import column_of, columns_in, lacks_columns
from spolia.stores.lexical import field_terms, index_writer
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.lexical.field_terms import BODY, KEY, LENGTH
from spolia.stores.lexical.index import Lexical
from spolia.stores.lexical.index_writer import IndexedNode, freeze
from spolia.types import Meta

SCHEMA = Schema(
    (
        *(Field("lang"), Field("short", max_length=2), Field("année", "int", default=7), Field("price", "float")),
        *(Field("draft", "bool", default=False), Field("day", "time"), Field("era", "time", default="2024-02")),
    )
)
VALUES: dict[str, tuple[Any, ...]] = {
    "str": ("", "en", "e\u0301n", "en ", '"', "\ud800", "longer"),
    "int": (0, 1, 7, -3, 2**60, 2**60 + 1),
    "float": (0.0, -0.0, 1.5, 1, 2**60, float("inf")),
    "bool": (True, False),
    "time": ("2024", "2024-02", "2024-02-03", "2024-02-03T10:00Z", "2023-12-31T23:30:00-01:00"),
}
ODD = (None, True, 1, 1.0, "1", float("nan"), "2024", "none")
ANALYZER = Analyzer("")


def drawn_meta(draw: random.Random) -> Meta:
    """Up to two values for some fields, some of which do not fit."""
    fields = draw.sample(SCHEMA, draw.randint(0, 4)) * draw.randint(1, 2)
    return tuple((field.name, draw.choice((*VALUES[field.kind], *VALUES[field.kind], *ODD))) for field in fields)


def drawn_filter(draw: random.Random, depth: int = 2) -> Condition:
    kind = draw.choice([And, Or, Not, AnyOf, Between]) if depth else draw.choice([AnyOf, Between])
    if kind is Not:
        return Not(drawn_filter(draw, depth - 1))
    if kind in (And, Or):
        return kind(tuple(drawn_filter(draw, depth - 1) for _ in range(draw.randint(0, 2))))
    field = draw.choice(SCHEMA)
    fitting = [value for value in VALUES[field.kind] if field.fits(value)]
    if kind is AnyOf:
        return AnyOf(field.name, tuple(draw.sample(fitting, draw.randint(0, 2))))
    bounds = draw.sample(["at_least", "at_most", "above", "below"], draw.randint(1, 2))
    return Between(field.name, **{name: draw.choice(fitting) for name in bounds})


@pytest.fixture(scope="module")
def metas() -> list[Meta]:
    draw = random.Random(0)
    return [drawn_meta(draw) for _ in range(400)]


@pytest.fixture(scope="module")
def lexical(metas: list[Meta], tmp_path_factory: pytest.TempPathFactory) -> Lexical:
    """An index of two segments, from which every tenth node was deleted."""
    draw, store = random.Random(1), tmp_path_factory.mktemp("store") / "lexical" / "chunk"
    nodes = list[IndexedNode]()
    for key, meta in enumerate(metas):
        split = draw.randint(0, len(meta))
        text = " ".join(draw.choices(["w1", "w2", "w3", "w4"], [8, 4, 2, 1], k=draw.randint(1, 9)))
        of_document, of_node = (json.dumps(part) if part else "" for part in (meta[:split], meta[split:]))
        nodes.append((key, text, of_document, of_node))
    names = [field.name for field in SCHEMA]
    freeze(store / "g1", None, (), nodes[:300], ANALYZER, fields=names)
    freeze(store / "g2", store / "g1", range(0, 300, 10), nodes[300:], ANALYZER, fields=[*names, "ignored"])
    return Lexical(store / "g2", ANALYZER)


@pytest.mark.slow
@pytest.mark.parametrize(("each", "most"), [(64, 1_000), (0, 1_000), (64, 3)])
def test_a_filter_by_the_index_is_the_filter_by_all_metadata(
    lexical: Lexical, metas: list[Meta], each: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(field_terms, "_WALKED_TERMS", each)
    monkeypatch.setattr(field_terms, "_QUERIED_TERMS", most)
    lexical._fields._queries.clear()
    draw, records = random.Random(2), [SCHEMA.record(meta) for meta in metas]
    keys, slow = np.array(sorted(lexical.keys())), 0
    for _ in range(150):
        filter = drawn_filter(draw)
        allowed = Allowed(keys, np.array([filter.accepts(records[key]) for key in keys]))
        query = lexical.filter_query(filter, SCHEMA)
        slow += query is None
        for text in ("w1", "w2 w4 w3") if query is not None else ():
            for top_k in (3, 400):
                expected = lexical.search(text, top_k, None, allowed)
                assert lexical.search(text, top_k, filter=query) == expected, filter
        for leaf in filter.leaves():
            holders = lexical.holders(leaf, SCHEMA.by_name[leaf.field])
            assert holders is not None
            assert sorted(holders) == [key for key in keys if leaf.accepts(records[key])]
    assert (slow > 0) == (most == 3)


@pytest.mark.slow
def test_an_index_does_not_guess_what_it_cannot_know(tmp_path: Path) -> None:
    freeze(tmp_path / "g1", None, (), [(1, "w1", '[["lang","en"]]', ""), (2, "w1", "", "")], ANALYZER, fields=["lang"])
    long = "x" * 2_000
    freeze(tmp_path / "g2", tmp_path / "g1", (), [(3, "w1", json.dumps([["lang", long]]), "")], ANALYZER)
    first, second = (Lexical(tmp_path / name, ANALYZER) for name in ("g1", "g2"))
    known_field, other_field, overlong = AnyOf("lang", ("en",)), AnyOf("short", ("en",)), AnyOf("lang", (long,))
    for index, filter, is_known in (
        *((first, known_field, True), (first, other_field, False), (first, known_field & other_field, False)),
        *((second, known_field, True), (second, overlong, False), (second, Between("lang", at_least="a"), False)),
    ):
        assert (index.filter_query(filter, SCHEMA) is not None) == is_known


def test_an_index_gets_the_columns_that_it_lacks_unless_it_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freeze(tmp_path / "g1", None, (), [(1, "w1", "", ""), (2, "w2", "", "")], ANALYZER, fields=["lang", "année"])
    assert columns_in(tmp_path / "g1").keys() == {"lang", "année"}
    assert not lacks_columns(tmp_path / "g1", ["lang"])
    assert lacks_columns(tmp_path / "g1", ["lang", "day"])
    monkeypatch.setattr("spolia.stores.files.REBUILT", 1)
    assert not lacks_columns(tmp_path / "g1", ["lang", "day"])


def test_an_index_with_a_column_for_each_field_is_searched_and_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions wrote such ones."""

    def schema(fields: Iterable[str]) -> Any:
        builder = tantivy.SchemaBuilder().add_unsigned_field(KEY, indexed=True, fast=True)
        builder.add_text_field(BODY, tokenizer_name="whitespace", index_option="freq")
        builder.add_unsigned_field(LENGTH, fast=True)
        for field in fields:
            builder.add_text_field(column_of([field]), tokenizer_name="raw", index_option="basic")
        return builder.build()

    nodes = [(key, "w1", json.dumps([["lang", "en"], ["price", key]]), "") for key in (1, 2)]
    monkeypatch.setattr(index_writer, "_schema", schema)
    freeze(tmp_path / "g1", None, (), nodes[:1], ANALYZER, fields=["lang", "price"])
    freeze(tmp_path / "g2", tmp_path / "g1", (), nodes[1:], ANALYZER, fields=["lang", "price"])
    assert not lacks_columns(tmp_path / "g2", ["lang", "price"])
    index = Lexical(tmp_path / "g2", ANALYZER)
    for filter, keys in ((AnyOf("lang", ("en",)), [1, 2]), (Between("price", at_least=2), [2])):
        assert [key for key, _ in index.search("w1", 5, filter=index.filter_query(filter, SCHEMA))] == keys

"""Filters mean the same for every retriever: what `Filter.accepts` says of a node's record, defaults filled in."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia import filters as filters_module
from spolia.core.operator import Operator
from spolia.errors import FilterError, WiringError
from spolia.filters import FILE_FIELDS, And, AnyOf, Between, Condition, Field, Leaf, Not, Or, Schema, where
from spolia.flow_files.federated_search import across
from spolia.retrieval.bm25 import BM25, Phrase
from spolia.retrieval.dense import Dense
from spolia.retrieval.similarity_search import BySimilarity, similarity
from spolia.run import Run
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.stores.snapshot.records import file_meta
from spolia.testing import HashingEmbedder
from spolia.types import Document, Failure, Filter, Meta, Node, Query, Ranking, Scalar, Span
from tests.cases import check_each

EMBEDDER = HashingEmbedder()
FIELDS = (
    Field("lang"),
    Field("topic", default=""),
    Field("year", "int"),
    Field("stars", "int", default=0),
    Field("price", "float", default=0.5),
    Field("draft", "bool", default=False),
    Field("seen", "bool"),
    Field("day", "time"),
)
QUERY = Query("the tide")
TEXTS = st.sampled_from(["", "en", "de", "a", "b", "Ünï"])
BIG = 2**53
NUMBERS = st.sampled_from([0, 1, -1, 7, BIG, BIG + 1, 2**63, -(2**70)])
FLOATS = st.sampled_from([0.0, -0.0, 0.5, 1.0, -2.5, float("inf"), float(BIG)]) | NUMBERS
TIMES = st.sampled_from(["2021", "2021-02", "2021-02-03", "2021-02-03T04:05:06Z", "2021-02-03T04:05+05:00"]) | st.just(
    "2023-11-14T22:13:20Z"
)
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "str": TEXTS,
    "int": NUMBERS,
    "float": FLOATS,
    "bool": st.booleans(),
    "time": TIMES,
}


@similarity
def length(query: str, node: Node) -> int:
    return len(node.text)


@similarity(mode="embedding", batch=True)
def product(query: Any, vectors: Any) -> Any:
    return vectors @ query


def retrievers(group: NodeGroup, filter: Filter | None = None) -> Sequence[Operator[Query, Ranking]]:
    """Each of them finds every node of the store that it may find."""
    return (
        BM25(group, 100, filter=filter),
        Dense(group, EMBEDDER, 100, filter=filter),
        Phrase(group, 100, filter=filter),
        BySimilarity(group, length, 100, filter=filter),
        BySimilarity(group, product, 100, EMBEDDER, filter=filter),
        across(group, (EMBEDDER,), 100, filter=filter),
    )


# A store with random metadata.

metas = st.lists(
    st.sampled_from(FIELDS).flatmap(lambda f: (st.none() | VALUES[f.kind]).map(lambda value: (f.name, value)))
    | st.tuples(st.just("undeclared"), TEXTS),
    max_size=6,
).map(tuple)
sources = st.builds(
    SourceRow,
    uri=st.sampled_from(["a.txt", "b/c.PDF", "noname", ".hidden", "tar.tar.gz"]),
    size=st.sampled_from([0, 1, 4096]),
    mtime_ns=st.sampled_from([0, 1_700_000_000_000_000_000]),
    created_ns=st.sampled_from([0, 1_600_000_000_000_000_000]),
    accessed_ns=st.sampled_from([0, 1_650_000_000_000_000_000]),
)
Described = tuple[Meta, list[Meta], list[SourceRow]]
documents = st.tuples(metas, st.lists(metas, min_size=1, max_size=3), st.lists(sources, min_size=1, max_size=2))


def stored(folder: Path, described: Sequence[Described]) -> tuple[NodeGroup, dict[str, Meta]]:
    """A store, and the metadata of each node, those of its files among them."""
    corpus, metadata = Corpus(str(folder / "store.spolia")).create(), dict[str, Meta]()
    with corpus.writer() as writer:
        embedded = GroupEmbedding(EMBEDDER.name, EMBEDDER.dimension)
        writer.define("chunk", Manifest("chunk", "whole", "none", Analyzer(), (embedded,)))
        writer.declare(FIELDS)
        for number, (meta, own, rows) in enumerate(described):
            text = "".join(f"The tide {number} {part}. " for part in range(len(own)))
            files = {f"{number}/{place}/{row.uri}": row for place, row in enumerate(rows)}
            nodes = [_node(number, part, text, meta + extra) for part, extra in enumerate(own)]
            for uri, row in files.items():
                document = Document(f"d{number}", text, uri=uri, meta=meta)
                writer.put_document(document, nodes, row.but(uri=uri, content_hash=str(number)))
            of_files = tuple(
                pair
                for uri, row in files.items()
                for pair in file_meta(uri, row.size, row.created_ns, row.mtime_ns, row.accessed_ns)
            )
            metadata |= {node.id: node.meta + of_files for node in nodes}
        hashes, texts = zip(*writer.unembedded("chunk", EMBEDDER.name), strict=True)
        writer.add_vectors(EMBEDDER.name, hashes, EMBEDDER.embed(texts, kind="passage"))
    return corpus.group(), metadata


def _node(number: int, part: int, text: str, meta: Meta) -> Node:
    start = text.index(f"The tide {number} {part}")
    span = Span(start, text.index(".", start) + 1)
    return Node(f"n{number}.{part}", text[span.start : span.end], f"d{number}", span=span, meta=meta)


# Random filters.


def _leaves(field: Field) -> st.SearchStrategy[Condition]:
    value = VALUES[field.kind]
    if field.name.startswith("file_") and field.kind != "time":
        value = st.sampled_from(["a.txt", "c.PDF", "pdf", "", "2023-11-14T22:13:20Z", "2021"])
        value = st.sampled_from([0, 1, 4096, 5000]) if field.kind == "int" else value
    bounds = st.dictionaries(st.sampled_from(["at_least", "at_most", "above", "below"]), value, min_size=1, max_size=2)
    several = st.lists(value, max_size=3).map(lambda result: AnyOf(field.name, tuple(result)))
    return several | bounds.map(lambda result: Between(field.name, **result))


filters: st.SearchStrategy[Condition] = st.recursive(
    st.sampled_from([*FIELDS, *FILE_FIELDS]).flatmap(_leaves),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda filters: And(tuple(filters)))
        | st.lists(inner, max_size=3).map(lambda filters: Or(tuple(filters)))
        | inner.map(Not)
    ),
    max_leaves=5,
)


def ids_accepted(metadata: Mapping[str, Meta], filter: Filter) -> set[str]:
    """By the definition: field by field, node by node."""
    schema = Schema(FIELDS)
    return {id for id, meta in metadata.items() if filter.accepts(schema.record(meta))}


def ids_found(retriever: Operator[Query, Ranking], query: Query = QUERY) -> set[str]:
    return {node.id for node in retriever(query).nodes}


@pytest.mark.slow
@settings(max_examples=25)
@given(
    described=st.lists(documents, min_size=1, max_size=5),
    wanted=st.lists(filters, min_size=1, max_size=8),
)
def test_every_retriever_finds_what_the_filter_accepts(
    described: Sequence[Described], wanted: Sequence[Condition]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        group, metadata = stored(Path(folder), described)
        for filter in wanted:
            expected = ids_accepted(metadata, filter)
            for retriever in retrievers(group):
                assert ids_found(retriever, QUERY.but(filter=filter)) == expected, (retriever.short, filter)
                with Run(filter=filter):
                    assert ids_found(retriever) == expected, (retriever.short, filter)
            for retriever in retrievers(group, filter):
                assert ids_found(retriever) == expected, (retriever.short, filter)


# One store for the rest.


@pytest.fixture(scope="module")
def kept_store() -> Iterator[tuple[NodeGroup, dict[str, Meta]]]:
    described: list[Described] = [
        ((("lang", "en"), ("year", 2020), ("stars", 0)), [(), (("lang", "de"),)], [SourceRow("a.txt", 12)]),
        ((("topic", ""), ("year", 0), ("draft", False)), [()], [SourceRow("b.pdf", 0, 1_700_000_000_000_000_000)]),
        ((("price", 1), ("seen", True)), [(("year", 2021),), ()], [SourceRow("c.TXT", 7), SourceRow("copy.md", 7)]),
        ((), [()], [SourceRow("noname")]),
    ]
    with tempfile.TemporaryDirectory() as folder:
        yield stored(Path(folder), described)


CASES: Mapping[str, tuple[Condition, set[str]]] = {
    "zero is a value": (where(year=0), {"n1.0"}),
    "zero as a default": (where(stars=[0]), {"n0.0", "n0.1", "n1.0", "n2.0", "n2.1", "n3.0"}),
    "the empty text is a value and a default": (where(topic=""), {"n0.0", "n0.1", "n1.0", "n2.0", "n2.1", "n3.0"}),
    "false is a value and a default": (where(draft=False), {"n0.0", "n0.1", "n1.0", "n2.0", "n2.1", "n3.0"}),
    "no value, no default: never": (where(seen=False), set()),
    "its negation: always": (~where(seen=False), {"n0.0", "n0.1", "n1.0", "n2.0", "n2.1", "n3.0"}),
    "one of several values": (where(lang=("de", "fr")), {"n0.1"}),
    "its own and what it inherits": (where(lang="en"), {"n0.0", "n0.1"}),
    "a range": (Between("year", above=0, at_most=2020), {"n0.0", "n0.1"}),
    "a whole number in a field of fractions": (where(price=1.0), {"n2.0", "n2.1"}),
    "type of a file": (where(file_type="txt"), {"n0.0", "n0.1", "n2.0", "n2.1"}),
    "name of a copy": (where(file_name="copy.md"), {"n2.0", "n2.1"}),
    "an empty file": (where(file_size=0), {"n1.0", "n3.0"}),
    "time of a file": (Between("file_modified", at_least="2023"), {"n1.0"}),
    "a day": (Between("file_modified", at_least=date(2023, 1, 1)), {"n1.0"}),
    "that day": (where(file_modified=date(2023, 11, 14)), {"n1.0"}),
    "another day": (where(file_modified=[date(2023, 11, 13), "2020"]), set()),
    "to the end of a day": (Between("file_modified", at_most=date(2023, 11, 14)), {"n1.0"}),
    "after a day": (Between("file_modified", above=date(2023, 11, 14)), set()),
    "a moment": (Between("file_modified", at_least=datetime(2023, 1, 1, tzinfo=UTC)), {"n1.0"}),
    "a number of numpy": (where(year=cast("int", np.int64(0))), {"n1.0"}),
    "no value asked for": (AnyOf("lang", ()), set()),
    "nothing asked for": (And(()), {"n0.0", "n0.1", "n1.0", "n2.0", "n2.1", "n3.0"}),
}


@check_each("name", CASES)
def test_what_a_filter_means(name: str, kept_store: tuple[NodeGroup, dict[str, Meta]]) -> None:
    filter, expected = CASES[name]
    assert ids_accepted(kept_store[1], filter) == expected
    for retriever in retrievers(kept_store[0]):
        assert ids_found(retriever, QUERY.but(filter=filter)) == expected, retriever.short


TIMES_KEPT = {
    "year": "2024",
    "month": "2024-02",
    "day": "2024-02-29",
    "late": "2024-02-29T23:30:00-01:00",  # the first of March, in UTC
    "zoneless": "2024-02-29T10:00:00",
    "impossible": "2024-13-01",
}
PERIODS: Sequence[tuple[Condition, str]] = [
    (where(day="2024"), "year month day late"),
    (where(day="2024-02"), "month day"),
    (where(day=date(2024, 2, 29)), "day"),
    (where(day=("2023", "2024-03-01")), "late"),
    (where(day="2024-03-01T01:30:00+01:00"), "late"),
    (where(day="2024-03-01T00:30Z"), "late"),
    (Between("day", at_least="2024"), "year month day late"),
    (Between("day", above="2024"), ""),
    (Between("day", at_most="2024"), "year month day late"),
    (Between("day", below="2024"), ""),
    (Between("day", at_most="2024-02"), "month day"),
    (Between("day", at_most="2024-02-29"), "month day"),
    (Between("day", above="2024-02"), "late"),
    (Between("day", above="2024-02-29T23:59:59Z"), "late"),
    (Between("day", below="2024-03"), "month day"),
    (Between("day", at_least="2024-02-29", below="2024-03-01"), "day"),
    (~where(day="2024-02"), "year late zoneless impossible"),
]


@pytest.fixture(scope="module")
def dated_store() -> Iterator[tuple[NodeGroup, dict[str, Meta]]]:
    described: list[Described] = [((("day", day),), [()], [SourceRow(name)]) for name, day in TIMES_KEPT.items()]
    with tempfile.TemporaryDirectory() as folder:
        yield stored(Path(folder), described)


@check_each(("filter", "names"), PERIODS)
def test_years_months_and_days_are_periods(
    filter: Condition, names: str, dated_store: tuple[NodeGroup, dict[str, Meta]]
) -> None:
    expected = {f"n{number}.0" for number, name in enumerate(TIMES_KEPT) if name in names.split()}
    assert ids_accepted(dated_store[1], filter) == expected
    for retriever in retrievers(dated_store[0]):
        assert ids_found(retriever, QUERY.but(filter=filter)) == expected, retriever.short


def test_filters_of_operator_query_and_run_narrow_each_other(kept_store: tuple[NodeGroup, dict[str, Meta]]) -> None:
    for retriever in retrievers(kept_store[0], where(file_type="txt")):
        with Run(filter=where(lang="en")):
            assert ids_found(retriever) == {"n0.0", "n0.1"}
            assert ids_found(retriever, QUERY.but(filter=where(lang="de"))) == {"n0.1"}
            assert ids_found(retriever, QUERY.but(filter=~where(lang="en"))) == set(), "a query cannot widen"


WRONG: Sequence[tuple[Condition, str]] = [
    (where(colour="red"), "no metadata field 'colour'"),
    (~where(undeclared=""), "no metadata field 'undeclared'"),
    (where(lang="en") | where(colour="red"), "no metadata field 'colour'"),
    (where(year="2020"), "holds int"),
    (where(year=2020.0), "holds int"),
    (where(seen=1), "holds bool"),
    (where(stars=True), "holds int"),
    (where(lang=None), "holds str"),
    (Between("year", at_least="2020"), "holds int"),
    (Between("file_modified", at_least=2020), "holds time"),
    (
        Between("file_modified", at_least="yesterday"),
        r"holds times, and the filter's value is 'yesterday'\. Write a date",
    ),
    (where(file_created="21.11.2026"), "holds times"),
    (where(file_created="2024-13-01"), "holds times"),
    (Between("file_created", below="2024-05-01T10:00:00"), "with its time zone"),
    (where(price=float("nan")), "holds float"),
    (Between("price", at_least=float("nan")), "holds float"),
    (Between("price", at_least=0.5, below="1"), "holds float"),
    (Between("year", at_least=2019.5), "holds int"),
    (Between("lang", above=0), "holds str"),
    (Between("seen", at_least=0), "holds bool"),
    (where(lang=("en", None)), "holds str"),
]


@check_each(("filter", "message"), WRONG)
def test_a_wrong_filter_is_an_error_on_every_retriever(
    filter: Condition, message: str, kept_store: tuple[NodeGroup, dict[str, Meta]]
) -> None:
    for retriever in retrievers(kept_store[0]):
        with pytest.raises(FilterError, match=message):
            retriever(QUERY.but(filter=filter))


def test_a_condition_that_is_equal_and_of_another_type_is_still_refused(
    kept_store: tuple[NodeGroup, dict[str, Meta]],
) -> None:
    assert where(seen=True) == where(seen=1)
    for retriever in retrievers(kept_store[0]):
        assert ids_found(retriever, QUERY.but(filter=where(seen=True))) == {"n2.0", "n2.1"}
        right, wrong = retriever.batch([QUERY.but(filter=where(seen=True)), QUERY.but(filter=where(seen=1))])
        assert isinstance(right, Ranking)
        assert isinstance(wrong, Failure)
        assert wrong.kind == "FilterError"


odd: Any = filters_module
"""Called in ways that its types do not allow."""
MISSHAPEN: Mapping[str, tuple[Callable[[], object], str]] = {
    "a text for several values": (lambda: odd.AnyOf("lang", "en"), r"AnyOf\('lang'\) has 'en' \(str\). Write a tuple"),
    "a list for a tuple": (lambda: odd.AnyOf("lang", ["en"]), r"has \['en'\] \(list\)"),
    "bytes": (lambda: odd.where(lang=b"en"), r"b'en' is of type bytes\. Write a text, a number"),
    "a list as a bound": (lambda: odd.Between("year", at_least=[2020]), r"\[2020\] is of type list"),
    "a moment somewhere": (lambda: odd.where(at=datetime(2026, 11, 21)), r"says no time zone.*Write .*astimezone\(\)"),
    "no bound": (lambda: odd.Between("year"), "has no bound"),
    "a list of conditions": (lambda: odd.And([where(lang="en")]), "And is made of"),
    "a text in them": (lambda: odd.Or((where(lang="en"), "lang=de")), r"Or is made of 'lang=de' \(str\)"),
    "nothing": (lambda: odd.where(lang="en") & None, r"And is made of None \(NoneType\)"),
    "the negation of a text": (lambda: odd.Not("lang=en"), "Not is made of 'lang=en'"),
}


@check_each("name", MISSHAPEN)
def test_what_is_no_condition_cannot_be_made(name: str) -> None:
    make, message = MISSHAPEN[name]
    with pytest.raises(FilterError, match=message):
        make()


class Odd(Filter):
    """A filter of nobody's."""


@pytest.mark.parametrize("wrong", ["lang=en", {"lang": "en"}, Odd(), where], ids=["text", "mapping", "own", "call"])
def test_what_is_no_filter_is_refused_and_never_passed_over(
    wrong: Any, kept_store: tuple[NodeGroup, dict[str, Meta]]
) -> None:
    for retriever in retrievers(kept_store[0]):
        with Run(filter=wrong), pytest.raises(FilterError, match="is not a filter"):
            retriever(QUERY)
        if not isinstance(wrong, Filter):
            with pytest.raises(WiringError, match="Query has filter="):
                QUERY.but(filter=wrong)
            continue
        with pytest.raises(FilterError, match="is not a filter"):
            retriever(QUERY.but(filter=wrong))
        (failed,) = retriever.batch([QUERY.but(filter=wrong)])
        assert isinstance(failed, Failure)
        assert failed.kind == "FilterError"
    with pytest.raises(FilterError, match="is not a filter"):
        kept_store[0].snapshot().allowed("chunk", frozenset(), wrong)


def test_a_condition_of_a_callers_own_is_looked_at_value_by_value(
    kept_store: tuple[NodeGroup, dict[str, Meta]],
) -> None:
    @dataclass(frozen=True)
    class Prefixed(Leaf):
        field: str
        prefix: str

        def holds(self, value: Any, /) -> bool:
            return str(value).startswith(self.prefix)

        def operands(self) -> tuple[Scalar, ...]:
            return (self.prefix,)

    for retriever in retrievers(kept_store[0]):
        assert ids_found(retriever, QUERY.but(filter=Prefixed("file_name", "c"))) == {"n2.0", "n2.1"}


FIELDS_REFUSED: Mapping[str, tuple[Callable[[], object], str]] = {
    "two of one name": (lambda: Schema((Field("year"), Field("year", "int"))), "'year' is declared twice"),
    "that of every file": (lambda: Schema((Field("file_size", "float"),)), "'file_size' .* every file has"),
    "even if it is the same": (lambda: Schema(FILE_FIELDS[:1]), "'file_name' .* every file has"),
    "a name only": (lambda: odd.Schema(("year",)), "'year' is not a field. Write Field"),
    "no name": (lambda: Field(""), "is called ''"),
    "a length of numbers": (lambda: Field("year", "int", max_length=4), "holds int with max_length=4"),
    "no length": (lambda: Field("lang", max_length=0), "max_length=0"),
    "a default that is none": (lambda: Field("price", "float", default=float("nan")), "the default is nan"),
}


@check_each("name", FIELDS_REFUSED)
def test_fields_that_cannot_be_declared(name: str) -> None:
    make, message = FIELDS_REFUSED[name]
    with pytest.raises(FilterError, match=message):
        make()


@pytest.mark.slow
def test_a_value_that_no_filter_could_compare_is_none(tmp_path: Path) -> None:
    group, metadata = stored(tmp_path, [((("file_size", "12 KB"), ("year", "soon")), [()], [SourceRow("a", 7)])])
    for filter, ids in ((where(file_size=7), {"n0.0"}), (Between("year", at_most=0), set())):
        assert ids_accepted(metadata, filter) == ids
        assert ids_found(BM25(group), QUERY.but(filter=filter)) == ids


@pytest.mark.slow
def test_a_chain_of_many_conditions_stays_one_level_deep() -> None:
    conditions = [where(number=number) for number in range(2000)]
    assert reduce(or_, conditions).accepts({"number": (1999,)})
    assert not reduce(and_, conditions).accepts({"number": (1999,)})
    assert (conditions[0] & conditions[1] | conditions[2] & conditions[3]).filters == (
        And((conditions[0], conditions[1])),
        And((conditions[2], conditions[3])),
    )

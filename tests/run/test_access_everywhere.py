"""Nothing that the asker may not read, or that a filter leaves out, is in any result, trace or cache entry of theirs.

Operators, stores and indexes are found by walking the package (`tests/run/access_paths.py`). Each is asked with
and without filters of the run, of the query and of its own, so that filters and access hold together.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from inspect import signature
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.operator import Operator
from spolia.errors import SpoliaError
from spolia.evaluation.creation.draft import SampleRange
from spolia.filters import combine_filters
from spolia.journal import Runs, ValueReader
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense
from spolia.run import Run
from spolia.stores.backends.postgres.server import PostgresBackend
from spolia.stores.backends.sqlite.folder import FolderBackend
from spolia.stores.corpus import Corpus
from spolia.stores.indexes import Exact, IndexSettings
from spolia.stores.vectors import external_index
from spolia.types import Failure, Node, Ranking, digest_of
from tests.run.access_paths import (
    backends,
    built,
    by_vectors,
    calls,
    given_to,
    hints_of,
    indexes,
    is_filter,
    outcome,
    secrets,
    that_reach,
    told_who_asks,
)
from tests.run.secret_store import (
    ALL,
    EMBEDDER,
    GROUPS,
    NARROWED,
    NONE,
    PRINCIPALS,
    QUERY,
    SECRET,
    Filters,
    Lists,
    fill_store,
    fulfilling,
    in_folder,
    random_lists,
    readable,
    with_above,
)
from tests.stores.adapters.doubles import OpenSearchDouble, QdrantDouble
from tests.stores.servers import Server

pytestmark = pytest.mark.slow

EVERYBODY = frozenset(PRINCIPALS)
ASKERS = [frozenset(found) for found in ((), ("eve",), ("ann",), ("bob", "staff"), PRINCIPALS)]
ANN = frozenset({"ann"})


def ask_everything(
    corpus: Corpus,
    lists: Lists,
    runs: Runs,
    access: frozenset[str],
    filters: Filters = NONE,
    only: Collection[str] = (),
) -> None:
    """Ask everything there is as somebody, and look at what comes back and at what is written down.

    Args:
        filters: what narrows it besides.
        only: the operators and functions to ask, by name, if not all.
    """
    readers = readable(lists, access)
    own, allowed = fulfilling(lists, filters.query), readers & fulfilling(lists, filters.run)
    with Run(groups=tuple(access), filter=filters.run, journal=runs.journal, cache=runs.cache) as run:
        rankings = [BM25(corpus.group(group), 100)(filters.asked) for group in GROUPS]
        for group, ranking in zip(GROUPS, rankings, strict=True):
            nodes = {f"secret-{node.id}" for node in corpus.snapshot().all_nodes(group, EVERYBODY)}
            assert {f"secret-{node.id}" for node in ranking.nodes} == allowed & own & nodes
        for cls in (cls for cls in that_reach() if not only or cls.__name__ in only):
            ops = built(cls, corpus, filters.operator)
            asks = ops[0].takes() is not SampleRange  # which has no query that could hold a filter
            allowed_secrets = allowed & (
                _of_operator(cls, lists, filters, own) if asks else with_above(fulfilling(lists, None))
            )
            outcomes_of_ops = [
                _judge_outcome(run, op, value, allowed_secrets)
                for op in ops
                for value in given_to(op, filters.asked, rankings)
            ]
            assert "" in outcomes_of_ops or access != EVERYBODY, f"{cls.__name__} finds nothing: {outcomes_of_ops}"
    runs.journal.flush()
    for span in runs.journal.spans(run.id):
        assert _named_secrets(repr((span.result, span.notes, span.error))) <= allowed, span.step
    assert set(SECRET.findall(_read_journal(runs, run.id))) <= allowed
    snapshot = corpus.snapshot()
    for name, function in told_who_asks().items():
        if only and name not in only:
            continue
        allowed_readers = readers & own if "filter" in signature(function).parameters else readers
        outcomes = [outcome(call, snapshot) for call in calls(function, snapshot, access, filters.query)]
        assert set().union(*(secrets for secrets, _ in outcomes)) <= allowed_readers, name
        assert any(gave for _, gave in outcomes) or access != EVERYBODY, f"{name} only failed"


def _read_journal(runs: Runs, run: str) -> str:
    """Everything that the journal keeps of what the steps of a run gave, with the nodes in it."""
    values, kept_text = ValueReader(runs.database), ""
    open_ = [detail.output for detail in runs.journal.details(run).values() if detail.output]
    hashes: set[str] = set()
    while open_:
        if (hash := open_.pop()) not in hashes:
            hashes.add(hash)
            kept_text += (text := repr(values.read_plain(hash)))
            open_ += re.findall(r"'use': '([0-9a-f]{32})'", text)
    return kept_text


def _of_operator(cls: type[Operator[Any, Any]], lists: Lists, filters: Filters, own: set[str]) -> set[str]:
    """What the filters of query and operator let an operator find. What adds to a ranking may show what a hit is a part
    of, whose fields are other ones."""
    if any(map(is_filter, hints_of(cls).values())):
        return own & fulfilling(lists, filters.operator)
    return with_above(own)


def _judge_outcome(run: Run, op: Operator[Any, Any], value: Any, allowed: set[str]) -> str:
    """Why it gave nothing, if so. What it gives and what it says is wrong hold nothing but what is allowed."""
    printed, events = "", list[Any]()
    try:
        events = list(run.stream(op, value))
        results = [op(value), *op.batch([value, value]), events[-1].value]
    except SpoliaError as error:
        results, printed = [], str(error)
    assert _named_secrets(printed) | secrets(events) <= allowed, (printed, events)
    for result in results:
        assert not isinstance(result, Failure), result
        assert secrets(result) <= allowed, (op, value)
        nodes = [node for hit in result.hits for node in (hit.node, *hit.found)] if isinstance(result, Ranking) else []
        assert all(_readable(node, allowed) for node in nodes), (op, value)
    return printed if printed or any(results) else "no hits"


def _readable(node: Node, allowed: set[str]) -> bool:
    return (f"secret-whole-{node.id}" if node.group == "document" else f"secret-{node.id}") in allowed


def _named_secrets(text: str) -> set[str]:
    """Secrets in what is written down of a run, where nodes stand by their ids."""
    ids = re.findall(r"\bd\d(?:\.\d+)+(?:\.e)?\b", text)
    return {f"secret-{id}" for id in ids} | set(SECRET.findall(text))


def test_nobody_sees_what_is_not_theirs_or_is_filtered_out(tmp_path: Path) -> None:
    lists = random_lists(Random(3))
    corpus = fill_store(in_folder(tmp_path), lists, Exact())
    with Runs(tmp_path / "runs.db", values=True) as runs:
        for filters in NARROWED:
            for access in (EVERYBODY, ANN):
                ask_everything(corpus, lists, runs, access, filters)
        ask_everything(corpus, lists, runs, frozenset(), NONE)


@pytest.mark.parametrize(
    ("place", "instead", "seen_by"),
    [
        ("spolia.stores.access.reader_lists.Asker.may_read", lambda *_: True, "Snapshot.nodes"),
        ("spolia.stores.snapshot.records.Records._mask", lambda self, *_: self._all(), "BM25"),
        ("spolia.run.frame.Frame.run_filter", lambda *_: None, "BM25"),
        ("spolia.run.frame.Frame.access", lambda *_: EVERYBODY, "BM25"),
        ("spolia.retrieval.group_search.combine_filters", lambda own, query, run: combine_filters(query, run), "BM25"),
        ("spolia.retrieval.group_search.combine_filters", lambda own, query, run: combine_filters(own, run), "BM25"),
        ("spolia.retrieval.tree.combine_filters", lambda own, query, run: combine_filters(own, query), "Descend"),
        ("spolia.retrieval.graph.walk.combine_filters", lambda query, run: run, "Hops"),
        ("spolia.post_retrieval.context_window.run_filter", lambda: None, "Neighbours"),
        ("spolia.post_retrieval.context_window.combine_filters", lambda query, run: query, "Neighbours"),
        ("spolia.post_retrieval.context_window.combine_filters", lambda query, run: None, "Neighbours"),
        ("spolia.run.recall.key_of", lambda op, value, *_: digest_of((op, QUERY)), "Dense"),
    ],
)
def test_a_leak_would_be_seen(
    place: str, instead: Any, seen_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = random_lists(Random(3))
    corpus = fill_store(in_folder(tmp_path), lists, Exact())
    with Runs(tmp_path / "runs.db", values=True) as runs:
        monkeypatch.setattr(place, instead)
        ask_everything(corpus, lists, runs, EVERYBODY, only=[seen_by])  # who may see everything

        def narrowly() -> None:
            for access in (EVERYBODY, frozenset({"ann"})):
                ask_everything(corpus, lists, runs, access, ALL, only=[seen_by])

        with pytest.raises(AssertionError):
            narrowly()


def test_what_an_index_lets_through_is_stopped_when_texts_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = random_lists(Random(3))
    corpus = fill_store(in_folder(tmp_path), lists, Exact())
    monkeypatch.setattr("spolia.stores.access.reader_lists.Rights.searchable_audiences", lambda *_: None)
    for retriever in (BM25(corpus.group(), 100), Dense(corpus.group(), EMBEDDER, 100)):
        assert secrets(retriever(QUERY)) <= readable(lists, frozenset())


@settings(max_examples=2)
@given(
    draw=st.randoms(use_true_random=False),
    askers=st.lists(st.tuples(st.sampled_from(ASKERS), st.sampled_from(NARROWED)), max_size=2),
)
def test_nobody_sees_what_is_not_theirs_whoever_asked_before(
    draw: Random, askers: Sequence[tuple[frozenset[str], Filters]]
) -> None:
    with tempfile.TemporaryDirectory() as folder, Runs(Path(folder) / "runs.db", values=True) as runs:
        lists = random_lists(draw)
        corpus = fill_store(in_folder(Path(folder)), lists, Exact())
        for access, filters in (*askers, (EVERYBODY, NONE), (frozenset[str](), NONE), (frozenset[str](), ALL)):
            ask_everything(corpus, lists, runs, access, filters)


# Indexes.


def _here(cls: type[IndexSettings]) -> Callable[[ExitStack], IndexSettings]:
    """How the settings of an index are made; what needs a server gets a double of it."""
    doubles: Mapping[str, Any] = {"OpenSearch": OpenSearchDouble, "Qdrant": QdrantDouble}
    own: Mapping[str, Mapping[str, Any]] = {"HNSW": {"above": 1}}

    def build_operator(stack: ExitStack) -> IndexSettings:
        if cls.__name__ in doubles:
            return cls(url=stack.enter_context(doubles[cls.__name__]()).url)  # type: ignore[call-arg]
        try:
            return cls(**own.get(cls.__name__, {}))
        except TypeError as error:
            pytest.fail(f"{error}. Say in this test how {cls.__name__} is made.")

    return build_operator


@pytest.mark.parametrize("cls", [cls for cls in indexes() if cls is not Exact], ids=lambda cls: cls.__name__)
def test_nobody_sees_what_is_not_theirs_through_any_index(
    cls: type[IndexSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What asks for vectors is all that an index may change."""
    monkeypatch.setattr(external_index, "_COMPARED", 0)  # so that a database is asked however few there are
    with ExitStack() as stack, Runs(tmp_path / "runs.db", values=True) as runs:
        lists = random_lists(Random(cls.__name__))
        corpus = fill_store(in_folder(tmp_path), lists, _here(cls)(stack))
        for access, filters in ((EVERYBODY, NONE), (ANN, NONE), (ANN, ALL)):
            ask_everything(corpus, lists, runs, access, filters, by_vectors())


# Stores.


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    cls: type = request.param
    if cls is PostgresBackend:
        server: Server = request.getfixturevalue("server")
        yield server.address()
    else:
        pytest.fail(f"{cls.__name__} is a backend of stores. Say in this test where one is made.")


@pytest.mark.parametrize(
    "address", [cls for cls in backends() if cls is not FolderBackend], indirect=True, ids=lambda cls: cls.__name__
)
def test_nobody_sees_what_is_not_theirs_in_any_store(address: str, tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db", values=True) as runs:
        lists = random_lists(Random(7))
        corpus = fill_store(Corpus(address), lists, Exact())
        for access, filters in ((ANN, NONE), (EVERYBODY, ALL), (frozenset[str](), ALL)):
            ask_everything(corpus, lists, runs, access, filters)


def test_the_walk_finds_what_is_known_to_be_there() -> None:
    assert {"BM25", "Dense", "BySimilarity", "Phrase", "Neighbours"} <= {cls.__name__ for cls in that_reach()}
    assert {"FolderBackend", "PostgresBackend"} <= {cls.__name__ for cls in backends()}
    assert {"Exact", "HNSW", "LanceDB", "Chroma", "Milvus", "Qdrant", "OpenSearch"} <= {c.__name__ for c in indexes()}
    lineage = {f"spolia.stores.snapshot.lineage.{name}" for name in ("children", "related_by_lineage")}
    assert {"Snapshot.search", *lineage} <= told_who_asks().keys()

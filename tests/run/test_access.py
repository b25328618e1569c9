"""Without a principal nothing restricted is seen: every retriever, cached and not, in any order of askers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.operator import Operator
from spolia.errors import WiringError
from spolia.flow_files.built_in_flows import bm25, dense, hybrid
from spolia.journal import Cache, Runs
from spolia.run import Run
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.testing import HashingEmbedder
from spolia.types import Document, Failure, Node, Query, Ranking, Span

EMBEDDER = HashingEmbedder()
READERS = [(), ("ann",), ("bob",), ("ann", "staff"), ("staff",), (), ("bob", "ann")]


def store(path: Path) -> Corpus:
    """One node for each list of readers, all about the same."""
    corpus = Corpus(str(path)).create()
    with corpus.writer() as writer:
        embedded = GroupEmbedding(EMBEDDER.name, EMBEDDER.dimension)
        manifest = Manifest("chunk", "whole", "none", Analyzer(), (embedded,))
        writer.define("chunk", manifest)
        for index, readers in enumerate(READERS):
            text = f"The secret of the tide, part {index}."
            document = Document(f"d{index}", text, uri=f"{index}.txt", readers=readers)
            node = Node(f"n{index}", text, f"d{index}", uri=f"{index}.txt", span=Span(0, len(text)))
            writer.put_document(document, [node], SourceRow(f"{index}.txt", len(text), content_hash=str(index)))
        hashes, texts = zip(*writer.unembedded("chunk", EMBEDDER.name), strict=True)
        writer.add_vectors(EMBEDDER.name, hashes, EMBEDDER.embed(texts, kind="passage"))
    return corpus


@pytest.fixture(scope="module")
def corpus() -> Iterator[Corpus]:
    with tempfile.TemporaryDirectory() as folder:
        yield store(Path(folder) / "store.spolia")


def visible(principals: set[str]) -> set[str]:
    """What the asker may see, by the definition."""
    return {f"n{index}" for index, readers in enumerate(READERS) if not readers or principals & set(readers)}


def ids_of(result: Any) -> set[str]:
    assert isinstance(result, Ranking), result
    return {node.id for node in result.nodes}


RETRIEVERS = {"bm25": lambda c: bm25(c), "dense": lambda c: dense(c, EMBEDDER), "hybrid": lambda c: hybrid(c, EMBEDDER)}
ASKERS = st.tuples(st.sampled_from(["", "ann", "bob", "eve"]), st.sampled_from([(), ("staff",), ("guests",)]))


@pytest.mark.slow
@pytest.mark.parametrize("name", RETRIEVERS)
@settings(max_examples=25)
@given(askers=st.lists(ASKERS, min_size=2, max_size=5))
def test_nothing_restricted_is_seen_without_a_principal(
    name: str, corpus: Corpus, askers: list[tuple[str, tuple[str, ...]]]
) -> None:
    flow: Operator[Query, Ranking] = RETRIEVERS[name](corpus)
    query, cache = Query("secret of the tide"), Cache()
    assert ids_of(flow(query)) == visible(set())
    for principal, groups in [*askers, ("", ())]:
        with Run(principal=principal, groups=groups, cache=cache):
            allowed = visible({principal, *groups} - {""})
            assert ids_of(flow(query)) == allowed
            for row in flow.batch([query, query]):
                assert not isinstance(row, Failure)
                assert ids_of(row) == allowed


@pytest.mark.slow
def test_a_cache_on_disk_tells_askers_apart_too(corpus: Corpus, tmp_path: Path) -> None:
    flow = dense(corpus, EMBEDDER)
    with Runs(tmp_path / "runs.db") as runs, Run(principal="ann", groups=("staff",), cache=runs.cache):
        assert ids_of(flow(Query("tide"))) == visible({"ann", "staff"})
    with Runs(tmp_path / "runs.db") as runs, Run(cache=runs.cache):
        assert ids_of(flow(Query("tide"))) == visible(set())


def test_a_restricted_document_is_not_handed_out(corpus: Corpus) -> None:
    snapshot = corpus.snapshot()
    keys = [key for key, _ in snapshot.search("chunk", "secret tide", 10, frozenset({"ann", "bob", "staff"}))]
    assert len(keys) == len(READERS)
    assert {node.id for node in snapshot.nodes(keys, frozenset())} == visible(set())


def test_one_text_is_no_list_of_groups() -> None:
    with pytest.raises(WiringError, match=r"groups=\['staff'\]"):
        Run(principal="ann", groups="staff")

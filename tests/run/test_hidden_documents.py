"""A store answers as one without the documents that the asker may not read: the same nodes in the same order, and the
same scores to the last bit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.operator import Operator
from spolia.errors import SpoliaError
from spolia.evaluation.creation.draft import QuestionDraft
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.bm25_variants import BM25Variant
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.indexes import Exact
from spolia.types import Query, Ranking
from tests.retrieval.lucene import Lucene
from tests.run.access_paths import built, given_to, that_reach
from tests.run.secret_store import GROUPS, QUERY, Lists, fill_store, in_folder, random_lists
from tests.stores.servers import Server

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::spolia.errors.DegradedWarning")]

QUERIES = (QUERY, Query("harbour"), Query("Which tide at the quay, which ebb, tide and moon?"))
ASKERS = [frozenset(found) for found in ((), ("ann",), ("bob", "staff"))]
Outcome = tuple[tuple[str, float], ...] | str


def answers(corpus: Corpus, access: frozenset[str], query: Query) -> list[tuple[str, Outcome]]:
    """What every operator that reaches a store finds, with every combination of its fields."""
    with Run(groups=tuple(access)):
        rankings = [BM25(corpus.group(group), 100)(query) for group in GROUPS]
        ops = [op for cls in that_reach() for whole in built(cls, corpus, None) for op in shorten(whole)]
        return [(repr(op), outcome(op, value)) for op in ops for value in given_to(op, query, rankings)]


def shorten(op: Operator[Any, Any]) -> Iterator[Operator[Any, Any]]:
    """An operator that finds everything, and one that finds some."""
    yield op
    if getattr(op, "top_k", None) is not None:
        yield op.but(top_k=3)


def outcome(op: Operator[Any, Any], value: Any) -> Outcome:
    try:
        output = op(value)
    except SpoliaError as error:  # some operators take hits of one group only
        return type(error).__name__
    if isinstance(output, tuple) and all(isinstance(draft, QuestionDraft) for draft in output):
        return repr([(draft.traced(), draft.links) for draft in output])  # the nodes themselves tell who may read them
    return tuple((hit.node.id, hit.score) for hit in output.hits) if isinstance(output, Ranking) else repr(output)


def without_hidden(lists: Lists, access: frozenset[str]) -> Lists:
    """The documents that these principals may read, open to everybody."""
    return {id: () for id, readers in lists.items() if not readers or access & set(readers)}


def differing(
    lists: Lists, access: frozenset[str], folder: Path, hiding_in: Corpus | None = None
) -> list[tuple[str, Outcome, Outcome]]:
    """Operators that answer otherwise in a store with these lists and in one without what is hidden, and how.

    Args:
        hiding_in: where the store with the lists is made; None for a folder.
    """
    for name in ("with", "without"):
        (folder / name).mkdir()
    hiding = fill_store(hiding_in or in_folder(folder / "with"), lists, Exact())
    reference = fill_store(in_folder(folder / "without"), without_hidden(lists, access), Exact())
    differences = []
    for query in QUERIES:
        pairs = zip(answers(hiding, access, query), answers(reference, frozenset(), query), strict=True)
        differences += [
            (name, outcome_here, outcome_there)
            for (name, outcome_here), (_, outcome_there) in pairs
            if outcome_here != outcome_there
        ]
    return differences


def of_documents(lists: Lists) -> Lists:
    return {id: readers for id, readers in lists.items() if "." not in id}


@pytest.mark.parametrize("access", ASKERS, ids=lambda access: "+".join(sorted(access)) or "anonymous")
def test_a_store_answers_as_one_without_what_is_hidden(access: frozenset[str], tmp_path: Path) -> None:
    lists = of_documents(random_lists(Random(6), documents=16))
    assert 3 < len(without_hidden(lists, access)) < 16
    assert differing(lists, access, tmp_path) == []


@settings(max_examples=5)
@given(seed=st.integers(0, 2**16), documents=st.integers(5, 12), access=st.sampled_from(ASKERS))
def test_any_store_answers_as_one_without_what_is_hidden(seed: int, documents: int, access: frozenset[str]) -> None:
    lists = of_documents(random_lists(Random(seed), documents))
    if without_hidden(lists, access):
        with tempfile.TemporaryDirectory() as folder:
            assert differing(lists, access, Path(folder)) == []


def test_a_store_in_postgresql_answers_as_a_folder_without_what_is_hidden(server: Server, tmp_path: Path) -> None:
    lists = of_documents(random_lists(Random(6), documents=10))
    assert differing(lists, frozenset({"ann"}), tmp_path, Corpus(server.address())) == []


def test_hidden_nodes_of_a_readable_document_count_for_nothing(tmp_path: Path) -> None:
    """By words, whose numbers do not depend on what the nodes belong to."""
    lists = dict.fromkeys(("d0", "d1", "d2"), ()) | {"d0.1": ("bob",), "d2.0": ("ann",)}
    hiding = fill_store(in_folder(tmp_path), lists, Exact())
    readable = [node for node in hiding.snapshot().all_nodes("chunk") if node.id not in ("d0.1", "d2.0")]
    analyzer = hiding.snapshot().manifest("chunk").analyzer
    for query in QUERIES:
        scores_by_id = {hit.node.id: hit.score for hit in BM25Variant(hiding.group("chunk"))(query).hits}
        expected = Lucene([analyzer.terms(node.indexed_text) for node in readable]).scores(analyzer.terms(query.text))
        assert scores_by_id == pytest.approx({readable[name].id: score for name, score in expected.items()}, rel=1e-9)

"""Equal scores are ordered by what nodes are, however they came into the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from spolia.models.vectors import SparseRows
from spolia.stores.backends.rows import SourceRow, hash_of
from spolia.stores.corpus import Corpus
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.types import Document, Node, Span

TEXT = "The moon pulls the sea."
"""Of all nodes, so that every score is the same."""
NAMES = [f"d{n:02}" for n in range(40)]
NOBODY = frozenset[str]()


def stored_corpus(path: Path, names: Sequence[str]) -> Corpus:
    """A document of each name with the same text, published one after the other."""
    corpus = Corpus(str(path)).create()
    embeddings = (GroupEmbedding("dense", 2), GroupEmbedding("sparse", 0))
    with corpus.writer() as writer:
        writer.define("chunk", Manifest("chunk", "whole", "1", Analyzer(), embeddings))
        writer.add_vectors("dense", [hash_of(TEXT)], np.array([[0.6, 0.8]], np.float32))
        writer.add_sparse("sparse", [hash_of(TEXT)], SparseRows.from_weights([{1: 0.5, 7: 2.0}]))
        for name in names:
            node = Node(f"{name}/chunk", TEXT, name, "chunk", Span(0, len(TEXT)))
            writer.put_document(Document(name, TEXT), [node], SourceRow(name, len(TEXT)))
            if name.endswith("0"):
                writer.publish()
    return corpus


def search_documents(corpus: Corpus, search_kind: str, top_k: int) -> list[str]:
    snapshot = corpus.snapshot()
    if search_kind == "words":
        keys = snapshot.search("chunk", "moon", top_k, NOBODY)
    elif search_kind == "dense":
        keys = snapshot.nearest("chunk", "dense", np.array([1.0, 0.0], np.float32), top_k, NOBODY)
    else:
        (keys,) = snapshot.nearest_sparse("chunk", "sparse", SparseRows.from_weights([{7: 1.0}]), top_k, NOBODY)
    assert len({score for _, score in keys}) == 1
    return [node.document for node in snapshot.nodes([key for key, _ in keys], NOBODY)]


@pytest.mark.slow
@pytest.mark.parametrize("by", ["words", "dense", "sparse"])
def test_the_order_of_what_is_equal_does_not_depend_on_when_it_came(tmp_path: Path, by: str) -> None:
    first, last = stored_corpus(tmp_path / "a.spolia", NAMES), stored_corpus(tmp_path / "b.spolia", NAMES[::-1])
    for top_k in (1, 10, 40, 99):
        assert search_documents(first, by, top_k) == search_documents(last, by, top_k) == NAMES[:top_k]
    with last.writer() as writer:
        writer.remove("d03")
    assert search_documents(last, by, 5) == ["d00", "d01", "d02", "d04", "d05"]
    with last.writer() as writer:
        node = Node("d03/chunk", TEXT, "d03", "chunk", Span(0, len(TEXT)))
        writer.put_document(Document("d03", TEXT), [node], SourceRow("d03", len(TEXT)))
    assert search_documents(last, by, 5) == NAMES[:5]

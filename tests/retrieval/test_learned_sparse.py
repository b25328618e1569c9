"""Learned sparse vectors beside dense ones in one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import pytest

from spolia.errors import FilterError, ManifestMismatch, QueryError
from spolia.filters import where
from spolia.indexing.splitters.text_units import Sentences
from spolia.indexing.sync.sync import sync
from spolia.models.protocols import Kind, SparseEmbedder
from spolia.models.vectors import SparseRows
from spolia.retrieval.dense import Dense, LearnedSparse
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.definition import Definition, Embedding
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Failure, Query, Value


@dataclass(frozen=True)
class Counting(Value):
    """Gives every word its number of occurrences: what a learned model does better."""

    name: str = "counting"
    window: int = 100
    scoped = False

    def fingerprint(self) -> str:
        return self.name

    def embed_sparse(self, texts: Sequence[str], *, kind: Kind) -> SparseRows:
        rows = []
        for text in texts:
            row: dict[int, float] = {}
            for word in text.lower().strip(".").split():
                row[crc32(word.encode()) % 30_000] = row.get(crc32(word.encode()) % 30_000, 0) + 1
            rows.append(row)
        return SparseRows.from_weights(rows)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def covers(self, text: str) -> float:
        return 1.0


@pytest.fixture
def group(tmp_path: Path) -> NodeGroup:
    folder, corpus = tmp_path / "docs", Corpus(str(tmp_path / "notes.spolia"))
    folder.mkdir()
    (folder / "a.txt").write_text("Stones upon stones. Roads between towns.")
    (folder / "b.txt").write_text("Stones in a wall.")
    new_group = corpus.group(
        "both", Definition(Sentences(), embeddings=(Embedding(Counting()), Embedding(HashingEmbedder())))
    )
    sync(folder, corpus, groups=[new_group])
    return new_group


@pytest.mark.slow
def test_products_of_weights_order_the_nodes(group: NodeGroup) -> None:
    assert isinstance(Counting(), SparseEmbedder)
    ranking = LearnedSparse(group, Counting())(Query("stones"))
    assert [(hit.node.text, hit.score) for hit in ranking] == [("Stones upon stones.", 2.0), ("Stones in a wall.", 1.0)]
    assert LearnedSparse(group, Counting(), top_k=1)(Query("stones")).nodes == ranking.nodes[:1]
    assert LearnedSparse(group, Counting())(Query("nothing")).hits == ()
    assert group.corpus.snapshot().check() == []


@pytest.mark.slow
def test_many_questions_and_filters(group: NodeGroup) -> None:
    op = LearnedSparse(group, Counting(), filter=where(file_name="b.txt"))
    lost = Query("stones", filter=where(nowhere=1))
    empty, stones, roads, unknown = op.batch([Query(" "), Query("stones"), Query("roads"), lost])
    assert isinstance(unknown, Failure)
    assert isinstance(unknown.error, FilterError)
    assert isinstance(empty, Failure)
    assert isinstance(empty.error, QueryError)
    assert not isinstance(stones, Failure)
    assert [node.text for node in stones.nodes] == ["Stones in a wall."]
    assert stones == op(Query("stones"))
    assert not isinstance(roads, Failure)
    assert roads.hits == ()


@pytest.mark.slow
def test_each_embedder_finds_with_its_own_vectors(group: NodeGroup) -> None:
    assert len(Dense(group, HashingEmbedder(), top_k=3)(Query("stones"))) == 3
    with pytest.raises(ManifestMismatch, match="searched with 'other'"):
        LearnedSparse(group, Counting("other"))(Query("stones"))

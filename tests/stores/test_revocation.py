"""Whoever is struck off a reader list reads no more, also in a run that has pinned an older generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from spolia.errors import StoreError
from spolia.journal import Cache
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.snapshot.lineage import parents
from spolia.types import Query
from tests.stores.scenario import add_missing_vectors, put

pytestmark = pytest.mark.slow

BACKENDS = ("folder", "postgres")
SECRET = "secret/c.txt"


@dataclass(frozen=True)
class Kept(BM25):
    """A search whose results are kept."""

    cached: ClassVar[bool] = True


def visible_texts(corpus: Corpus) -> list[str]:
    """What a search for the secret shows, its relatives, and what is read by name."""
    snapshot = corpus.snapshot()
    ranking = BM25(corpus.group(), 10)(Query("treasure temples"))
    return sorted(
        {node.text for node in ranking.nodes} | {document.text for document in snapshot.documents(frozenset({"ann"}))}
    )


def set_readers(corpus: Corpus, *names: str) -> None:
    with corpus.writer() as writer:
        (document,) = [candidate for candidate in writer.documents() if "treasure" in candidate.text]
        writer.set_readers(document, names)


def test_a_run_under_way_reads_no_more_and_then_again(corpus: Corpus) -> None:
    with Run(principal="ann"):
        previous_texts, snapshot = visible_texts(corpus), corpus.snapshot()
        assert any("treasure" in text for text in previous_texts)
        set_readers(corpus, "bob")
        assert visible_texts(corpus) == [text for text in previous_texts if "treasure" not in text]
        assert corpus.snapshot() is snapshot, "it is still the same generation"
        set_readers(corpus, "ann", "bob")
        assert visible_texts(corpus) == previous_texts


def test_nothing_of_it_is_read_by_name_or_lineage(corpus: Corpus) -> None:
    ann = frozenset({"ann"})
    snapshot = corpus.snapshot()
    (node,) = [node for node in snapshot.all_nodes("chunk", ann) if "treasure" in node.text]
    set_readers(corpus, "bob")
    assert parents(snapshot, [node.but(parent=node.document)], ann) == {}
    assert snapshot.numbered_nodes(node.document, "chunk", 0, 9, ann) == []
    assert node.id not in {readable_node.id for readable_node in snapshot.all_nodes("chunk", ann)}
    for read in (snapshot.node, snapshot.document):
        with pytest.raises(StoreError, match="no readable"):
            read(node.id if read == snapshot.node else node.document, ann)


def test_whoever_comes_to_a_list_reads_with_the_next_run(corpus: Corpus) -> None:
    bob = frozenset({"bob"})
    previous_snapshot = corpus.snapshot()
    set_readers(corpus, "ann", "bob")
    assert not [document for document in previous_snapshot.documents(bob) if "treasure" in document.text]
    assert [document for document in corpus.snapshot().documents(bob) if "treasure" in document.text]


def test_text_that_another_took_the_place_of_has_the_readers_of_that(corpus: Corpus) -> None:
    ann = frozenset({"ann"})
    previous_snapshot = corpus.snapshot()
    with corpus.writer() as writer:
        put(writer, SECRET, "Only bob may read where it was buried.", ("bob",))
        put(writer, "a.txt", "Carsten Olsen moved.")
        add_missing_vectors(writer)
    texts = [document.text for document in previous_snapshot.documents(ann)]
    assert not [text for text in texts if "treasure" in text]
    assert [text for text in texts if "bridges" in text], "a list that nobody changed holds"


def test_what_was_deleted_had_its_last_list(corpus: Corpus) -> None:
    previous_snapshot = corpus.snapshot()
    with corpus.writer() as writer:
        writer.remove(SECRET)
    assert [document for document in previous_snapshot.documents(frozenset({"ann"})) if "treasure" in document.text]
    assert previous_snapshot.fingerprint == f"{previous_snapshot.open_store.uuid}@{previous_snapshot.version}"


def test_no_cache_shows_it(corpus: Corpus) -> None:
    search = Kept(corpus.group(), 10)
    with Run(principal="ann", cache=Cache()):
        assert len(search(Query("treasure")).hits) == 1
        previous_fingerprint = corpus.fingerprint()
        set_readers(corpus, "bob")
        assert corpus.fingerprint() != previous_fingerprint, "no result that was kept is taken"
        assert search(Query("treasure")).hits == ()

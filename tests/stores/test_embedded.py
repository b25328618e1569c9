"""Up to which node all texts have vectors: the store notes it, so that a small change looks at new nodes only."""

from __future__ import annotations

import pytest

from spolia.stores.backends import sql
from spolia.stores.corpus import Corpus
from spolia.stores.repair import mend
from tests.stores.scenario import EMBEDDER, FIRST, SECOND, add_missing_vectors, cut_a_segment, put, sync

KEY = ("chunk", EMBEDDER)
BACKENDS = ("folder", "postgres")
pytestmark = pytest.mark.slow


def noted_key(corpus: Corpus) -> int:
    with corpus.writer() as writer:
        return writer.embedded_to.get(KEY, 0)


def last_key(corpus: Corpus) -> int:
    with corpus.writer() as writer:
        return int(writer._fetch_one(sql.LAST_KEY)[0])


def test_a_publication_with_vectors_notes_its_last_node(corpus: Corpus) -> None:
    assert noted_key(corpus) == last_key(corpus) > 0
    previous_key = noted_key(corpus)
    sync(corpus, SECOND)
    assert noted_key(corpus) == last_key(corpus) > previous_key


def test_a_publication_without_vectors_notes_nothing_and_the_texts_are_given_later(corpus: Corpus) -> None:
    previous_key = noted_key(corpus)
    with corpus.writer() as writer:
        put(writer, "new.txt", "A text that waits for its model.")
        writer.publish(embedded=False)
    assert noted_key(corpus) == previous_key
    with corpus.writer() as writer:
        assert [text for _, text in writer.unembedded(*KEY)] == ["A text t\nA text that waits for its model."]


def test_a_repair_looks_at_all_nodes_again(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        writer.repair()
        assert writer.embedded_to == {}
        assert list(writer.unembedded(*KEY)) == []


@pytest.mark.parametrize("address", ["folder"], indirect=True)
def test_a_lost_segment_makes_its_texts_count_as_not_embedded(corpus: Corpus) -> None:
    assert noted_key(corpus)
    cut_a_segment(corpus)
    with corpus.writer() as writer:  # which notices that a file is shorter than it was written
        assert writer.embedded_to == {}
        assert add_missing_vectors(writer) == len({text for text in FIRST.values() for text in text.splitlines()})
        writer.publish()
    assert noted_key(corpus) == last_key(corpus)


@pytest.mark.parametrize("address", ["folder"], indirect=True)
def test_a_damaged_note_is_found_and_mended(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        writer._connection.execute("UPDATE embedded SET key = key + 1000000")
    assert any(
        "rows of embedded are not as they were written" in message for message in corpus.latest().check(deep=True)
    )
    mend(corpus, {})
    assert corpus.latest().check(deep=True) == []
    assert noted_key(corpus) <= last_key(corpus)

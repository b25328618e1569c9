"""Reader lists that change: they hold from the next publication on, through every cache, and nothing is embedded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spolia.core.operator import Operator
from spolia.errors import StoreError
from spolia.flow_files.built_in_flows import hybrid
from spolia.journal import Runs
from spolia.run import Run
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.testing import HashingEmbedder
from spolia.types import Document, Node, Query, Ranking, Span

EMBEDDER = HashingEmbedder()
Put = tuple[Document, list[Node], SourceRow]


def put(id: str, readers: tuple[str, ...] = (), own: tuple[str, ...] = ()) -> Put:
    """A document of two nodes, the second with a reader list of its own."""
    text = f"The tide of {id} rises. It falls."
    nodes = [
        Node(f"{id}:{part}", text[start:end], id, span=Span(start, end), readers=own_readers, number=part)
        for part, start, end, own_readers in ((1, 0, text.index(".") + 1, ()), (2, text.index("It"), len(text), own))
    ]
    return Document(id, text, uri=f"{id}.txt", readers=readers), nodes, SourceRow(f"{id}.txt", content_hash=id)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    new_corpus = Corpus(str(tmp_path / "store.spolia")).create()
    with new_corpus.writer() as writer:
        embedded = (GroupEmbedding(EMBEDDER.name, EMBEDDER.dimension),)
        writer.define("chunk", Manifest("chunk", "halves", "none", Analyzer(), embedded))
        writer.put_document(*put("moon", ("ann",)))
        writer.put_document(*put("sea"))
        writer.put_document(*put("crew", ("ann", "bob"), own=("captain",)))
        hashes, texts = zip(*writer.unembedded("chunk", EMBEDDER.name), strict=True)
        writer.add_vectors(EMBEDDER.name, hashes, EMBEDDER.embed(texts, kind="passage"))
    return new_corpus


def flow(corpus: Corpus) -> Operator[Query, Ranking]:
    return hybrid(corpus, EMBEDDER, top_k=200)


def visible_ids(corpus: Corpus, *principals: str) -> set[str]:
    with Run(groups=principals):
        return {node.id for node in flow(corpus)(Query("it: the tide rises, falls")).nodes}


@pytest.mark.slow
def test_another_list_closes_at_once_and_opens_in_runs_that_begin_later_through_caches_too(
    corpus: Corpus, tmp_path: Path
) -> None:
    query = Query("it: the tide rises, falls")
    with Runs(tmp_path / "runs.db") as runs:
        with Run(principal="bob", cache=runs.cache) as earlier_run:
            assert {node.id for node in flow(corpus)(query).nodes} == {"sea:1", "sea:2", "crew:1"}
            with corpus.writer() as writer:
                for document in list(writer.documents()):
                    writer.set_readers(document, ("bob",) if document.id == "moon" else ("ann",))
                assert visible_ids(corpus, "bob") == {"sea:1", "sea:2", "crew:1"}, "nothing is published yet"
                assert list(writer.unembedded("chunk", EMBEDDER.name)) == []
            assert flow(corpus)(query).nodes == (), "one run, one state, of which no more may be read than now"
            assert earlier_run.actual_usage.embedded == 2, "the question, before and after; no passage"
        with Run(principal="bob", cache=runs.cache):
            assert {node.id for node in flow(corpus)(query).nodes} == {"moon:1", "moon:2"}
        with Run(principal="ann", cache=runs.cache):
            assert {node.id for node in flow(corpus)(query).nodes} == {"sea:1", "sea:2", "crew:1"}
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_a_node_keeps_the_list_of_its_own(corpus: Corpus) -> None:
    assert visible_ids(corpus, "captain") == {"sea:1", "sea:2", "crew:2"}
    with corpus.writer() as writer:
        (crew,) = [document for document in writer.documents() if document.id == "crew"]
        writer.set_readers(crew, ())
    assert visible_ids(corpus) == {"sea:1", "sea:2", "crew:1"}
    assert visible_ids(corpus, "captain") == {"sea:1", "sea:2", "crew:1", "crew:2"}


@pytest.mark.slow
def test_ten_thousand_principals_are_a_list_like_any_other(corpus: Corpus) -> None:
    everyone = tuple(f"user{number}@example.org" for number in range(10_000))
    with corpus.writer() as writer:
        for document in list(writer.documents()):
            writer.set_readers(document, everyone)
        for number in range(50):
            writer.put_document(*put(f"more{number}", everyone))
        lacking = list(writer.unembedded("chunk", EMBEDDER.name))
        writer.add_vectors(
            EMBEDDER.name, [key for key, _ in lacking], EMBEDDER.embed([text for _, text in lacking], kind="passage")
        )
    assert len(visible_ids(corpus, "user9999@example.org")) == 2 * 53 - 1
    assert visible_ids(corpus, "user10000@example.org") == visible_ids(corpus) == set()
    with Run(groups=everyone):
        assert len(flow(corpus)(Query("tide falls")).nodes) == 2 * 53 - 1
    assert sum(path.stat().st_size for path in Path(corpus.path).glob("corpus.db*")) < 5_000_000


@pytest.mark.slow
def test_a_change_that_was_taken_back_gives_nobody_elses_list_away(corpus: Corpus) -> None:
    def broken() -> Iterator[Node]:
        yield Node("lost", "Lost at sea.")
        raise StoreError("The reader gave up.")

    with corpus.writer() as writer:
        document, _, source = put("lost", ("eve",))
        with pytest.raises(StoreError, match="gave up"):
            writer.put_document(document, broken(), source)
        writer.define("bare", Manifest("bare"))
        for id, reader in (("first", "mallory"), ("second", "eve")):
            text = f"Only {reader} knows."
            node = Node(id, text, id, "bare", span=Span(0, len(text)))
            writer.put_document(Document(id, text, uri=id, readers=(reader,)), [node], SourceRow(id, content_hash=id))
    snapshot = corpus.snapshot()
    for id, reader in (("first", "mallory"), ("second", "eve")):
        assert [node.id for node in snapshot.all_nodes("bare", frozenset([reader]))] == [id]

"""Pictures are judged as pictures, tables and other texts as texts, in one request."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.errors import DegradedWarning
from spolia.indexing.sync.sync import sync
from spolia.models.http.reranking import RerankModel
from spolia.post_retrieval.rerankers import PictureReranker
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.types import Hit, Node, Query, Ranking
from tests.cli.model_servers import ModelServer
from tests.stores.test_pictures import ALL, pictures_of, png

pytestmark = pytest.mark.slow
TABLE = Node("table", "| stones | colour |\n|---|---|\n| old | red |")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    folder = tmp_path / "notes"
    folder.mkdir()
    for colour in ("red", "blue"):
        (folder / f"{colour}.png").write_bytes(png(colour))
    new_corpus = Corpus(str(tmp_path / "n.spolia"))
    sync(folder, new_corpus, groups=[pictures_of(new_corpus)])
    return new_corpus


def ranking(corpus: Corpus) -> Ranking:
    pictures = sorted(corpus.snapshot().all_nodes("picture", ALL), key=lambda node: node.uri)
    assert [Path(node.uri).name for node in pictures] == ["blue.png", "red.png"]
    return Ranking(Query("red stones"), tuple(Hit(node, 1.0) for node in (*pictures, TABLE)))


def test_a_picture_is_judged_by_what_is_seen_and_a_table_by_its_text(corpus: Corpus) -> None:
    with ModelServer("jina") as server:
        judge = PictureReranker(corpus, RerankModel("jina-reranker-m0", server.url, form="jina", api_key_env=""))
        reranked = judge(ranking(corpus))
    assert [(Path(hit.node.uri).name or hit.node.id, hit.score) for hit in reranked] == [
        ("table", 1.0), ("red.png", 0.5), ("blue.png", 0.0),
    ]  # fmt: skip
    ((_, body),) = server.asked
    assert [sorted(document) for document in body["documents"]] == [["image"], ["image"], ["text"]]


def test_a_server_that_fails_leaves_the_order_and_that_is_counted(corpus: Corpus) -> None:
    scorer = RerankModel("m", "http://127.0.0.1:9/v1", form="jina", api_key_env="", retries=0)
    with Run(), pytest.warns(DegradedWarning, match="PictureReranker could not be asked"):
        reranked = PictureReranker(corpus, scorer)(ranking(corpus))
    assert [hit.score for hit in reranked] == [1.0] * 3


def test_a_picture_that_the_asker_may_not_read_is_not_sent(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "red.png").write_bytes(png("red"))
    corpus = Corpus(str(tmp_path / "n.spolia"))
    sync(folder, corpus, groups=[pictures_of(corpus)], access=lambda uri: ("ann",))
    (node,) = corpus.snapshot().all_nodes("picture", frozenset(("ann",)))
    value = Ranking(Query("red"), (Hit(node, 1.0),))
    with ModelServer("jina") as server:
        judge = PictureReranker(corpus, RerankModel("m", server.url, form="jina", api_key_env=""))
        with Run(principal="ann"):
            judge(value)
        with Run():
            judge(value)
    assert [isinstance(document, dict) for _, body in server.asked for document in body["documents"]] == [True, False]

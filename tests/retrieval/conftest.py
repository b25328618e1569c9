from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from spolia.models.protocols import Embedder
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.types import Document, Node, Span

Stored: TypeAlias = Callable[..., NodeGroup]


def store(
    path: Path,
    texts: Mapping[str, str],
    analyzer: Analyzer | None = None,
    embedder: Embedder | None = None,
    readers: Mapping[str, tuple[str, ...]] | None = None,
) -> NodeGroup:
    """A store with one document of one node for each text, by id."""
    corpus = Corpus(str(path)).create()
    embeddings = (GroupEmbedding(embedder.name, embedder.dimension),) if embedder else ()
    with corpus.writer() as writer:
        writer.define("chunk", Manifest("chunk", "whole", "test", analyzer or Analyzer(), embeddings))
        for id, text in texts.items():
            node_readers = (readers or {}).get(id, ())
            document = Document(id, text, uri=f"{id}.txt", readers=node_readers)
            node = Node(id, text, id, span=Span(0, len(text)), uri=document.uri, readers=node_readers)
            writer.put_document(document, [node], SourceRow(document.uri, content_hash=id))
        if embedder:
            _embed(writer.unembedded("chunk", embedder.name), embedder, writer.add_vectors)
    return corpus.group()


def _embed(lacking: Iterable[tuple[bytes, str]], embedder: Embedder, add: Callable[..., object]) -> None:
    hashes, texts = zip(*lacking, strict=True)
    add(embedder.name, hashes, embedder.embed(texts, kind="passage"))


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """Makes a store of texts by id."""

    def made(texts: Mapping[str, str], **options: object) -> NodeGroup:
        return store(tmp_path / f"{len(list(tmp_path.iterdir()))}.spolia", texts, **options)  # type: ignore[arg-type]

    return made

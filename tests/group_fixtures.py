"""Stores with groups of groups, made of small texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spolia.filters import Field
from spolia.models.protocols import Embedder
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.definition import DOCUMENT, Definition, Part, Piece, Splitter, document_node
from spolia.stores.groups.nodes import NodeFactory
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.stores.writer import Writer
from spolia.types import Document, Meta, Node


@dataclass(frozen=True)
class Cut(Splitter):
    """The stretches between marks; `name=value` words of a stretch are metadata of its node."""

    mark: str

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        start = 0
        for text in part.node.text.split(self.mark):
            pairs = (word.partition("=") for word in text.split() if "=" in word)
            if text:
                yield Piece(text, start, meta=tuple((name, value) for name, _, value in pairs))
            start += len(text) + len(self.mark)


GROUPS = {
    "section": Definition(Cut("\n")),
    "chunk": Definition(Cut("|"), parent="section"),
    "sentence": Definition(Cut(";"), parent="chunk"),
}
"""Lines are sections, `|` ends a chunk, `;` a sentence."""


@dataclass(frozen=True)
class Source:
    """A document to be: its text, who may read it, its metadata."""

    text: str
    readers: tuple[str, ...] = ()
    meta: Meta = ()


def store_texts(
    path: Path,
    texts: Mapping[str, str | Source],
    groups: Mapping[str, Definition] = GROUPS,
    embedder: Embedder | None = None,
    secret: Mapping[str, tuple[str, ...]] | None = None,
    fields: Sequence[Field] = (),
) -> Corpus:
    """A store of texts by document id.

    Args:
        secret: who may read a node, by its id, where that is not who may read the document.
    """
    corpus = Corpus(str(path)).create()
    embeddings = (GroupEmbedding(embedder.name, embedder.dimension),) if embedder else ()
    with corpus.writer() as writer:
        writer.declare(fields)
        for name, definition in groups.items():
            manifest = Manifest(name, "test", "test", Analyzer(), embeddings, definition.parent)
            writer.define(name, manifest)
        for id, text in texts.items():
            _put(writer, id, text if isinstance(text, Source) else Source(text), groups, secret or {})
        for name in groups if embedder else ():
            if embedder is not None and (lacking := list(writer.unembedded(name, embedder.name))):
                vectors = embedder.embed([text for _, text in lacking], kind="passage")
                writer.add_vectors(embedder.name, [text_hash for text_hash, _ in lacking], vectors)
    return corpus


def _put(
    writer: Writer, id: str, source: Source, groups: Mapping[str, Definition], secret: Mapping[str, tuple[str, ...]]
) -> None:
    document = Document(id, source.text, uri=f"{id}.txt", readers=source.readers, meta=source.meta)
    new_nodes: dict[str, list[Node]] = {DOCUMENT: [document_node(document)]}
    for name, definition in groups.items():
        making = NodeFactory(document, name, definition.transform)
        new_nodes[name] = [
            node.but(readers=secret.get(node.id, node.readers))
            for parent in new_nodes[definition.parent]
            for node in making.make_nodes(Part(parent, document), definition.transform(Part(parent, document)))
        ]
    nodes = [node for name in groups for node in new_nodes[name]]
    writer.put_document(document, nodes, SourceRow(document.uri, content_hash=id))

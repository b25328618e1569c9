"""A store in which every node and every document holds a secret of its own, and by definition who may find which."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from zlib import crc32

from spolia.core.codec import encode
from spolia.filters import Between, Condition, Field, Schema, where
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.indexes import IndexSettings
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.stores.snapshot.records import file_meta
from spolia.testing import HashingEmbedder
from spolia.types import Document, Meta, Node, Query, Span
from tests.retrieval.test_learned_sparse import Counting

EMBEDDER, SPARSE = HashingEmbedder(dimension=16), Counting()
PRINCIPALS = ("ann", "bob", "staff", "eve")
QUERY = Query("The tide rises. It falls")
GROUPS: Mapping[str, str] = {"chunk": "document", "sentence": "chunk", "entity": "sentence"}
PICTURE = "picture"
WORDS = ("tide", "moon", "harbour", "ebb", "quay")
SECRET = re.compile(r"secret-[\w.-]+")
Lists = Mapping[str, tuple[str, ...]]
FIELDS = Schema((Field("tone"), Field("weight", "int")))


@dataclass(frozen=True)
class Filters:
    """What narrows a search: of the run, of the query, of the operator."""

    run: Condition | None = None
    query: Condition | None = None
    operator: Condition | None = None

    @property
    def asked(self) -> Query:
        return QUERY.but(filter=self.query)


RUN, OWN, OPERATOR = where(tone="low"), Between("weight", at_least=2), where(file_name=("d0.txt", "d1.txt", "d2.txt"))
NONE, ALL = Filters(), Filters(RUN, OWN, OPERATOR)
NARROWED = (NONE, Filters(run=RUN), Filters(query=OWN), Filters(operator=OPERATOR), ALL)


def random_lists(draw: Random, documents: int = 4) -> Lists:
    """Reader lists of documents, and of some nodes by their ids; an empty one means everybody."""

    def draw_readers() -> tuple[str, ...]:
        return tuple(draw.sample(PRINCIPALS[:3], draw.choice((0, 1, 1, 2))))

    lists = {f"d{number}": draw_readers() for number in range(documents)}
    ids = [f"{document}.{part}" for document in lists for part in ("0", "0.0", "0.1", "1", "1.0", "1.0.e")]
    return lists | {id: draw_readers() for id in ids if draw.random() < 0.3}


def fill_store(corpus: Corpus, lists: Lists, index: IndexSettings, *, sparse: bool = True) -> Corpus:
    """A new store with documents of two chunks, of two sentences each, of one entity each."""
    settings = json.dumps(encode(index, IndexSettings))
    embedded = (GroupEmbedding(EMBEDDER.name, EMBEDDER.dimension, index=settings), GroupEmbedding(SPARSE.name, 0))[
        : 1 + sparse
    ]
    corpus.create()
    with corpus.writer() as writer:
        writer.declare(FIELDS)
        for group, parent in GROUPS.items():
            writer.define(group, Manifest(group, "by hand", "none", Analyzer(), embedded, parent))
        for id in (name for name in lists if "." not in name):
            document, nodes = _document(id, lists)
            picture = {PICTURE: f"secret-image-{id}".encode()}
            writer.put_document(document, nodes, SourceRow(document.uri, len(document.text), content_hash=id), picture)
        for group in GROUPS:
            if lacking := list(writer.unembedded(group, EMBEDDER.name)):
                keys, texts = zip(*lacking, strict=True)
                writer.add_vectors(EMBEDDER.name, keys, EMBEDDER.embed(texts, kind="passage"))
            if sparse and (lacking := list(writer.unembedded(group, SPARSE.name))):
                keys, texts = zip(*lacking, strict=True)
                writer.add_sparse(SPARSE.name, keys, SPARSE.embed_sparse(texts, kind="passage"))
    return corpus


def _document(id: str, lists: Lists) -> tuple[Document, list[Node]]:
    head = f"secret-whole-{id} "
    chunks = [f"The tide rises. It falls at {id}:{part}{_words(f'{id}.{part}')}. " for part in range(2)]
    text = head + "".join(chunks)
    nodes: list[Node] = []

    def add(node: str, group: str, parent: str, start: int, end: int) -> None:
        own = {"readers": lists[node]} if lists.get(node) else {}
        number = 1 + sum(earlier.group == group for earlier in nodes)
        meta = (
            ("entity", ("Moon", "Sea")[crc32(node.encode()) % 5 == 0]),
            ("secret", f"secret-{node}"),
            *_draw_metadata(node),
        )
        new_node = Node(node, text[start:end], id, group, Span(start, end), f"secret-{node}", f"{id}.txt", parent, meta)
        nodes.append(new_node.but(number=number, **own))

    for part, chunk in enumerate(chunks):
        start = text.index(chunk)
        middle, end = text.index("It", start), start + len(chunk)
        add(f"{id}.{part}", "chunk", id, start, end)
        for index, (first, last) in enumerate([(start, middle), (middle, end)]):
            add(f"{id}.{part}.{index}", "sentence", f"{id}.{part}", first, last)
            add(f"{id}.{part}.{index}.e", "entity", f"{id}.{part}.{index}", first, first + 8)
    title, uri, meta = f"secret-title-{id}", f"{id}.txt", META.get(id, ())
    return Document(id, text, uri=uri, title=title, meta=meta, readers=lists[id]), nodes


def _words(part: str) -> str:
    """Some words of a part of a document, other ones in each."""
    number = crc32(part.encode())
    return "".join(f" {word}" * (number >> 2 * index & 3) for index, word in enumerate(WORDS))


META: Mapping[str, Meta] = {
    "d0": (("tone", "low"), ("weight", 3)),
    "d1": (("tone", "low"), ("weight", 0)),
    "d2": (("weight", 3),),
    "d3": (("tone", "low"), ("weight", 3)),
}
"""What documents say, which holds for their nodes too: all filters together let the first be found, and of each other
document some filter leaves something out that all others let be found."""


def _draw_metadata(node: str) -> Meta:
    """What a node says itself: some lack a field."""
    number = crc32(node.encode())
    tone, weight = ("low", "high", None)[number % 3], (0, 1, 2, None)[number // 3 % 4]
    return tuple((name, value) for name, value in (("tone", tone), ("weight", weight)) if value is not None)


def readable(lists: Lists, principals: frozenset[str]) -> set[str]:
    """The secrets that these principals may see, by the definition: a node's own list, else its document's."""
    secrets_found = set[str]()
    for document in (name for name in lists if "." not in name):
        if not lists[document] or principals & set(lists[document]):
            secrets_found |= _of_document(document)
        for node in _document(document, lists)[1]:
            readers = lists.get(node.id) or lists[document]
            secrets_found |= {f"secret-{node.id}"} if not readers or principals & set(readers) else set()
    return secrets_found


def _of_document(id: str) -> set[str]:
    """The secrets of a document itself."""
    return {f"secret-{kind}-{id}" for kind in ("whole", "title", "image")}


def fulfilling(lists: Lists, condition: Condition | None) -> set[str]:
    """The secrets of what a filter accepts, by the definition: a document's fields are its nodes' too."""
    secrets_found = set[str]()
    for name in (name for name in lists if "." not in name):
        document, nodes = _document(name, lists)
        of_all = document.meta + file_meta(document.uri, len(document.text), 0, 0, 0)
        whole = _of_document(name)
        for secrets_, meta in [(whole, ()), *(({f"secret-{node.id}"}, node.meta) for node in nodes)]:
            if condition is None or condition.accepts(FIELDS.record(of_all + meta)):
                secrets_found |= secrets_
    return secrets_found


def with_above(secrets_found: set[str]) -> set[str]:
    """Some secrets, and those of what their nodes are parts of."""
    parts = [secret.removeprefix("secret-").split(".") for secret in secrets_found]
    ids_above = {".".join(part[:end]) for part in parts for end in range(1, len(part))}
    whole = {secret for id in ids_above if "." not in id for secret in _of_document(id)}
    return secrets_found | {f"secret-{id}" for id in ids_above} | whole


def in_folder(path: Path) -> Corpus:
    """A store that is not there yet."""
    return Corpus(str(path / "store.spolia"))

"""A staging that is never committed, and counts what would be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from spolia.models.http.replies import estimated_tokens
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Backend
from spolia.stores.backends.publication import NONE, Draft, Lacking
from spolia.stores.backends.rows import key_of
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.stores.staging import AnyWriter, Staging
from spolia.types import NO_BOXES, Document, Meta

SAMPLED = 16


@dataclass
class GroupCount:
    """What one group would take; equal texts and pictures count once.

    Attributes:
        tokens: of the texts, one for three bytes.
        known: texts and pictures whose vectors are there already.
        sample: some of the texts, by embedder.
    """

    nodes: int = 0
    texts: int = 0
    characters: int = 0
    tokens: int = 0
    pictures: int = 0
    known: int = 0
    sample: dict[str, list[str]] = field(default_factory=dict)


class DryRun(Staging):
    """A staging that is never committed: `publish` counts what waits and goes on as if it were there.

    Attributes:
        redefined: groups whose nodes are made anew.
        embedded: groups whose nodes stay, and are embedded or searched otherwise.
    """

    def __init__(self, store: Backend) -> None:
        self.store, self.timeout_s = store, 0.0
        self.counted: dict[str, GroupCount] = {}
        self.redefined: set[str] = set()
        self.embedded: set[str] = set()
        self._put: dict[str, bytes] = {}
        self._seen: set[tuple[str, bytes]] = set()
        self._begin()

    def changed(self, uris: Iterable[str]) -> set[str]:
        return set()

    def holds(self, document: Document) -> bool:
        return self._put.get(document.id) == document.but(uri="").digest or super().holds(document)

    def metadata(self) -> Iterator[tuple[str, Meta]]:
        """Of the documents that there would be; what a transform would say of nodes is not among it."""
        for document in map(self.document, self._staged.documents):
            yield f"document {document.uri}", document.meta
        for document in self.documents():
            if self.holders(document.id):
                yield f"document {document.uri}", document.meta

    def redefine(self, group: str, manifest: Manifest, *, keep_nodes: bool = False) -> None:
        there = self.manifests.get(group)
        super().redefine(group, manifest, keep_nodes=keep_nodes)
        if there is None:
            return
        if not keep_nodes:
            self.redefined.add(group)
            return
        self.embedded.add(group)
        for how in manifest.embeddings:
            if not there.embedded(how.embedder):
                self._count_more(group, how, manifest)

    def _lacking(self, group: str, embedder: str) -> Iterator[Lacking]:
        """Nothing is embedded."""
        return iter(())

    def publish(self, complete: Callable[[AnyWriter], None] = lambda writer: None, *, embedded: bool = True) -> int:
        staged = self._staged
        for (_, group), nodes in staged.nodes.items():
            self.of(group).nodes += sum(node.group == group for node in nodes)
        for group, lacking in staged.unembedded.items():
            for how in self.manifests[group].embeddings:
                for hash, one in lacking.items():
                    self._count(group, how, hash, one)
        for id in staged.documents:
            document = self.document(id)
            if id in staged.images and id not in self._put:
                self._put[id] = document.but(uri="").digest
                staged.images[id] = NONE
            staged.documents[id] = document.but(text="", pages=(), headings=(), regions=(), boxes=NO_BOXES)
        staged.changes.clear()
        staged.nodes.clear()
        staged.unembedded.clear()
        staged.weight = 0
        return self.generation

    # Counting.

    def of(self, group: str) -> GroupCount:
        """What a group would take."""
        return self.counted.setdefault(group, GroupCount())

    def _count_more(self, group: str, how: GroupEmbedding, manifest: Manifest) -> None:
        """The nodes that a group has, embedded in a further way."""
        for document in Draft.documents(self):
            for node in Draft.nodes(self, document.id, group):
                hash = key_of(node, document, by_picture=manifest.by_picture)
                self._count(group, how, hash, Lacking(hash, node.id, document.id, node.indexed_text))

    def _count(self, group: str, how: GroupEmbedding, hash: bytes, one: Lacking) -> None:
        if (key := (how.embedder, hash)) in self._seen:
            return
        self._seen.add(key)
        counted = self.of(group)
        if self._connection.execute(sql.HAS_VECTOR, key).fetchone() is not None:
            counted.known += 1
        elif one.is_picture:
            counted.pictures += 1
        else:
            self._count_text(counted, how.embedder, one.text)

    def _count_text(self, counted: GroupCount, embedder: str, text: str) -> None:
        counted.texts += 1
        counted.characters += len(text)
        counted.tokens += estimated_tokens(text)
        sample: list[Any] = counted.sample.setdefault(embedder, [])
        if counted.texts & (counted.texts - 1) == 0 and len(sample) < SAMPLED:  # the 1st, 2nd, 4th, 8th …
            sample.append(text)

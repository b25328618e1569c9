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
        self._gone: set[str] = set()
        self._embedded_more: list[tuple[str, GroupEmbedding]] = []
        self._begin()

    def changed(self, uris: Iterable[str]) -> set[str]:
        return set()

    def holds(self, document: Document) -> bool:
        there = super()._waiting(document.id)
        if there is None or document.id not in self._put:
            return super().holds(document)
        is_labelled_so = (there.meta, there.readers) == (document.meta, document.readers)
        is_same = is_labelled_so and self._put[document.id] == _digest(document)
        return is_same and bool(self.holders(document.id))

    def meta_of(self, document: str) -> Meta | None:
        return super().meta_of(document) if self.holders(document) else None

    # What a run would read of its own publications; to the real staging only what is published counts.

    def readers(self, uris: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        uris, staged = None if uris is None else list(uris), self._staged
        found = super().readers(uris)
        for uri in found.keys() & staged.rows.keys() if uris is not None else staged.rows:
            found.pop(uri, None)
            if (row := staged.rows[uri]) is not None and row.document:
                found[uri] = self.document(row.document).readers
        for id, (_, new) in staged.relabelled.items():
            found |= {row.uri: new.readers for row in self.holders(id) if uris is None or row.uri in found}
        return found

    def access_lists(self, uris: Iterable[str] | None = None) -> dict[str, tuple[tuple[str, ...], int]]:
        found, rows = super().access_lists(uris), self._staged.rows
        before = Draft.sources(self, rows).values()
        changed = {row.document for row in (*before, *filter(None, rows.values()))} | self._staged.relabelled.keys()
        for id in changed:
            found.pop(id, None)
            if (now := self.access_list_of(id)) is not None:
                found[id] = now
        return found

    def access_list_of(self, document: str) -> tuple[tuple[str, ...], int] | None:
        holders = len(self.holders(document)) if document else 0
        return (self.document(document).readers, min(holders, 2)) if holders else None

    def is_restricted_now(self) -> bool:
        return any(self.readers().values())

    def _waiting(self, id: str) -> Document | None:
        """Only what is not in the store is kept with its text, until it is counted."""
        found = super()._waiting(id)
        if found is None or id in self._staged.images:
            return found
        return Draft.document(self, id).but(uri=found.uri, meta=found.meta, readers=found.readers)

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
        self._embedded_more += [(group, how) for how in manifest.embeddings if not there.embedded(how.embedder)]

    def _lacking(self, group: str, embedder: str) -> Iterator[Lacking]:
        """Nothing is embedded."""
        return iter(())

    def spill(self) -> None:
        self.publish()

    def publish(self, complete: Callable[[AnyWriter], None] = lambda writer: None, *, embedded: bool = True) -> int:
        staged = self._staged
        for group, how in self._embedded_more if embedded else ():
            self._count_more(group, how, self.manifests[group])
        for group, manifest in self.manifests.items() if embedded else ():
            for how in manifest.embeddings:
                for hash, one in staged.unembedded.get(group, {}).items():
                    self._count(group, how, hash, one)
                for one in super()._lacking(group, how.embedder):
                    if one.document not in self._gone:
                        self._count(group, how, one.hash, one)
        self._embedded_more.clear()
        for id in staged.documents:
            if (document := super()._waiting(id)) is None:
                continue
            if id in staged.images and id not in self._put:
                self._put[id] = _digest(document)
                staged.images[id] = NONE
            staged.documents[id] = document.but(text="", pages=(), headings=(), regions=(), boxes=NO_BOXES)
        there = Draft.sources(self, {uri for change in staged.changes for uri in change.uris}).values()
        self._gone |= {row.document for row in there if row.document and not self.holders(row.document)}
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
            if document.id in self._gone:
                continue
            for node in Draft.nodes(self, document.id, group):
                hash = key_of(node, document, by_picture=manifest.by_picture)
                self._count(group, how, hash, Lacking(hash, node.id, document.id, node.indexed_text))

    def _count(self, group: str, how: GroupEmbedding, hash: bytes, one: Lacking) -> None:
        if (key := (how.embedder, hash)) in self._pending:
            return
        self._pending.add(key)
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


def _digest(document: Document) -> bytes:
    """Tells a document apart by what its labels do not change."""
    return document.but(uri="", meta=(), readers=()).digest

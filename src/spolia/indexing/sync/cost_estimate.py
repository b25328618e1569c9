"""Cost estimate of a sync run: a staging area that counts instead of committing, and prompts without replies.

Tokens are estimated as they are reserved before a call: one for three bytes of UTF-8, more than most tokenizers make,
and 8 for each message. A reply is counted with all that it may have. Steps that need a first reply to make a second
prompt are seen as far as the first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from spolia.core.replacement import replace_parts
from spolia.models.http.replies import estimate_tokens
from spolia.models.prompting.stand_in_models import Silent, Unanswered
from spolia.models.protocols import LanguageModel, pricing_of
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Backend
from spolia.stores.backends.publication import NO_IMAGES, Draft, UnembeddedNode
from spolia.stores.backends.rows import key_of
from spolia.stores.definition import Part, Piece, Splitter, Transform, TransformChooser
from spolia.stores.groups.nodes import GroupBuild
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.stores.staging import AnyWriter, Staging
from spolia.types import NO_BOXES, Document, Meta, Prompt, Usage

MESSAGE_TOKENS = 8


@dataclass
class ModelUse:
    """Model calls that a group would make; `usage` counts each prompt once, at the prices that models state."""

    parts: int = 0
    usage: Usage = field(default_factory=Usage)
    has_price: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, model: LanguageModel, prompt: Prompt, max_tokens: int) -> None:
        """Count a prompt that would be sent and gets no reply."""
        input_tokens = sum(estimate_tokens(message.content) + MESSAGE_TOKENS for message in prompt.messages)
        usage = Usage(calls=1, input_tokens=input_tokens, output_tokens=max_tokens)
        priced = pricing_of(model)
        self.count(priced(usage) if priced is not None else usage)

    def count(self, usage: Usage) -> None:
        """Add what a call would cost."""
        with self.lock:
            self.usage += usage
            self.has_price |= usage.cost_usd > 0


@dataclass(frozen=True)
class _CountingSplitter(Splitter):
    """Stand-in for a transform that asks models: it makes nothing and counts what would be asked."""

    transform: Transform
    model_use: ModelUse = field(compare=False)

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        self.model_use.parts += 1
        with suppress(Unanswered):
            self.transform(part)
        return iter(())


@dataclass(frozen=True)
class _CountingChoice(TransformChooser):
    """Chooser of each document's transform; a transform that would ask models is replaced by a counter."""

    transform: Transform
    model_use: ModelUse = field(compare=False)

    def transform_for(self, uri: str, /) -> Transform:
        transform = self.transform
        while isinstance(transform, TransformChooser):
            transform = transform.transform_for(uri)
        if not asks_models(transform):
            return transform
        silent = replace_parts(
            transform, lambda value: Silent(value, self.model_use.add) if _is_model(value) else value
        )
        return _CountingSplitter(silent, self.model_use)


def make_dry_build(build: GroupBuild, model_uses: dict[str, ModelUse]) -> GroupBuild:
    """Return a build that asks no model; count by group in `model_uses` what models would be asked for."""
    if not asks_models(build.transform):
        return build
    model_use = model_uses.setdefault(build.group, ModelUse())
    return replace(build, transform=_CountingChoice(build.transform, model_use))


def asks_models(transform: Transform) -> bool:
    """Return whether a transform asks language models or embeds."""
    return bool(transform.calls()) or any(map(_is_model, transform.resources))


def _is_model(value: object) -> bool:
    return any(hasattr(value, name) for name in ("generate", "embed", "embed_sparse"))


SAMPLED_TEXTS = 16


@dataclass
class GroupCount:
    """Counts for one group (see `GroupPlan`), equal texts once, and some of its texts by embedder."""

    texts: int = 0
    characters: int = 0
    tokens: int = 0
    pictures: int = 0
    already_embedded: int = 0
    sample: dict[str, list[str]] = field(default_factory=dict)


class DryRun(Staging):
    """Staging area that never commits: `publish` counts what waits and goes on as if it were published."""

    def __init__(self, store: Backend) -> None:
        self.store, self.timeout_s = store, 0.0  # not by the base class, which makes a writer and waits for its lock
        self.group_counts: dict[str, GroupCount] = {}
        self.redefined: set[str] = set()
        self.embedded: set[str] = set()
        self._digests: dict[str, bytes] = {}
        self._gone: set[str] = set()
        self._added_embeddings: list[tuple[str, GroupEmbedding]] = []
        self._begin(store.connect_for_reading())

    def find_changed(self, uris: Iterable[str]) -> set[str]:
        return set()  # what others change meanwhile matters only to commits

    def holds(self, document: Document) -> bool:
        staged_document = super()._staged_document(document.id)
        if staged_document is None or document.id not in self._digests:
            return super().holds(document)
        is_labelled_so = (staged_document.meta, staged_document.readers) == (document.meta, document.readers)
        is_same = is_labelled_so and self._digests[document.id] == _digest(document)
        return is_same and bool(self.holders(document.id))

    def meta_of(self, document: str) -> Meta | None:
        return super().meta_of(document) if self.holders(document) else None

    # What a run would read of its own publications; to the real staging only what is published counts.

    def readers(self, uris: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        uris, staged = None if uris is None else list(uris), self._staged
        readers_by_uri = super().readers(uris)
        for uri in readers_by_uri.keys() & staged.rows.keys() if uris is not None else staged.rows:
            readers_by_uri.pop(uri, None)
            if (row := staged.rows[uri]) is not None and row.document:
                readers_by_uri[uri] = self.document(row.document).readers
        for id, (_, new) in staged.relabelled.items():
            readers_by_uri |= {
                row.uri: new.readers for row in self.holders(id) if uris is None or row.uri in readers_by_uri
            }
        return readers_by_uri

    def access_lists(self, uris: Iterable[str] | None = None) -> dict[str, tuple[tuple[str, ...], int]]:
        lists, rows = super().access_lists(uris), self._staged.rows
        stored_rows = Draft.sources(self, rows).values()
        changed = {
            row.document for row in (*stored_rows, *filter(None, rows.values()))
        } | self._staged.relabelled.keys()
        for id in changed:
            lists.pop(id, None)
            if (now := self.access_list_of(id)) is not None:
                lists[id] = now
        return lists

    def access_list_of(self, document: str) -> tuple[tuple[str, ...], int] | None:
        holders = len(self.holders(document)) if document else 0
        return (self.document(document).readers, min(holders, 2)) if holders else None

    def is_restricted_now(self) -> bool:
        return any(self.readers().values())

    def _staged_document(self, id: str) -> Document | None:
        """Only what is not in the store is kept with its text, until it is counted."""
        found = super()._staged_document(id)
        if found is None or id in self._staged.images:
            return found
        return Draft.document(self, id).but(uri=found.uri, meta=found.meta, readers=found.readers)

    def metadata(self) -> Iterator[tuple[str, Meta]]:
        """Yield the metadata of the documents after the run, without what a transform would add to nodes."""
        for document in map(self.document, self._staged.documents):
            yield f"document {document.uri}", document.meta
        for document in self.documents():
            if self.holders(document.id):
                yield f"document {document.uri}", document.meta

    def redefine(self, group: str, manifest: Manifest, *, keep_nodes: bool = False) -> None:
        stored = self.manifests.get(group)
        super().redefine(group, manifest, keep_nodes=keep_nodes)
        if stored is None:
            return
        if not keep_nodes:
            self.redefined.add(group)
            return
        self.embedded.add(group)
        self._added_embeddings += [
            (group, embedding) for embedding in manifest.embeddings if not stored.find_embedding(embedding.embedder)
        ]

    def _unembedded_nodes(self, group: str, embedder: str) -> Iterator[UnembeddedNode]:
        return iter(())

    def spill(self) -> None:
        self.publish()

    def join_full(self) -> None:
        """Join nothing: nothing was written."""

    def publish(self, build_groups: Callable[[AnyWriter], None] = lambda writer: None, *, embedded: bool = True) -> int:
        staged = self._staged
        for group, embedding in self._added_embeddings if embedded else ():
            self._count_existing(group, embedding, self.manifests[group])
        for group, manifest in self.manifests.items() if embedded else ():
            for embedding in manifest.embeddings:
                for hash, item in staged.unembedded.get(group, {}).items():
                    self._count(group, embedding, hash, item)
                for item in super()._unembedded_nodes(group, embedding.embedder):
                    if item.document not in self._gone:
                        self._count(group, embedding, item.hash, item)

        self._added_embeddings.clear()
        for id in staged.documents:
            if (document := super()._staged_document(id)) is None:
                continue
            if id in staged.images and id not in self._digests:
                self._digests[id] = _digest(document)
                staged.images[id] = NO_IMAGES
            # The digest is enough to know it again: all texts of a run would fill memory.
            staged.documents[id] = document.but(text="", pages=(), headings=(), regions=(), boxes=NO_BOXES)

        stored_rows = Draft.sources(self, {uri for change in staged.changes for uri in change.uris}).values()
        self._gone |= {row.document for row in stored_rows if row.document and not self.holders(row.document)}

        staged.changes.clear()
        staged.nodes.clear()
        staged.unembedded.clear()
        staged.weight = 0
        return self.generation

    # Counting.

    def count_of(self, group: str) -> GroupCount:
        """Return the counts of a group, empty at first."""
        return self.group_counts.setdefault(group, GroupCount())

    def _count_existing(self, group: str, embedding: GroupEmbedding, manifest: Manifest) -> None:
        """Count the nodes that a group has already, for one more embedding."""
        for document in Draft.documents(self):
            if document.id in self._gone:
                continue
            for node in Draft.nodes(self, document.id, group):
                hash = key_of(node, document, by_picture=manifest.by_picture)
                self._count(group, embedding, hash, UnembeddedNode(hash, node.id, document.id, node.indexed_text))

    def _count(self, group: str, embedding: GroupEmbedding, hash: bytes, item: UnembeddedNode) -> None:
        if (key := (embedding.embedder, hash)) in self._pending:  # equal texts are embedded once
            return
        self._pending.add(key)
        group_count = self.count_of(group)
        if self._connection.execute(sql.HAS_VECTOR, key).fetchone() is not None:
            group_count.already_embedded += 1
        elif item.is_picture:
            group_count.pictures += 1
        else:
            group_count.texts += 1
            group_count.characters += len(item.text)
            group_count.tokens += estimate_tokens(item.text)
            sample = group_count.sample.setdefault(embedding.embedder, [])
            # The 1st, 2nd, 4th, 8th … text.
            if group_count.texts & (group_count.texts - 1) == 0 and len(sample) < SAMPLED_TEXTS:
                sample.append(item.text)


def _digest(document: Document) -> bytes:
    return document.but(uri="", meta=(), readers=()).digest

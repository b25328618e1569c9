"""What a run would take, found out without writing and without asking: a staging that counts, prompts without replies.

Tokens are estimated as they are reserved before a call: one for three bytes of UTF-8, more than most tokenizers make,
and 8 for each message. A reply is counted with all that it may have. Steps that need a first reply to make a second
prompt are seen as far as the first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from spolia.core.replacement import replaced
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
    """What a group would ask models for; `usage` counts each prompt once, priced by the models that state a price."""

    parts: int = 0
    usage: Usage = field(default_factory=Usage)
    has_price: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, model: LanguageModel, prompt: Prompt, max_tokens: int) -> None:
        """A prompt would be sent, and gets no reply."""
        sent = sum(estimate_tokens(message.content) + MESSAGE_TOKENS for message in prompt.messages)
        usage = Usage(calls=1, input_tokens=sent, output_tokens=max_tokens)
        priced = pricing_of(model)
        self.count(priced(usage) if priced is not None else usage)

    def count(self, usage: Usage) -> None:
        """Add what a call would cost."""
        with self.lock:
            self.usage += usage
            self.has_price |= usage.cost_usd > 0


@dataclass(frozen=True)
class _CountingSplitter(Splitter):
    """Stands for a transform that asks models: it makes nothing, and counts what would be asked."""

    transform: Transform
    asked: ModelUse = field(compare=False)

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        self.asked.parts += 1
        with suppress(Unanswered):
            self.transform(part)
        return iter(())


@dataclass(frozen=True)
class _CountingChoice(TransformChooser):
    """Leaves each document to what makes its pieces, which is not asked either where it would ask models."""

    transform: Transform
    asked: ModelUse = field(compare=False)

    def transform_for(self, uri: str, /) -> Transform:
        found = self.transform
        while isinstance(found, TransformChooser):
            found = found.transform_for(uri)
        if not asks(found):
            return found
        silent = replaced(found, lambda value: Silent(value, self.asked.add) if _is_model(value) else value)
        return _CountingSplitter(silent, self.asked)


def without_models(build: GroupBuild, asked: dict[str, ModelUse]) -> GroupBuild:
    """How a group grows when no model is asked; `asked` counts by group what models would have been asked for."""
    if not asks(build.transform):
        return build
    tally = asked.setdefault(build.group, ModelUse())
    return replace(build, transform=_CountingChoice(build.transform, tally))


def asks(transform: Transform) -> bool:
    """Whether a transform asks language models, or embeds."""
    return bool(transform.calls()) or any(map(_is_model, transform.resources))


def _is_model(value: object) -> bool:
    return any(hasattr(value, name) for name in ("generate", "embed", "embed_sparse"))


SAMPLED = 16


@dataclass
class GroupCount:
    """What one group would take (see `GroupPlan`), equal texts counted once, and some of its texts by embedder."""

    texts: int = 0
    characters: int = 0
    tokens: int = 0
    pictures: int = 0
    known: int = 0
    sample: dict[str, list[str]] = field(default_factory=dict)


class DryRun(Staging):
    """A staging that is never committed: `publish` counts what waits and goes on as if it were there."""

    def __init__(self, store: Backend) -> None:
        self.store, self.timeout_s = store, 0.0
        self.counted: dict[str, GroupCount] = {}
        self.redefined: set[str] = set()
        self.embedded: set[str] = set()
        self._put: dict[str, bytes] = {}
        self._gone: set[str] = set()
        self._embedded_more: list[tuple[str, GroupEmbedding]] = []
        self._begin(store.connect_for_reading())

    def find_changed(self, uris: Iterable[str]) -> set[str]:
        return set()

    def holds(self, document: Document) -> bool:
        there = super()._staged_document(document.id)
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

    def _staged_document(self, id: str) -> Document | None:
        """Only what is not in the store is kept with its text, until it is counted."""
        found = super()._staged_document(id)
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
        self._embedded_more += [(group, how) for how in manifest.embeddings if not there.find_embedding(how.embedder)]

    def _unembedded_nodes(self, group: str, embedder: str) -> Iterator[UnembeddedNode]:
        return iter(())

    def spill(self) -> None:
        self.publish()

    def join_full(self) -> None:
        """Join nothing: nothing was written."""

    def publish(self, build_groups: Callable[[AnyWriter], None] = lambda writer: None, *, embedded: bool = True) -> int:
        staged = self._staged
        for group, how in self._embedded_more if embedded else ():
            self._count_more(group, how, self.manifests[group])
        for group, manifest in self.manifests.items() if embedded else ():
            for how in manifest.embeddings:
                for hash, one in staged.unembedded.get(group, {}).items():
                    self._count(group, how, hash, one)
                for one in super()._unembedded_nodes(group, how.embedder):
                    if one.document not in self._gone:
                        self._count(group, how, one.hash, one)
        self._embedded_more.clear()
        for id in staged.documents:
            if (document := super()._staged_document(id)) is None:
                continue
            if id in staged.images and id not in self._put:
                self._put[id] = _digest(document)
                staged.images[id] = NO_IMAGES
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
                self._count(group, how, hash, UnembeddedNode(hash, node.id, document.id, node.indexed_text))

    def _count(self, group: str, how: GroupEmbedding, hash: bytes, one: UnembeddedNode) -> None:
        if (key := (how.embedder, hash)) in self._pending:
            return
        self._pending.add(key)
        counted = self.of(group)
        if self._connection.execute(sql.HAS_VECTOR, key).fetchone() is not None:
            counted.known += 1
        elif one.is_picture:
            counted.pictures += 1
        else:
            counted.texts += 1
            counted.characters += len(one.text)
            counted.tokens += estimate_tokens(one.text)
            sample = counted.sample.setdefault(how.embedder, [])
            if counted.texts & (counted.texts - 1) == 0 and len(sample) < SAMPLED:  # the 1st, 2nd, 4th, 8th …
                sample.append(one.text)


def _digest(document: Document) -> bytes:
    return document.but(uri="", meta=(), readers=()).digest

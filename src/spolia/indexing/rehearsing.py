"""A writer that writes nothing: what a run would put into a store is counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from spolia.filters import Field, Schema
from spolia.models.http.replies import estimated_tokens
from spolia.stores.corpus import Corpus
from spolia.stores.manifest import Embedded, Manifest, refuse_other
from spolia.stores.tables import sql
from spolia.stores.tables.changes import NONE
from spolia.stores.tables.rows import (
    NOT_YET,
    SourceRow,
    Stamp,
    Unmade,
    hash_of,
    hash_of_picture,
    picture_of,
    unpacked,
)
from spolia.stores.writer import Lacking, Writer
from spolia.types import Document, Meta, Node

SAMPLED = 16
_LAST = 2**62


@dataclass
class Counted:
    """What one group would take.

    Attributes:
        nodes: that are cut.
        texts: that are embedded, each once.
        characters: of these.
        tokens: of these, one for three bytes.
        pictures: that are embedded, each once.
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


class Rehearsal(Writer):
    """Has what the published generation of a store has, and notes what is changed.

    Args:
        corpus: the store; it need not be there.

    Attributes:
        counted: by group.
        redefined: groups whose nodes are made anew.
        embedded: groups whose nodes stay, and are embedded or searched otherwise.
    """

    def __init__(self, corpus: Corpus) -> None:
        self.snapshot = corpus.latest() if corpus.exists() else None
        self.manifests: dict[str, Manifest] = dict(self.snapshot.manifests) if self.snapshot else {}
        self.counted: dict[str, Counted] = {}
        self.redefined: set[str] = set()
        self.embedded: set[str] = set()
        self._sources = self.snapshot.sources() if self.snapshot else {}
        lists = self.snapshot.readers.lists if self.snapshot else {}
        self._everybody = frozenset(chain.from_iterable(lists.values()))
        self.schema = self.snapshot.schema if self.snapshot else Schema()
        self._declared = self.schema
        self._put: dict[str, bytes] = {}
        self._metas: dict[str, tuple[str, Meta]] = {}
        self._expected: set[str] = set()
        self._made: set[tuple[str, str]] = set()
        self._seen: set[tuple[str, bytes]] = set()

    def stamps(self, uris: Iterable[str] | None = None) -> dict[str, Stamp]:
        wanted = None if uris is None else frozenset(uris)
        rows = (row for uri, row in self._sources.items() if wanted is None or not wanted.isdisjoint(_with_above(uri)))
        return {row.uri: (row.size, row.mtime_ns, row.status, row.reader) for row in rows}

    def sources(self, uris: Iterable[str] | None = None) -> dict[str, SourceRow]:
        return {uri: self._sources[uri] for uri in (self._sources if uris is None else uris) if uri in self._sources}

    def cursors(self) -> dict[str, dict[str, str]]:
        """They are not looked at."""
        return {}

    def documents(self) -> Iterator[Document]:
        """Those that stay as they are."""
        live = self._live()
        if self.snapshot is not None:
            yield from (one for one in self.snapshot.documents(self._everybody) if one.id in live)

    def _live(self) -> dict[str, str]:
        """The documents that stay as they are, each with the uri of one of its sources."""
        return {
            row.document: row.uri for row in self._sources.values() if row.document and row.document not in self._put
        }

    def metadata(self) -> Iterator[tuple[str, Meta]]:
        """Of the documents that there would be; what a transform would say of nodes is not among it."""
        yield from self._metas.values()
        yield from (
            (f"document {uri}", self.meta_of(id) or ()) for id, uri in self._live().items() if id not in self._metas
        )

    def nodes(self, document: str, group: str) -> list[Node]:
        """Those that the store has."""
        if self.snapshot is None or group not in self.snapshot.groups():
            return []
        return self.snapshot.numbered(document, group, 0, _LAST, self._everybody)

    def lacking(self, uris: Iterable[str] | None = None) -> list[str]:
        rows = self.sources(uris).values()
        return [row.uri for row in rows if row.status == "indexed" and '"lacks":' in row.report]

    def showing(self, uris: Iterable[str] | None = None) -> list[tuple[str, str]]:
        rows = self.sources(uris).values()
        return [(row.uri, row.report) for row in rows if row.status == "indexed" and '"beside":' in row.report]

    def readers(self, uris: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        wanted = self.stamps(uris)
        return {uri: self._lists[row.document] for uri, row in self._sources.items() if uri in wanted and row.document}

    def held(self, uris: Iterable[str] | None = None) -> dict[str, tuple[tuple[str, ...], int]]:
        return {id: (self._lists[id], len(uris)) for id, uris in self._holders.items()}

    def held_as(self, document: str) -> tuple[tuple[str, ...], int] | None:
        held = self._holders.get(document)
        return (self._lists[document], len(held)) if held else None

    @cached_property
    def _lists(self) -> dict[str, tuple[str, ...]]:
        documents = self.snapshot.documents(self._everybody) if self.snapshot is not None else ()
        return {document.id: document.readers for document in documents}

    @cached_property
    def _holders(self) -> dict[str, list[str]]:
        """The sources that held each document when this began."""
        found: dict[str, list[str]] = {}
        for uri, row in self.snapshot.sources().items() if self.snapshot is not None else ():
            if row.document:
                found.setdefault(row.document, []).append(uri)
        return found

    def document(self, id: str) -> Document:
        assert self.snapshot is not None
        return self.snapshot.document(id, self._everybody)

    def holders(self, document: str) -> list[SourceRow]:
        rows = (self._sources.get(uri) for uri in self._holders.get(document, ()))
        return [row for row in rows if row is not None and row.document == document]

    def holds(self, document: Document) -> bool:
        digest = document.but(uri="").digest
        return self._put.get(document.id) == digest or self._is_there(document)

    def unmade(self) -> tuple[Unmade, ...]:
        """Those that are tried again, and those of groups that are made anew."""
        live = self._live()
        before = self.snapshot.unmade() if self.snapshot is not None else ()
        found = {(lack.document, lack.group): lack for lack in before if lack.document in live}
        for group in sorted(self._expected):
            found |= {(id, group): Unmade(id, uri, group, NOT_YET) for id, uri in live.items()}
        return tuple(lack for key, lack in found.items() if key not in self._made)

    # What is changed.

    def declare(self, fields: Iterable[Field]) -> None:
        """They cost nothing."""
        self._declared = Schema(fields)

    @property
    def declared(self) -> Schema:
        return self._declared

    def define(self, group: str, manifest: Manifest) -> None:
        there = self.manifests.get(group)
        if there is not None:
            refuse_other(there, manifest)
            return
        self._expected.add(group)
        self.manifests[group] = manifest

    def redefine(self, group: str, manifest: Manifest, *, keep_nodes: bool = False) -> None:
        there = self.manifests.get(group)
        self.manifests[group] = manifest
        if there is not None and keep_nodes:
            self.embedded.add(group)
            self._count_more(group, [how for how in manifest.embeddings if not there.embedded(how.embedder)])
            return
        self._expected.add(group)
        if there is not None:
            self.redefined.add(group)

    def put(
        self, document: Document, nodes: Iterable[Node], source: SourceRow, images: Mapping[str, bytes] = NONE
    ) -> bool:
        self._sources[source.uri] = source
        if self.holds(document):
            return False
        self._put[document.id] = document.but(uri="").digest
        self._metas[document.id] = (f"document {document.uri}", document.meta)
        self._count(document, nodes)
        return True

    def add_nodes(self, document: Document, nodes: Iterable[Node]) -> None:
        self._count(document, nodes)

    def note_unmade(self, document: str, reasons: Mapping[str, str]) -> None:
        """What cannot be made costs nothing."""
        self._made |= {(document, group) for group in reasons}

    def set_readers(self, document: Document, readers: Sequence[str]) -> None:
        """Another reader list costs nothing."""

    def relabel(self, document: Document, meta: Meta, readers: Sequence[str]) -> None:
        """Other labels cost nothing."""
        self._metas[document.id] = (f"document {document.uri}", meta)

    def meta_of(self, document: str) -> Meta | None:
        row = self.snapshot.opened.row(sql.LIVE_META, (document,)) if self.snapshot is not None else None
        return None if row is None else unpacked(row[0])

    def unmake(self, document: str, groups: Iterable[str]) -> None:
        """It is made again at once."""

    def touch(self, source: SourceRow) -> None:
        self._sources[source.uri] = source

    def move(self, old_uri: str, source: SourceRow) -> None:
        self._sources.pop(old_uri)
        self._sources[source.uri] = source

    def remove(self, uri: str) -> None:
        self._sources.pop(uri)

    def fail(self, source: SourceRow) -> None:
        self._sources[source.uri] = source

    def remember(self, source: str, cursors: Mapping[str, str]) -> None:
        """Nothing is remembered."""

    def unembedded(self, group: str, embedder: str) -> Iterator[tuple[bytes, str]]:
        """Nothing is embedded."""
        return iter(())

    def unembedded_pictures(self, group: str, embedder: str) -> Iterator[tuple[Lacking, bytes]]:
        """Nothing is embedded."""
        return iter(())

    def publish(self) -> int:
        return 0

    # Counting.

    def of(self, group: str) -> Counted:
        """What a group would take."""
        return self.counted.setdefault(group, Counted())

    def _is_there(self, document: Document) -> bool:
        """Whether the store has it as it is."""
        if self.snapshot is None or self.snapshot.opened.row(sql.LIVE_DOCUMENT, (document.id,)) is None:
            return False
        there = self.document(document.id)
        return (there.but(uri=""), there.readers) == (document.but(uri=""), document.readers)

    def _count(self, document: Document, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self.of(node.group).nodes += 1
            for how in self.manifests[node.group].embeddings:
                self._count_vector(how, node, document)

    def _count_more(self, group: str, embeddings: Iterable[Embedded]) -> None:
        """The nodes that a group has, embedded in further ways."""
        assert self.snapshot is not None
        for node in self.snapshot.all_nodes(group, self._everybody):
            for how in embeddings:
                self._count_vector(how, node, self.document(node.document) if how.pictures else None)

    def _count_vector(self, how: Embedded, node: Node, document: Document | None) -> None:
        counted = self.of(node.group)
        image = picture_of(node, document) if document is not None and how.pictures else ""
        if self._is_new(counted, how.embedder, hash_of_picture(image) if image else hash_of(node.indexed_text)):
            if image:
                counted.pictures += 1
            else:
                self._count_text(counted, how.embedder, node.indexed_text)

    def _is_new(self, counted: Counted, embedder: str, hash: bytes) -> bool:
        """Whether something would be embedded that was not, and was not counted."""
        key = (embedder, hash)
        if key in self._seen:
            return False
        self._seen.add(key)
        is_there = self.snapshot is not None and self.snapshot.opened.row(sql.HAS_VECTOR, key) is not None
        counted.known += is_there
        return not is_there

    def _count_text(self, counted: Counted, embedder: str, text: str) -> None:
        counted.texts += 1
        counted.characters += len(text)
        counted.tokens += estimated_tokens(text)
        sample = counted.sample.setdefault(embedder, [])
        if counted.texts & (counted.texts - 1) == 0 and len(sample) < SAMPLED:  # the 1st, 2nd, 4th, 8th …
            sample.append(text)


def _with_above(uri: str) -> Iterator[str]:
    """A source, and all that it may be in by its name."""
    yield uri
    yield from (uri[:at] for at, sign in enumerate(uri) if sign == "/")

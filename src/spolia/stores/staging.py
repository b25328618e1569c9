"""Changes collected without the right to write, and committed in one short transaction.

What another writer has changed since a run looked at it stays as that writer has it, and is named in `conflicts`.
"""

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from os import SEEK_END
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from spolia.errors import StoreBusy, StoreError
from spolia.filters import Field, Schema
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Backend, Connection
from spolia.stores.backends.publication import NO_IMAGES, Draft, UnembeddedNode
from spolia.stores.backends.rows import (
    NOT_YET,
    SourceRow,
    Stamp,
    Unmade,
    hash_of_picture,
    indexed_text,
    key_of,
    refuse_odd_node,
)
from spolia.stores.manifest import Manifest, refuse_odd_name, refuse_other_manifest
from spolia.stores.writer import Writer, compact, compact_all
from spolia.types import Document, Meta, Node, check_principals

if TYPE_CHECKING:
    from spolia.models.vectors import SparseRows, Vectors

UNSAVED = 192
"""Vectors that are made durable together: with the call of an embedder that was under way, 64, a kill loses 256."""
ROUNDS = 16
"""How often what others have committed is prepared without the lock, before the rest of it is prepared with it."""
_REPLACED = -1
"""Key of a document that another one has given other text, metadata or readers while nodes were made of it."""
_WEIGHT_OF_NODE = 500


class Spilled:
    """Values in a file until they are stored, so that memory does not hold them all; several may share one file."""

    def __init__(self, values: Iterable[Any], file: IO[bytes]) -> None:
        self._file = file
        self._start = self._file.seek(0, SEEK_END)
        for value in values:
            pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)
        self._end = self._file.tell()

    def __iter__(self) -> Iterator[Any]:
        position = self._start
        while position < self._end:
            self._file.seek(position)
            value = pickle.load(self._file)  # written by this process
            position = self._file.tell()
            yield value


@dataclass
class _Change:
    """Staged change, with the sources and the document that must be unchanged when it is committed."""

    apply: Callable[..., object]
    args: Iterable[Any]
    uris: tuple[str, ...] = ()
    document: str = ""
    is_new: bool = False


@dataclass
class _Staged:
    """Changes that wait for the next commit; `Staging` reads them over what is published."""

    changes: list[_Change] = field(default_factory=list)
    rows: dict[str, SourceRow | None] = field(default_factory=dict)
    holding: dict[str, set[str]] = field(default_factory=dict)
    documents: dict[str, Document | Spilled] = field(default_factory=dict)
    relabelled: dict[str, tuple[Document, Document]] = field(default_factory=dict)
    images: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    nodes: dict[tuple[str, str], Iterable[Node]] = field(default_factory=dict)
    noted: dict[tuple[str, str], str] = field(default_factory=dict)
    unembedded: dict[str, dict[bytes, UnembeddedNode]] = field(default_factory=dict)
    defined: dict[str, Manifest] = field(default_factory=dict)
    expected: set[str] = field(default_factory=set)
    keys: dict[str, int | None] = field(default_factory=dict)
    published: dict[str, Any] = field(default_factory=dict)
    weight: int = 0

    @cached_property
    def file(self) -> IO[bytes]:
        return TemporaryFile()


class Staging(Draft):
    """Changes to a store, collected without its lock; reads them with what is published, as a `Writer` does.

    Attributes:
        conflicts: uris of sources that others have changed since this looked at them; what waited for them was dropped.
        node_counts: number of nodes that were made of documents, by group.
        refuse: raises what a run that begins at the commit would have raised.
    """

    refuse: "Callable[[Draft], None]" = staticmethod(lambda writer: None)

    def __init__(self, store: Backend, timeout_s: float) -> None:
        self.store, self.timeout_s = store, timeout_s
        writer = Writer(store, timeout_s)  # takes over what a killed run has left
        self._is_damaged = writer.is_dirty  # then `publish` commits though nothing waits, and it is built again
        self._begin(writer.read_on())

    def _begin(self, connection: Connection) -> None:
        self.conflicts: set[str] = set()
        self._has_committed = self._is_scattered = False
        self.node_counts: Counter[str] = Counter()
        self._births: dict[str, int | None] = {}
        self._staged = _Staged()
        self._vectors: list[tuple[Callable[..., None], str, Sequence[bytes], Any]] = []
        self._pending: set[tuple[str, bytes]] = set()
        self._connection = connection
        with self._read_errors():
            self._read_published()
        self._published = dict(self.manifests)
        self._unshared = self.generation  # the last one before which nobody else published

    @property
    def weight(self) -> int:
        return self._staged.weight

    def find_changed(self, uris: Iterable[str]) -> set[str]:
        """Return the sources that another writer has changed since this looked at them; they become conflicts."""
        requested = set(uris)
        if self._newest() != self._unshared:
            births = self.births(requested)
            self.conflicts |= {uri for uri in requested if births.get(uri) != self._births.get(uri)}
        return requested & self.conflicts

    def _newest(self) -> int:
        with self._read_errors():
            return int(self._connection.execute(sql.GENERATIONS).fetchall()[-1][0])

    # Reading.

    def _remember_versions(self, uris: Iterable[str] | None) -> None:
        """Remember the versions of sources, before they are read for the first time."""
        for uri, birth in self.births(uris).items():
            self._births.setdefault(uri, birth)

    def stamps(self, uris: Iterable[str] | None = None) -> dict[str, Stamp]:
        stamps = super().stamps(uris)
        for uri, row in self._staged.rows.items():
            if row is None:
                stamps.pop(uri, None)
            elif uris is None or uri in stamps:
                stamps[uri] = row.size, row.mtime_ns, row.status, row.reader
        return stamps

    def sources(self, uris: Iterable[str] | None = None) -> dict[str, SourceRow]:
        uris = None if uris is None else list(uris)
        self._remember_versions(uris)
        return self._read_sources(uris)

    def _read_sources(self, uris: Iterable[str] | None) -> dict[str, SourceRow]:
        """Read as `sources`, without remembering the versions of what this may not have looked at."""
        uris = None if uris is None else list(uris)
        sources = super().sources(uris)
        staged = self._staged.rows
        for uri in (staged if uris is None else uris) if staged else ():
            if uri in staged:
                row = staged[uri]
                sources.pop(uri, None) if row is None else sources.__setitem__(uri, row)
        return sources

    def readers(self, uris: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        uris = None if uris is None else list(uris)
        self._remember_versions(uris)
        return super().readers(uris)

    def documents(self) -> Iterator[Document]:
        return (document for document in super().documents() if document.id not in self._staged.documents)

    def document(self, id: str) -> Document:
        return self._staged_document(id) or super().document(id)

    def _staged_document(self, id: str) -> Document | None:
        document = self._staged.documents.get(id)
        return next(iter(document)) if isinstance(document, Spilled) else document

    def _live_row(self, id: str) -> Any:
        """Return the row as it was first read since the last commit: what others have changed since is a conflict."""
        rows = self._staged.published
        if id not in rows:
            rows[id] = super()._live_row(id)
        return rows[id]

    def load_rows(self, ids: Iterable[str]) -> None:
        """Read the rows of many documents together, which `_live_row` would read one by one."""
        published = self._staged.published
        if missing := [id for id in dict.fromkeys(ids) if id not in published]:
            with self._read_errors():
                rows = self._connection.execute(sql.LIVE_DOCUMENTS, {"ids": json.dumps(missing)}).fetchall()
            published |= dict.fromkeys(missing) | {id: tuple(row) for id, *row in rows}

    def meta_of(self, document: str) -> Meta | None:
        staged = self._staged_document(document)
        return super().meta_of(document) if staged is None else staged.meta

    def holds(self, document: Document) -> bool:
        staged = self._staged_document(document.id)
        is_there = super().holds(document) if staged is None else staged.but(uri="") == document.but(uri="")
        return is_there and bool(
            self._read_holders(document.id)
        )  # else it goes in the same commit, and is to be made again

    def holders(self, document: str) -> list[SourceRow]:
        if unseen := [row.uri for row in super().holders(document) if row.uri not in self._births]:
            self._remember_versions(unseen)
        return self._read_holders(document)

    def _read_holders(self, document: str) -> list[SourceRow]:
        """Read as `holders`, without remembering the versions of what this may not have looked at."""
        rows = self._staged.rows
        holders = [row for row in super().holders(document) if row.uri not in rows]
        holders += [row for uri in self._staged.holding.get(document, ()) if (row := rows[uri]) is not None]
        return sorted(holders, key=lambda row: row.uri)

    def nodes(self, document: str, group: str) -> list[Node]:
        if (document, group) in self._staged.nodes:
            # The list is of all groups of the document.
            return [node for node in self._staged.nodes[document, group] if node.group == group]
        if group in self._staged.expected:  # its nodes end with the next commit
            return []
        if document not in self._staged.relabelled:
            return super().nodes(document, group)
        old, new = self._staged.relabelled[document]
        return [
            node.but(
                meta=new.meta + node.meta[len(old.meta) :],  # what a transform added stands after the document's own
                readers=new.readers if node.readers == old.readers else node.readers,
            )
            for node in super().nodes(document, group)
        ]

    def unmade(self) -> tuple[Unmade, ...]:
        staged = self._staged
        lacks = {(lack.document, lack.group): lack for lack in super().unmade()}
        # of a group that is staged all documents have to be made: they are noted when it is committed
        live = (
            {row.document: uri for uri, row in self._read_sources(None).items() if row.document}
            if staged.expected
            else {}
        )
        lacks |= {(id, group): Unmade(id, uri, group, NOT_YET) for group in staged.expected for id, uri in live.items()}
        lacks = {key: lack for key, lack in lacks.items() if key[0] not in staged.images}
        for (document, group), reason in staged.noted.items():
            lacks.pop((document, group), None)
            if reason and (holders := self._read_holders(document)):
                lacks[document, group] = Unmade(document, holders[0].uri, group, reason)
        if staged.rows:
            lacks = {
                key: lack for key, lack in lacks.items() if key in staged.noted or self._read_holders(lack.document)
            }
        return tuple(sorted(lacks.values(), key=lambda lack: (lack.uri, lack.document, lack.group)))

    # Definitions.

    def declare(self, fields: Iterable[Field]) -> None:
        schema = Schema(fields)
        if schema != self.declared:
            self.declared = schema
            self._stage(Writer.declare, tuple(schema))

    def define(self, group: str, manifest: Manifest) -> None:
        if stored := self.manifests.get(group):
            refuse_other_manifest(stored, manifest)
            return
        self.manifests[group] = manifest
        self._staged.expected.add(group)
        self._stage(Writer.define, group, manifest)
        self._staged.defined[group] = manifest

    def redefine(self, group: str, manifest: Manifest, *, keep_nodes: bool = False) -> None:
        refuse_odd_name(group)
        self.manifests[group] = self._staged.defined[group] = manifest
        self.embedded_to = {key: last for key, last in self.embedded_to.items() if key[0] != group}
        if not keep_nodes:
            self._staged.expected.add(group)
            self._staged.nodes = {key: nodes for key, nodes in self._staged.nodes.items() if key[1] != group}
        self._stage(Writer.redefine, group, manifest, keep_nodes)

    # Documents and sources.

    def put_document(
        self, document: Document, nodes: Iterable[Node], source: SourceRow, images: Mapping[str, bytes] = NO_IMAGES
    ) -> bool:
        is_new = not self.holds(document)
        self._set_source(source)
        if is_new:
            self._staged.documents[document.id] = document
            self._staged.relabelled.pop(document.id, None)
            self._staged.images[document.id] = images
            self._staged.weight += len(document.text) + len(document.boxes.packed) + sum(map(len, images.values()))
        self._stage(
            Writer.put_document, document, (), source, images, uris=(source.uri,), document=document.id, is_new=is_new
        )  # fmt: skip
        if is_new and (listed := list(nodes)):
            self.add_nodes(document, listed)
        return is_new

    def add_nodes(self, document: Document, nodes: Iterable[Node]) -> None:
        """Add nodes as `Writer.add_nodes` does. They are checked now, since a commit is to find no fault."""
        listed = nodes if isinstance(nodes, list) else Spilled(nodes, self._staged.file)
        ids, lacking, counts, weight = set[str](), dict[str, dict[bytes, UnembeddedNode]](), dict[str, int](), 0
        for node in listed:
            if node.id in ids or (manifest := self.manifests.get(node.group)) is None:
                raise StoreError(f"Two nodes have the id {node.id!r}, or group {node.group!r} is not defined.")
            refuse_odd_node(node, document)
            ids.add(node.id)
            counts[node.group] = counts.get(node.group, 0) + 1
            weight += len(node.text) + _WEIGHT_OF_NODE
            if manifest.embeddings:
                hash = key_of(node, document, by_picture=manifest.by_picture)
                item = UnembeddedNode(hash, node.id, document.id, node.indexed_text)
                lacking.setdefault(node.group, {}).setdefault(hash, item)

        self._staged.weight += weight
        groups = set(counts)
        for group, count in counts.items():
            self.node_counts[group] += count
            self._staged.nodes[document.id, group] = listed
            self._staged.noted[document.id, group] = ""  # no reason: it is made
            for hash, item in lacking.get(group, {}).items():
                self._staged.unembedded.setdefault(group, {}).setdefault(hash, item)

        self._stage(Writer.add_nodes, document, listed, groups, document=document.id)
        is_ours = document.id in self._staged.images or document.id in self._staged.relabelled
        if not is_ours and not Draft.holds(self, document):
            self._staged.keys[document.id] = _REPLACED

    def note_unmade(self, document: str, reasons: Mapping[str, str]) -> None:
        self._staged.noted |= {(document, group): reason for group, reason in reasons.items()}
        self._stage(Writer.note_unmade, document, dict(reasons), document=document)

    def unmake(self, document: str, groups: Iterable[str]) -> None:
        listed = tuple(groups)
        self._staged.nodes |= {(document, group): () for group in listed}
        self._staged.noted |= {(document, group): NOT_YET for group in listed}
        self._stage(Writer.unmake, document, listed, document=document)

    def set_readers(self, document: Document, readers: Sequence[str]) -> None:
        self.relabel(document, document.meta, readers)

    def relabel(self, document: Document, meta: Meta, readers: Sequence[str]) -> None:
        readers = check_principals(readers, f"The readers of {document.uri or document.id!r} would be")
        # As it is published: its nodes still have these labels, however often it is relabelled.
        original = self._staged.relabelled.get(document.id, (document,))[0]
        new = document.but(meta=meta, readers=readers)
        if document.id not in self._staged.images:  # what is put in this very commit has its nodes here
            self._staged.relabelled[document.id] = original, new
        self._staged.documents[document.id] = new
        self._stage(Writer.relabel, document, meta, readers, document=document.id)

    def touch(self, source: SourceRow) -> None:
        self._set_source(source)
        self._stage(Writer.touch, source, uris=(source.uri,))

    def move(self, old_uri: str, source: SourceRow) -> None:
        self._staged.rows[old_uri] = None
        self._set_source(source)
        self._stage(Writer.move, old_uri, source, uris=(old_uri, source.uri))

    def remove(self, uri: str) -> None:
        self._staged.rows[uri] = None
        self._stage(Writer.remove, uri, uris=(uri,))

    def fail(self, source: SourceRow) -> None:
        self._set_source(source)
        self._stage(Writer.fail, source, uris=(source.uri,))

    def remember(self, source: str, cursors: Mapping[str, str]) -> None:
        """Note cursors as `Writer.remember` does; dropped while there are conflicts, since not all that was read is
        stored then."""
        if any(cursor != self.cursor(source, item) for item, cursor in cursors.items()):
            self._stage(Writer.remember, source, dict(cursors))

    def _set_source(self, source: SourceRow) -> None:
        previous = self._staged.rows.get(source.uri)
        if previous is not None:
            self._staged.holding.get(previous.document, set()).discard(source.uri)
        self._staged.rows[source.uri] = source
        if source.document:
            self._staged.holding.setdefault(source.document, set()).add(source.uri)

    def _stage(
        self,
        apply: Callable[..., object],
        *args: Any,
        uris: tuple[str, ...] = (),
        document: str = "",
        is_new: bool = False,
    ) -> None:
        for uri in uris:
            self._births.setdefault(uri, None)  # what is not there now is another one's if it is there later
        if document and document not in self._staged.keys:
            self._staged.keys[document] = self.document_key(document)
        self._staged.changes.append(_Change(apply, args, uris, document, is_new))

    # Vectors.

    def _unembedded_nodes(self, group: str, embedder: str) -> Iterator[UnembeddedNode]:
        hashes = set[bytes]()
        for hash, item in list(self._staged.unembedded.get(group, {}).items()):
            with self._read_errors():
                is_there = self._fetch_one(sql.HAS_VECTOR, (embedder, hash)) is not None  # equal texts share one vector
            if not is_there and not self._is_pending(embedder, hash):
                hashes.add(hash)
                yield item
        if group not in self._staged.expected:  # else its nodes end with the next commit
            yield from (item for item in super()._unembedded_nodes(group, embedder) if item.hash not in hashes)

    def _read_picture(self, item: UnembeddedNode) -> bytes:
        staged = self._staged.images.get(item.document, NO_IMAGES)
        return next((data for image, data in staged.items() if hash_of_picture(image) == item.hash), b"") or (
            super()._read_picture(item)
        )

    def _is_pending(self, embedder: str, hash: bytes) -> bool:
        return (embedder, hash) in self._pending

    def add_vectors(self, embedder: str, hashes: Sequence[bytes], vectors: "Vectors") -> None:
        self._collect(Writer.add_vectors, embedder, hashes, vectors)

    def add_sparse(self, embedder: str, hashes: Sequence[bytes], rows: "SparseRows") -> None:
        self._collect(Writer.add_sparse, embedder, hashes, rows)

    def _collect(self, add: Callable[..., None], embedder: str, hashes: Sequence[bytes], vectors: Any) -> None:
        self._vectors.append((add, embedder, hashes, vectors))
        self._pending |= {(embedder, hash) for hash in hashes}
        if len(self._pending) >= UNSAVED:
            self._keep_vectors()

    def _keep_vectors(self) -> None:
        """Make vectors durable before the nodes that they belong to are committed."""
        with closing(Writer(self.store, self.timeout_s)) as writer:
            writer.manifests |= self.manifests  # which say how they are compared
            self._give_vectors(writer)
            writer.keep_vectors()

    def _give_vectors(self, writer: Writer) -> None:
        for add, *args in self._vectors:
            add(writer, *args)
        self._vectors.clear()
        self._pending.clear()

    # Committing.

    def spill(self) -> None:
        """Move what waits into a file, where one commit is to have more than memory holds. Embed all before."""
        staged, spilled = self._staged, dict[int, Spilled]()
        for change in staged.changes:
            if change.apply is Writer.put_document and isinstance(change.args, tuple):
                change.args = Spilled(change.args, staged.file)
            elif change.apply is Writer.add_nodes and isinstance(change.args, tuple):
                document, nodes, groups = change.args
                spilled_nodes = Spilled(nodes, staged.file) if isinstance(nodes, list) else nodes
                spilled[id(nodes)], change.args = spilled_nodes, [document.id, spilled_nodes, groups]
        staged.nodes = {key: spilled.get(id(nodes), nodes) for key, nodes in staged.nodes.items()}
        for name, document in staged.documents.items():
            staged.documents[name] = document if isinstance(document, Spilled) else Spilled([document], staged.file)
            staged.images[name] = NO_IMAGES
        staged.unembedded.clear()
        staged.weight = 0

    def publish(
        self, build_groups: "Callable[[AnyWriter], None]" = lambda writer: None, *, embedded: bool = True
    ) -> int:
        """Commit what waits, and make it visible; return the generation.

        Args:
            build_groups: makes what new groups lack of others' commits, without the lock; after `ROUNDS` calls with it.

        Raises:
            StoreBusy: groups are defined, and another writer has changed the groups meanwhile.
        """
        for rounds_left in reversed(range(ROUNDS)) if self._staged.changes or self._vectors or self._is_damaged else ():
            generation, tried = self._prepare(build_groups) if self._staged.defined else (0, set())
            with closing(Writer(self.store, self.timeout_s, self._connection)) as writer:
                is_other = bool(self._staged.defined) and writer.generation != generation
                # Another writer has committed meanwhile: prepare again without the lock, but not forever.
                if is_other and rounds_left and self._find_gaps() - tried:
                    continue
                self._commit(writer, build_groups, embedded)
            self._staged = _Staged()
            break
        return self.generation

    def join_full(self) -> None:
        """Join the vectors that fill a segment for good, while a run goes on; `compact` joins the rest at its end."""
        ready = compact(self.store, self.manifests, self.timeout_s, has_ended=False, waits=False)
        self.generation = ready or self.generation

    def compact(self) -> int:
        """Join what the commits of this run left in small pieces; lexical indexes only if nobody else writes."""
        if self._has_committed:
            scattered = self._is_scattered
            generation = compact_all(
                self.store, self.manifests, self.timeout_s, is_scattered=scattered, connection=self._connection
            )
            self.generation = generation or self.generation
        return self.generation

    def _prepare(self, build_groups: "Callable[[AnyWriter], None]") -> tuple[int, set[object]]:
        """Make what is lacking, without the lock; return the generation before, and what no model could make."""
        generation = self._newest()
        if lacking := self._find_gaps():
            build_groups(self)
            lacking &= self._find_gaps()
        return generation, lacking

    def _find_gaps(self) -> set[object]:
        """Return what the defined groups lack: documents that are not made, and texts without vectors."""
        self._drop_changed()
        defined, expected = self._staged.defined, self._staged.expected
        gaps: set[object] = {
            (lack.document, lack.group) for lack in self.unmade() if lack.is_untried and lack.group in defined
        }
        for group, manifest in defined.items():
            for embedding in manifest.embeddings if group not in expected else ():
                gaps |= {
                    (embedding.embedder, item.hash) for item in super()._unembedded_nodes(group, embedding.embedder)
                }
        return gaps

    def _drop_changed(self) -> None:
        """Drop what waits for sources and documents that others have changed: they are read again as they are now."""
        staged, unchanged = self._staged, self._unchanged(self)
        if len(unchanged) == len(staged.changes):
            return
        unchanged_ids = {id(change) for change in unchanged}
        dropped = [change for change in staged.changes if id(change) not in unchanged_ids]
        staged.changes = unchanged
        for uri in {uri for change in dropped for uri in change.uris}:
            row = staged.rows.pop(uri, None)
            staged.holding.get(row.document if row else "", set()).discard(uri)

        dropped_documents = {change.document for change in dropped} - {change.document for change in unchanged}
        for name in dropped_documents:
            for entries in (staged.keys, staged.documents, staged.relabelled, staged.images, staged.published):
                entries.pop(name, None)
        staged.nodes = {key: nodes for key, nodes in staged.nodes.items() if key[0] not in dropped_documents}
        staged.noted = {key: reason for key, reason in staged.noted.items() if key[0] not in dropped_documents}

    def _commit(self, writer: Writer, build_groups: "Callable[[AnyWriter], None]", embedded: bool) -> None:
        self._refuse_other_groups(writer)
        self.refuse(writer)
        changes = self._unchanged(writer)
        with writer.all_or_nothing():
            for is_first, batch in groupby(changes, self._make_first_test(writer)):
                # Fast path: what the store has nothing of needs no comparison, and is inserted together.
                if is_first:
                    self._insert(writer, list(batch))
                else:
                    for change in batch:
                        self._apply(writer, change)
        self._give_vectors(writer)
        if self._staged.defined:
            build_groups(writer)

        births = dict(writer.changed_sources())
        is_alone = writer.generation == self._unshared
        self.generation = writer.publish(embedded=embedded)
        self._unshared = self.generation if is_alone else self._unshared
        self._published = dict(writer.manifests)

        self._has_committed, self._is_scattered = True, writer.is_scattered
        self._is_damaged = False
        self._births |= births
        for uri, row in self._staged.rows.items():
            if row is None:
                self._births.pop(uri, None)
        self.embedded_to = writer.embedded_to

    def _refuse_other_groups(self, writer: Writer) -> None:
        """Raise StoreBusy if another process changed a group that the staged ones are made from, or that is made from
        them."""
        defined, stored = self._staged.defined, writer.manifests
        lineage = {name for manifest in defined.values() for name in (manifest.group, manifest.parent, manifest.ref)}
        for group in {*stored, *self._published} if defined else ():
            parents = (stored[group].parent, stored[group].ref) if group in stored else ()
            is_known = stored.get(group) in (self._published.get(group), defined.get(group))
            if not is_known and (group in lineage or not self._staged.expected.isdisjoint(parents)):
                raise StoreBusy(
                    f"Another process has built or changed group {group!r} of {self.store} meanwhile. Nothing was "
                    "published; its vectors are kept. Run it again."
                )

    def _unchanged(self, draft: Draft) -> list[_Change]:
        """Return the changes to what is as it was when this looked at it; note the others as conflicts."""
        uris = {uri for change in self._staged.changes for uri in change.uris}
        births = draft.births(uris)
        self.conflicts |= {uri for uri in uris if births.get(uri) != self._births.get(uri)}
        unchanged, lost = list[_Change](), set[str]()
        keys = draft.document_keys(self._staged.keys)
        for id, key in self._staged.keys.items():  # which another one has replaced or removed, or put as this did
            if key != keys.get(id) or (key is None and id not in self._staged.images):
                lost.add(id)
        for change in self._staged.changes:
            if not self._is_lost(change, lost):
                unchanged.append(change)
                continue
            self.conflicts.update(change.uris or (row.uri for row in Draft.holders(draft, change.document)))
            if change.is_new:
                lost.add(change.document)
        return unchanged

    def _is_lost(self, change: _Change, lost: set[str]) -> bool:
        if change.document in lost or not self.conflicts:
            return change.document in lost
        prefixes = tuple(f"{uri}/" for uri in change.uris)
        return any(uri in change.uris or uri.startswith(prefixes) for uri in self.conflicts)

    def _make_first_test(self, writer: Writer) -> "Callable[[_Change], bool]":
        """Return a test for documents and sources, and nodes of these documents, that the store has nothing of."""
        births, keys, earlier, fresh = self._births, self._staged.keys, set[str](), set[str]()

        def is_first(change: _Change) -> bool:
            names = {*change.uris, change.document}
            is_new = change.is_new and keys[change.document] is None and earlier.isdisjoint(names)
            if is_new and births[change.uris[0]] is None:
                fresh.add(change.document)
            elif change.apply is not Writer.add_nodes or change.document not in fresh:
                fresh.clear()
            earlier.update(names)
            return change.document in fresh

        return is_first

    def _insert(self, writer: Writer, changes: Sequence[_Change]) -> None:
        """Put documents, and add their nodes, together, unless another process has changed groups."""
        if writer.manifests != self.manifests:
            for change in changes:
                self._apply(writer, change)
            return
        puts = [change.args for change in changes if change.apply is Writer.put_document]
        added = (change.args for change in changes if change.apply is Writer.add_nodes)
        writer.insert(puts, ((_load_document(writer, document), nodes) for document, nodes, _ in added))

    def _apply(self, writer: Writer, change: _Change) -> None:
        if change.apply is Writer.put_document:
            document, _, source, _ = change.args
            if not change.is_new and not writer.holds(document):  # it went with another source, in this very commit
                self.conflicts.add(source.uri)
                return
            writer.put_document(*change.args)
            if reasons := {
                group: NOT_YET for group in writer.manifests if group not in self.manifests and change.is_new
            }:
                writer.note_unmade(document.id, reasons)
        elif change.apply is Writer.add_nodes:
            self._add_nodes(writer, *change.args)
        elif not self._is_obsolete(writer, change):
            change.apply(writer, *change.args)

    def _is_obsolete(self, writer: Writer, change: _Change) -> bool:
        """Return whether another writer has made the same change to a group or a source, or there are conflicts with
        it."""
        if change.apply is Writer.remove:
            return not writer.births(change.uris)
        if change.apply is Writer.redefine:
            group, manifest, _ = change.args
            return bool(self._published.get(group) != manifest == writer.manifests.get(group))
        return bool(self.conflicts if change.apply is Writer.remember else self.conflicts.intersection(change.uris))

    def _add_nodes(self, writer: Writer, document: Document | str, nodes: Iterable[Node], groups: set[str]) -> None:
        """Store no nodes of groups that another process has redefined, or has already made of the document."""
        document = _load_document(writer, document)
        foreign = {group for group in groups if writer.manifests.get(group) != self.manifests[group]}
        if foreign:
            writer.note_unmade(document.id, dict.fromkeys(foreign & writer.manifests.keys(), NOT_YET))
        if document.id not in self._staged.images:
            foreign |= {group for group in groups - foreign if writer.nodes(document.id, group)}
        writer.add_nodes(document, (node for node in nodes if node.group not in foreign) if foreign else nodes)

    def close(self) -> None:
        """Drop what waits; vectors are kept, since they took time, and perhaps money."""
        try:
            with suppress(Exception):  # what has ended the run counts: a full disk, a lost connection
                if self._vectors and self.store.exists():
                    self._keep_vectors()
        finally:
            self._connection.close()


def _load_document(writer: Writer, document: Document | str) -> Document:
    return writer.document(document) if isinstance(document, str) else document


TEXTS_AT_ONCE = 4_000
"""Whose vectors are in memory until they take the place of others, and those of one document more."""


class Reembedding(Staging):
    """Staging that embeds the texts of a batch of documents again, and replaces their vectors."""

    def __init__(self, store: Backend, timeout_s: float) -> None:
        super().__init__(store, timeout_s)
        self._batch: list[str] = []
        self._new_vectors: dict[str, list[tuple[Sequence[bytes], Any]]] = {}

    def document_batches(self, documents: Iterable[str]) -> Iterator[list[str]]:
        """Yield documents in batches: those to be embedded now."""
        texts = 0
        for document in documents:
            with self._read_errors():
                texts += self._fetch_one(sql.COUNT_NODES_OF, (document,))[0]
            self._batch.append(document)
            if texts >= TEXTS_AT_ONCE:
                yield self._batch
                self._batch, texts = [], 0
        if self._batch:
            yield self._batch

    def _unembedded_nodes(self, group: str, embedder: str) -> Iterator[UnembeddedNode]:
        for document in self._batch:
            with self._read_errors():
                rows = self._connection.execute(sql.EMBEDDED, (document, group)).fetchall()
            for hash, id, *texts in rows:
                if (embedder, hash) not in self._pending:
                    self._pending.add((embedder, hash))
                    yield UnembeddedNode(hash, id, document, indexed_text(*texts))

    def _collect(self, add: Callable[..., None], embedder: str, hashes: Sequence[bytes], vectors: Any) -> None:
        self._new_vectors.setdefault(embedder, []).append((hashes, vectors))

    def replace(self) -> None:
        """Publish the new vectors together."""
        with closing(Writer(self.store, self.timeout_s)) as writer:
            for embedder, parts in self._new_vectors.items():
                hashes = [hash for batch, _ in parts for hash in batch]
                writer.replace_vectors(embedder, hashes, [rows for _, rows in parts])
            self.generation = writer.publish(embedded=False)
        self._new_vectors.clear()


AnyWriter: TypeAlias = Writer | Staging

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
from spolia.stores.backends.publication import NONE, Draft, Lacking
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
from spolia.stores.manifest import Manifest, refuse_odd_name, refuse_other
from spolia.stores.writer import Writer, compact, compact_all
from spolia.types import Document, Meta, Node, principals

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
        at = self._start
        while at < self._end:
            self._file.seek(at)
            value = pickle.load(self._file)  # written by this process
            at = self._file.tell()
            yield value


@dataclass
class _Change:
    """One staged change, and the sources and the document that must still be as they were when it is committed."""

    apply: Callable[..., object]
    given: Iterable[Any]
    uris: tuple[str, ...] = ()
    document: str = ""
    is_new: bool = False


@dataclass
class _Staged:
    """What waits for the next commit; `Staging` reads it over what is published."""

    changes: list[_Change] = field(default_factory=list)
    rows: dict[str, SourceRow | None] = field(default_factory=dict)
    holding: dict[str, set[str]] = field(default_factory=dict)
    documents: dict[str, Document | Spilled] = field(default_factory=dict)
    relabelled: dict[str, tuple[Document, Document]] = field(default_factory=dict)
    images: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    nodes: dict[tuple[str, str], Iterable[Node]] = field(default_factory=dict)
    noted: dict[tuple[str, str], str] = field(default_factory=dict)
    unembedded: dict[str, dict[bytes, Lacking]] = field(default_factory=dict)
    defined: dict[str, Manifest] = field(default_factory=dict)
    expected: set[str] = field(default_factory=set)
    keys: dict[str, int | None] = field(default_factory=dict)
    published: dict[str, Any] = field(default_factory=dict)
    weight: int = 0

    @cached_property
    def file(self) -> IO[bytes]:
        return TemporaryFile()


class Staging(Draft):
    """Collects changes to a store without its lock, and reads like a `Writer` what is going to be.

    Attributes:
        conflicts: uris of sources that others have changed since this looked at them; what waited for them was dropped.
        made: number of nodes that were made of documents, by group.
        refuse: raises what a run that begins at the commit would have raised.
    """

    refuse: "Callable[[Draft], None]" = staticmethod(lambda writer: None)

    def __init__(self, store: Backend, timeout_s: float) -> None:
        self.store, self.timeout_s = store, timeout_s
        writer = Writer(store, timeout_s)  # takes over what a killed run has left
        self._is_damaged = writer.is_dirty
        self._begin(writer.read_on())

    def _begin(self, connection: Connection) -> None:
        self.conflicts: set[str] = set()
        self._has_committed = self._is_scattered = False
        self.made: Counter[str] = Counter()
        self._births: dict[str, int | None] = {}
        self._staged = _Staged()
        self._vectors: list[tuple[Callable[..., None], str, Sequence[bytes], Any]] = []
        self._pending: set[tuple[str, bytes]] = set()
        self._connection = connection
        with self._reading():
            self._read_what_is_published()
        self._published = dict(self.manifests)
        self._unshared = self.generation  # the last one before which nobody else published

    @property
    def weight(self) -> int:
        return self._staged.weight

    def changed(self, uris: Iterable[str]) -> set[str]:
        """Which sources another writer has changed since this looked at them; they are among the conflicts then."""
        wanted = set(uris)
        if self._newest() != self._unshared:
            now = self.births(wanted)
            self.conflicts |= {uri for uri in wanted if now.get(uri) != self._births.get(uri)}
        return wanted & self.conflicts

    def _newest(self) -> int:
        with self._reading():
            return int(self._connection.execute(sql.GENERATIONS).fetchall()[-1][0])

    # Reading.

    def _see(self, uris: Iterable[str] | None) -> None:
        """Remember the versions of sources, before they are read for the first time."""
        for uri, birth in self.births(uris).items():
            self._births.setdefault(uri, birth)

    def stamps(self, uris: Iterable[str] | None = None) -> dict[str, Stamp]:
        found = super().stamps(uris)
        for uri, row in self._staged.rows.items():
            if row is None:
                found.pop(uri, None)
            elif uris is None or uri in found:
                found[uri] = row.size, row.mtime_ns, row.status, row.reader
        return found

    def sources(self, uris: Iterable[str] | None = None) -> dict[str, SourceRow]:
        uris = None if uris is None else list(uris)
        self._see(uris)
        return self._sources(uris)

    def _sources(self, uris: Iterable[str] | None) -> dict[str, SourceRow]:
        """See `sources`, without remembering the versions of what this may not have looked at."""
        uris = None if uris is None else list(uris)
        found = super().sources(uris)
        staged = self._staged.rows
        for uri in (staged if uris is None else uris) if staged else ():
            if uri in staged:
                row = staged[uri]
                found.pop(uri, None) if row is None else found.__setitem__(uri, row)
        return found

    def readers(self, uris: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        uris = None if uris is None else list(uris)
        self._see(uris)
        return super().readers(uris)

    def documents(self) -> Iterator[Document]:
        return (document for document in super().documents() if document.id not in self._staged.documents)

    def document(self, id: str) -> Document:
        return self._waiting(id) or super().document(id)

    def _waiting(self, id: str) -> Document | None:
        found = self._staged.documents.get(id)
        return next(iter(found)) if isinstance(found, Spilled) else found

    def _live(self, id: str) -> Any:
        """As it was at the first look since the last commit: what others have changed since then is a conflict."""
        found = self._staged.published
        if id not in found:
            found[id] = super()._live(id)
        return found[id]

    def look(self, ids: Iterable[str]) -> None:
        """Ask for many documents together what `_live` would ask for each of them."""
        published = self._staged.published
        if wanted := [id for id in dict.fromkeys(ids) if id not in published]:
            with self._reading():
                rows = self._connection.execute(sql.LIVE_DOCUMENTS, {"ids": json.dumps(wanted)}).fetchall()
            published |= dict.fromkeys(wanted) | {id: tuple(row) for id, *row in rows}

    def meta_of(self, document: str) -> Meta | None:
        staged = self._waiting(document)
        return super().meta_of(document) if staged is None else staged.meta

    def holds(self, document: Document) -> bool:
        staged = self._waiting(document.id)
        is_there = super().holds(document) if staged is None else staged.but(uri="") == document.but(uri="")
        return is_there and bool(self._holders(document.id))  # else it goes in the same commit, and is to be made again

    def holders(self, document: str) -> list[SourceRow]:
        if unseen := [row.uri for row in super().holders(document) if row.uri not in self._births]:
            self._see(unseen)
        return self._holders(document)

    def _holders(self, document: str) -> list[SourceRow]:
        """See `holders`, without remembering the versions of what this may not have looked at."""
        rows = self._staged.rows
        found = [row for row in super().holders(document) if row.uri not in rows]
        found += [row for uri in self._staged.holding.get(document, ()) if (row := rows[uri]) is not None]
        return sorted(found, key=lambda row: row.uri)

    def nodes(self, document: str, group: str) -> list[Node]:
        if (document, group) in self._staged.nodes:
            return [node for node in self._staged.nodes[document, group] if node.group == group]
        if group in self._staged.expected:
            return []
        if document not in self._staged.relabelled:
            return super().nodes(document, group)
        old, new = self._staged.relabelled[document]
        return [
            node.but(
                meta=new.meta + node.meta[len(old.meta) :],
                readers=new.readers if node.readers == old.readers else node.readers,
            )
            for node in super().nodes(document, group)
        ]

    def unmade(self) -> tuple[Unmade, ...]:
        staged = self._staged
        found = {(lack.document, lack.group): lack for lack in super().unmade()}
        # of a group that is staged all documents have to be made: they are noted when it is committed
        live = (
            {row.document: uri for uri, row in self._sources(None).items() if row.document} if staged.expected else {}
        )
        found |= {(id, group): Unmade(id, uri, group, NOT_YET) for group in staged.expected for id, uri in live.items()}
        found = {key: lack for key, lack in found.items() if key[0] not in staged.images}
        for (document, group), reason in staged.noted.items():
            found.pop((document, group), None)
            if reason and (holders := self._holders(document)):
                found[document, group] = Unmade(document, holders[0].uri, group, reason)
        if staged.rows:
            found = {key: lack for key, lack in found.items() if key in staged.noted or self._holders(lack.document)}
        return tuple(sorted(found.values(), key=lambda lack: (lack.uri, lack.document, lack.group)))

    # Definitions.

    def declare(self, fields: Iterable[Field]) -> None:
        schema = Schema(fields)
        if schema != self.declared:
            self.declared = schema
            self._stage(Writer.declare, tuple(schema))

    def define(self, group: str, manifest: Manifest) -> None:
        if there := self.manifests.get(group):
            refuse_other(there, manifest)
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

    def put(
        self, document: Document, nodes: Iterable[Node], source: SourceRow, images: Mapping[str, bytes] = NONE
    ) -> bool:
        is_new = not self.holds(document)
        self._set(source)
        if is_new:
            self._staged.documents[document.id] = document
            self._staged.relabelled.pop(document.id, None)
            self._staged.images[document.id] = images
            self._staged.weight += len(document.text) + len(document.boxes.packed) + sum(map(len, images.values()))
        self._stage(
            Writer.put, document, (), source, images, uris=(source.uri,), document=document.id, is_new=is_new
        )  # fmt: skip
        if is_new and (listed := list(nodes)):
            self.add_nodes(document, listed)
        return is_new

    def add_nodes(self, document: Document, nodes: Iterable[Node]) -> None:
        """See `Writer.add_nodes`. They are checked now, since a commit is to find no fault."""
        listed = nodes if isinstance(nodes, list) else Spilled(nodes, self._staged.file)
        ids, lacking, made, weight = set[str](), dict[str, dict[bytes, Lacking]](), dict[str, int](), 0
        for node in listed:
            if node.id in ids or (manifest := self.manifests.get(node.group)) is None:
                raise StoreError(f"Two nodes have the id {node.id!r}, or group {node.group!r} is not defined.")
            refuse_odd_node(node, document)
            ids.add(node.id)
            made[node.group] = made.get(node.group, 0) + 1
            weight += len(node.text) + _WEIGHT_OF_NODE
            if manifest.embeddings:
                hash = key_of(node, document, by_picture=manifest.by_picture)
                one = Lacking(hash, node.id, document.id, node.indexed_text)
                lacking.setdefault(node.group, {}).setdefault(hash, one)
        self._staged.weight += weight
        groups = set(made)
        for group, count in made.items():
            self.made[group] += count
            self._staged.nodes[document.id, group] = listed
            self._staged.noted[document.id, group] = ""
            for hash, one in lacking.get(group, {}).items():
                self._staged.unembedded.setdefault(group, {}).setdefault(hash, one)
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
        readers = principals(readers, f"The readers of {document.uri or document.id!r} would be")
        before = self._staged.relabelled.get(document.id, (document,))[0]
        new = document.but(meta=meta, readers=readers)
        if document.id not in self._staged.images:  # what is put in this very commit has its nodes here
            self._staged.relabelled[document.id] = before, new
        self._staged.documents[document.id] = new
        self._stage(Writer.relabel, document, meta, readers, document=document.id)

    def touch(self, source: SourceRow) -> None:
        self._set(source)
        self._stage(Writer.touch, source, uris=(source.uri,))

    def move(self, old_uri: str, source: SourceRow) -> None:
        self._staged.rows[old_uri] = None
        self._set(source)
        self._stage(Writer.move, old_uri, source, uris=(old_uri, source.uri))

    def remove(self, uri: str) -> None:
        self._staged.rows[uri] = None
        self._stage(Writer.remove, uri, uris=(uri,))

    def fail(self, source: SourceRow) -> None:
        self._set(source)
        self._stage(Writer.fail, source, uris=(source.uri,))

    def remember(self, source: str, cursors: Mapping[str, str]) -> None:
        """See `Writer.remember`; dropped while there are conflicts, since not all that was read is stored then."""
        if any(cursor != self.cursor(source, item) for item, cursor in cursors.items()):
            self._stage(Writer.remember, source, dict(cursors))

    def _set(self, source: SourceRow) -> None:
        before = self._staged.rows.get(source.uri)
        if before is not None:
            self._staged.holding.get(before.document, set()).discard(source.uri)
        self._staged.rows[source.uri] = source
        if source.document:
            self._staged.holding.setdefault(source.document, set()).add(source.uri)

    def _stage(
        self,
        apply: Callable[..., object],
        *given: Any,
        uris: tuple[str, ...] = (),
        document: str = "",
        is_new: bool = False,
    ) -> None:
        for uri in uris:
            self._births.setdefault(uri, None)  # what is not there now is another one's if it is there later
        if document and document not in self._staged.keys:
            self._staged.keys[document] = self.document_key(document)
        self._staged.changes.append(_Change(apply, given, uris, document, is_new))

    # Vectors.

    def _lacking(self, group: str, embedder: str) -> Iterator[Lacking]:
        seen = set[bytes]()
        for hash, one in list(self._staged.unembedded.get(group, {}).items()):
            with self._reading():
                is_there = self._one(sql.HAS_VECTOR, (embedder, hash)) is not None
            if not is_there and not self._is_pending(embedder, hash):
                seen.add(hash)
                yield one
        if group not in self._staged.expected:  # else its nodes end with the next commit
            yield from (one for one in super()._lacking(group, embedder) if one.hash not in seen)

    def _picture(self, one: Lacking) -> bytes:
        staged = self._staged.images.get(one.document, NONE)
        return next((data for image, data in staged.items() if hash_of_picture(image) == one.hash), b"") or (
            super()._picture(one)
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
        """Make vectors durable before what they are of is committed."""
        with closing(Writer(self.store, self.timeout_s)) as writer:
            writer.manifests |= self.manifests  # which say how they are compared
            self._give_vectors(writer)
            writer.keep_vectors()

    def _give_vectors(self, writer: Writer) -> None:
        for add, *given in self._vectors:
            add(writer, *given)
        self._vectors.clear()
        self._pending.clear()

    # Committing.

    def spill(self) -> None:
        """Keep what waits in a file, where one commit is to have more than memory holds. Embed all before."""
        staged, spilled = self._staged, dict[int, Spilled]()
        for change in staged.changes:
            if change.apply is Writer.put and isinstance(change.given, tuple):
                change.given = Spilled(change.given, staged.file)
            elif change.apply is Writer.add_nodes and isinstance(change.given, tuple):
                document, nodes, groups = change.given
                kept = Spilled(nodes, staged.file) if isinstance(nodes, list) else nodes
                spilled[id(nodes)], change.given = kept, [document.id, kept, groups]
        staged.nodes = {key: spilled.get(id(nodes), nodes) for key, nodes in staged.nodes.items()}
        for name, document in staged.documents.items():
            staged.documents[name] = document if isinstance(document, Spilled) else Spilled([document], staged.file)
            staged.images[name] = NONE
        staged.unembedded.clear()
        staged.weight = 0

    def publish(self, complete: "Callable[[AnyWriter], None]" = lambda writer: None, *, embedded: bool = True) -> int:
        """Commit what waits, and make it visible; returns the generation.

        Args:
            complete: makes what new groups lack of others' commits, without the lock; after `ROUNDS` calls with it.

        Raises:
            StoreBusy: groups are defined, and another writer has changed the groups meanwhile.
        """
        for later in reversed(range(ROUNDS)) if self._staged.changes or self._vectors or self._is_damaged else ():
            generation, tried = self._prepare(complete) if self._staged.defined else (0, set())
            with closing(Writer(self.store, self.timeout_s, self._connection)) as writer:
                is_other = bool(self._staged.defined) and writer.generation != generation
                if is_other and later and self._lacking_of_others() - tried:
                    continue
                self._commit(writer, complete, embedded)
            self._staged = _Staged()
            break
        return self.generation

    def join_full(self) -> None:
        """Join the vectors that fill a segment for good, while a run goes on; `compact` joins the rest at its end."""
        ready = compact(self.store, self.manifests, self.timeout_s, ended=False, waits=False)
        self.generation = ready or self.generation

    def compact(self) -> int:
        """Join what the commits of this run left in small pieces; lexical indexes only if nobody else writes."""
        if self._has_committed:
            scattered = self._is_scattered
            moved = compact_all(
                self.store, self.manifests, self.timeout_s, is_scattered=scattered, connection=self._connection
            )
            self.generation = moved or self.generation
        return self.generation

    def _prepare(self, complete: "Callable[[AnyWriter], None]") -> tuple[int, set[object]]:
        """Make what is lacking, without the lock; returns the generation before, and what no model could make."""
        generation = self._newest()
        if lacking := self._lacking_of_others():
            complete(self)
            lacking &= self._lacking_of_others()
        return generation, lacking

    def _lacking_of_others(self) -> set[object]:
        """What the groups that are defined lack: documents that are not made, and texts without vectors."""
        self._drop_changed()
        defined, expected = self._staged.defined, self._staged.expected
        found: set[object] = {
            (lack.document, lack.group) for lack in self.unmade() if lack.is_untried and lack.group in defined
        }
        for group, manifest in defined.items():
            for how in manifest.embeddings if group not in expected else ():
                found |= {(how.embedder, one.hash) for one in super()._lacking(group, how.embedder)}
        return found

    def _drop_changed(self) -> None:
        """Drop what waits for sources and documents that others have changed, so that they are read as they are now."""
        staged, kept = self._staged, self._unchanged(self)
        if len(kept) == len(staged.changes):
            return
        there = {id(change) for change in kept}
        dropped = [change for change in staged.changes if id(change) not in there]
        staged.changes = kept
        for uri in {uri for change in dropped for uri in change.uris}:
            row = staged.rows.pop(uri, None)
            staged.holding.get(row.document if row else "", set()).discard(uri)
        gone = {change.document for change in dropped} - {change.document for change in kept}
        for name in gone:
            for held in (staged.keys, staged.documents, staged.relabelled, staged.images, staged.published):
                held.pop(name, None)
        staged.nodes = {key: nodes for key, nodes in staged.nodes.items() if key[0] not in gone}
        staged.noted = {key: reason for key, reason in staged.noted.items() if key[0] not in gone}

    def _commit(self, writer: Writer, complete: "Callable[[AnyWriter], None]", embedded: bool) -> None:
        self._refuse_other_groups(writer)
        self.refuse(writer)
        changes = self._unchanged(writer)
        with writer.all_or_nothing():
            for is_first, some in groupby(changes, self._are_first(writer)):
                if is_first:
                    self._insert(writer, list(some))
                else:
                    for change in some:
                        self._apply(writer, change)
        self._give_vectors(writer)
        if self._staged.defined:
            complete(writer)
        births = dict(writer.born())
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
        """Refuse to commit groups that are made from others, or others from them, than those that this has seen."""
        defined, there = self._staged.defined, writer.manifests
        lineage = {name for manifest in defined.values() for name in (manifest.group, manifest.parent, manifest.ref)}
        for group in {*there, *self._published} if defined else ():
            above = (there[group].parent, there[group].ref) if group in there else ()
            is_known = there.get(group) in (self._published.get(group), defined.get(group))
            if not is_known and (group in lineage or not self._staged.expected.isdisjoint(above)):
                raise StoreBusy(
                    f"Another process has built or changed group {group!r} of {self.store} meanwhile. Nothing was "
                    "published; its vectors are kept. Run it again."
                )

    def _unchanged(self, now_there: Draft) -> list[_Change]:
        """The changes to what is as it was when this looked at it; the others are noted as conflicts."""
        uris = {uri for change in self._staged.changes for uri in change.uris}
        now = now_there.births(uris)
        self.conflicts |= {uri for uri in uris if now.get(uri) != self._births.get(uri)}
        kept, lost = list[_Change](), set[str]()
        keys = now_there.document_keys(self._staged.keys)
        for id, key in self._staged.keys.items():  # which another one has replaced or removed, or put as this did
            if key != keys.get(id) or (key is None and id not in self._staged.images):
                lost.add(id)
        for change in self._staged.changes:
            if not self._is_lost(change, lost):
                kept.append(change)
                continue
            self.conflicts.update(change.uris or (row.uri for row in Draft.holders(now_there, change.document)))
            if change.is_new:
                lost.add(change.document)
        return kept

    def _is_lost(self, change: _Change, lost: set[str]) -> bool:
        if change.document in lost or not self.conflicts:
            return change.document in lost
        within = tuple(f"{uri}/" for uri in change.uris)
        return any(uri in change.uris or uri.startswith(within) for uri in self.conflicts)

    def _are_first(self, writer: Writer) -> "Callable[[_Change], bool]":
        """Tells the documents and sources, and the nodes of these documents, that the store has nothing of."""
        births, keys, seen, fresh = self._births, self._staged.keys, set[str](), set[str]()

        def is_first(change: _Change) -> bool:
            names = {*change.uris, change.document}
            is_new = change.is_new and keys[change.document] is None and seen.isdisjoint(names)
            if is_new and births[change.uris[0]] is None:
                fresh.add(change.document)
            elif change.apply is not Writer.add_nodes or change.document not in fresh:
                fresh.clear()
            seen.update(names)
            return change.document in fresh

        return is_first

    def _insert(self, writer: Writer, changes: Sequence[_Change]) -> None:
        """Put documents, and add their nodes, together, unless another process has changed groups."""
        if writer.manifests != self.manifests:
            for change in changes:
                self._apply(writer, change)
            return
        puts = [change.given for change in changes if change.apply is Writer.put]
        added = (change.given for change in changes if change.apply is Writer.add_nodes)
        writer.insert(puts, ((_document(writer, document), nodes) for document, nodes, _ in added))

    def _apply(self, writer: Writer, change: _Change) -> None:
        if change.apply is Writer.put:
            document, _, source, _ = change.given
            if not change.is_new and not writer.holds(document):  # it went with another source, in this very commit
                self.conflicts.add(source.uri)
                return
            writer.put(*change.given)
            if more := {group: NOT_YET for group in writer.manifests if group not in self.manifests and change.is_new}:
                writer.note_unmade(document.id, more)
        elif change.apply is Writer.add_nodes:
            self._add_nodes(writer, *change.given)
        elif not self._is_obsolete(writer, change):
            change.apply(writer, *change.given)

    def _is_obsolete(self, writer: Writer, change: _Change) -> bool:
        """Whether another one has done the same meanwhile, to a group or a source, or there are conflicts with it."""
        if change.apply is Writer.remove:
            return not writer.births(change.uris)
        if change.apply is Writer.redefine:
            group, manifest, _ = change.given
            return bool(self._published.get(group) != manifest == writer.manifests.get(group))
        return bool(self.conflicts if change.apply is Writer.remember else self.conflicts.intersection(change.uris))

    def _add_nodes(self, writer: Writer, document: Document | str, nodes: Iterable[Node], groups: set[str]) -> None:
        """Store no nodes of groups that another process has redefined, or has already made of the document."""
        document = _document(writer, document)
        others = {group for group in groups if writer.manifests.get(group) != self.manifests[group]}
        if others:
            writer.note_unmade(document.id, dict.fromkeys(others & writer.manifests.keys(), NOT_YET))
        if document.id not in self._staged.images:
            others |= {group for group in groups - others if writer.nodes(document.id, group)}
        writer.add_nodes(document, (node for node in nodes if node.group not in others) if others else nodes)

    def close(self) -> None:
        """Drop what waits; vectors are kept, since they took time, and perhaps money."""
        try:
            with suppress(Exception):  # what has ended the run counts: a full disk, a lost connection
                if self._vectors and self.store.exists():
                    self._keep_vectors()
        finally:
            self._connection.close()


def _document(writer: Writer, given: Document | str) -> Document:
    return writer.document(given) if isinstance(given, str) else given


TEXTS_AT_ONCE = 4_000
"""Whose vectors are in memory until they take the place of others, and those of one document more."""


class Reembedding(Staging):
    """Gives the texts of a lot of documents although they have vectors, and puts new ones in the place of these."""

    def __init__(self, store: Backend, timeout_s: float) -> None:
        super().__init__(store, timeout_s)
        self._lot: list[str] = []
        self._found: dict[str, list[tuple[Sequence[bytes], Any]]] = {}

    def lots(self, documents: Iterable[str]) -> Iterator[list[str]]:
        """Documents, some at a time: these are the ones to be embedded."""
        texts = 0
        for document in documents:
            with self._reading():
                texts += self._one(sql.COUNT_NODES_OF, (document,))[0]
            self._lot.append(document)
            if texts >= TEXTS_AT_ONCE:
                yield self._lot
                self._lot, texts = [], 0
        if self._lot:
            yield self._lot

    def _lacking(self, group: str, embedder: str) -> Iterator[Lacking]:
        for document in self._lot:
            with self._reading():
                rows = self._connection.execute(sql.EMBEDDED, (document, group)).fetchall()
            for found, id, *texts in rows:
                if (embedder, found) not in self._pending:
                    self._pending.add((embedder, found))
                    yield Lacking(found, id, document, indexed_text(*texts))

    def _collect(self, add: Callable[..., None], embedder: str, hashes: Sequence[bytes], vectors: Any) -> None:
        self._found.setdefault(embedder, []).append((hashes, vectors))

    def replace(self) -> None:
        """Publish the new vectors together."""
        with closing(Writer(self.store, self.timeout_s)) as writer:
            for embedder, found in self._found.items():
                hashes = [hash for some, _ in found for hash in some]
                writer.replace_vectors(embedder, hashes, [rows for _, rows in found])
            self.generation = writer.publish(embedded=False)
        self._found.clear()


AnyWriter: TypeAlias = Writer | Staging

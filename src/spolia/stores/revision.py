"""Changes to a store: each whole or not at all, and none seen by readers before it is published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spolia.errors import GroupError, StoreError
from spolia.filters import Field, Schema
from spolia.stores.draft import Draft
from spolia.stores.failpoints import fail_point
from spolia.stores.manifest import Manifest, refuse_odd_name, refuse_other, written
from spolia.stores.tables import sql
from spolia.stores.tables.changes import NONE
from spolia.stores.tables.rows import SourceRow
from spolia.types import Document, Meta, Node, principals


class Revision(Draft):
    """What a writer can change."""

    def define(self, group: str, manifest: Manifest) -> None:
        """Say what a group is built with: the first time it is written down, later it must be the same.

        Documents that are there already are noted as not made in it (`unmade`).

        Raises:
            ManifestMismatch: the group was built with other parts, naming both sides.
        """
        if manifest.group != group:
            raise StoreError(f"The manifest is of group {manifest.group!r}, not {group!r}. Write the same name twice.")
        refuse_odd_name(group)
        there = self.manifests.get(group)
        if there is not None:
            refuse_other(there, manifest)
            return
        with self._transaction.change():
            fail_point("define.write")
            self._changes.expect(group)
            self._write(group, manifest)

    def _write(self, group: str, manifest: Manifest) -> None:
        self._connection.execute(sql.DEFINE, {"grp": group, "manifest": written(manifest)})
        self.manifests[group] = manifest
        self._forget_derived(group)

    def _forget_derived(self, group: str) -> None:
        self.indexes.pop(group, None)
        self._embedded_to = {key: last for key, last in self._embedded_to.items() if key[0] != group}

    def redefine(self, group: str, manifest: Manifest, *, keep_nodes: bool = False) -> None:
        """Build a group anew: its nodes end, other groups stay. Readers see the old ones until this is published.

        All documents are noted as not made in it, until `add_nodes` adds nodes of it, or `note_unmade` takes that back.

        Args:
            keep_nodes: they are made as before; only how they are embedded has changed.
        """
        refuse_odd_name(group)
        with self._transaction.change():
            fail_point("redefine.write")
            if not keep_nodes:
                self._changes.clear(group)
                self._changes.expect(group)
            self._write(group, manifest)

    def drop(self, group: str) -> None:
        """Forget a group with its nodes; vectors stay for when their texts return."""
        self._refuse_unknown(group)
        if below := sorted(m.group for m in self.manifests.values() if group in (m.parent, m.ref) and m.group != group):
            raise GroupError(f"Group {group!r} has groups made from it: {', '.join(below)}. Drop these first.")
        with self._transaction.change():
            self._changes.clear(group)
            fail_point("drop.write")
            self._connection.execute(sql.DROP_MANIFEST, (group,))
            del self.manifests[group]
            self._forget_derived(group)

    def _refuse_unknown(self, group: str) -> None:
        if group not in self.manifests:
            raise GroupError(
                f"There is no node group {group!r} in {self.store}. It has: {', '.join(sorted(self.manifests))}."
            )

    def declare(self, fields: Iterable[Field]) -> None:
        """Say which metadata fields can be filtered by; those that were declared before and are not named go.

        Values that do not fit, in what is stored or put later, are passed over: for filters they are missing.

        Raises:
            FilterError: two fields of one name, or one that every file has.
        """
        schema = Schema(fields)
        if schema != self._changes.schema:
            with self._transaction.change():
                fail_point("declare.write")
                self._changes.schema = schema

    def put(
        self, document: Document, nodes: Iterable[Node], source: SourceRow, images: Mapping[str, bytes] = NONE
    ) -> bool:
        """Put a document with its nodes in the place of what its source held before; the nodes are streamed.

        A document that is there already, with the same text and fields, is shared, and its nodes are not asked for.
        When `nodes` raises, nothing of the document stays, and the writer goes on.

        Args:
            images: the pictures that regions of the document name, by their hash.

        Returns:
            Whether its nodes were asked for.

        Raises:
            StoreError: two nodes with one id, a node of another document or of an undefined group, one that stands
                beyond the text, a full disk; another document with this id was put since the last publication.
        """
        with self._transaction.change():
            return self._changes.put(document, nodes, source, images)

    def add_nodes(self, document: Document, nodes: Iterable[Node]) -> None:
        """Add nodes of other groups to a document that is there, as `documents()` gives it; they are streamed.

        Raises:
            StoreError: no such document, two nodes with one id, a node of another document or of an undefined group.
        """
        with self._transaction.change():
            self._changes.add_nodes(document, nodes)

    def note_unmade(self, document: str, reasons: Mapping[str, str]) -> None:
        """Note which groups could not be made of a document, by its id, and why; they stay noted until it is changed.

        Args:
            reasons: by group; an empty one takes back what was noted.
        """
        with self._transaction.change():
            fail_point("unmade.write")
            self._changes.note_unmade(document, reasons)

    def set_readers(self, document: Document, readers: Sequence[str]) -> None:
        """Give a document another reader list, and all its nodes but those that have one of their own.

        It holds for every search after the next publication; nothing is cut or embedded again.

        Args:
            document: as `documents()` or a snapshot gives it.
            readers: principals who may see it; empty for everybody.

        Raises:
            StoreError: it is no document, or no list of principals.
        """
        if not isinstance(document, Document):
            raise StoreError(
                f"{document!r:.80} ({type(document).__name__}) is no Document. Write for document in "
                f"list(writer.documents()): if document.uri == {str(document)!r:.80}: "
                "writer.set_readers(document, [...])."
            )
        self.relabel(document, document.meta, readers)

    def relabel(self, document: Document, meta: Meta, readers: Sequence[str]) -> None:
        """Give a document other metadata and another reader list; its nodes stay, with the metadata of their own.
        StoreError: the readers are no list of principals.
        """
        readers = principals(readers, f"The readers of {document.uri or document.id!r} would be")
        with self._transaction.change():
            self._changes.relabel(document, meta, readers)

    def unmake(self, document: str, groups: Iterable[str]) -> None:
        """End the nodes of a document, by its id, in some groups: it is noted as not made in them."""
        with self._transaction.change():
            self._changes.unmake(document, groups)

    def touch(self, source: SourceRow) -> None:
        """Note another size, time or report of a source whose content is the same."""
        with self._transaction.change(visible=False):
            fail_point("touch.write")
            self._changes.touch(source)

    def move(self, old_uri: str, source: SourceRow) -> None:
        """The source at `old_uri` is at `source.uri` now, with the same content."""
        with self._transaction.change():
            key = self._changes.held_by(old_uri)
            fail_point("move.write")
            self._changes.point(source, key)
            if old_uri != source.uri:
                self._changes.forget(old_uri)

    def remove(self, uri: str) -> None:
        """Forget a source, and its document unless another source has the same."""
        with self._transaction.change():
            fail_point("remove.write")
            self._changes.forget(uri)

    def fail(self, source: SourceRow) -> None:
        """Note that a source could not be read. What it held before goes, unless `source.document` still names it."""
        with self._transaction.change():
            key = self._changes.document_key(source.document) if source.document else None
            fail_point("fail.write")
            self._changes.point(source, key)

    def remember(self, source: str, cursors: Mapping[str, str]) -> None:
        """Note how far a source was read, which is published together with what was read there.

        Args:
            source: its name.
            cursors: by what they are said of; an empty one forgets.
        """
        cursors = {item: cursor for item, cursor in cursors.items() if cursor != self.cursor(source, item)}
        if not cursors:
            return
        with self._transaction.change(visible=False):
            fail_point("remember.write")
            # where nothing else has changed, what was published last is as far as this
            self._changes.remember(source, cursors, self.generation + self._transaction.visible)

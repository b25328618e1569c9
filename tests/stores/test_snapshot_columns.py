"""Whatever is published, filters and access say what a plain look at every node says.

Metadata are not read again for each generation: what has not changed is taken over from the snapshot before, or the
lexical index is asked. So after every publication of a random history the same is asked of the snapshot that took over,
of one that has read everything, and of an older one that is still held, with the columns of the index and without.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spolia.filters import Between, Condition, Field, Schema, where
from spolia.stores import open_store
from spolia.stores.backends import sql
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.manifest import Manifest
from spolia.stores.open_store import OpenStore
from spolia.stores.snapshot import records
from spolia.stores.snapshot.lineage import filter_nodes
from spolia.stores.snapshot.open_indexes import OpenIndexes
from spolia.stores.snapshot.records import Records, file_meta
from spolia.stores.snapshot.snapshot import Snapshot, latest_snapshot
from spolia.stores.writer import Writer
from spolia.types import Document, Meta, Node
from tests.stores.servers import Server

pytestmark = pytest.mark.slow

GROUPS = ("chunk", "other")
LANG, YEAR = Field("lang"), Field("year", "int", default=0)
SCHEMAS = (Schema((LANG, YEAR)), Schema((LANG,)), Schema((Field("lang", default="de"), Field("year", "int"))))
FILTERS: Sequence[Condition] = (
    where(lang="en"),
    ~where(lang=("en", "de")),
    Between("year", at_least=1, at_most=2**60),
    where(year=0) | where(file_name="a.txt"),
    Between("file_modified", at_least="2023") & ~where(file_type="md"),
    where(file_size=(1, 7)),
)
ASKERS = tuple(frozenset(found) for found in ((), ("ann",), ("bob", "eve")))

names = st.sampled_from(["a.txt", "b.md", "c.txt", "d.md"])
metas: st.SearchStrategy[Meta] = st.lists(
    st.tuples(st.just("lang"), st.sampled_from(["en", "de", "", None]))
    | st.tuples(st.just("year"), st.sampled_from([0, 1, 2**60, None])),
    max_size=3,
).map(tuple)
readers = st.sampled_from([(), ("ann",), ("ann", "bob")])
changes = st.one_of(
    st.tuples(st.just("put"), names, metas, st.lists(metas, max_size=3), readers),
    st.tuples(st.just("put"), names, metas, st.lists(metas, max_size=3), readers),
    st.tuples(st.just("copy"), names, names),
    st.tuples(st.just("move"), names, names),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("touch"), names, st.sampled_from([0, 1, 7])),
    st.tuples(st.just("readers"), names, readers),
    st.tuples(st.just("declare"), st.sampled_from(SCHEMAS)),
    st.tuples(st.just("rebuild"), st.sampled_from(GROUPS)),
)
Change = tuple[object, ...]
histories = st.lists(
    st.tuples(st.lists(changes, max_size=4), st.sampled_from(FILTERS), st.booleans()), min_size=1, max_size=7
)


@dataclass
class History:
    """A store, and how often something was put."""

    corpus: Corpus
    count: int = 0
    held: list[tuple[Snapshot, Mapping[object, set[str]]]] = field(default_factory=list)

    def publish(self, made: Sequence[Change]) -> None:
        with self.corpus.writer() as writer:
            for change in made:
                self.change(writer, *change)

    def change(self, writer: Writer, kind: object, *said: object) -> None:
        sources = writer.sources()
        if kind == "declare":
            (schema,) = said
            assert isinstance(schema, Schema)
            writer.declare(schema)
        elif kind == "rebuild":
            self.rebuild(writer, str(said[0]))
        elif kind == "put":
            self.put(writer, *said)  # type: ignore[arg-type]
        elif (row := sources.get(str(said[0]))) is not None:
            self.change_source(writer, kind, row, said[-1])

    def put(self, writer: Writer, name: str, meta: Meta, owns: list[Meta], who: tuple[str, ...]) -> None:
        self.count += 1
        id = f"d{self.count}"
        document = Document(id, f"The tide {self.count}.", uri=name, meta=meta, readers=who)
        writer.put_document(document, list(_nodes(document, owns)), SourceRow(name, self.count, 0, id, id))

    def change_source(self, writer: Writer, kind: object, row: SourceRow, said: object) -> None:
        if kind == "copy":
            writer.put_document(writer.document(row.document), (), row.but(uri=str(said)))
        elif kind == "move":
            writer.move(row.uri, row.but(uri=str(said)))
        elif kind == "remove":
            writer.remove(row.uri)
        elif kind == "touch":
            writer.touch(row.but(size=said, mtime_ns=1_700_000_000_000_000_000))
        else:
            assert isinstance(said, tuple)
            writer.set_readers(writer.document(row.document), said)

    def rebuild(self, writer: Writer, group: str) -> None:
        """The group ends, and every second document gets new nodes of it."""
        self.count += 1
        writer.redefine(group, Manifest(group))
        for document in list(writer.documents())[::2]:
            id = f"{document.id}:{group}:again{self.count}"
            writer.add_nodes(document, [Node(id, document.text, document.id, group, number=1, meta=document.meta)])

    def look(self, asked: Condition, by_index: bool) -> None:
        """Compare what everybody sees by every filter; `asked` alone has been asked of some of the snapshots before."""
        with columns_of_index(by_index):
            snapshot = self.corpus.snapshot()
            if asked_of(snapshot, asked):
                snapshot.allowed("chunk", ASKERS[1], asked)
            expected = visible_ids(snapshot, expected_of)
            self.held = [*self.held[-1:], (snapshot, expected)]
            for past_snapshot, then in self.held:
                assert visible_ids(past_snapshot, found_by) == then
        with columns_of_index(not by_index):
            fresh = latest_snapshot(OpenStore(self.corpus.backend))
            assert visible_ids(fresh, found_by) == expected


@contextmanager
def columns_of_index(are_used: bool) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if not are_used:
            patch.setattr(OpenIndexes, "holders", lambda *_: None)
        yield


def asked_of(snapshot: Snapshot, filter: Condition) -> bool:
    return all(leaf.field in snapshot.schema.by_name for leaf in filter.leaves())


def _nodes(document: Document, owns: Sequence[Meta]) -> Iterator[Node]:
    for group in GROUPS:
        for number, own in enumerate(owns, 1):
            id = f"{document.id}:{group}:{number}"
            yield Node(id, document.text, document.id, group, number=number, meta=document.meta + own)


def visible_ids(snapshot: Snapshot, ids_of: object) -> dict[object, set[str]]:
    assert callable(ids_of)
    return {
        (group, asker, filter): ids_of(snapshot, group, asker, filter)
        for group in GROUPS
        for asker in ASKERS
        for filter in (None, *FILTERS)
        if filter is None or asked_of(snapshot, filter)
    }


def found_by(snapshot: Snapshot, group: str, asker: frozenset[str], filter: Condition | None) -> set[str]:
    allowed = snapshot.allowed(group, asker, filter)
    nodes = snapshot.nodes(allowed.keys[allowed.positions()].tolist(), frozenset().union(*ASKERS))
    assert len(nodes) == allowed.count
    whole = [Node(id, "", id, "document") for id in sorted({node.document for node in nodes})]
    passed = {f"whole {node.id}" for node in filter_nodes(snapshot, whole, asker, filter)}
    return {node.id for node in nodes} | (passed if filter is not None else set())


def expected_of(snapshot: Snapshot, group: str, asker: frozenset[str], filter: Condition | None) -> set[str]:
    """Node by node, value by value."""
    files: dict[str, Meta] = {}
    for row in snapshot.sources().values():
        own = file_meta(row.uri, row.size, row.created_ns, row.mtime_ns, row.accessed_ns)
        files[row.document] = files.get(row.document, ()) + own
    documents = {document.id: document.meta for document in snapshot.documents(frozenset().union(*ASKERS))}

    def accepts(meta: Meta) -> bool:
        return filter is None or filter.accepts(snapshot.schema.record(meta))

    nodes = [
        node
        for node in snapshot.all_nodes(group, frozenset().union(*ASKERS))
        if (not node.readers or asker & set(node.readers)) and accepts(node.meta + files[node.document])
    ]
    whole = {id for id in {node.document for node in nodes} if accepts(documents[id] + files[id])}
    return {node.id for node in nodes} | ({f"whole {id}" for id in whole} if filter is not None else set())


Look = tuple[Sequence[Change], Condition, bool]


def holds(corpus: Corpus, history: Sequence[Look]) -> None:
    run = History(corpus.create())
    with corpus.writer() as writer:
        for group in GROUPS:
            writer.define(group, Manifest(group))
        writer.declare(SCHEMAS[0])
    for changes_made, condition, by_index in history:
        run.publish(changes_made)
        run.look(condition, by_index)


A_FILE: Change = ("put", "a.txt", (("lang", "en"),), [(), (("year", 1),)], ("ann",))


@settings(max_examples=12)
@given(history=histories)
@example(history=[([A_FILE, ("copy", "a.txt", "b.md")], FILTERS[3], False), ([("remove", "a.txt")], FILTERS[3], False)])
@example(history=[([A_FILE], FILTERS[3], True), ([("move", "a.txt", "b.md")], FILTERS[3], False)])
@example(history=[([A_FILE], FILTERS[5], True), ([("touch", "a.txt", 7)], FILTERS[5], True)])
@example(history=[([A_FILE], FILTERS[0], False), ([("readers", "a.txt", ("ann", "bob"))], FILTERS[0], False)])
@example(history=[([A_FILE], FILTERS[0], b) for b in (True, False)] + [([("declare", SCHEMAS[2])], FILTERS[1], False)])
def test_filters_and_access_are_those_of_a_plain_look(history: Sequence[Look]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        holds(Corpus(str(Path(folder) / "notes.spolia")), history)


@settings(max_examples=3)
@given(history=histories)
def test_they_are_in_a_database_too(server: Server, history: Sequence[Look]) -> None:
    corpus = Corpus(server.address())
    holds(corpus, history)
    open_store._open.pop(corpus.backend.place)


def test_nothing_is_read_again_that_has_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = History(Corpus(str(tmp_path / "notes.spolia")).create())
    with run.corpus.writer() as writer:
        for group in GROUPS:
            writer.define(group, Manifest(group))
        writer.declare(SCHEMAS[0])
        for number in range(50):
            run.put(writer, f"{number}", (("lang", "en"), ("year", number)), [(("year", 7),)], ())
    filter = where(lang="en", year=7) & Between("file_size", at_most=50)
    run.corpus.snapshot().allowed("chunk", frozenset(), filter)
    with run.corpus.writer() as writer:
        writer.remove("3")
        run.put(writer, "4", (("lang", "en"),), [(("year", 7),)], ())
    row_counts, rows = list[int](), OpenStore.rows

    def count_rows(store: OpenStore, statement: str, values: Any = ()) -> list[Any]:
        found_rows = rows(store, statement, values)
        row_counts.append(len(found_rows))
        return found_rows

    monkeypatch.setattr(OpenStore, "rows", count_rows)
    allowed = run.corpus.snapshot().allowed("chunk", frozenset(), filter)
    assert allowed.count == 48
    assert 0 < sum(row_counts) < 20, "as many as changed, not as many as there are"


def test_a_filter_decodes_its_own_field_only_and_nothing_with_a_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = History(Corpus(str(tmp_path / "notes.spolia")).create())
    with run.corpus.writer() as writer:
        for group in GROUPS:
            writer.define(group, Manifest(group))
        writer.declare(SCHEMAS[0])
        for number in range(20):
            run.put(writer, f"{number}", (("lang", "en"), ("year", number % 5)), [()], ())
    decoded, decode = list[int](), records._decode
    statements, rows = list[str](), OpenStore.rows

    def note_decoding(text: str, at: int) -> Any:
        decoded.append(at)
        return decode(text, at)

    def note_statement(store: OpenStore, statement: str, values: Any = ()) -> list[Any]:
        statements.append(statement)
        return rows(store, statement, values)

    monkeypatch.setattr(records, "_decode", note_decoding)
    monkeypatch.setattr(OpenStore, "rows", note_statement)
    snapshot, filter, lists = run.corpus.snapshot(), where(year=3), {sql.DOCUMENT_METADATA, sql.OWN_METADATA, sql.FILES}
    assert len(snapshot.search("chunk", "tide", 9, frozenset(), filter)) == 4
    assert not {sql.RECORDS, *lists} & {*statements}, "a search by words asks the index alone"
    assert snapshot.allowed("chunk", frozenset(), filter).count == 4
    assert not lists & {*statements}
    assert decoded == []
    with columns_of_index(False):
        assert latest_snapshot(OpenStore(run.corpus.backend)).allowed("chunk", frozenset(), filter).count == 4
    assert len(decoded) == 5, "as often as there are different metadata, and once in each"
    assert lists & {*statements} == {sql.DOCUMENT_METADATA}


def test_the_masks_stay_where_nothing_of_the_group_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = History(Corpus(str(tmp_path / "notes.spolia")).create())
    with run.corpus.writer() as writer:
        for group in GROUPS:
            writer.define(group, Manifest(group))
        writer.declare(SCHEMAS[0])
        run.put(writer, "a.txt", (("lang", "en"),), [()], ("ann",))
    mask = run.corpus.snapshot().allowed("other", ASKERS[1], FILTERS[0]).mask
    with run.corpus.writer() as writer:
        document = writer.document("d1")
        writer.redefine("chunk", Manifest("chunk"))
        writer.add_nodes(document, [Node("more", document.text, "d1", number=1)])
    monkeypatch.delattr(Records, "_mask")
    assert run.corpus.snapshot().allowed("other", ASKERS[1], FILTERS[0]).mask is mask

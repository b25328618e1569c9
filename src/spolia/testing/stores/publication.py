"""Contract of publication: a write becomes visible as a whole or not at all; a reader keeps its state."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import ClassVar

from spolia.errors import ManifestMismatch, NotAStore, StoreError
from spolia.stores.backends import sql
from spolia.stores.corpus import Corpus
from spolia.stores.manifest import Manifest
from spolia.stores.portable import export_store, import_store
from spolia.stores.writer import Writer
from spolia.testing.stores.fixtures import (
    ALL,
    DENSE,
    Contract,
    Entry,
    collect_answers,
    define_groups,
    embed_missing,
    expect_error,
    fill_store,
    make_entries,
    put_entry,
    readable_ids,
)
from spolia.types import Node

_READER = """
import sys
from spolia.stores.corpus import Corpus
from spolia.testing.stores.fixtures import ALL, DENSE
corpus = Corpus(sys.argv[1])
for line in sys.stdin:
    snapshot = corpus.snapshot()
    words = {key for key, _ in snapshot.search("line", line, 1000, ALL)}
    near = {key for key, _ in snapshot.nearest("line", DENSE.name, DENSE.embed([line], kind="query")[0], 1000, ALL)}
    texts = {node.text for node in snapshot.all_nodes("line", ALL)}
    whole = words <= near and len(near) == len(list(snapshot.all_nodes("line", ALL)))
    print(snapshot.generation, *sorted({text for text in texts if text.startswith("version")}), whole, flush=True)
"""
ODD = "nul \0 inside, bidi \u202e, emoji 👩‍🔬, ไทย 中文 한국어, line\u2028separator, '\"; DROP TABLE nodes"


class PublicationContract(Contract):
    """Tests of generations; `histories` random ones are compared with a dictionary."""

    histories: ClassVar[int] = 10

    def test_there_is_nothing_until_it_is_made_and_making_it_again_changes_nothing(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as corpus:
            assert not corpus.exists()
            assert corpus.fingerprint() is None
            for use in (corpus.snapshot, corpus.writer().__enter__):
                assert "Make one" in expect_error(NotAStore, use)
            for _ in range(2):
                assert corpus.create().snapshot().generation == 0
            fill_store(corpus, make_entries(3))
            assert corpus.create().snapshot().generation == 1

    def test_what_was_put_comes_back_as_it_was(self, tmp_path: Path) -> None:
        shelf = [
            *make_entries(4),
            Entry("fólder\n/👩‍🔬'\".txt", ODD, meta=(("kind", ODD), ("none", None), ("flag", True))),
        ]
        with self.store(tmp_path, shelf) as corpus:
            snapshot = corpus.snapshot()
            assert {entry.id: entry.document for entry in shelf} == {item.id: item for item in snapshot.documents(ALL)}
            assert snapshot.sources() == {entry.uri: entry.source for entry in shelf}
            for group in ("line", "word"):
                for node in snapshot.all_nodes(group, ALL):
                    (original,) = [item for entry in shelf for item in entry.nodes() if item.id == node.id]
                    fields = ("text", "group", "document", "span", "uri", "parent", "number", "context")
                    assert [getattr(node, name) for name in fields] == [getattr(original, name) for name in fields]
                    assert set(original.meta) <= set(node.meta)
            assert snapshot.check() == []

    def test_a_reader_elsewhere_sees_whole_generations_while_they_are_written(self, tmp_path: Path) -> None:
        with self.store(tmp_path, make_entries(6)) as corpus:
            command = [sys.executable, "-c", _READER, corpus.path]
            reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            with corpus.writer() as writer:
                for version in (1, 2, 3):
                    for entry in make_entries(6, version):
                        put_entry(writer, entry)
                        assert _ask_reader(reader) == [str(version), f"version{version - 1}", "True"]
                    embed_missing(writer)
                    assert _ask_reader(reader) == [str(version), f"version{version - 1}", "True"]
                    writer.publish()
                    assert _ask_reader(reader) == [str(version + 1), f"version{version}", "True"]
            reader.communicate()

    def test_leaving_by_an_error_takes_back_what_was_not_published(self, tmp_path: Path) -> None:
        with self.store(tmp_path, make_entries(6)) as corpus:
            expected = collect_answers(corpus.snapshot())
            ended: list[Writer] = []

            def interrupted() -> None:
                with corpus.writer() as writer:
                    ended.append(writer)
                    put_entry(writer, Entry("new.txt", "zeppelin"))
                    writer.remove("1.txt")
                    embed_missing(writer)
                    raise StoreError("stop")

            expect_error(StoreError, interrupted)
            assert collect_answers(corpus.latest()) == expected
            assert "has ended" in expect_error(StoreError, ended[0].publish)
            assert corpus.latest().check() == []

    def test_one_document_that_cannot_be_stored_leaves_nothing_and_stops_no_other(self, tmp_path: Path) -> None:
        with self.store(tmp_path, make_entries(2)) as corpus:
            bad = Entry("bad.txt", "one zeppelin\ntwo")
            nodes = list(bad.nodes())

            def broken() -> Iterator[Node]:
                yield nodes[0]
                raise StoreError("no more pages")

            with corpus.writer() as writer:
                assert (
                    expect_error(StoreError, partial(writer.put_document, bad.document, broken(), bad.source))
                    == "no more pages"
                )
                expect_error(
                    StoreError, partial(writer.put_document, bad.document.but(text="\ud800"), nodes, bad.source)
                )
                expect_error(StoreError, partial(writer.remove, "nothing"))
                for wrong in ([nodes[0]] * 2, [nodes[0].but(group="page")], [nodes[0].but(document="other")]):
                    expect_error(StoreError, partial(writer.put_document, bad.document, wrong, bad.source))
                put_entry(writer, Entry("good.txt", "a good zeppelin"))
                embed_missing(writer)
            snapshot = corpus.snapshot()
            hits = snapshot.hits(snapshot.search("line", "zeppelin", 9, ALL), ALL)
            assert [hit.node.uri for hit in hits] == ["good.txt"]
            assert "bad.txt" not in snapshot.sources()
            assert snapshot.check() == []

    def test_nothing_to_do_is_no_generation(self, tmp_path: Path) -> None:
        with self.store(tmp_path, make_entries(3)) as corpus:
            with corpus.writer() as writer:
                define_groups(writer)
                writer.touch(writer.sources()["1.txt"].but(mtime_ns=5))
                assert embed_missing(writer) == 0
            assert corpus.snapshot().generation == 1
            with corpus.writer() as writer:
                assert writer.sources()["1.txt"].mtime_ns == 5

    def test_how_far_a_source_was_read_is_published_with_what_was_read_there(self, tmp_path: Path) -> None:
        with self.store(tmp_path, make_entries(3)) as corpus:
            ended: list[Writer] = []

            def interrupted() -> None:
                with corpus.writer() as writer:
                    ended.append(writer)
                    put_entry(writer, Entry("sql://notes/1", "a zeppelin"))
                    writer.remember("sql://notes/", {"": "1"})
                    assert writer.cursors() == {"sql://notes/": {"": "1"}}
                    raise StoreError("stop")

            expect_error(StoreError, interrupted)
            with corpus.writer() as writer:
                assert writer.cursors() == {}
                put_entry(writer, Entry("sql://notes/1", "a zeppelin"))
                embed_missing(writer)
                writer.remember("sql://notes/", {"": "1", "page": "a"})
            with corpus.writer() as writer:
                writer.remember("sql://notes/", {"": "2", "page": ""})
            assert corpus.latest().generation == 2  # nothing that is searched has changed
            with corpus.writer() as writer:
                assert writer.cursors() == {"sql://notes/": {"": "2"}}
                stamps = writer.stamps(["sql://notes", "2.txt", "none"])
                assert sorted(stamps) == ["2.txt", "sql://notes/1"]
                assert stamps.items() <= writer.stamps().items()

    def test_a_group_with_an_embedder_is_not_published_without_vectors(self, tmp_path: Path) -> None:
        def write() -> None:
            with corpus.writer() as writer:
                put_entry(writer, Entry("new.txt", "zeppelin"))

        with self.store(tmp_path, make_entries(3)) as corpus:
            assert "have no vector" in expect_error(StoreError, write)
            assert corpus.snapshot().generation == 1

    def test_a_pinned_reader_keeps_its_generation_while_others_are_published_and_swept(self, tmp_path: Path) -> None:
        shelf = make_entries()
        with self.store(tmp_path, shelf) as corpus, self.store(tmp_path / "twin", shelf) as twin:
            pinned, meant = corpus.snapshot(), collect_answers(twin.snapshot())  # the one was asked nothing yet
            for version in range(1, 5):
                fill_store(corpus, make_entries(24 - version, version))
                assert corpus.latest().check() == []
            assert collect_answers(pinned) == meant
            assert pinned.check() == []
            assert collect_answers(corpus.latest()) != meant

    def test_another_manifest_is_refused_and_a_rebuild_is_seen_when_it_is_published(self, tmp_path: Path) -> None:
        manifest = Manifest("word", "Letters()", "by hand", parent="line")
        with self.store(tmp_path, make_entries(3)) as corpus:
            with corpus.writer() as writer:
                message = expect_error(ManifestMismatch, lambda: writer.define("word", manifest))
                assert "Letters()" in message
                assert "Words()" in message
                writer.redefine("word", manifest)
                assert len(list(corpus.latest().all_nodes("word", ALL))) > 0
            assert list(corpus.latest().all_nodes("word", ALL)) == []
            assert corpus.latest().manifest("word") == manifest
            with corpus.writer() as writer:
                writer.drop("word")
            assert corpus.latest().groups() == ("line",)
            assert corpus.latest().check() == []

    def test_whatever_is_put_moved_removed_and_failed_a_store_holds_what_a_dictionary_would(
        self, tmp_path: Path
    ) -> None:
        for seed in range(self.histories):
            with self.store(tmp_path / str(seed)) as corpus:
                expected = _make_history(corpus, Random(seed))
                snapshot = corpus.snapshot()
                assert {uri: row.document for uri, row in snapshot.sources().items()} == {
                    uri: entry.id if entry else "" for uri, entry in expected.items()
                }
                shelf = {entry.id: entry for entry in expected.values() if entry}
                assert {document.text for document in snapshot.documents(ALL)} == {
                    document.text for document in shelf.values()
                }
                for group in ("line", "word"):
                    ids = [node.id for node in snapshot.all_nodes(group, ALL)]
                    assert sorted(ids) == sorted(readable_ids(list(shelf.values()), group, ALL))
                assert snapshot.check() == [], seed

    def test_a_vector_is_never_made_twice(self, tmp_path: Path) -> None:
        with self.store(tmp_path, make_entries(6)) as corpus:
            for _ in range(2):
                with corpus.writer() as writer:
                    for uri in list(writer.sources()):
                        writer.remove(uri)
                    put_entry(writer, Entry("else.txt", "something\nelse"))
                    embed_missing(writer)
                with corpus.writer() as writer:
                    writer.remove("else.txt")
                    for entry in make_entries(6):
                        put_entry(writer, entry)
                    assert embed_missing(writer) == 0
            assert dict(corpus.snapshot().stats().vectors)[DENSE.name] > 0


def _ask_reader(reader: subprocess.Popen[str]) -> list[str]:
    assert reader.stdin is not None
    assert reader.stdout is not None
    reader.stdin.write("stone wall\n")
    reader.stdin.flush()
    return reader.stdout.readline().split()


def _make_history(corpus: Corpus, draw: Random) -> dict[str, Entry | None]:
    """Write a random history; return for each source the expected entry, None if it failed."""
    expected: dict[str, Entry | None] = {}
    with corpus.create().writer() as writer:
        define_groups(writer)
        for _ in range(draw.randrange(4, 16)):
            _make_change(writer, expected, draw)
        embed_missing(writer)
    return expected


def _make_change(writer: Writer, expected: dict[str, Entry | None], draw: Random) -> None:
    uri, action = draw.choice("abc"), draw.choice(["put", "put", "move", "remove", "fail", "publish"])
    if action == "put":
        text = draw.choice(["one stone", "two stones\nand a wall", "", "three"])
        expected[uri] = entry = Entry(uri, text, ("ann",) if text == "three" else ())
        put_entry(writer, entry)
    elif action == "publish":
        embed_missing(writer)
        writer.publish()
    elif uri in expected:
        row = writer.sources()[uri]
        if action == "move":
            target = draw.choice("abc")
            writer.move(uri, row.but(uri=target))
            expected[target] = expected.pop(uri)
        elif action == "remove":
            writer.remove(uri)
            del expected[uri]
        else:
            keeps = draw.random() < 0.5
            writer.fail(row.but(status="failed", document=row.document if keeps else ""))
            expected[uri] = expected[uri] if keeps else None


class PortabilityContract(Contract):
    def test_what_is_imported_answers_as_what_was_exported_and_is_the_same_file_again(self, tmp_path: Path) -> None:
        with self.store(tmp_path / "from", make_entries(9)) as corpus, self.store(tmp_path / "to") as target:
            fill_store(corpus, shelf := make_entries(18, 1))
            with self.store(tmp_path / "new", shelf) as new:  # in the other, BM25 still counts what was replaced
                meant = collect_answers(new.snapshot())
            export_store(corpus, tmp_path / "1.zip")
            import_store(tmp_path / "1.zip", target)
            assert collect_answers(target.snapshot()) == meant
            assert target.snapshot().check() == []
            export_store(target, tmp_path / "2.zip")
            assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()

    def test_how_far_sources_were_read_is_carried_as_far_as_their_documents_are(self, tmp_path: Path) -> None:
        with self.store(tmp_path / "from", make_entries(3)) as corpus, self.store(tmp_path / "to") as target:
            with corpus.writer() as writer:
                writer.remember("sql://notes/", {"": "7"})
                writer.remember("web:https://example.org/", {"https://example.org/a": "1"})
            snapshot = corpus.latest()
            with corpus.writer() as writer:
                put_entry(writer, Entry("sql://notes/8", "a zeppelin"))
                embed_missing(writer)
                writer.remember("sql://notes/", {"": "8"})
            export_store(corpus, tmp_path / "1.zip")
            import_store(tmp_path / "1.zip", target)
            with target.writer() as writer:
                assert sorted(writer.cursors()) == ["sql://notes/", "web:https://example.org/"]
            cursors = snapshot.open_store.rows(sql.CURSORS_AT, {"at": snapshot.generation})
            assert [tuple(row) for row in cursors] == [("web:https://example.org/", "https://example.org/a", "1")]

    def test_nothing_is_imported_over_what_is_there(self, tmp_path: Path) -> None:
        with self.store(tmp_path, make_entries(3)) as corpus:
            export_store(corpus, tmp_path / "1.zip")
            expect_error(StoreError, lambda: import_store(tmp_path / "1.zip", corpus))
            assert corpus.snapshot().generation == 1

"""A write becomes visible as a whole or not at all; a reader keeps its state."""

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
    answers,
    define,
    embed,
    entries,
    fill,
    found_by,
    put,
    refused,
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


class Publishing(Contract):
    """Tests of generations; `histories` random ones are compared with a dictionary."""

    histories: ClassVar[int] = 10

    def test_there_is_nothing_until_it_is_made_and_making_it_again_changes_nothing(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as corpus:
            assert not corpus.exists()
            assert corpus.fingerprint() is None
            for use in (corpus.snapshot, corpus.writer().__enter__):
                assert "Make one" in refused(NotAStore, use)
            for _ in range(2):
                assert corpus.create().snapshot().generation == 0
            fill(corpus, entries(3))
            assert corpus.create().snapshot().generation == 1

    def test_what_was_put_comes_back_as_it_was(self, tmp_path: Path) -> None:
        shelf = [*entries(4), Entry("fólder\n/👩‍🔬'\".txt", ODD, meta=(("kind", ODD), ("none", None), ("flag", True)))]
        with self.store(tmp_path, shelf) as corpus:
            snapshot = corpus.snapshot()
            assert {entry.id: entry.document for entry in shelf} == {one.id: one for one in snapshot.documents(ALL)}
            assert snapshot.sources() == {entry.uri: entry.source for entry in shelf}
            for group in ("line", "word"):
                for node in snapshot.all_nodes(group, ALL):
                    (given,) = [one for entry in shelf for one in entry.nodes() if one.id == node.id]
                    kept = ("text", "group", "document", "span", "uri", "parent", "number", "context")
                    assert [getattr(node, name) for name in kept] == [getattr(given, name) for name in kept]
                    assert set(given.meta) <= set(node.meta)
            assert snapshot.check() == []

    def test_a_reader_elsewhere_sees_whole_generations_while_they_are_written(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(6)) as corpus:
            command = [sys.executable, "-c", _READER, corpus.path]
            reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            with corpus.writer() as writer:
                for version in (1, 2, 3):
                    for entry in entries(6, version):
                        put(writer, entry)
                        assert _asked(reader) == [str(version), f"version{version - 1}", "True"]
                    embed(writer)
                    assert _asked(reader) == [str(version), f"version{version - 1}", "True"]
                    writer.publish()
                    assert _asked(reader) == [str(version + 1), f"version{version}", "True"]
            reader.communicate()

    def test_leaving_by_an_error_takes_back_what_was_not_published(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(6)) as corpus:
            before = answers(corpus.snapshot())
            ended: list[Writer] = []

            def interrupted() -> None:
                with corpus.writer() as writer:
                    ended.append(writer)
                    put(writer, Entry("new.txt", "zeppelin"))
                    writer.remove("1.txt")
                    embed(writer)
                    raise StoreError("stop")

            refused(StoreError, interrupted)
            assert answers(corpus.latest()) == before
            assert "has ended" in refused(StoreError, ended[0].publish)
            assert corpus.latest().check() == []

    def test_one_document_that_cannot_be_stored_leaves_nothing_and_stops_no_other(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(2)) as corpus:
            bad = Entry("bad.txt", "one zeppelin\ntwo")
            nodes = list(bad.nodes())

            def broken() -> Iterator[Node]:
                yield nodes[0]
                raise StoreError("no more pages")

            with corpus.writer() as writer:
                assert (
                    refused(StoreError, partial(writer.put_document, bad.document, broken(), bad.source))
                    == "no more pages"
                )
                refused(StoreError, partial(writer.put_document, bad.document.but(text="\ud800"), nodes, bad.source))
                refused(StoreError, partial(writer.remove, "nothing"))
                for wrong in ([nodes[0]] * 2, [nodes[0].but(group="page")], [nodes[0].but(document="other")]):
                    refused(StoreError, partial(writer.put_document, bad.document, wrong, bad.source))
                put(writer, Entry("good.txt", "a good zeppelin"))
                embed(writer)
            snapshot = corpus.snapshot()
            found = snapshot.hits(snapshot.search("line", "zeppelin", 9, ALL), ALL)
            assert [hit.node.uri for hit in found] == ["good.txt"]
            assert "bad.txt" not in snapshot.sources()
            assert snapshot.check() == []

    def test_nothing_to_do_is_no_generation(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(3)) as corpus:
            with corpus.writer() as writer:
                define(writer)
                writer.touch(writer.sources()["1.txt"].but(mtime_ns=5))
                assert embed(writer) == 0
            assert corpus.snapshot().generation == 1
            with corpus.writer() as writer:
                assert writer.sources()["1.txt"].mtime_ns == 5

    def test_how_far_a_source_was_read_is_published_with_what_was_read_there(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(3)) as corpus:
            ended: list[Writer] = []

            def interrupted() -> None:
                with corpus.writer() as writer:
                    ended.append(writer)
                    put(writer, Entry("sql://notes/1", "a zeppelin"))
                    writer.remember("sql://notes/", {"": "1"})
                    assert writer.cursors() == {"sql://notes/": {"": "1"}}
                    raise StoreError("stop")

            refused(StoreError, interrupted)
            with corpus.writer() as writer:
                assert writer.cursors() == {}
                put(writer, Entry("sql://notes/1", "a zeppelin"))
                embed(writer)
                writer.remember("sql://notes/", {"": "1", "page": "a"})
            with corpus.writer() as writer:
                writer.remember("sql://notes/", {"": "2", "page": ""})
            assert corpus.latest().generation == 2  # nothing that is searched has changed
            with corpus.writer() as writer:
                assert writer.cursors() == {"sql://notes/": {"": "2"}}
                known = writer.stamps(["sql://notes", "2.txt", "none"])
                assert sorted(known) == ["2.txt", "sql://notes/1"]
                assert known.items() <= writer.stamps().items()

    def test_a_group_with_an_embedder_is_not_published_without_vectors(self, tmp_path: Path) -> None:
        def write() -> None:
            with corpus.writer() as writer:
                put(writer, Entry("new.txt", "zeppelin"))

        with self.store(tmp_path, entries(3)) as corpus:
            assert "have no vector" in refused(StoreError, write)
            assert corpus.snapshot().generation == 1

    def test_a_pinned_reader_keeps_its_generation_while_others_are_published_and_swept(self, tmp_path: Path) -> None:
        shelf = entries()
        with self.store(tmp_path, shelf) as corpus, self.store(tmp_path / "twin", shelf) as twin:
            pinned, meant = corpus.snapshot(), answers(twin.snapshot())  # the one was asked nothing yet
            for version in range(1, 5):
                fill(corpus, entries(24 - version, version))
                assert corpus.latest().check() == []
            assert answers(pinned) == meant
            assert pinned.check() == []
            assert answers(corpus.latest()) != meant

    def test_another_manifest_is_refused_and_a_rebuild_is_seen_when_it_is_published(self, tmp_path: Path) -> None:
        other = Manifest("word", "Letters()", "by hand", parent="line")
        with self.store(tmp_path, entries(3)) as corpus:
            with corpus.writer() as writer:
                said = refused(ManifestMismatch, lambda: writer.define("word", other))
                assert "Letters()" in said
                assert "Words()" in said
                writer.redefine("word", other)
                assert len(list(corpus.latest().all_nodes("word", ALL))) > 0
            assert list(corpus.latest().all_nodes("word", ALL)) == []
            assert corpus.latest().manifest("word") == other
            with corpus.writer() as writer:
                writer.drop("word")
            assert corpus.latest().groups() == ("line",)
            assert corpus.latest().check() == []

    def test_whatever_is_put_moved_removed_and_failed_a_store_holds_what_a_dictionary_would(
        self, tmp_path: Path
    ) -> None:
        for seed in range(self.histories):
            with self.store(tmp_path / str(seed)) as corpus:
                held = _lived(corpus, Random(seed))
                snapshot = corpus.snapshot()
                assert {uri: row.document for uri, row in snapshot.sources().items()} == {
                    uri: entry.id if entry else "" for uri, entry in held.items()
                }
                shelf = {entry.id: entry for entry in held.values() if entry}
                assert {one.text for one in snapshot.documents(ALL)} == {one.text for one in shelf.values()}
                for group in ("line", "word"):
                    ids = [node.id for node in snapshot.all_nodes(group, ALL)]
                    assert sorted(ids) == sorted(found_by(list(shelf.values()), group, ALL))
                assert snapshot.check() == [], seed

    def test_a_vector_is_never_made_twice(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(6)) as corpus:
            for _ in range(2):
                with corpus.writer() as writer:
                    for uri in list(writer.sources()):
                        writer.remove(uri)
                    put(writer, Entry("else.txt", "something\nelse"))
                    embed(writer)
                with corpus.writer() as writer:
                    writer.remove("else.txt")
                    for entry in entries(6):
                        put(writer, entry)
                    assert embed(writer) == 0
            assert dict(corpus.snapshot().stats().vectors)[DENSE.name] > 0


def _asked(reader: subprocess.Popen[str]) -> list[str]:
    assert reader.stdin is not None
    assert reader.stdout is not None
    reader.stdin.write("stone wall\n")
    reader.stdin.flush()
    return reader.stdout.readline().split()


def _lived(corpus: Corpus, draw: Random) -> dict[str, Entry | None]:
    """What a store holds after a random history: for each source its entry, None where it failed."""
    held: dict[str, Entry | None] = {}
    with corpus.create().writer() as writer:
        define(writer)
        for _ in range(draw.randrange(4, 16)):
            _change(writer, held, draw)
        embed(writer)
    return held


def _change(writer: Writer, held: dict[str, Entry | None], draw: Random) -> None:
    uri, what = draw.choice("abc"), draw.choice(["put", "put", "move", "remove", "fail", "publish"])
    if what == "put":
        text = draw.choice(["one stone", "two stones\nand a wall", "", "three"])
        held[uri] = entry = Entry(uri, text, ("ann",) if text == "three" else ())
        put(writer, entry)
    elif what == "publish":
        embed(writer)
        writer.publish()
    elif uri in held:
        row = writer.sources()[uri]
        if what == "move":
            other = draw.choice("abc")
            writer.move(uri, row.but(uri=other))
            held[other] = held.pop(uri)
        elif what == "remove":
            writer.remove(uri)
            del held[uri]
        else:
            keeps = draw.random() < 0.5
            writer.fail(row.but(status="failed", document=row.document if keeps else ""))
            held[uri] = held[uri] if keeps else None


class Carrying(Contract):
    def test_what_is_imported_answers_as_what_was_exported_and_is_the_same_file_again(self, tmp_path: Path) -> None:
        with self.store(tmp_path / "from", entries(9)) as corpus, self.store(tmp_path / "to") as other:
            fill(corpus, shelf := entries(18, 1))
            with self.store(tmp_path / "new", shelf) as new:  # in the other, BM25 still counts what was replaced
                meant = answers(new.snapshot())
            export_store(corpus, tmp_path / "1.zip")
            import_store(tmp_path / "1.zip", other)
            assert answers(other.snapshot()) == meant
            assert other.snapshot().check() == []
            export_store(other, tmp_path / "2.zip")
            assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()

    def test_how_far_sources_were_read_is_carried_as_far_as_their_documents_are(self, tmp_path: Path) -> None:
        with self.store(tmp_path / "from", entries(3)) as corpus, self.store(tmp_path / "to") as other:
            with corpus.writer() as writer:
                writer.remember("sql://notes/", {"": "7"})
                writer.remember("web:https://example.org/", {"https://example.org/a": "1"})
            before = corpus.latest()
            with corpus.writer() as writer:
                put(writer, Entry("sql://notes/8", "a zeppelin"))
                embed(writer)
                writer.remember("sql://notes/", {"": "8"})
            export_store(corpus, tmp_path / "1.zip")
            import_store(tmp_path / "1.zip", other)
            with other.writer() as writer:
                assert sorted(writer.cursors()) == ["sql://notes/", "web:https://example.org/"]
            known = before.open_store.rows(sql.CURSORS_AT, {"at": before.generation})
            assert [tuple(row) for row in known] == [("web:https://example.org/", "https://example.org/a", "1")]

    def test_nothing_is_imported_over_what_is_there(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(3)) as corpus:
            export_store(corpus, tmp_path / "1.zip")
            refused(StoreError, lambda: import_store(tmp_path / "1.zip", corpus))
            assert corpus.snapshot().generation == 1

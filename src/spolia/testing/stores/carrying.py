"""A store as one file, and back."""

from __future__ import annotations

from pathlib import Path

from spolia.errors import StoreError
from spolia.stores.portable.exporting import export_store
from spolia.stores.portable.importing import import_store
from spolia.stores.tables import sql
from spolia.testing.stores.base import Contract, refused
from spolia.testing.stores.shelf import Entry, answers, embed, entries, fill, put


class Carrying(Contract):
    """Tests of export and import."""

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
            known = before.opened.rows(sql.CURSORS_AT, {"at": before.generation})
            assert [tuple(row) for row in known] == [("web:https://example.org/", "https://example.org/a", "1")]

    def test_nothing_is_imported_over_what_is_there(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(3)) as corpus:
            export_store(corpus, tmp_path / "1.zip")
            refused(StoreError, lambda: import_store(tmp_path / "1.zip", corpus))
            assert corpus.snapshot().generation == 1

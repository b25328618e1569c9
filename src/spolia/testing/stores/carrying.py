"""A store as one file, and back."""

from __future__ import annotations

from pathlib import Path

from spolia.errors import StoreError
from spolia.stores.portable.exporting import export_store
from spolia.stores.portable.importing import import_store
from spolia.testing.stores.base import Contract, refused
from spolia.testing.stores.shelf import answers, entries, fill


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

    def test_nothing_is_imported_over_what_is_there(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(3)) as corpus:
            export_store(corpus, tmp_path / "1.zip")
            refused(StoreError, lambda: import_store(tmp_path / "1.zip", corpus))
            assert corpus.snapshot().generation == 1

"""What every store keeps, for those in folders and in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import pytest

from spolia.testing.stores import StoreContract
from tests.stores.servers import Server


@pytest.mark.slow
class TestFolder(StoreContract):
    def address(self, place: Path) -> str:
        return str(place / "notes.spolia")


@pytest.mark.slow
class TestPostgres(StoreContract):
    server: ClassVar[Server]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def running(cls, server: Server) -> None:
        cls.server = server

    def address(self, place: Path) -> str:
        return f"{self.server.uri}&schema=notes_{crc32(str(place).encode()):08x}"


STORES = "spolia.stores."
FAULTS: list[tuple[str, Any, str]] = [
    ("access.reader_lists.Asker.may_read", lambda *_: True, "nothing_is_handed_out_to_who_may_not_read_it"),
    ("snapshot.records.Records._mask", lambda self, _: self._all(), "access_and_filters_let_be_found"),
    ("access.reader_lists.ReaderLists.audiences_of", lambda self, _: frozenset(self.lists), "words_are_found_by_bm25"),
    ("writer.Writer.relabel", lambda *_: None, "another_reader_list_holds"),
    ("writer.Writer._forget", lambda *_: None, "whatever_is_put_moved_removed_and_failed"),
    ("open_store.OpenStore.lease", lambda *_: None, "a_pinned_reader_keeps_its_generation"),
    ("backends.publication.Transaction.begin", lambda self: None, "leaving_by_an_error_takes_back"),
    ("vectors.segment_search.check_queries", lambda metric, vectors, _: -vectors, "vectors_are_found_as_by_comparing"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "instead", "name"), FAULTS, ids=[name for _, _, name in FAULTS])
def test_a_fault_would_be_seen(
    place: str, instead: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (judged,) = [getattr(TestFolder(), test) for test in dir(TestFolder) if test.startswith(f"test_{name}")]
    monkeypatch.setattr(STORES + place, instead)
    with pytest.raises(Exception):  # noqa: B017, PT011  a store with a fault may do anything but pass
        judged(tmp_path)

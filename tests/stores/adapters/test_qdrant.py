"""Qdrant in a folder, and the server's protocol against a double of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

import pytest

from spolia.errors import StoreBusy, StoreError, StoreUnavailable
from spolia.stores.adapters.qdrant import Qdrant, QdrantCollection
from spolia.testing.indexes import DIMENSION, NAME, IndexContract, ServerContract, make_clusters
from tests.stores.adapters.doubles import QdrantDouble

pytestmark = pytest.mark.slow


class TestEmbedded(IndexContract):
    exact, processes, many = True, False, 1_200

    def test_keys_come_from_more_than_one_page(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[override]
        monkeypatch.setattr(QdrantCollection, "most_rows", 500)
        super().test_keys_come_from_more_than_one_page(tmp_path)

    def settings(self, place: Path) -> Qdrant:
        return Qdrant()


class TestServer(ServerContract):
    exact = True
    server: ClassVar[QdrantDouble]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def running(cls) -> Iterator[None]:
        with QdrantDouble() as cls.server:
            yield

    def settings(self, place: Path) -> Qdrant:
        return Qdrant(self.server.url)

    def settings_at(self, url: str, timeout_s: float) -> Qdrant:
        return Qdrant(url, timeout_s=timeout_s)

    def outage(self) -> AbstractContextManager[None]:
        return self.server.outage()


def test_the_key_comes_from_the_environment_and_is_in_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with QdrantDouble() as server:
        server.key = "right"
        monkeypatch.setenv("MY_KEY", "wrong-key")
        database = Qdrant(server.url, api_key_env="MY_KEY")
        with pytest.raises(StoreError, match="401") as refused:
            database.open(tmp_path, NAME, DIMENSION, "dot")
        assert "wrong-key" not in str(refused.value)
        assert not refused.value.transient
        monkeypatch.setenv("MY_KEY", "right")
        database.open(tmp_path, NAME, DIMENSION, "dot").close()


def test_a_key_below_0_is_kept(tmp_path: Path) -> None:
    with QdrantDouble() as server:
        index = Qdrant(server.url).open(tmp_path, NAME, DIMENSION, "dot")
        index.add([-5, 5], make_clusters(2))
        assert sorted(index.keys()) == [-5, 5]
        index.remove([-5])
        assert list(index.keys()) == [5]


def test_an_overloaded_server_is_told_apart_from_a_wrong_request(tmp_path: Path) -> None:
    with QdrantDouble() as server:
        index = Qdrant(server.url).open(tmp_path, NAME, DIMENSION, "dot")
        server.failures = [503]
        with pytest.raises(StoreUnavailable, match="503"):
            index.add([1], make_clusters(1))
        server.collections.clear()
        with pytest.raises(StoreError, match="Not found: Collection") as refused:
            index.add([1], make_clusters(1))
        assert not refused.value.transient


def test_one_process_opens_a_folder_and_drops_it_when_it_is_closed(tmp_path: Path) -> None:
    first, second = (Qdrant().open(tmp_path, NAME, DIMENSION, "dot") for _ in range(2))
    first.add([1], make_clusters(1))
    first.close()
    with pytest.raises(StoreBusy, match="Close its indexes"):
        Qdrant().drop(tmp_path, NAME)
    assert list(second.keys()) == [1]
    second.close()
    Qdrant().drop(tmp_path, NAME)
    assert list(Qdrant().open(tmp_path, NAME, DIMENSION, "cosine").keys()) == []

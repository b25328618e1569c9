"""OpenSearch, its protocol against a double of the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

import pytest

from spolia.errors import StoreError, StoreUnavailable
from spolia.stores.adapters.opensearch import OpenSearch
from spolia.testing.indexes import DIMENSION, NAME, ServerContract, make_clusters
from tests.stores.adapters.doubles import OpenSearchDouble


@pytest.mark.slow
class TestServer(ServerContract):
    exact = True
    server: ClassVar[OpenSearchDouble]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def running(cls) -> Iterator[None]:
        with OpenSearchDouble() as cls.server:
            yield

    def settings(self, place: Path) -> OpenSearch:
        return OpenSearch(self.server.url)

    def settings_at(self, url: str, timeout_s: float) -> OpenSearch:
        return OpenSearch(url, timeout_s=timeout_s)

    def outage(self) -> AbstractContextManager[None]:
        return self.server.outage()


@pytest.mark.slow
def test_user_and_password_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenSearchDouble() as server:
        server.login = ("ann", "s3cret")
        database = OpenSearch(server.url)
        with pytest.raises(StoreError, match="401") as refused:
            database.open(tmp_path, NAME, DIMENSION, "dot")
        assert not refused.value.transient
        monkeypatch.setenv("OPENSEARCH_USER", "ann")
        monkeypatch.setenv("OPENSEARCH_PASSWORD", "s3cret")
        database.open(tmp_path, NAME, DIMENSION, "dot").close()


@pytest.mark.slow
def test_a_bulk_that_was_taken_in_part_is_an_error_and_can_be_repeated(tmp_path: Path) -> None:
    with OpenSearchDouble() as server:
        index = OpenSearch(server.url).open(tmp_path, NAME, DIMENSION, "dot")
        server.refused = [200, 429]
        with pytest.raises(StoreUnavailable, match=r"answered 429.*queue full"):
            index.add([1, 2, 3], make_clusters(3))
        assert sorted(index.keys()) == [1, 3]
        index.add([1, 2, 3], make_clusters(3))
        assert sorted(index.keys()) == [1, 2, 3]


@pytest.mark.slow
def test_a_large_batch_is_cut_to_what_a_request_may_hold(tmp_path: Path) -> None:
    with OpenSearchDouble() as server:
        index = OpenSearch(server.url).open(tmp_path, NAME, 4000, "euclidean")
        index.add(range(250), make_clusters(250, dimension=4000))
        assert sum(request.endswith("/_bulk") for request in server.asked) == 3
        assert sorted(index.keys()) == list(range(250))

"""Chroma in a folder, and on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

import pytest

from spolia.stores.adapters.chroma import Chroma
from spolia.testing.indexes import DIMENSION, NAME, IndexContract, ServerContract, clustered
from tests.stores.adapters.serving import Server, script


class TestEmbedded(IndexContract):
    def settings(self, place: Path) -> Chroma:
        return Chroma()


@pytest.mark.slow
class TestServer(ServerContract):
    server: ClassVar[Server]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def running(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        command = [script("chroma"), "run", "--path", "data", "--host", "127.0.0.1", "--port", "{port}"]
        with Server(command, tmp_path_factory.mktemp("chroma")) as cls.server:
            yield

    def settings(self, place: Path) -> Chroma:
        return Chroma(self.server.url)

    def at(self, url: str, timeout_s: float) -> Chroma:
        return Chroma(url, timeout_s=timeout_s)

    def outage(self) -> AbstractContextManager[None]:
        return self.server.outage()


def test_what_is_added_again_is_still_found(tmp_path: Path) -> None:
    vectors = clustered(1000)
    index = Chroma().open(tmp_path, NAME, DIMENSION, "euclidean")
    for _ in range(3):
        index.add(range(1000), vectors)
    assert [key for key, near in enumerate(index.search(vectors, 1)) if near[0][0] != key] == []
    index.close()

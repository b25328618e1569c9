"""Chroma in a folder, and on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from spolia.stores.adapters.chroma import Chroma
from spolia.stores.indexes import VectorIndex
from spolia.stores.vectors.dense import Vectors
from spolia.testing.indexes import NAME, IndexContract, ServerContract
from tests.stores.adapters.server_processes import Server, script

pytestmark = pytest.mark.slow


class TestEmbedded(IndexContract):
    def settings(self, place: Path) -> Chroma:
        return Chroma()


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

    def settings_at(self, url: str, timeout_s: float) -> Chroma:
        return Chroma(url, timeout_s=timeout_s)

    def outage(self) -> AbstractContextManager[None]:
        return self.server.outage()


def test_what_is_added_again_is_still_found(tmp_path: Path) -> None:
    vectors = np.random.default_rng(5).normal(size=(1500, 32)).astype(np.float32)
    index = Chroma(connectivity=8).open(tmp_path, NAME, 32, "euclidean")
    index.add(range(1500), vectors)
    once = keys_found(index, vectors)
    for _ in range(2):
        index.add(range(1500), vectors)
    assert keys_found(index, vectors) == once
    index.close()


def keys_found(index: VectorIndex, vectors: Vectors) -> set[int]:
    """Keys of vectors that are their own nearest."""
    return {key for key, near in enumerate(index.search(vectors, 1)) if near[0][0] == key}

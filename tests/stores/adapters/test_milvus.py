"""Milvus Lite in a folder, and served by another process: the protocol of Milvus, not its server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

import pytest

from spolia.stores.adapters.milvus import Milvus
from spolia.testing.indexes import IndexContract, ServerContract
from tests.stores.adapters.server_processes import Server

pytestmark = pytest.mark.slow
SERVE = "from milvus_lite.adapter.grpc.server import run_server; run_server('data.db', '127.0.0.1', {port})"


class TestGraph(IndexContract):
    processes = False

    def settings(self, place: Path) -> Milvus:
        return Milvus()


class Flat(IndexContract):
    exact = True

    def settings(self, place: Path) -> Milvus:
        return Milvus(index="FLAT")


def test_without_a_graph_it_is_exact(tmp_path: Path) -> None:
    Flat().test_finds_what_exact_search_finds(tmp_path)


class TestServer(ServerContract):
    server: ClassVar[Server]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def running(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        with Server([sys.executable, "-c", SERVE], tmp_path_factory.mktemp("milvus")) as cls.server:
            yield

    def settings(self, place: Path) -> Milvus:
        return Milvus(self.server.url)

    def settings_at(self, url: str, timeout_s: float) -> Milvus:
        return Milvus(url, timeout_s=timeout_s)

    def outage(self) -> AbstractContextManager[None]:
        return self.server.outage()

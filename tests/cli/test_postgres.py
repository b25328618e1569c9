"""The command line over a store in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Spolia

BACKENDS = ("postgres",)


@pytest.mark.slow
def test_a_store_in_a_database_is_made_searched_and_looked_at(tmp_path: Path, address: str, spolia: Spolia) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "stones.txt").write_text("Spolia are stones that builders take from older buildings.")
    assert spolia("index", tmp_path / "docs", "--store", address, "--no-vectors").code == 0
    found = spolia("search", "older buildings", "--store", address, "--flow", "bm25", "--json").json
    assert found["hits"][0]["uri"] == "stones.txt"
    assert "stones.txt" in spolia("docs", "list", "--store", address).out
    assert "chunk" in spolia("groups", "list", "--store", address).out
    assert spolia("doctor", "--store", address).code == 0
    assert spolia("trace", "--store", address).code == 0

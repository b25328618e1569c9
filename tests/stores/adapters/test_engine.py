"""What the settings of databases refuse, and what they give away: nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spolia.core.codec import encode
from spolia.errors import MissingExtra, StoreError
from spolia.stores.adapters.chroma import Chroma
from spolia.stores.adapters.engine import Engine, Served, stored_name
from spolia.stores.adapters.lancedb import LanceDB
from spolia.stores.adapters.milvus import Milvus
from spolia.stores.adapters.opensearch import OpenSearch
from spolia.stores.adapters.qdrant import Qdrant
from tests.cases import check_each

SERVED: tuple[type[Served[Any]], ...] = (Chroma, Milvus, OpenSearch, Qdrant)
ENGINES: tuple[type[Engine[Any]], ...] = (*SERVED, LanceDB)


@pytest.mark.parametrize("uri", ["s3://ann:pass@bucket/a", "https://db?api_key=pass"])
def test_a_place_of_files_holds_no_secret(uri: str) -> None:
    with pytest.raises(StoreError, match="holds more than an address") as refused:
        LanceDB(uri=uri)
    assert "pass" not in str(refused.value).replace("a password", "")
    assert LanceDB(uri="s3://bucket/a").uri == "s3://bucket/a"


@check_each("engine", SERVED)
@check_each("url", ["http://ann:pass@db:1", "http://db?token=pass", "db:6333", "ftp://db", "http://db:0"])
def test_an_address_is_an_address_and_nothing_more(engine: type[Served[Any]], url: str) -> None:
    with pytest.raises(StoreError, match=r"^url ") as refused:
        engine(url)
    assert "pass" not in str(refused.value).replace("a password", "")


@pytest.mark.parametrize("engine", ENGINES)
def test_numbers_are_positive(engine: type[Engine[Any]]) -> None:
    with pytest.raises(StoreError, match=r"connectivity=0\. Write 0 < number"):
        engine(connectivity=0)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_package_that_is_not_installed_is_named(
    engine: type[Engine[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (engine.module, *engine.companion_modules):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'spolia\[{engine.extra}\]'"):
        engine().open(tmp_path, "notes", 8, "cosine")


def test_a_secret_that_an_error_quotes_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QDRANT_API_KEY", "s3cret")
    with pytest.raises(StoreError, match="no such key: …") as refused, Qdrant("http://db").translate_errors("search"):
        raise ValueError("no such key: s3cret")
    assert "s3cret" not in str(refused.value)


def test_settings_hold_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSEARCH_PASSWORD", "s3cret")
    assert "s3cret" not in repr(OpenSearch()) + repr(encode(OpenSearch()))


@pytest.mark.slow
def test_loading_an_adapter_loads_no_package_of_a_database() -> None:
    modules = ", ".join(engine.__module__ for engine in ENGINES)
    heavy = [engine.module for engine in ENGINES] + ["numpy", "httpx", "grpc"]
    code = f"import sys, {modules}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_collection_is_recognised_by_its_name() -> None:
    assert stored_name("notes_chunk_minilm") == "spolia_notes_chunk_minilm_v1"

"""What all tests share: where real data lies, and a cache of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parents[1].parent / "shared" / "datasets"


@pytest.fixture(scope="session")
def shared_datasets() -> Path:
    """The folder of real data sets: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout."""
    folder = Path(os.environ.get("SPOLIA_DATASETS") or BESIDE)
    if not folder.is_dir():
        pytest.skip(f"needs the data sets: no folder {folder}; set SPOLIA_DATASETS to where they are")
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache directory."""
    monkeypatch.setenv("SPOLIA_CACHE", str(tmp_path_factory.getbasetemp() / "spolia-cache"))

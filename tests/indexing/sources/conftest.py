"""Stores and sites for tests of sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spolia.stores.corpus import Corpus
from tests.indexing.sources.site import Site, serve_site


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "notes.spolia"))


@pytest.fixture
def site() -> Iterator[Site]:
    with serve_site() as new_site:
        yield new_site

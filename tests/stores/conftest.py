"""Stores for the tests of stores."""

from __future__ import annotations

import pytest

from spolia.stores.corpus import Corpus
from tests.stores.scenario import FIRST, sync


@pytest.fixture
def corpus(address: str) -> Corpus:
    """A store with the first state of the scenario."""
    new_corpus = Corpus(address).create()
    sync(new_corpus, FIRST)
    return new_corpus

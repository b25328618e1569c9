"""Former names of the parts for the tests of users."""

from typing import Any

import numpy as np
import pytest

from spolia.stores.adapters.qdrant import Qdrant
from spolia.testing import HashingEmbedder
from spolia.testing.indexes import ServerContract


class Former(ServerContract):
    def at(self, url: str, timeout_s: float) -> Qdrant:
        return Qdrant(url, timeout_s=timeout_s)


def test_a_contract_may_have_the_settings_of_a_server_by_the_former_name() -> None:
    with pytest.warns(DeprecationWarning, match=r"Former\.at is settings_at now"):
        assert Former().settings_at("http://127.0.0.1:1", 2.0) == Qdrant("http://127.0.0.1:1", timeout_s=2.0)


def test_an_embedder_hashes_by_the_former_name() -> None:
    embedder: Any = HashingEmbedder()
    with pytest.warns(DeprecationWarning, match="hash_texts now"):
        vectors = embedder.hashed(["tides"])
    assert np.array_equal(vectors, embedder.hash_texts(["tides"]))
